//! SQS messages in the SDK's words and in ours.
//!
//! Values and type labels are passed on as they are. A system attribute that cannot be read is `None`:
//! it may cost a decision some certainty, never the message.

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    Message, MessageAttributeValue, MessageSystemAttributeName as System,
    MessageSystemAttributeNameForSends, MessageSystemAttributeValue, SendMessageBatchRequestEntry,
};

use crate::domain::id::{MessageId, QueueArn, ReceiptHandle};
use crate::domain::message::{Attribute, Outgoing, Received, Value};
use crate::domain::time::Wall;

/// A received message; `None` if its id or receipt handle cannot be used.
pub(super) fn received(raw: Message) -> Option<Received> {
    let system = raw.attributes.unwrap_or_default();
    let text = |name: System| system.get(&name).cloned();
    let number = |name: System| system.get(&name).and_then(|digits| digits.parse::<u32>().ok());
    let time = |name: System| {
        let told = system.get(&name)?;
        let time = Wall::told_in_ms(told);
        if time.is_none() {
            tracing::warn!(attribute = name.as_str(), "a time that is not in epoch milliseconds");
        }
        time
    };
    let attributes = raw.message_attributes.unwrap_or_default();
    Some(Received {
        message_id: MessageId::new(raw.message_id?).ok()?,
        receipt: ReceiptHandle::new(raw.receipt_handle?),
        body: raw.body.unwrap_or_default(),
        attributes: attributes.into_iter().map(|(name, value)| (name, attribute(value))).collect(),
        sent: time(System::SentTimestamp),
        first_received: time(System::ApproximateFirstReceiveTimestamp),
        receive_count: number(System::ApproximateReceiveCount),
        group_id: text(System::MessageGroupId),
        deduplication_id: text(System::MessageDeduplicationId),
        sequence_number: text(System::SequenceNumber),
        trace_header: text(System::AwsTraceHeader),
        dead_letter_source: text(System::DeadLetterQueueSourceArn)
            .and_then(|arn| QueueArn::new(arn).ok()),
    })
}

fn attribute(raw: MessageAttributeValue) -> Attribute {
    let value = match raw.binary_value {
        Some(bytes) if raw.data_type.starts_with("Binary") => Value::Binary(bytes.into_inner()),
        _ => Value::Text(raw.string_value.unwrap_or_default()),
    };
    Attribute { data_type: raw.data_type, value }
}

fn attribute_value(attribute: &Attribute) -> Option<MessageAttributeValue> {
    let value = MessageAttributeValue::builder().data_type(&attribute.data_type);
    let value = match &attribute.value {
        Value::Text(text) => value.string_value(text),
        Value::Binary(bytes) => value.binary_value(Blob::new(bytes.clone())),
    };
    value.build().ok()
}

/// One entry of SendMessageBatch; always there, since its required fields are set.
pub(super) fn send_entry(place: usize, message: &Outgoing) -> Option<SendMessageBatchRequestEntry> {
    let mut entry = SendMessageBatchRequestEntry::builder()
        .id(place.to_string())
        .message_body(&message.body)
        .set_message_group_id(message.group_id.clone())
        .set_message_deduplication_id(message.deduplication_id.clone());
    for (name, attribute) in &message.attributes {
        entry = entry.message_attributes(name, attribute_value(attribute)?);
    }
    if let Some(header) = &message.trace_header {
        let header =
            MessageSystemAttributeValue::builder().data_type("String").string_value(header);
        let name = MessageSystemAttributeNameForSends::AwsTraceHeader;
        entry = entry.message_system_attributes(name, header.build().ok()?);
    }
    entry.build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> aws_sdk_sqs::types::builders::MessageBuilder {
        Message::builder().message_id("m-1").receipt_handle("r-1").body("b")
    }

    #[test]
    fn odd_system_attributes_are_none_and_the_message_stays() {
        let message = raw()
            .attributes(System::ApproximateReceiveCount, "abc")
            .attributes(System::SentTimestamp, "-1")
            .attributes(System::DeadLetterQueueSourceArn, "nonsense")
            .build();
        let message = received(message).unwrap();
        assert_eq!((message.receive_count, message.sent), (None, None));
        assert_eq!(message.dead_letter_source, None);
        let silent = received(raw().build()).unwrap();
        assert_eq!(silent.receive_count, None);
    }

    #[test]
    fn a_message_without_usable_id_or_receipt_is_none() {
        assert!(received(raw().message_id("../x").build()).is_none());
        assert!(received(Message::builder().message_id("m-1").body("b").build()).is_none());
    }
}
