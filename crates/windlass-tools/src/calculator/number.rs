//! Numbers of the calculator: exact fractions while they fit into 128 bits, floating point after that.

use std::fmt;

/// An exact or a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// Numerator and positive denominator without a common divisor.
    Exact(i128, i128),
    /// A number that does not fit or is irrational.
    Float(f64),
}

impl Number {
    pub(super) fn whole(value: i128) -> Self {
        Self::Exact(value, 1)
    }

    /// A fraction in its lowest terms, if the denominator is not zero and everything fits.
    pub(super) fn fraction(over: i128, under: i128) -> Option<Self> {
        let divisor = gcd(over.unsigned_abs(), under.unsigned_abs());
        let divisor = i128::try_from(divisor)
            .ok()
            .filter(|divisor| *divisor > 0)?;
        let (over, under) = (over / divisor, under / divisor);
        match under {
            0 => None,
            1.. => Some(Self::Exact(over, under)),
            _ => Some(Self::Exact(over.checked_neg()?, under.checked_neg()?)),
        }
    }

    pub(super) fn float(self) -> f64 {
        match self {
            Self::Exact(over, under) => over as f64 / under as f64,
            Self::Float(value) => value,
        }
    }

    pub(super) fn is_zero(self) -> bool {
        self.float() == 0.0
    }

    fn both(
        self,
        other: Self,
        exact: impl FnOnce(i128, i128, i128, i128) -> Option<Self>,
        float: impl FnOnce(f64, f64) -> f64,
    ) -> Self {
        let result = match (self, other) {
            (Self::Exact(a, b), Self::Exact(c, d)) => exact(a, b, c, d),
            _ => None,
        };
        result.unwrap_or_else(|| Self::Float(float(self.float(), other.float())))
    }

    pub(super) fn add(self, other: Self) -> Self {
        self.both(
            other,
            |a, b, c, d| {
                Self::fraction(
                    a.checked_mul(d)?.checked_add(c.checked_mul(b)?)?,
                    b.checked_mul(d)?,
                )
            },
            |a, b| a + b,
        )
    }

    pub(super) fn neg(self) -> Self {
        match self {
            Self::Exact(over, under) => over
                .checked_neg()
                .map_or(Self::Float(-(over as f64)), |over| Self::Exact(over, under)),
            Self::Float(value) => Self::Float(-value),
        }
    }

    pub(super) fn mul(self, other: Self) -> Self {
        self.both(
            other,
            |a, b, c, d| Self::fraction(a.checked_mul(c)?, b.checked_mul(d)?),
            |a, b| a * b,
        )
    }

    pub(super) fn div(self, other: Self) -> Result<Self, String> {
        if other.is_zero() {
            return Err("division by zero".into());
        }
        Ok(self.both(
            other,
            |a, b, c, d| Self::fraction(a.checked_mul(d)?, b.checked_mul(c)?),
            |a, b| a / b,
        ))
    }

    /// The remainder, with the sign of the dividend.
    pub(super) fn rem(self, other: Self) -> Result<Self, String> {
        if other.is_zero() {
            return Err("remainder of a division by zero".into());
        }
        let exact = |a: i128, b: i128, c: i128, d: i128| {
            let (left, right) = (a.checked_mul(d)?, c.checked_mul(b)?);
            Self::fraction(left.checked_rem(right)?, b.checked_mul(d)?)
        };
        Ok(self.both(other, exact, |a, b| a % b))
    }

    pub(super) fn pow(self, exponent: Self) -> Result<Self, String> {
        if let (Self::Exact(over, under), Self::Exact(times, 1)) = (self, exponent)
            && let Ok(count) = u32::try_from(times.unsigned_abs())
            && let (Some(over), Some(under)) = (over.checked_pow(count), under.checked_pow(count))
        {
            let (over, under) = if times < 0 {
                (under, over)
            } else {
                (over, under)
            };
            if under == 0 {
                return Err("zero to a negative power".into());
            }
            if let Some(exact) = Self::fraction(over, under) {
                return Ok(exact);
            }
        }
        finite(self.float().powf(exponent.float()))
    }

    pub(super) fn sqrt(self) -> Result<Self, String> {
        if self.float() < 0.0 {
            return Err("the square root of a negative number".into());
        }
        if let Self::Exact(over, under) = self
            && let (over_root, under_root) = (over.isqrt(), under.isqrt())
            && over_root * over_root == over
            && under_root * under_root == under
        {
            return Ok(Self::Exact(over_root, under_root));
        }
        finite(self.float().sqrt())
    }

    pub(super) fn abs(self) -> Self {
        if self.float() < 0.0 { self.neg() } else { self }
    }

    pub(super) fn floor(self) -> Self {
        match self {
            Self::Exact(over, under) => Self::whole(over.div_euclid(under)),
            Self::Float(value) => Self::Float(value.floor()),
        }
    }

    /// Rounds to the nearest whole number, halves away from zero.
    pub(super) fn round(self) -> Self {
        let half = Self::Exact(1, 2);
        if self.float() < 0.0 {
            self.neg().add(half).floor().neg()
        } else {
            self.add(half).floor()
        }
    }

    pub(super) fn less(self, other: Self) -> bool {
        if let (Self::Exact(a, b), Self::Exact(c, d)) = (self, other)
            && let (Some(left), Some(right)) = (a.checked_mul(d), c.checked_mul(b))
        {
            return left < right;
        }
        self.float() < other.float()
    }
}

/// A floating-point result, or an error if it is not finite.
pub(super) fn finite(value: f64) -> Result<Number, String> {
    if value.is_finite() {
        Ok(Number::Float(value))
    } else {
        Err("the result is not a finite number".into())
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exact(over, 1) => write!(f, "{over}"),
            Self::Exact(over, under) => match decimal(over, under) {
                Some(text) => f.write_str(&text),
                None => write!(f, "{} (exactly {over}/{under})", self.float()),
            },
            // Outside this range, plain digits would look more precise than they are.
            Self::Float(value) if value != 0.0 && !(1e-7..1e17).contains(&value.abs()) => {
                write!(f, "{value:e}")
            }
            Self::Float(value) => write!(f, "{value}"),
        }
    }
}

/// The fraction as a decimal, if it has a finite one.
fn decimal(over: i128, under: i128) -> Option<String> {
    let mut digits = 0_usize;
    let mut scale = 1_i128;
    while scale % under != 0 {
        scale = scale.checked_mul(10)?;
        digits += 1;
    }
    let scaled = over.checked_mul(scale / under)?;
    let text = format!("{:0width$}", scaled.unsigned_abs(), width = digits + 1);
    let (whole, rest) = text.split_at(text.len() - digits);
    Some(format!("{}{whole}.{rest}", if over < 0 { "-" } else { "" }))
}
