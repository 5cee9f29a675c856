//! Parses and evaluates an expression in one pass, with limits on its length and depth.

use super::number::{Number, finite};

const MAX_LENGTH: usize = 1_000;
const MAX_DEPTH: usize = 50;

/// The value of an expression, or an error with its position.
pub(super) fn evaluate(text: &str) -> Result<Number, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!(
            "the expression has more than {MAX_LENGTH} characters"
        ));
    }
    let mut parser = ExpressionParser {
        text,
        at: 0,
        depth: 0,
    };
    let value = parser.sum()?;
    match parser.peek() {
        None if value.float().is_finite() => Ok(value),
        None => Err("the result is not a finite number".into()),
        Some(found) => Err(parser.unexpected(found)),
    }
}

struct ExpressionParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> ExpressionParser<'a> {
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, word: &str) -> bool {
        self.peek();
        let found = self.text[self.at..].starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn unexpected(&self, found: char) -> String {
        format!(
            "unexpected `{found}` at position {}",
            self.text[..self.at].chars().count() + 1
        )
    }

    fn sum(&mut self) -> Result<Number, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!(
                "the expression is nested more than {MAX_DEPTH} deep"
            ));
        }
        let mut value = self.product()?;
        loop {
            if self.take("+") {
                value = value.add(self.product()?);
            } else if self.take("-") {
                value = value.add(self.product()?.neg());
            } else {
                self.depth -= 1;
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<Number, String> {
        let mut value = self.signed()?;
        loop {
            if self.take("*") {
                value = value.mul(self.signed()?);
            } else if self.take("/") {
                value = value.div(self.signed()?)?;
            } else if self.take("%") {
                value = value.rem(self.signed()?)?;
            } else {
                return Ok(value);
            }
        }
    }

    /// A sign binds weaker than a power: `-2^2` is `-4`.
    fn signed(&mut self) -> Result<Number, String> {
        let mut negative = false;
        loop {
            if self.take("-") {
                negative = !negative;
            } else if !self.take("+") {
                break;
            }
        }
        let value = self.power()?;
        Ok(if negative { value.neg() } else { value })
    }

    /// Powers are right-associative: `2^3^2` is `2^9`.
    fn power(&mut self) -> Result<Number, String> {
        let base = self.atom()?;
        if self.take("**") || self.take("^") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(format!(
                    "the expression is nested more than {MAX_DEPTH} deep"
                ));
            }
            let exponent = self.signed()?;
            self.depth -= 1;
            return base.pow(exponent);
        }
        Ok(base)
    }

    fn atom(&mut self) -> Result<Number, String> {
        match self.peek() {
            None => Err("the expression ends too early".into()),
            Some('(') => {
                self.at += 1;
                let value = self.sum()?;
                if self.take(")") {
                    Ok(value)
                } else {
                    Err("a `)` is missing".into())
                }
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.named(),
            Some(c) => Err(self.unexpected(c)),
        }
    }

    /// The longest run of characters that `fits`, without underscores.
    fn run(&mut self, fits: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !fits(c) && c != '_').unwrap_or(rest.len());
        self.at += end;
        rest[..end].replace('_', "")
    }

    fn number(&mut self) -> Result<Number, String> {
        for (prefix, radix) in [("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2)] {
            if self.take(prefix) {
                let digits = self.run(|c| c.is_ascii_alphanumeric());
                return i128::from_str_radix(&digits, radix)
                    .map(Number::whole)
                    .map_err(|_| format!("`{prefix}{digits}` is not a number"));
            }
        }
        let whole = self.run(|c| c.is_ascii_digit());
        let mut rest = String::new();
        if self.text[self.at..].starts_with('.') {
            self.at += 1;
            rest = self.run(|c| c.is_ascii_digit());
        }
        let written = format!("{whole}.{rest}");
        if whole.is_empty() && rest.is_empty() {
            return Err("a `.` without digits".into());
        }
        let exact = || {
            let scale = 10_i128.checked_pow(u32::try_from(rest.len()).ok()?)?;
            Number::fraction(format!("{whole}{rest}").parse().ok()?, scale)
        };
        let value = match exact() {
            Some(value) => value,
            None => finite(
                written
                    .parse()
                    .map_err(|_| format!("`{written}` is not a number"))?,
            )?,
        };
        self.exponent(value)
    }

    /// An exponent as in `1.5e3`. An `e` without digits after it is not part of the number.
    fn exponent(&mut self, value: Number) -> Result<Number, String> {
        let rest = &self.text[self.at..];
        let Some(after) = rest.strip_prefix(['e', 'E']) else {
            return Ok(value);
        };
        let digits = after.trim_start_matches(['+', '-']);
        if after.len() - digits.len() > 1 || !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(value);
        }
        self.at += 1;
        let negative = self.take("-");
        self.take("+");
        let digits = self.run(|c| c.is_ascii_digit());
        let power: i128 = digits
            .parse::<u16>()
            .map_err(|_| format!("the exponent {digits} is too large"))?
            .into();
        Ok(value.mul(Number::whole(10).pow(Number::whole(if negative {
            -power
        } else {
            power
        }))?))
    }

    fn named(&mut self) -> Result<Number, String> {
        let name = self.run(|c| c.is_ascii_alphanumeric()).to_ascii_lowercase();
        if self.peek() != Some('(') {
            return match name.as_str() {
                "pi" => Ok(Number::Float(std::f64::consts::PI)),
                "e" => Ok(Number::Float(std::f64::consts::E)),
                _ => Err(format!(
                    "`{name}` is not known; see the description for the functions there are"
                )),
            };
        }
        self.at += 1;
        let mut values = vec![self.sum()?];
        while self.take(",") {
            values.push(self.sum()?);
        }
        if !self.take(")") {
            return Err(format!("a `)` is missing after the arguments of {name}"));
        }
        call(&name, &values)
    }
}

