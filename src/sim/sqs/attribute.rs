//! A queue's attributes: their names, ranges and defaults.
//!
//! Each is kept as the text it was set with, as GetQueueAttributes gives it back, and those that the
//! engine acts on also parsed. Policies of access and encryption are kept and not acted on.
//! Whether a RedrivePolicy's target exists is judged by the engine, which knows the other queues.
//! Source of ranges: Amazon SQS API Reference, SetQueueAttributes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::error::SqsError;
use crate::domain::id::QueueArn;
use crate::domain::message::{MAX_MESSAGE_BYTES, MAX_VISIBILITY_SECS};
use crate::port::queue::RedrivePolicy;

/// Names and texts of attributes, as they travel.
pub type AttributeMap = BTreeMap<String, String>;

/// Which queues may name this one as their dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum RedriveAllow {
    #[default]
    All,
    None,
    Only(Vec<String>),
}

/// The attributes of one queue.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    texts: AttributeMap,
    pub(super) fifo: bool,
    pub(super) delay: Duration,
    pub(super) max_message_bytes: usize,
    pub(super) retention: Duration,
    pub(super) receive_wait: Duration,
    pub(super) visibility: Duration,
    pub(super) redrive: Option<RedrivePolicy>,
    pub(super) redrive_allow: RedriveAllow,
    pub(super) content_based_deduplication: bool,
    pub(super) deduplicates_per_group: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicyText {
    dead_letter_target_arn: String,
    max_receive_count: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedriveAllowText {
    #[serde(default)]
    redrive_permission: Option<String>,
    #[serde(default)]
    source_queue_arns: Vec<String>,
}

impl Settings {
    /// The defaults of a new queue.
    pub(super) fn new(fifo: bool) -> Self {
        let mut texts: AttributeMap = [
            ("DelaySeconds", "0"),
            ("MaximumMessageSize", "1048576"),
            ("MessageRetentionPeriod", "345600"),
            ("ReceiveMessageWaitTimeSeconds", "0"),
            ("VisibilityTimeout", "30"),
            ("SqsManagedSseEnabled", "true"),
        ]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
        if fifo {
            for (name, text) in [
                ("FifoQueue", "true"),
                ("ContentBasedDeduplication", "false"),
                ("DeduplicationScope", "queue"),
                ("FifoThroughputLimit", "perQueue"),
            ] {
                texts.insert(name.to_owned(), text.to_owned());
            }
        }
        Self {
            texts,
            fifo,
            delay: Duration::ZERO,
            max_message_bytes: MAX_MESSAGE_BYTES,
            retention: Duration::from_secs(345_600),
            receive_wait: Duration::ZERO,
            visibility: Duration::from_secs(30),
            redrive: None,
            redrive_allow: RedriveAllow::All,
            content_based_deduplication: false,
            deduplicates_per_group: false,
        }
    }

    /// The attributes as they were set.
    pub(super) const fn texts(&self) -> &AttributeMap {
        &self.texts
    }

    /// Sets attributes, all or none.
    pub(super) fn with(&self, attributes: &AttributeMap) -> Result<Self, SqsError> {
        let mut settings = self.clone();
        for (name, text) in attributes {
            settings.set(name, text)?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), SqsError> {
        let refused = || SqsError::InvalidAttributeValue(name.to_owned());
        let secs = |range| number(text, range).map(Duration::from_secs).ok_or_else(refused);
        let mut kept = Some(text.to_owned());
        match name {
            "DelaySeconds" => self.delay = secs(0..=900)?,
            "MessageRetentionPeriod" => self.retention = secs(60..=1_209_600)?,
            "ReceiveMessageWaitTimeSeconds" => self.receive_wait = secs(0..=20)?,
            "VisibilityTimeout" => self.visibility = secs(0..=MAX_VISIBILITY_SECS)?,
            "MaximumMessageSize" => {
                self.max_message_bytes = number(text, 1_024..=MAX_MESSAGE_BYTES as u64)
                    .and_then(|bytes| usize::try_from(bytes).ok())
                    .ok_or_else(refused)?;
            }
            "RedrivePolicy" => {
                self.redrive = parse_redrive(text).ok_or_else(refused)?;
                kept = self.redrive.as_ref().map(redrive_text);
            }
            "RedriveAllowPolicy" => {
                self.redrive_allow = parse_allow(text).ok_or_else(refused)?;
                kept = kept.filter(|text| !text.is_empty());
            }
            "FifoQueue" if self.fifo && text == "true" => {}
            "ContentBasedDeduplication" if self.fifo => {
                self.content_based_deduplication = text.parse().map_err(|_| refused())?;
            }
            "DeduplicationScope" if self.fifo => {
                self.deduplicates_per_group = match text {
                    "queue" => false,
                    "messageGroup" => true,
                    _ => return Err(refused()),
                };
            }
            "FifoThroughputLimit" if self.fifo => {
                if !["perQueue", "perMessageGroupId"].contains(&text) {
                    return Err(refused());
                }
            }
            "KmsMasterKeyId" => {
                let managed = text.is_empty().to_string();
                self.texts.insert("SqsManagedSseEnabled".to_owned(), managed);
                kept = kept.filter(|text| !text.is_empty());
            }
            "Policy" => kept = kept.filter(|text| !text.is_empty()),
            "KmsDataKeyReusePeriodSeconds" => {
                number(text, 60..=86_400).ok_or_else(refused)?;
            }
            "SqsManagedSseEnabled" => {
                text.parse::<bool>().map_err(|_| refused())?;
            }
            _ => return Err(SqsError::InvalidAttributeName(name.to_owned())),
        }
        match kept {
            Some(text) => self.texts.insert(name.to_owned(), text),
            None => self.texts.remove(name),
        };
        Ok(())
    }
}

fn number(text: &str, range: RangeInclusive<u64>) -> Option<u64> {
    text.parse().ok().filter(|n| range.contains(n))
}

/// `None`: refused. `Some(None)`: an empty text takes the policy away.
fn parse_redrive(text: &str) -> Option<Option<RedrivePolicy>> {
    if text.is_empty() {
        return Some(None);
    }
    let policy: RedrivePolicyText = serde_json::from_str(text).ok()?;
    let max_receive_count = match policy.max_receive_count {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
    .filter(|count| (1..=1_000).contains(count))?;
    Some(Some(RedrivePolicy {
        target: QueueArn::new(policy.dead_letter_target_arn).ok()?,
        max_receive_count: u32::try_from(max_receive_count).ok()?,
    }))
}

fn redrive_text(policy: &RedrivePolicy) -> String {
    json!({
        "deadLetterTargetArn": policy.target.as_str(),
        "maxReceiveCount": policy.max_receive_count,
    })
    .to_string()
}

fn parse_allow(text: &str) -> Option<RedriveAllow> {
    if text.is_empty() {
        return Some(RedriveAllow::All);
    }
    let RedriveAllowText { redrive_permission, source_queue_arns } =
        serde_json::from_str(text).ok()?;
    match (redrive_permission.as_deref(), source_queue_arns.len()) {
        (None | Some("allowAll"), 0) => Some(RedriveAllow::All),
        (Some("denyAll"), 0) => Some(RedriveAllow::None),
        (Some("byQueue"), 1..=10) => Some(RedriveAllow::Only(source_queue_arns)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(fifo: bool, name: &str, text: &str) -> Result<Settings, SqsError> {
        Settings::new(fifo).with(&[(name.to_owned(), text.to_owned())].into())
    }

    #[test]
    fn ranges_are_enforced_at_both_ends() {
        for (name, low, high) in [
            ("DelaySeconds", 0, 900),
            ("MessageRetentionPeriod", 60, 1_209_600),
            ("ReceiveMessageWaitTimeSeconds", 0, 20),
            ("VisibilityTimeout", 0, 43_200),
            ("MaximumMessageSize", 1_024, 1_048_576),
        ] {
            assert!(set(false, name, &format!("{low}")).is_ok(), "{name} {low}");
            assert!(set(false, name, &format!("{high}")).is_ok(), "{name} {high}");
            assert!(set(false, name, &format!("{}", high + 1)).is_err(), "{name} above");
            assert!(set(false, name, &format!("{}", low - 1)).is_err(), "{name} below");
        }
    }

    #[test]
    fn attributes_of_fifo_are_unknown_to_standard_queues() {
        assert!(set(true, "ContentBasedDeduplication", "true").is_ok());
        for name in ["ContentBasedDeduplication", "FifoQueue", "Colour"] {
            assert_eq!(
                set(false, name, "true").err(),
                Some(SqsError::InvalidAttributeName(name.to_owned()))
            );
        }
    }

    #[test]
    fn a_redrive_policy_takes_its_count_as_number_or_text_and_is_removed_by_an_empty_text() {
        let arn = "arn:aws:sqs:us-east-1:000000000000:dead";
        for count in ["3", "\"3\""] {
            let text = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{count}}}"#);
            let settings = set(false, "RedrivePolicy", &text).unwrap();
            assert_eq!(settings.redrive.as_ref().unwrap().max_receive_count, 3);
            let removed =
                settings.with(&[("RedrivePolicy".to_owned(), String::new())].into()).unwrap();
            assert_eq!(removed.redrive, None);
            assert!(!removed.texts().contains_key("RedrivePolicy"));
        }
        for count in ["0", "1001", "1.5", "null"] {
            let text = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{count}}}"#);
            assert!(set(false, "RedrivePolicy", &text).is_err(), "{count}");
        }
    }

    #[test]
    fn nothing_is_set_when_one_attribute_is_refused() {
        let both = [("DelaySeconds", "5"), ("VisibilityTimeout", "x")];
        let both = both.into_iter().map(|(n, t)| (n.to_owned(), t.to_owned())).collect();
        assert!(Settings::new(false).with(&both).is_err());
    }
}
