//! Parts of the schemas of parameters that the types do not say. The patterns mean the same in all common engines of regular
//! expressions.

use schemars::Schema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

pub(crate) const ABSOLUTE_PATH: &str = "^/";
/// A text with a character that is not white space. `\s` differs between engines.
pub(crate) const NOT_BLANK: &str =
    r"[^\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]";
/// Base64 with padding, whose unused bits are zero.
pub(crate) const BASE64: &str =
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
pub(crate) const TOKEN_NAME: &str = "^[A-Za-z0-9._-]{1,64}$";

/// Reads an object. The derived code would also accept an array with the values of the fields.
pub(crate) fn object<'de, T: DeserializeOwned, D: Deserializer<'de>>(de: D) -> Result<T, D::Error> {
    let fields = Map::<String, Value>::deserialize(de)?;
    serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)
}

/// Reads a list of objects, none of which may be an array.
pub(crate) fn objects<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    de: D,
) -> Result<Vec<T>, D::Error> {
    let items = Vec::<Map<String, Value>>::deserialize(de)?;
    let item = |fields| serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom);
    items.into_iter().map(item).collect()
}

/// Requires a prompt that is not blank, unless there are images. A prompt that is optional may still be absent.
pub(crate) fn require_text_or_images(schema: &mut Schema) {
    let forms = json!([
        { "properties": { "prompt": { "pattern": NOT_BLANK } } },
        { "properties": { "images": { "minItems": 1 } }, "required": ["images"] },
    ]);
    schema.insert("anyOf".to_owned(), forms);
}