fn call(name: &str, values: &[Number]) -> Result<Number, String> {
    let pick = |better: fn(Number, Number) -> bool| {
        values
            .iter()
            .copied()
            .reduce(|best, next| if better(next, best) { next } else { best })
            .ok_or_else(|| "no value".to_owned())
    };
    match (name, values) {
        ("min", _) => pick(|a, b| a.less(b)),
        ("max", _) => pick(|a, b| b.less(a)),
        ("sqrt", [x]) => x.sqrt(),
        ("abs", [x]) => Ok(x.abs()),
        ("floor", [x]) => Ok(x.floor()),
        ("ceil", [x]) => Ok(x.neg().floor().neg()),
        ("round", [x]) => Ok(x.round()),
        ("round", [x, digits]) => {
            let scale = Number::whole(10).pow(*digits)?;
            x.mul(scale).round().div(scale)
        }
        ("pow", [x, y]) => x.pow(*y),
        ("ln", [x]) => finite(x.float().ln()),
        ("log" | "log10", [x]) => finite(x.float().log10()),
        ("log2", [x]) => finite(x.float().log2()),
        ("exp", [x]) => finite(x.float().exp()),
        ("sin", [x]) => finite(x.float().sin()),
        ("cos", [x]) => finite(x.float().cos()),
        ("tan", [x]) => finite(x.float().tan()),
        (
            "sqrt" | "abs" | "floor" | "ceil" | "round" | "pow" | "ln" | "log" | "log10" | "log2"
            | "exp" | "sin" | "cos" | "tan",
            _,
        ) => Err(format!("{name} does not take {} arguments", values.len())),
        _ => Err(format!("`{name}` is not a function here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(
            evaluate(text).map_or_else(|err| format!("error: {err}"), |value| value.to_string()),
            expect,
            "{text}"
        );
    }

    #[test]
    fn arithmetic_is_exact_while_it_fits() {
        check("1 + 2 * 3", "7");
        check("(1 + 2) * 3", "9");
        check("0.1 + 0.2", "0.3");
        check("1/3 + 1/6", "0.5");
        check("10 / 4", "2.5");
        check("1/3", "0.3333333333333333 (exactly 1/3)");
        check("7 % 3", "1");
        check("-7 % 3", "-1");
        check("5.5 % 2", "1.5");
        check("2^100", "1267650600228229401496703205376");
        check("2^-2", "0.25");
        check("2^0.5", "1.4142135623730951");
        check("2^200", "1.6069380442589903e60");
    }

    #[test]
    fn signs_powers_and_numbers_read_as_usual() {
        check("-2^2", "-4");
        check("2^3^2", "512");
        check("2 ** 3", "8");
        check("--3", "3");
        check("0xff + 0b101", "260");
        check("1_000_000 * 2", "2000000");
        check("1.5e3", "1500");
        check("2e-2", "0.02");
        check(".5 + 1.", "1.5");
        check("-0.05", "-0.05");
    }

    #[test]
    fn functions_take_their_arguments() {
        check("sqrt(16) + sqrt(9/4)", "5.5");
        check("min(3, 1, 2) + max(3, 1, 2)", "4");
        check("round(2.5) + round(-2.5)", "0");
        check("round(3.14159, 2)", "3.14");
        check("floor(-1.5) + ceil(1.2) + abs(-3)", "3");
        check("ln(e)", "1");
        check("cos(0) + log2(8)", "4");
        check("sqrt(1, 2)", "error: sqrt does not take 2 arguments");
    }

    #[test]
    fn errors_name_the_problem() {
        check("", "error: the expression ends too early");
        check("1 +", "error: the expression ends too early");
        check("(1", "error: a `)` is missing");
        check("1 2", "error: unexpected `2` at position 3");
        check("1 / 0", "error: division by zero");
        check("0^-1", "error: zero to a negative power");
        check("sqrt(-1)", "error: the square root of a negative number");
        check("foo(1)", "error: `foo` is not a function here");
        check(
            "x + 1",
            "error: `x` is not known; see the description for the functions there are",
        );
        check("2^99999", "error: the result is not a finite number");
        check("ln(0)", "error: the result is not a finite number");
        check(
            &"(".repeat(200),
            "error: the expression is nested more than 50 deep",
        );
        check(
            &"2^".repeat(200),
            "error: the expression is nested more than 50 deep",
        );
        check(
            &"1".repeat(1001),
            "error: the expression has more than 1000 characters",
        );
        check("0xzz", "error: `0xzz` is not a number");
    }

    proptest! {
        #[test]
        fn any_text_ends_without_panic(text in "[-0-9a-fx.+*/%^(), ]{0,60}|\\PC{0,40}") {
            let _ = evaluate(&text).map(|value| value.to_string());
        }
    }
}
