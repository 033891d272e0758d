//! One SQS queue.
//!
//! All system and message attributes are asked for; what SQS leaves out, or says in a form of its own,
//! is `None`. Batch answers are matched to their entries by id: an entry that no list names is an error,
//! never a success. Message MD5s are checked by the SDK.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};

use super::batch::{self, in_order};
use super::client::{Aws, receive_timeouts};
use super::error::Call;
use super::message;
use crate::domain::id::{MessageId, QueueArn, QueueName, ReceiptHandle};
use crate::domain::message::{MAX_VISIBILITY_SECS, Outgoing, Received};
use crate::port::error::{PortError, Target};
use crate::port::evidence::{Deletable, Stored};
use crate::port::queue::{
    Accepted, BatchAnswer, Depth, EntryError, Queue, QueueFacts, RedrivePolicy,
};

/// The most sources in one answer; without a number SQS does not say that there are more.
const SOURCES_PAGE: i32 = 1_000;

/// A queue of SQS.
#[derive(Debug, Clone)]
pub struct AwsQueue {
    client: Client,
    name: QueueName,
    url: String,
}

/// What a queue is called: `name`, and the account where it is told.
fn named(queue: &str) -> Option<(QueueName, Option<&str>)> {
    let mut parts = if queue.starts_with("arn:") {
        queue.rsplit(':')
    } else if queue.contains("://") {
        queue.trim_end_matches('/').rsplit('/')
    } else {
        return QueueName::new(queue).ok().map(|name| (name, None));
    };
    let name = QueueName::new(parts.next()?).ok()?;
    let account = parts.next().filter(|a| a.len() == 12 && a.bytes().all(|b| b.is_ascii_digit()));
    Some((name, account))
}

impl AwsQueue {
    /// Finds a queue by its name, URL or ARN.
    ///
    /// # Errors
    /// The text names no queue, there is none of this name, or the call failed.
    pub async fn resolve(aws: &Aws, queue: &str) -> Result<Self, PortError> {
        let call = Call::new(Target::Sqs, "GetQueueUrl", queue);
        let (name, account) =
            named(queue).ok_or_else(|| call.invalid("no queue name, URL or ARN"))?;
        let answer = aws
            .sqs
            .get_queue_url()
            .queue_name(name.as_str())
            .set_queue_owner_aws_account_id(account.map(str::to_owned))
            .send()
            .await
            .map_err(|e| call.failed(&e))?;
        let url = answer.queue_url.ok_or_else(|| call.nonsense("answer without URL"))?;
        Ok(Self { client: aws.sqs.clone(), name, url })
    }

    fn call(&self, operation: &'static str) -> Call<'_> {
        Call::new(Target::Sqs, operation, self.name.as_str())
    }
}

/// Whole seconds, as SQS takes them: rounded up, so that nothing becomes visible too early.
fn visibility_secs(visibility: Duration) -> i32 {
    let up = u64::from(visibility.subsec_nanos() > 0);
    let secs = visibility.as_secs().saturating_add(up).min(MAX_VISIBILITY_SECS);
    i32::try_from(secs).unwrap_or(i32::MAX)
}

#[async_trait]
impl Queue for AwsQueue {
    fn name(&self) -> &QueueName {
        &self.name
    }

    async fn facts(&self) -> Result<QueueFacts, PortError> {
        let call = self.call("GetQueueAttributes");
        let answer = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .attribute_names(QueueAttributeName::All)
            .send()
            .await
            .map_err(|e| call.failed(&e))?;
        let attributes = answer.attributes.unwrap_or_default();
        facts(|name| attributes.get(&name).map(String::as_str))
            .map_err(|name| call.nonsense(format!("attribute {name} cannot be read")))
    }

    async fn sources(&self) -> Result<Vec<QueueName>, PortError> {
        let call = self.call("ListDeadLetterSourceQueues");
        let request = self.client.list_dead_letter_source_queues().queue_url(&self.url);
        let mut pages = request.into_paginator().page_size(SOURCES_PAGE).items().send();
        let mut sources = Vec::new();
        while let Some(url) = pages.next().await {
            let url = url.map_err(|e| call.failed(&e))?;
            let (name, _) = named(&url).ok_or_else(|| call.nonsense(format!("queue URL {url}")))?;
            sources.push(name);
        }
        Ok(sources)
    }

    async fn receive(
        &self,
        max: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, PortError> {
        let timeouts = aws_sdk_sqs::config::Builder::new().timeout_config(receive_timeouts(wait));
        let answer = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(max).unwrap_or(i32::MAX))
            .wait_time_seconds(i32::try_from(wait.as_secs()).unwrap_or(i32::MAX))
            .set_visibility_timeout(visibility.map(visibility_secs))
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .customize()
            .config_override(timeouts)
            .send()
            .await
            .map_err(|e| self.call("ReceiveMessage").failed(&e))?;
        let messages = answer.messages.unwrap_or_default();
        let received = messages.into_iter().filter_map(|raw| {
            let received = message::received(raw);
            if received.is_none() {
                tracing::warn!(queue = %self.name, "message without usable id or receipt is left alone");
            }
            received
        });
        Ok(received.collect())
    }

