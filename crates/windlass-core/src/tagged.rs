//! Enums that stand in JSON as one object with their name in it, `{"kind":"noted","text":"x"}`, read and written without
//! a second copy of the object. serde's own way of reading them builds a tree of the whole object first, and a log has a
//! hundred thousand of them. Such an enum derives serde with `remote = "Self"`, and its two traits call this file.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{EnumAccessDeserializer, MapAccessDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, IntoDeserializer, MapAccess, VariantAccess,
    Visitor,
};
use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeStruct, SerializeStructVariant, Serializer,
};
use serde_json::Value;

/// An enum that is an object with its name in it. The two functions are what serde derived for the enum alone.
pub(crate) trait Tagged: Sized {
    /// The field that holds the name.
    const TAG: &'static str;
    fn read_variant<'de, D: Deserializer<'de>>(de: D) -> Result<Self, D::Error>;
    fn write_variant<S: Serializer>(&self, ser: S) -> Result<S::Ok, S::Error>;
}

/// Reads an object that holds such an enum and nothing else.
pub(crate) fn read<'de, T: Tagged, D: Deserializer<'de>>(de: D) -> Result<T, D::Error> {
    de.deserialize_map(Object(PhantomData))
}

/// Reads the variant of that name from the fields that are left of an object.
pub(crate) fn read_named<'de, T: Tagged, M: MapAccess<'de>>(name: Cow<'de, str>, rest: M) -> Result<T, M::Error> {
    T::read_variant(EnumAccessDeserializer::new(Named { name, rest }))
}

/// Writes such an enum.
pub(crate) fn write<T: Tagged, S: Serializer>(value: &T, ser: S) -> Result<S::Ok, S::Error> {
    value.write_variant(Naming { inner: ser, tag: T::TAG, name: "" })
}

/// Text that is borrowed where it stands in the input as it is.
pub(crate) struct Word;

impl<'de> DeserializeSeed<'de> for Word {
    type Value = Cow<'de, str>;
    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
        de.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Word {
    type Value = Cow<'de, str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text))
    }
}

/// Fields that came before the name. Everything we write has the name first; what others send may not.
pub(crate) type Early<'de> = Vec<(Cow<'de, str>, Value)>;

/// The fields of an object that are left: first those that came before the name, then the others as they come.
pub(crate) struct Rest<'de, M, O> {
    early: std::vec::IntoIter<(Cow<'de, str>, Value)>,
    held: Option<Value>,
    map: M,
    /// Takes a field that is not the enum's, and says so.
    other: O,
}

impl<'de, M, O> Rest<'de, M, O> {
    pub(crate) fn new(early: Early<'de>, map: M, other: O) -> Self {
        Self { early: early.into_iter(), held: None, map, other }
    }
}

impl<'de, M, O> MapAccess<'de> for Rest<'de, M, O>
where
    M: MapAccess<'de>,
    O: FnMut(&str, &mut M) -> Result<bool, M::Error>,
{
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        if let Some((key, value)) = self.early.next() {
            self.held = Some(value);
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        while let Some(key) = self.map.next_key_seed(Word)? {
            if !(self.other)(&key, &mut self.map)? {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        match self.held.take() {
            Some(value) => seed.deserialize(value).map_err(M::Error::custom),
            None => self.map.next_value_seed(seed),
        }
    }
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Tagged> Visitor<'de> for Object<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `{}`", T::TAG)
    }
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<T, M::Error> {
        let mut early = Early::new();
        while let Some(key) = map.next_key_seed(Word)? {
            if key == T::TAG {
                let name = map.next_value_seed(Word)?;
                return read_named(name, Rest::new(early, map, |_: &str, _: &mut M| Ok(false)));
            }
            early.push((key, map.next_value()?));
        }
        Err(M::Error::missing_field(T::TAG))
    }
}

struct Named<'de, M> {
    name: Cow<'de, str>,
    rest: M,
}

impl<'de, M: MapAccess<'de>> EnumAccess<'de> for Named<'de, M> {
    type Error = M::Error;
    type Variant = Fields<M>;
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Fields<M>), M::Error> {
        Ok((seed.deserialize(self.name.into_deserializer())?, Fields(self.rest)))
    }
}

struct Fields<M>(M);

impl<'de, M: MapAccess<'de>> VariantAccess<'de> for Fields<M> {
    type Error = M::Error;
    fn unit_variant(mut self) -> Result<(), M::Error> {
        while self.0.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, M::Error> {
        seed.deserialize(MapAccessDeserializer::new(self.0))
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, M::Error> {
        Err(M::Error::custom("fields without names do not fit into an object"))
    }
    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, M::Error> {
        visitor.visit_map(self.0)
    }
}

/// Puts the name of the variant first into the object that the variant becomes.
struct Naming<S> {
    inner: S,
    tag: &'static str,
    /// Of the variant whose one value is being written.
    name: &'static str,
}

/// What is not an object has no place for a name.
macro_rules! refuse {
    ($($method:ident($($arg:ty),*) $(-> $kind:ty)?;)*) => {$(
        fn $method(self $(, _: $arg)*) -> refuse!(@ $($kind)?) {
            Err(S::Error::custom("only an object can hold its own name"))
        }
    )*};
    (@) => { Result<S::Ok, S::Error> };
    (@ $kind:ty) => { Result<$kind, S::Error> };
}

impl<S: Serializer> Serializer for Naming<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Impossible<S::Ok, S::Error>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeMap = S::SerializeMap;
    type SerializeStruct = S::SerializeStruct;
    type SerializeStructVariant = Variant<S::SerializeStruct>;

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let mut object = self.inner.serialize_struct(name, len + 1)?;
        object.serialize_field(self.tag, variant)?;
        Ok(Variant(object))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(Self { name: variant, ..self })
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<S::SerializeStruct, S::Error> {
        let mut object = self.inner.serialize_struct(name, len + 1)?;
        object.serialize_field(self.tag, self.name)?;
        Ok(object)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<S::SerializeMap, S::Error> {
        let mut object = self.inner.serialize_map(len.map(|len| len + 1))?;
        object.serialize_entry(self.tag, self.name)?;
        Ok(object)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    refuse! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
    }
}

struct Variant<O>(O);

impl<O: SerializeStruct> SerializeStructVariant for Variant<O> {
    type Ok = O::Ok;
    type Error = O::Error;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), O::Error> {
        self.0.serialize_field(key, value)
    }
    fn skip_field(&mut self, key: &'static str) -> Result<(), O::Error> {
        self.0.skip_field(key)
    }
    fn end(self) -> Result<O::Ok, O::Error> {
        self.0.end()
    }
}
