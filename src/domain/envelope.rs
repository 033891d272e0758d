//! The envelope: the immutable evidence of one parking, an object in the vault.
//!
//! Body and attributes are kept byte for byte: the body as text, never re-serialised; binary values as
//! base64; numbers as their text. Readers accept unknown fields and refuse unknown versions. The key
//! holds only ids and hashes, never a user's text.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::entry::Attempt;
use super::failure::{Disposition, ErrorCode, Exception, Reason};
use super::id::{
    EntryKey, EnvelopeKey, IdError, LeaseToken, QueueArn, QueueName, RecordId, RunId, Sha256Hex,
};
use super::message::{Attribute, Attributes, Value};
use super::time::Wall;

/// The version this program writes, and the only one there is.
pub const SCHEMA_VERSION: u32 = 1;

/// An envelope that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Not JSON, or not of this shape.
    #[error("envelope is unreadable: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A version from the future.
    #[error("envelope has schema version {0}; this program reads {SCHEMA_VERSION}")]
    Version(u32),
}

/// The evidence of one parking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The original MessageId.
    pub record_id: RecordId,
    /// The entry's key.
    pub key: EntryKey,
    /// The payload's SHA-256.
    pub payload_sha256: Sha256Hex,
    /// The source.
    pub queue_arn: QueueArn,
    /// Why it was parked.
    pub reason: Reason,
    /// Whether retrying could have helped.
    pub disposition: Disposition,
    /// The code of the last failure.
    pub error_code: ErrorCode,
    /// Its full text.
    pub error_message: String,
    /// What the validator produced, whole.
    pub validation_output: Option<serde_json::Value>,
    /// The exception.
    pub exception: Option<Exception>,
    /// The confidence, if one was reported.
    pub confidence: Option<f64>,
    /// Attempts of this parking.
    pub attempts: u32,
    /// How often the record had been sent back.
    pub redrive_count: u32,
    /// The run whose copy failed.
    pub run_id: Option<RunId>,
    /// When the message was first received.
    #[serde(with = "rfc3339")]
    pub first_seen: Wall,
    /// When it was parked.
    #[serde(with = "rfc3339")]
    pub parked_at: Wall,
    /// The failures of this origin, oldest first.
    pub history: Vec<HistoryItem>,
    /// Labels of the payload.
    pub labels: BTreeMap<String, String>,
    /// The payload's own schema version.
    pub payload_schema_version: Option<String>,
    /// What SQS said of this delivery.
    pub message: MessageFacts,
    /// The producer's attributes.
    #[serde(with = "attribute_map")]
    pub attributes: Attributes,
    /// The body.
    pub payload: Payload,
    /// Where a payload that is an object lies. Absent in payloads that are bodies.
    pub offloaded: Option<serde_json::Value>,
    /// Who parked it.
    pub worker: Worker,
}

/// One failure of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryItem {
    /// When.
    #[serde(with = "rfc3339")]
    pub at: Wall,
    /// Which attempt.
    pub attempt: u32,
    /// `transient`, `permanent`, `low_confidence` or `crash`.
    pub outcome: String,
    /// The code.
    pub error_code: ErrorCode,
    /// The text, cut to what the ledger keeps.
    pub error_message: String,
}

/// What SQS said of the delivery that was parked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageFacts {
    /// Its MessageId: the copy's, for a copy.
    pub message_id: String,
    /// SentTimestamp.
    #[serde(with = "rfc3339_option")]
    pub sent_at: Option<Wall>,
    /// ApproximateFirstReceiveTimestamp.
    #[serde(with = "rfc3339_option")]
    pub first_received_at: Option<Wall>,
    /// ApproximateReceiveCount.
    pub receive_count: Option<u32>,
    /// MessageGroupId.
    pub group_id: Option<String>,
    /// MessageDeduplicationId, as seen in this queue.
    pub deduplication_id: Option<String>,
    /// SequenceNumber.
    pub sequence_number: Option<String>,
    /// AWSTraceHeader.
    pub trace_header: Option<String>,
}

/// The body, exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// `utf-8`.
    pub encoding: String,
    /// The SQS body.
    pub body: String,
}