    async fn send(
        &self,
        messages: &[Outgoing],
    ) -> Result<BatchAnswer<Stored<Accepted>>, PortError> {
        let call = self.call("SendMessageBatch");
        let entries = messages.iter().enumerate().map(|(id, m)| message::send_entry(id, m));
        let entries = entries.collect::<Option<Vec<_>>>();
        let entries = entries.ok_or_else(|| call.invalid("attribute without type"))?;
        let request = self.client.send_message_batch().queue_url(&self.url);
        let answer =
            request.set_entries(Some(entries)).send().await.map_err(|e| call.failed(&e))?;
        let accepted = answer.successful.into_iter().map(|ok| (ok.id, ok.message_id));
        Ok(in_order(messages.len(), accepted, answer.failed)
            .into_iter()
            .map(|entry| entry.and_then(accept))
            .collect())
    }

    async fn delete(&self, messages: &[Deletable]) -> Result<BatchAnswer<()>, PortError> {
        let call = self.call("DeleteMessageBatch");
        let entries =
            messages.iter().enumerate().map(|(id, m)| batch::delete_entry(id, m.receipt()));
        let entries = entries.collect::<Option<Vec<_>>>();
        let request = self.client.delete_message_batch().queue_url(&self.url);
        let answer = request.set_entries(entries).send().await.map_err(|e| call.failed(&e))?;
        let deleted = answer.successful.into_iter().map(|ok| (ok.id, ()));
        Ok(in_order(messages.len(), deleted, answer.failed))
    }

    async fn change_visibility(
        &self,
        changes: &[(ReceiptHandle, Duration)],
    ) -> Result<BatchAnswer<()>, PortError> {
        let call = self.call("ChangeMessageVisibilityBatch");
        let entries = changes.iter().enumerate().map(|(id, (receipt, visibility))| {
            batch::visibility_entry(id, receipt, visibility_secs(*visibility))
        });
        let entries = entries.collect::<Option<Vec<_>>>();
        let request = self.client.change_message_visibility_batch().queue_url(&self.url);
        let answer = request.set_entries(entries).send().await.map_err(|e| call.failed(&e))?;
        let changed = answer.successful.into_iter().map(|ok| (ok.id, ()));
        Ok(in_order(changes.len(), changed, answer.failed))
    }
}

/// The evidence of an accepted entry.
fn accept(message_id: String) -> Result<Stored<Accepted>, EntryError> {
    MessageId::new(message_id)
        .map(|message_id| Stored::witnessed(Accepted { message_id }))
        .map_err(|_| EntryError { code: "UnusableMessageId".to_owned(), sender_fault: false })
}

/// Reads a queue's attributes; the error is the name of one that cannot be read.
fn facts<'a>(
    attribute: impl Fn(QueueAttributeName) -> Option<&'a str>,
) -> Result<QueueFacts, QueueAttributeName> {
    use QueueAttributeName as Q;
    let number = |name: Q, default: u64| match attribute(name.clone()) {
        None => Ok(default),
        Some(digits) => digits.parse().map_err(|_| name),
    };
    let arn = attribute(Q::QueueArn).and_then(|arn| QueueArn::new(arn).ok());
    let largest = number(Q::MaximumMessageSize, 1_048_576)?;
    let policy = match attribute(Q::RedrivePolicy).filter(|policy| !policy.is_empty()) {
        None => None,
        Some(policy) => Some(redrive_policy(policy).ok_or(Q::RedrivePolicy)?),
    };
    Ok(QueueFacts {
        arn: arn.ok_or(Q::QueueArn)?,
        visibility_timeout: Duration::from_secs(number(Q::VisibilityTimeout, 30)?),
        retention: Duration::from_secs(number(Q::MessageRetentionPeriod, 345_600)?),
        max_message_bytes: usize::try_from(largest).map_err(|_| Q::MaximumMessageSize)?,
        redrive_policy: policy,
        depth: Depth {
            visible: number(Q::ApproximateNumberOfMessages, 0)?,
            in_flight: number(Q::ApproximateNumberOfMessagesNotVisible, 0)?,
            delayed: number(Q::ApproximateNumberOfMessagesDelayed, 0)?,
        },
    })
}

/// SQS takes `maxReceiveCount` as a number or a text, and gives it back as it came.
fn redrive_policy(policy: &str) -> Option<RedrivePolicy> {
    let policy: serde_json::Value = serde_json::from_str(policy).ok()?;
    let target = QueueArn::new(policy.get("deadLetterTargetArn")?.as_str()?).ok()?;
    let count = policy.get("maxReceiveCount")?;
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok())?;
    Some(RedrivePolicy { target, max_receive_count: u32::try_from(count).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_named_by_name_url_or_arn() {
        let account = Some("123456789012");
        for (text, name, owner) in [
            ("orders", "orders", None),
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/orders", "orders", account),
            ("http://127.0.0.1:4566/orders.fifo/", "orders.fifo", None),
            ("arn:aws:sqs:eu-west-1:123456789012:orders.fifo", "orders.fifo", account),
        ] {
            let found = named(text).map(|(name, owner)| (name.to_string(), owner));
            assert_eq!(found, Some((name.to_owned(), owner)), "{text}");
        }
        assert_eq!(named("no queue"), None);
    }

    #[test]
    fn visibility_is_whole_seconds_rounded_up_within_the_limit() {
        for (millis, secs) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (50_000_000, 43_200)] {
            assert_eq!(visibility_secs(Duration::from_millis(millis)), secs);
        }
    }

    #[test]
    fn a_redrive_policy_is_read_with_a_number_or_a_text() {
        for count in ["5", "\"5\""] {
            let policy = format!(
                r#"{{"deadLetterTargetArn":"arn:aws:sqs:r:1:dlq","maxReceiveCount":{count}}}"#
            );
            assert_eq!(redrive_policy(&policy).map(|p| p.max_receive_count), Some(5));
        }
        assert_eq!(redrive_policy("{}"), None);
    }
}
