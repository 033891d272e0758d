//! SQS messages: body, typed attributes, the size rule and the legal characters.
//!
//! Attribute values keep their exact text and bytes, and the whole type label (`Number.int`), because
//! what goes in must come out byte for byte. Limits are SQS's own: sizes count UTF-8 bytes of body,
//! attribute names, type labels and values.
//! Source: Amazon SQS Developer Guide, "Message metadata" and "Quotas related to messages".

use std::collections::BTreeMap;

use super::id::{MessageId, QueueArn, ReceiptHandle};
use super::time::Wall;

/// The largest number of message attributes SQS accepts.
pub const MAX_ATTRIBUTES: usize = 10;
/// The largest number of entries in one batch call.
pub const MAX_BATCH_ENTRIES: usize = 10;
/// SQS's default and largest `MaximumMessageSize`, and the bound on the sum of a batch, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1_048_576;
/// The longest visibility timeout, counted from the receive, in seconds.
pub const MAX_VISIBILITY_SECS: u64 = 43_200;

/// The value of a message attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The text of a `String` or `Number` attribute, exactly as sent.
    Text(String),
    /// The bytes of a `Binary` attribute.
    Binary(Vec<u8>),
}

/// One message attribute with its whole type label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, with any custom suffix: `Number.java.lang.Long`.
    pub data_type: String,
    /// The value.
    pub value: Value,
}

/// Message attributes in name order.
pub type Attributes = BTreeMap<String, Attribute>;

/// A message as ReceiveMessage gave it. What SQS did not say is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// SQS's id of this message.
    pub message_id: MessageId,
    /// The handle of this receive.
    pub receipt: ReceiptHandle,
    /// The body, exactly as received.
    pub body: String,
    /// The message attributes.
    pub attributes: Attributes,
    /// `SentTimestamp`.
    pub sent: Option<Wall>,
    /// `ApproximateFirstReceiveTimestamp`.
    pub first_received: Option<Wall>,
    /// `ApproximateReceiveCount`, this receive included.
    pub receive_count: Option<u32>,
    /// `MessageGroupId`.
    pub group_id: Option<String>,
    /// `MessageDeduplicationId`.
    pub deduplication_id: Option<String>,
    /// `SequenceNumber`.
    pub sequence_number: Option<String>,
    /// `AWSTraceHeader`.
    pub trace_header: Option<String>,
    /// `DeadLetterQueueSourceArn`: set when SQS's own policy moved the message here.
    pub dead_letter_source: Option<QueueArn>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outgoing {
    /// The body.
    pub body: String,
    /// The message attributes.
    pub attributes: Attributes,
    /// `MessageGroupId`.
    pub group_id: Option<String>,
    /// `MessageDeduplicationId`, FIFO only.
    pub deduplication_id: Option<String>,
    /// The system attribute `AWSTraceHeader`.
    pub trace_header: Option<String>,
}

impl Attribute {
    /// A `String` attribute.
    #[must_use]
    pub fn string(value: impl Into<String>) -> Self {
        Self { data_type: "String".to_owned(), value: Value::Text(value.into()) }
    }
}

impl Outgoing {
    /// The size SQS counts against `MaximumMessageSize`, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        message_size(&self.body, &self.attributes)
    }
}

/// The size SQS counts: body, attribute names, type labels and values, in bytes.
#[must_use]
pub fn message_size(body: &str, attributes: &Attributes) -> usize {
    attributes.iter().fold(body.len(), |sum, (name, attribute)| {
        let value = match &attribute.value {
            Value::Text(text) => text.len(),
            Value::Binary(bytes) => bytes.len(),
        };
        sum.saturating_add(name.len())
            .saturating_add(attribute.data_type.len())
            .saturating_add(value)
    })
}

/// Whether SQS accepts this character in a body or a text attribute:
/// `#x9 | #xA | #xD | #x20-#xD7FF | #xE000-#xFFFD | #x10000-#x10FFFF`.
#[must_use]
pub const fn is_legal_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..='\u{10FFFF}')
}

/// The text with every character that SQS refuses replaced by U+FFFD.
#[must_use]
pub fn legal_text(text: &str) -> String {
    text.chars().map(|c| if is_legal_char(c) { c } else { '\u{FFFD}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_counts_names_labels_and_values_in_bytes() {
        let mut attributes = Attributes::new();
        assert_eq!(message_size("é", &attributes), 2);
        attributes.insert(
            "a".into(),
            Attribute { data_type: "Number.int".into(), value: Value::Text("7".into()) },
        );
        attributes.insert(
            "blob".into(),
            Attribute { data_type: "Binary".into(), value: Value::Binary(vec![0, 255, 1]) },
        );
        assert_eq!(message_size("é", &attributes), 2 + (1 + 10 + 1) + (4 + 6 + 3));
    }

    #[test]
    fn illegal_characters_are_replaced_and_legal_ones_kept() {
        assert_eq!(
            legal_text("a\u{0}b\u{1F}\t\n\r \u{FFFE}\u{1F600}"),
            "a\u{FFFD}b\u{FFFD}\t\n\r \u{FFFD}\u{1F600}"
        );
    }
}
