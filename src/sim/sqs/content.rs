//! What SQS accepts as a message: characters, attributes and ids, whatever the queue.
//!
//! Size depends on the queue and is judged where the message is sent.
//! Source: Amazon SQS Developer Guide, "Message metadata"; API Reference, SendMessage.

use super::error::SqsError;
use crate::domain::message::{Attribute, MAX_ATTRIBUTES, Outgoing, Value, is_legal_char};

const MAX_NAME_CHARS: usize = 256;
const MAX_GROUP_CHARS: usize = 128;

/// Checks everything about a message that does not depend on its queue.
pub(super) fn check(message: &Outgoing) -> Result<(), SqsError> {
    if message.body.is_empty() {
        return Err(SqsError::MissingParameter("MessageBody"));
    }
    if !message.body.chars().all(is_legal_char) {
        return Err(SqsError::InvalidMessageContents);
    }
    if message.attributes.len() > MAX_ATTRIBUTES {
        return Err(refused(format!(
            "number of message attributes must not exceed {MAX_ATTRIBUTES}"
        )));
    }
    for (name, attribute) in &message.attributes {
        check_name(name)?;
        check_attribute(name, attribute)?;
    }
    check_word("MessageGroupId", message.group_id.as_deref())?;
    check_word("MessageDeduplicationId", message.deduplication_id.as_deref())
}

fn refused(reason: String) -> SqsError {
    SqsError::parameter("MessageAttributes", reason)
}

fn check_name(name: &str) -> Result<(), SqsError> {
    let lower = name.to_ascii_lowercase();
    let legal = (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
        && !lower.starts_with("aws.")
        && !lower.starts_with("amazon.");
    if legal { Ok(()) } else { Err(refused(format!("the name {name:?} is not allowed"))) }
}

fn check_attribute(name: &str, attribute: &Attribute) -> Result<(), SqsError> {
    let kind = attribute.data_type.split('.').next().unwrap_or_default();
    if attribute.data_type.len() > MAX_NAME_CHARS {
        return Err(refused(format!("the type of {name} is too long")));
    }
    match (&attribute.value, kind) {
        (Value::Text(text), "String" | "Number") => {
            if text.is_empty() {
                return Err(refused(format!("{name} must contain a non-empty value")));
            }
            if kind == "Number" && text.parse::<f64>().map_or(true, |n| !n.is_finite()) {
                return Err(refused(format!("can't cast the value of {name} to a number")));
            }
            if text.chars().all(is_legal_char) {
                Ok(())
            } else {
                Err(SqsError::InvalidMessageContents)
            }
        }
        (Value::Binary(bytes), "Binary") => {
            if bytes.is_empty() {
                return Err(refused(format!("{name} must contain a non-empty value")));
            }
            Ok(())
        }
        _ => Err(refused(format!("{name} has a type that is not supported or not its value's"))),
    }
}

fn check_word(parameter: &'static str, word: Option<&str>) -> Result<(), SqsError> {
    let legal = word.is_none_or(|word| {
        (1..=MAX_GROUP_CHARS).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_graphic())
    });
    if legal {
        Ok(())
    } else {
        Err(SqsError::parameter(
            parameter,
            "it can be 1 to 128 alphanumeric and punctuation characters",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, data_type: &str, value: Value) -> Outgoing {
        let attribute = Attribute { data_type: data_type.into(), value };
        Outgoing {
            body: "x".into(),
            attributes: [(name.to_owned(), attribute)].into(),
            ..Outgoing::default()
        }
    }

    #[test]
    fn bodies_hold_legal_characters_only() {
        for body in ["\u{0}", "\u{1F}", "\u{FFFE}"] {
            let message = Outgoing { body: body.into(), ..Outgoing::default() };
            assert_eq!(check(&message), Err(SqsError::InvalidMessageContents), "{body:?}");
        }
        assert_eq!(check(&Outgoing::default()), Err(SqsError::MissingParameter("MessageBody")));
        let message = Outgoing { body: "\t\r\n é \u{1F600}".into(), ..Outgoing::default() };
        assert_eq!(check(&message), Ok(()));
    }

    #[test]
    fn names_types_and_values_are_checked() {
        let text = |t: &str| Value::Text(t.into());
        assert_eq!(check(&with("a.b-_", "Number.int", text("-1.5e3"))), Ok(()));
        assert_eq!(check(&with("b", "Binary.gif", Value::Binary(vec![0]))), Ok(()));
        for name in ["", ".a", "a.", "a..b", "AWS.x", "Amazon.x", "a b", &"x".repeat(257)] {
            assert!(check(&with(name, "String", text("v"))).is_err(), "{name:?}");
        }
        for (data_type, value) in [
            ("String", text("")),
            ("Number", text("seven")),
            ("Number", text("inf")),
            ("Map", text("v")),
            ("String", Value::Binary(vec![1])),
            ("Binary", Value::Binary(vec![])),
            ("String", text("\u{0}")),
        ] {
            assert!(check(&with("a", data_type, value.clone())).is_err(), "{data_type} {value:?}");
        }
    }

    #[test]
    fn eleven_attributes_are_refused() {
        let mut message = with("a", "String", Value::Text("v".into()));
        for n in 0..9 {
            message.attributes.insert(format!("n{n}"), Attribute::string("v"));
        }
        assert_eq!(check(&message), Ok(()));
        message.attributes.insert("z".into(), Attribute::string("v"));
        assert!(check(&message).is_err());
    }
}