/// Who parked it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// The program's version.
    pub version: String,
    /// The handler's kind.
    pub handler: String,
    /// The host.
    pub host: String,
}

impl Envelope {
    /// The bytes to store.
    ///
    /// # Errors
    /// A number in the validation output cannot be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>, EnvelopeError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// The SHA-256 of the body that it holds.
    #[must_use]
    pub fn body_sha256(&self) -> Sha256Hex {
        Sha256Hex::of(self.payload.body.as_bytes())
    }

    /// Reads an envelope.
    ///
    /// # Errors
    /// The bytes are no envelope, or one of an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let Version { schema_version } = serde_json::from_slice(bytes)?;
        if schema_version != SCHEMA_VERSION {
            return Err(EnvelopeError::Version(schema_version));
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl From<&Attempt> for HistoryItem {
    fn from(attempt: &Attempt) -> Self {
        Self {
            at: attempt.at,
            attempt: attempt.attempt,
            outcome: attempt.outcome.clone(),
            error_code: attempt.error_code.clone(),
            error_message: attempt.error_message.clone(),
        }
    }
}

/// The folder of all envelopes of one source: a key prefix that ends in a slash.
#[must_use]
pub fn folder(prefix: &str, queue: &QueueName) -> String {
    format!("{}envelopes/v1/{queue}/", root(prefix))
}

/// What every key of the vault begins with: nothing, or the prefix and a slash.
#[must_use]
pub fn root(prefix: &str) -> String {
    match prefix.trim_matches('/') {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    }
}

/// The key of one parking's envelope. The token makes it new, so nothing is ever overwritten.
///
/// # Errors
/// The prefix makes the key longer than 512 bytes or has characters that no key may have.
pub fn key(
    prefix: &str,
    queue: &QueueName,
    payload: &Sha256Hex,
    record: &RecordId,
    n: u32,
    token: &LeaseToken,
) -> Result<EnvelopeKey, IdError> {
    let folder = folder(prefix, queue);
    EnvelopeKey::new(format!("{folder}{payload}/{record}-{n}-{token}.json"))
}

mod rfc3339 {
    use super::{Deserialize, Deserializer, Serializer, Wall};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(wall: &Wall, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&wall.to_rfc3339())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Wall, D::Error> {
        let text = String::deserialize(deserializer)?;
        Wall::from_rfc3339(&text).map_err(serde::de::Error::custom)
    }
}

mod rfc3339_option {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Wall};

    #[expect(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(
        wall: &Option<Wall>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        wall.map(Wall::to_rfc3339).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Wall>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|t| Wall::from_rfc3339(&t)).transpose().map_err(serde::de::Error::custom)
    }
}

mod attribute_map {
    use super::{
        Attribute, Attributes, BTreeMap, Deserialize, Deserializer, Engine, STANDARD, Serialize,
        Serializer, Value,
    };

    #[derive(Serialize, Deserialize)]
    struct Stored {
        #[serde(rename = "type")]
        data_type: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        string: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        base64: Option<String>,
    }

