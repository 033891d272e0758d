//! How one value is read, from the file and from the environment.
//!
//! In the file a value has the TOML type of its key; in the environment numbers and switches are their
//! text, lists and tables are JSON. Problems name the expected form and never repeat a value of the
//! wrong type, which may be a secret in the wrong place.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::Value;

use super::duration::Span;

/// A type that a key can have.
pub(super) trait Setting: Sized {
    /// Reads the text of an environment variable, or a TOML string.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Reads a TOML value: a string, unless the type says otherwise.
    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Self::from_text(text),
            other => Err(mistyped("text in quotes", other)),
        }
    }
}

fn mistyped(expected: &str, found: &Value) -> String {
    format!("must be {expected}, not {}", found.type_str())
}

impl Setting for String {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Setting for Duration {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map(|Span(duration)| duration)
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Self::from_text(text),
            other => Err(mistyped("a duration in quotes, like \"20s\"", other)),
        }
    }
}

impl Setting for bool {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text:?} must be true or false"))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| mistyped("true or false", value))
    }
}

/// A whole number. Every key is narrower; its range says so.
impl Setting for i64 {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text:?} must be a whole number"))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        value.as_integer().ok_or_else(|| mistyped("a whole number", value))
    }
}

impl Setting for f64 {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text:?} must be a number"))
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Float(number) => Ok(*number),
            // Keys that take fractions are small: what does not fit 32 bits is out of their range.
            Value::Integer(number) => {
                i32::try_from(*number).map(Self::from).map_err(|_| format!("{number} is too large"))
            }
            other => Err(mistyped("a number", other)),
        }
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::from_value(&from_json(text, "list")?)
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        let items = value.as_array().ok_or_else(|| mistyped("a list", value))?;
        items.iter().map(T::from_value).collect()
    }
}

impl<T: Setting> Setting for BTreeMap<String, T> {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::from_value(&from_json(text, "table")?)
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        let table = value.as_table().ok_or_else(|| mistyped("a table", value))?;
        table
            .iter()
            .map(|(name, value)| match T::from_value(value) {
                Ok(item) => Ok((name.clone(), item)),
                Err(problem) => Err(format!("{name}: {problem}")),
            })
            .collect()
    }
}

fn from_json(text: &str, what: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|_| format!("must be a {what} in JSON"))
}

/// A key that takes one of a few words: an enum with its words.
macro_rules! choice {
    ($(#[$doc:meta])* $vis:vis $name:ident { $($(#[$item_doc:meta])* $item:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name { $($(#[$item_doc])* $item),+ }

        impl $crate::config::setting::Setting for $name {
            fn from_text(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$item),)+
                    other => Err(format!("{other:?} must be one of {}", [$($word),+].join(", "))),
                }
            }
        }
    };
}
pub(super) use choice;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_tables_are_json_in_the_environment() {
        assert_eq!(Vec::<String>::from_text(r#"["a","b"]"#), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(
            BTreeMap::<String, i64>::from_text(r#"{"a":1}"#),
            Ok(BTreeMap::from([("a".into(), 1)]))
        );
        assert!(Vec::<String>::from_text("a,b").is_err_and(|e| e.contains("in JSON")));
        assert!(Vec::<i64>::from_text("[null]").is_err());
    }

    #[test]
    fn a_value_of_the_wrong_type_is_not_repeated() {
        let secret = Value::String("SECRET-XYZ".into());
        assert!(i64::from_value(&secret).is_err_and(|e| !e.contains("SECRET")));
        assert!(Vec::<i64>::from_value(&secret).is_err_and(|e| !e.contains("SECRET")));
    }

    #[test]
    fn whole_numbers_serve_where_fractions_may() {
        assert_eq!(f64::from_value(&Value::Integer(2)), Ok(2.0));
        assert!(f64::from_value(&Value::Integer(i64::MAX)).is_err());
        assert!(i64::from_value(&Value::Float(2.0)).is_err());
    }
}
