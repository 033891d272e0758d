//! A place in a message: a JSON pointer into the body, or an attribute.
//!
//! Values are taken from the body's own text, not through numbers of limited precision.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::value::RawValue;

use super::message::{Attributes, Value};

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// A JSON pointer (RFC 6901) into the body.
    Pointer(String),
    /// A text attribute's value.
    Attribute(String),
}

/// A text that is no selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a JSON pointer (\"/a/b\") nor \"attribute:NAME\"")]
pub struct SelectorError(String);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        match text.strip_prefix("attribute:") {
            Some(name) if !name.is_empty() => Ok(Self::Attribute(name.to_owned())),
            None if text.starts_with('/') => Ok(Self::Pointer(text.to_owned())),
            Some(_) | None => Err(SelectorError(text.to_owned())),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(pointer) => f.write_str(pointer),
            Self::Attribute(name) => write!(f, "attribute:{name}"),
        }
    }
}

impl Selector {
    /// The value in a message: strings as they are, other JSON compact, nothing for absent or `null`.
    #[must_use]
    pub fn select(&self, body: &str, attributes: &Attributes) -> Option<String> {
        match self {
            Self::Pointer(pointer) => json_text(body, pointer),
            Self::Attribute(name) => match &attributes.get(name)?.value {
                Value::Text(text) => Some(text.clone()),
                Value::Binary(_) => None,
            },
        }
    }
}

/// The value at a JSON pointer (RFC 6901): a string as it is, anything else as compact JSON with its
/// numbers' own text. `None` if the body is no JSON, the pointer finds nothing, or it finds `null`.
#[must_use]
pub fn json_text(body: &str, pointer: &str) -> Option<String> {
    let mut value: Box<RawValue> = serde_json::from_str(body).ok()?;
    let path = pointer.strip_prefix('/')?;
    for token in path.split('/') {
        let token = token.replace("~1", "/").replace("~0", "~");
        value = match value.get().as_bytes().first()? {
            b'{' => serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(value.get())
                .ok()?
                .remove(&token)?,
            b'[' => {
                let index: usize = token.parse().ok()?;
                let items: Vec<Box<RawValue>> = serde_json::from_str(value.get()).ok()?;
                items.into_iter().nth(index)?
            }
            _ => return None,
        };
    }
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b'n' => None,
        _ => Some(compact(text)),
    }
}

fn compact(json: &str) -> String {
    let mut in_string = false;
    let mut escaped = false;
    json.chars()
        .filter(|c| {
            let keep = in_string || !c.is_ascii_whitespace();
            if in_string {
                in_string = *c != '"' || escaped;
                escaped = *c == '\\' && !escaped;
            } else {
                in_string = *c == '"';
            }
            keep
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::message::Attribute;
    use super::*;

    #[test]
    fn selectors_print_what_they_parse() {
        for text in ["/a/0", "attribute:event"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        for text in ["", "a", "attribute:"] {
            assert!(text.parse::<Selector>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn values_keep_their_text() {
        let body = r#"{"s":"a\u00e9 \" b","o": { "y": 1.0, "q" : "a b\\" },"n":null,"big":123456789012345678901234567890}"#;
        let get = |pointer: &str| json_text(body, pointer);
        assert_eq!(get("/s").as_deref(), Some("a\u{e9} \" b"));
        assert_eq!(get("/o").as_deref(), Some(r#"{"y":1.0,"q":"a b\\"}"#));
        assert_eq!(get("/big").as_deref(), Some("123456789012345678901234567890"));
        assert_eq!(get("/n"), None);
        let attributes = Attributes::from([("event".to_owned(), Attribute::string("push"))]);
        let event: Selector = "attribute:event".parse().unwrap();
        assert_eq!(event.select("not json", &attributes).as_deref(), Some("push"));
    }
}
