//! awsJson1.0: how SQS's requests and answers look on the wire.
//!
//! Requests are parsed leniently, as AWS does: what a shape does not name is ignored. Numbers that AWS
//! would refuse for their sign or size are refused here, by the type, before the engine sees them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::md5;
use crate::domain::id::{QueueName, ReceiptHandle};
use crate::domain::message::{Attribute, Attributes, Outgoing, Received, Value};
use crate::sim::sqs::{Entries, MoveStatus, MoveTask, SendMessage, Sent, SqsError};

/// Any request, each field where some operation has it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Request {
    pub(super) queue_url: Option<String>,
    pub(super) queue_name: Option<String>,
    pub(super) queue_name_prefix: Option<String>,
    pub(super) next_token: Option<String>,
    pub(super) max_results: Option<usize>,
    pub(super) attributes: BTreeMap<String, String>,
    #[serde(alias = "tags")]
    pub(super) tags: BTreeMap<String, String>,
    pub(super) tag_keys: Vec<String>,
    pub(super) attribute_names: Vec<String>,
    pub(super) message_system_attribute_names: Vec<String>,
    pub(super) message_attribute_names: Vec<String>,
    pub(super) max_number_of_messages: Option<usize>,
    pub(super) wait_time_seconds: Option<u64>,
    pub(super) visibility_timeout: Option<u64>,
    pub(super) receive_request_attempt_id: Option<String>,
    pub(super) receipt_handle: Option<String>,
    pub(super) entries: Vec<Entry>,
    pub(super) source_arn: Option<String>,
    pub(super) destination_arn: Option<String>,
    pub(super) max_number_of_messages_per_second: Option<u32>,
    pub(super) task_handle: Option<String>,
    #[serde(flatten)]
    pub(super) message: Message,
}

/// One entry of any batch.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) receipt_handle: Option<String>,
    pub(super) visibility_timeout: Option<u64>,
    #[serde(flatten)]
    pub(super) message: Message,
}

/// What SendMessage and an entry of its batch say of the message.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Message {
    message_body: Option<String>,
    delay_seconds: Option<u64>,
    message_attributes: BTreeMap<String, AttributeText>,
    message_system_attributes: BTreeMap<String, AttributeText>,
    message_deduplication_id: Option<String>,
    message_group_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttributeText {
    data_type: String,
    string_value: Option<String>,
    binary_value: Option<String>,
}

impl Request {
    /// Parses a request's body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, SqsError> {
        serde_json::from_slice(body).map_err(|error| SqsError::Serialization(error.to_string()))
    }

    /// The queue that the request is about.
    pub(super) fn queue(&self) -> Result<QueueName, SqsError> {
        let url = self.queue_url.as_deref().ok_or(SqsError::MissingParameter("QueueUrl"))?;
        let name = url.rsplit('/').next().unwrap_or_default();
        QueueName::new(name).map_err(|_| SqsError::QueueDoesNotExist)
    }

    /// The receipt handle.
    pub(super) fn handle(&self) -> Result<ReceiptHandle, SqsError> {
        required(self.receipt_handle.as_deref(), "ReceiptHandle").map(ReceiptHandle::new)
    }
}

/// A parameter that must be there.
pub(super) fn required<'a>(
    value: Option<&'a str>,
    parameter: &'static str,
) -> Result<&'a str, SqsError> {
    value.ok_or(SqsError::MissingParameter(parameter))
}

impl Message {
    /// The message as the engine takes it.
    pub(super) fn into_send(self) -> Result<SendMessage, SqsError> {
        let mut attributes = Attributes::new();
        for (name, text) in self.message_attributes {
            attributes.insert(name, text.into_attribute()?);
        }
        let trace_header = self.message_system_attributes.get("AWSTraceHeader");
        Ok(SendMessage {
            message: Outgoing {
                body: self.message_body.ok_or(SqsError::MissingParameter("MessageBody"))?,
                attributes,
                group_id: self.message_group_id,
                deduplication_id: self.message_deduplication_id,
                trace_header: trace_header.and_then(|text| text.string_value.clone()),
            },
            delay_secs: self.delay_seconds,
        })
    }
}

impl AttributeText {
    fn into_attribute(self) -> Result<Attribute, SqsError> {
        let value = match (self.string_value, self.binary_value) {
            (Some(text), None) => Value::Text(text),
            (None, Some(base64)) => Value::Binary(
                STANDARD
                    .decode(base64)
                    .map_err(|error| SqsError::Serialization(error.to_string()))?,
            ),
            _ => return Err(SqsError::MissingParameter("MessageAttributes value")),
        };
        Ok(Attribute { data_type: self.data_type, value })
    }
}

/// The answer to a send; the digests are of what was sent.
pub(super) fn sent(sent: &Sent, digests: &Digests) -> Map<String, Json> {
    let mut answer = Map::new();
    answer.insert("MessageId".into(), sent.message_id.as_str().into());
    answer.insert("MD5OfMessageBody".into(), digests.body.as_str().into());
    insert(&mut answer, "MD5OfMessageAttributes", digests.attributes.as_deref());
    insert(&mut answer, "SequenceNumber", sent.sequence_number.as_deref());
    answer
}

