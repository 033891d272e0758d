//! What a handler process finds in its environment besides what it inherits.
//!
//! Pure. No variable made here can make the process unstartable: a value that no process can be given (a
//! NUL byte, or longer than Linux allows for one string) is left out and its attribute named in the log.
//! A variable that has no value for this job is removed, so that none of an outer job shows through.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::domain::message::{Attributes, Value};
use crate::port::handler::Job;

/// What the variables of attributes begin with.
pub(super) const ATTRIBUTE_PREFIX: &str = "REDRIVE_ATTR_";
/// Linux's `MAX_ARG_STRLEN`: the longest `NAME=value` with its NUL, in bytes.
const MAX_VARIABLE_BYTES: usize = 131_072;

/// Variables by name; `None` is to be removed.
pub(super) type Variables = BTreeMap<String, Option<String>>;

/// The variables that say which job this is.
pub(super) fn job_variables(job: &Job) -> Variables {
    [
        ("REDRIVE_KEY", Some(job.key.to_string())),
        ("REDRIVE_IDEMPOTENCY_KEY", Some(job.idempotency_key())),
        ("REDRIVE_RECORD_ID", Some(job.record_id.to_string())),
        ("REDRIVE_MESSAGE_ID", Some(job.message_id.to_string())),
        ("REDRIVE_ATTEMPT", Some(job.attempt.to_string())),
        ("REDRIVE_RECEIVE_COUNT", job.receive_count.map(|count| count.to_string())),
        ("REDRIVE_QUEUE", Some(job.queue.to_string())),
        ("REDRIVE_GROUP_ID", job.group_id.clone()),
        ("REDRIVE_RUN_ID", job.run_id.as_ref().map(ToString::to_string)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.filter(|value| is_passable(name, value))))
    .collect()
}

/// The variables of the producer's attributes. On a collision the first by name has the variable, even
/// if its value cannot be passed: another's value under its name would be worse than none.
pub(super) fn attribute_variables(attributes: &Attributes) -> Variables {
    let mut variables = Variables::new();
    for (attribute, content) in attributes {
        let variable = variable_name(attribute);
        if variables.contains_key(&variable) {
            continue;
        }
        let value = match &content.value {
            Value::Text(text) => text.clone(),
            Value::Binary(bytes) => BASE64_STANDARD.encode(bytes),
        };
        let passable = is_passable(&variable, &value);
        if !passable {
            tracing::debug!(%attribute, "attribute left out of the handler's environment");
        }
        variables.insert(variable, passable.then_some(value));
    }
    variables
}

fn variable_name(attribute: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    ATTRIBUTE_PREFIX.chars().chain(attribute.chars().map(legal)).collect()
}

fn is_passable(name: &str, value: &str) -> bool {
    let framing = "=\0".len();
    let bytes = name.len().saturating_add(value.len()).saturating_add(framing);
    bytes <= MAX_VARIABLE_BYTES && !value.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::Attribute;

    fn attributes(pairs: &[(&str, Value)]) -> Attributes {
        pairs
            .iter()
            .map(|(name, value)| {
                let attribute = Attribute { data_type: "String".into(), value: value.clone() };
                ((*name).to_owned(), attribute)
            })
            .collect()
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn names_are_upper_cased_and_binary_is_base64() {
        let variables = attribute_variables(&attributes(&[
            ("trace-id.v2", text("7")),
            ("größe", text("x")),
            ("blob", Value::Binary(vec![0, 255])),
        ]));
        let expected = [("BLOB", "AP8="), ("GR__E", "x"), ("TRACE_ID_V2", "7")];
        let expected: Variables = expected
            .into_iter()
            .map(|(name, value)| (format!("REDRIVE_ATTR_{name}"), Some(value.to_owned())))
            .collect();
        assert_eq!(variables, expected);
    }

    #[test]
    fn on_a_collision_the_first_by_name_wins_even_if_it_cannot_be_passed() {
        let variables = attribute_variables(&attributes(&[("a_b", text("2")), ("a.b", text("1"))]));
        assert_eq!(variables["REDRIVE_ATTR_A_B"].as_deref(), Some("1"));
        let variables =
            attribute_variables(&attributes(&[("a_b", text("2")), ("a.b", text("\0"))]));
        assert_eq!(variables["REDRIVE_ATTR_A_B"], None);
    }

    #[test]
    fn the_longest_passable_value_is_as_linux_counts_it() {
        let room = MAX_VARIABLE_BYTES - "REDRIVE_ATTR_A=\0".len();
        for (length, passed) in [(room, true), (room + 1, false)] {
            let variables = attribute_variables(&attributes(&[("a", text(&"x".repeat(length)))]));
            assert_eq!(variables["REDRIVE_ATTR_A"].is_some(), passed, "{length}");
        }
    }
}
