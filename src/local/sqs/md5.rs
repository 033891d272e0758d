//! The MD5s by which SDKs check that a message went and came whole.
//!
//! Attributes are hashed in name order, each as length-prefixed name and type, a byte for the kind of
//! value, and the length-prefixed value; lengths are big-endian 32-bit.
//! Source: Amazon SQS Developer Guide, "Calculating the MD5 message digest for message attributes".

use s3s::crypto::{Checksum as _, Md5};

use crate::domain::id::hex;
use crate::domain::message::{Attributes, Value};

const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// The MD5 of a body, in hex.
pub(super) fn of_body(body: &str) -> String {
    hex(&Md5::checksum(body.as_bytes()))
}

/// The MD5 of message attributes, in hex; none without attributes.
pub(super) fn of_attributes(attributes: &Attributes) -> Option<String> {
    if attributes.is_empty() {
        return None;
    }
    let mut md5 = Md5::default();
    for (name, attribute) in attributes {
        update(&mut md5, name.as_bytes());
        update(&mut md5, attribute.data_type.as_bytes());
        match &attribute.value {
            Value::Text(text) => {
                md5.update(&[TEXT]);
                update(&mut md5, text.as_bytes());
            }
            Value::Binary(bytes) => {
                md5.update(&[BINARY]);
                update(&mut md5, bytes);
            }
        }
    }
    Some(hex(&md5.finalize()))
}

fn update(md5: &mut Md5, bytes: &[u8]) {
    // No message is longer than 1 MiB.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    md5.update(&length.to_be_bytes());
    md5.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::Attribute;

    #[test]
    fn known_answer_of_a_body() {
        assert_eq!(of_body("hello"), "5d41402abc4b2a76b9719d911017c592");
    }

    #[test]
    fn attributes_have_a_digest_only_when_there_are_any() {
        let mut attributes = Attributes::new();
        assert_eq!(of_attributes(&attributes), None);
        attributes.insert("a".into(), Attribute::string("1"));
        let text = of_attributes(&attributes);
        attributes.insert(
            "a".into(),
            Attribute { data_type: "String".into(), value: Value::Binary(vec![b'1']) },
        );
        assert_ne!(of_attributes(&attributes), text, "text and bytes differ");
    }
}