    pub(super) fn serialize<S: Serializer>(
        attributes: &Attributes,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(attributes.iter().map(|(name, attribute)| {
            let (string, base64) = match &attribute.value {
                Value::Text(text) => (Some(text.clone()), None),
                Value::Binary(bytes) => (None, Some(STANDARD.encode(bytes))),
            };
            (name, Stored { data_type: attribute.data_type.clone(), string, base64 })
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Attributes, D::Error> {
        use serde::de::Error;
        let stored = BTreeMap::<String, Stored>::deserialize(deserializer)?;
        stored
            .into_iter()
            .map(|(name, stored)| {
                let value = match (stored.string, stored.base64) {
                    (Some(text), None) => Value::Text(text),
                    (None, Some(text)) => {
                        Value::Binary(STANDARD.decode(text).map_err(D::Error::custom)?)
                    }
                    (None, None) | (Some(_), Some(_)) => {
                        return Err(D::Error::custom("an attribute has one of string and base64"));
                    }
                };
                Ok((name, Attribute { data_type: stored.data_type, value }))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn sample() -> Envelope {
        Envelope {
            schema_version: SCHEMA_VERSION,
            record_id: RecordId::new("m-1").unwrap(),
            key: Sha256Hex::of(b"{}").into(),
            payload_sha256: Sha256Hex::of(b"{}"),
            queue_arn: QueueArn::new("arn:aws:sqs:us-east-1:000000000000:orders").unwrap(),
            reason: Reason::Validation,
            disposition: Disposition::Permanent,
            error_code: ErrorCode::normalize("ISRC_MALFORMED"),
            error_message: "full text".into(),
            validation_output: None,
            exception: None,
            confidence: Some(0.62),
            attempts: 3,
            redrive_count: 0,
            run_id: None,
            first_seen: Wall::from_ms(1_701_176_278_493),
            parked_at: Wall::from_ms(1_701_176_279_000),
            history: vec![],
            labels: BTreeMap::new(),
            payload_schema_version: None,
            message: MessageFacts {
                message_id: "m-1".into(),
                sent_at: Some(Wall::from_ms(1_701_176_278_493)),
                first_received_at: None,
                receive_count: Some(3),
                group_id: None,
                deduplication_id: None,
                sequence_number: None,
                trace_header: None,
            },
            attributes: Attributes::new(),
            payload: Payload { encoding: "utf-8".into(), body: "{}".into() },
            offloaded: None,
            worker: Worker { version: "0.1.0".into(), handler: "exec".into(), host: "h".into() },
        }
    }

    #[test]
    fn the_stored_form_is_as_documented() {
        let mut envelope = sample();
        envelope.attributes.insert(
            "name".into(),
            Attribute { data_type: "Number.int".into(), value: Value::Text("7".into()) },
        );
        envelope.attributes.insert(
            "blob".into(),
            Attribute { data_type: "Binary".into(), value: Value::Binary(vec![0, 255]) },
        );
        let json: serde_json::Value = serde_json::from_slice(&envelope.encode().unwrap()).unwrap();
        insta::assert_json_snapshot!(json);
    }

    #[test]
    fn unknown_fields_are_accepted_and_unknown_versions_refused() {
        let mut json = serde_json::to_value(sample()).unwrap();
        json["new_field"] = serde_json::json!({"a": 1});
        assert!(Envelope::decode(json.to_string().as_bytes()).is_ok());
        json["schema_version"] = 2.into();
        assert!(matches!(
            Envelope::decode(json.to_string().as_bytes()),
            Err(EnvelopeError::Version(2))
        ));
        assert!(Envelope::decode(b"<Error><Code>SlowDown</Code></Error>").is_err());
    }

    #[test]
    fn keys_hold_no_user_text_and_stay_in_their_folder() {
        let queue = QueueName::new("orders.fifo").unwrap();
        let record = RecordId::new("m-1").unwrap();
        let token = LeaseToken::new("t").unwrap();
        let hash = Sha256Hex::of(b"x");
        let bare = key("", &queue, &hash, &record, 0, &token).unwrap();
        assert!(bare.as_str().starts_with("envelopes/v1/orders.fifo/"));
        let nested = key("a/b/", &queue, &hash, &record, 2, &token).unwrap();
        assert!(nested.as_str().starts_with("a/b/envelopes/v1/"));
        assert!(nested.as_str().ends_with("/m-1-2-t.json"));
        assert!(key(&"p".repeat(500), &queue, &hash, &record, 0, &token).is_err());
    }

    proptest! {
        #[test]
        fn body_and_attributes_come_back_byte_for_byte(
            body in any::<String>(),
            text in any::<String>(),
            bytes in any::<Vec<u8>>(),
        ) {
            let mut envelope = sample();
            envelope.payload.body = body;
            envelope.attributes.insert(
                "t".into(), Attribute { data_type: "String.custom".into(), value: Value::Text(text) });
            envelope.attributes.insert(
                "b".into(), Attribute { data_type: "Binary.gzip".into(), value: Value::Binary(bytes) });
            prop_assert_eq!(Envelope::decode(&envelope.encode().unwrap()).unwrap(), envelope);
        }
    }
}
