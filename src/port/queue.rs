//! One SQS queue.

use std::time::Duration;

use async_trait::async_trait;

use super::error::PortError;
use super::evidence::{Deletable, Stored};
use crate::domain::id::{MessageId, QueueArn, QueueName, ReceiptHandle};
use crate::domain::message::{Outgoing, Received};

/// What GetQueueAttributes says of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueFacts {
    /// The queue's ARN.
    pub arn: QueueArn,
    /// Default visibility timeout.
    pub visibility_timeout: Duration,
    /// Message retention period.
    pub retention: Duration,
    /// `MaximumMessageSize` in bytes.
    pub max_message_bytes: usize,
    /// The native dead-letter policy.
    pub redrive_policy: Option<RedrivePolicy>,
    /// Approximate numbers of messages.
    pub depth: Depth,
}

/// SQS's native RedrivePolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedrivePolicy {
    /// `deadLetterTargetArn`.
    pub target: QueueArn,
    /// `maxReceiveCount`.
    pub max_receive_count: u32,
}

/// Approximate numbers of messages, as SQS tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Waiting.
    pub visible: u64,
    /// Received and not yet deleted or back.
    pub in_flight: u64,
    /// Not yet due.
    pub delayed: u64,
}

impl Depth {
    /// Whether so many messages are in flight that receives come back empty, or as OverLimit, though others
    /// wait: 120,000 are SQS's limit for a standard queue, 20,000 for a FIFO queue; a twentieth less counts.
    #[must_use]
    pub fn is_saturated(&self, queue: &QueueName) -> bool {
        let limit: u64 = if queue.is_fifo() { 20_000 } else { 120_000 };
        self.in_flight >= limit - limit / 20
    }
}

/// A SendMessage that SQS accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The new message's id.
    pub message_id: MessageId,
}

/// An entry of a batch that SQS did not carry out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}")]
pub struct EntryError {
    /// SQS's code.
    pub code: String,
    /// Whether the same entry would be refused again. Only this is a refusal; all else is unknown.
    pub sender_fault: bool,
}

/// One answer an entry, in the order asked.
pub type BatchAnswer<T> = Vec<Result<T, EntryError>>;

/// One queue. Batches hold 1 to 10 entries; answers come entry by entry.
#[async_trait]
pub trait Queue: Send + Sync + std::fmt::Debug {
    /// The queue's name.
    fn name(&self) -> &QueueName;

    /// Asks for the queue's attributes.
    ///
    /// # Errors
    /// The call failed.
    async fn facts(&self) -> Result<QueueFacts, PortError>;

    /// Asks which queues have a native policy that names this one.
    ///
    /// # Errors
    /// The call failed.
    async fn sources(&self) -> Result<Vec<QueueName>, PortError>;

    /// Long-polls for up to `max` (1 to 10) messages, for at most `wait` (0 to 20 s). They stay hidden
    /// for `visibility`, or the queue's default.
    ///
    /// # Errors
    /// The call failed: messages may have been handed out all the same.
    async fn receive(
        &self,
        max: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, PortError>;

    /// Sends messages.
    ///
    /// # Errors
    /// The call failed: whether any message was accepted is unknown.
    async fn send(&self, messages: &[Outgoing])
    -> Result<BatchAnswer<Stored<Accepted>>, PortError>;

    /// Deletes messages, each with its evidence.
    ///
    /// # Errors
    /// The call failed: whether any message was deleted is unknown.
    async fn delete(&self, messages: &[Deletable]) -> Result<BatchAnswer<()>, PortError>;

    /// Sets when messages become visible again, counted from now.
    ///
    /// # Errors
    /// The call failed: whether any timeout was changed is unknown.
    async fn change_visibility(
        &self,
        changes: &[(ReceiptHandle, Duration)],
    ) -> Result<BatchAnswer<()>, PortError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_b5_a_queue_whose_in_flight_limit_is_reached_is_not_drained() {
        let saturated = |name: &str, in_flight| {
            let depth = Depth { visible: 5_000, in_flight, delayed: 0 };
            depth.is_saturated(&QueueName::new(name).unwrap())
        };
        assert!(saturated("orders", 120_000) && saturated("orders", 114_000));
        assert!(!saturated("orders", 113_999) && !saturated("orders", 0));
        assert!(saturated("orders.fifo", 19_000) && !saturated("orders.fifo", 18_999));
    }
}