/// The MD5s of a message.
pub(super) struct Digests {
    body: String,
    attributes: Option<String>,
}

impl Digests {
    pub(super) fn of(message: &Outgoing) -> Self {
        Self {
            body: md5::of_body(&message.body),
            attributes: md5::of_attributes(&message.attributes),
        }
    }
}

/// A batch's answer: `Successful` and `Failed`.
pub(super) fn batch<T>(
    entries: Entries<T>,
    mut successful: impl FnMut(&str, T) -> Map<String, Json>,
) -> Json {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for (id, answer) in entries {
        match answer {
            Ok(value) => {
                let mut entry = successful(&id, value);
                entry.insert("Id".into(), id.into());
                done.push(Json::Object(entry));
            }
            Err(error) => failed.push(json!({
                "Id": id,
                "SenderFault": true,
                "Code": error.query_code(),
                "Message": error.to_string(),
            })),
        }
    }
    json!({ "Successful": done, "Failed": failed })
}

/// A received message, with the attributes that were asked for.
pub(super) fn received(message: &Received, system: &[String], names: &[String]) -> Json {
    let mut answer = Map::new();
    answer.insert("MessageId".into(), message.message_id.as_str().into());
    answer.insert("ReceiptHandle".into(), message.receipt.expose().into());
    answer.insert("Body".into(), message.body.as_str().into());
    answer.insert("MD5OfBody".into(), md5::of_body(&message.body).into());
    let system = system_attributes(message, system);
    if !system.is_empty() {
        answer.insert("Attributes".into(), Json::Object(system));
    }
    let attributes = message.attributes.iter().filter(|(name, _)| wants(names, name));
    let attributes: Attributes = attributes.map(|(n, a)| (n.clone(), a.clone())).collect();
    if let Some(digest) = md5::of_attributes(&attributes) {
        answer.insert("MD5OfMessageAttributes".into(), digest.into());
        let shown = attributes.iter().map(|(name, attribute)| (name.clone(), show(attribute)));
        answer.insert("MessageAttributes".into(), Json::Object(shown.collect()));
    }
    Json::Object(answer)
}

fn system_attributes(message: &Received, asked: &[String]) -> Map<String, Json> {
    let millis = |at: Option<crate::domain::time::Wall>| at.map(|at| at.as_ms().to_string());
    let text = |text: &Option<String>| text.clone();
    [
        ("SenderId", Some("AIDALOCAL".to_owned())),
        ("SentTimestamp", millis(message.sent)),
        ("ApproximateFirstReceiveTimestamp", millis(message.first_received)),
        ("ApproximateReceiveCount", message.receive_count.map(|count| count.to_string())),
        ("MessageGroupId", text(&message.group_id)),
        ("MessageDeduplicationId", text(&message.deduplication_id)),
        ("SequenceNumber", text(&message.sequence_number)),
        ("AWSTraceHeader", text(&message.trace_header)),
        ("DeadLetterQueueSourceArn", message.dead_letter_source.as_ref().map(ToString::to_string)),
    ]
    .into_iter()
    .filter(|(name, _)| asked.iter().any(|asked| asked == "All" || asked == name))
    .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
    .collect()
}

/// Whether `All`, the name itself, or a prefix such as `foo.*` was asked for.
fn wants(asked: &[String], name: &str) -> bool {
    asked.iter().any(|asked| match asked.strip_suffix(".*") {
        Some(prefix) => name.starts_with(prefix),
        None => asked == "All" || asked == name,
    })
}

fn show(attribute: &Attribute) -> Json {
    let data_type = &attribute.data_type;
    match &attribute.value {
        Value::Text(text) => json!({ "DataType": data_type, "StringValue": text }),
        Value::Binary(bytes) => {
            json!({ "DataType": data_type, "BinaryValue": STANDARD.encode(bytes) })
        }
    }
}

/// A move task, as ListMessageMoveTasks tells it.
pub(super) fn move_task(task: &MoveTask) -> Json {
    let (status, failure) = match task.status {
        MoveStatus::Running => ("RUNNING", None),
        MoveStatus::Completed => ("COMPLETED", None),
        MoveStatus::Cancelled => ("CANCELLED", None),
        MoveStatus::Failed(reason) => ("FAILED", Some(reason)),
    };
    let mut answer = Map::new();
    answer.insert("Status".into(), status.into());
    answer.insert("SourceArn".into(), task.source.as_str().into());
    answer.insert("StartedTimestamp".into(), task.started.as_ms().into());
    answer.insert("ApproximateNumberOfMessagesMoved".into(), task.moved.into());
    answer.insert("ApproximateNumberOfMessagesToMove".into(), task.to_move.into());
    insert(&mut answer, "DestinationArn", task.destination.as_ref().map(|arn| arn.as_str()));
    insert(&mut answer, "FailureReason", failure);
    if let Some(rate) = task.rate {
        answer.insert("MaxNumberOfMessagesPerSecond".into(), rate.into());
    }
    if task.status == MoveStatus::Running {
        answer.insert("TaskHandle".into(), task.handle.as_str().into());
    }
    Json::Object(answer)
}

fn insert(answer: &mut Map<String, Json>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        answer.insert(name.to_owned(), value.into());
    }
}
