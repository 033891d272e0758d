//! The work itself, in any language: one job in, one outcome out.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::error::PortError;
use crate::domain::failure::{Done, Failure};
use crate::domain::id::{EntryKey, MessageId, QueueName, RecordId, RunId};
use crate::domain::message::Attributes;

/// One attempt's input.
#[derive(Debug, Clone)]
pub struct Job {
    /// The payload, exactly as hashed.
    pub payload: Bytes,
    /// The producer's attributes (without ours).
    pub attributes: Attributes,
    /// The entry's key.
    pub key: EntryKey,
    /// The entry's generation: with the key, the idempotency key.
    pub generation: u64,
    /// The original MessageId.
    pub record_id: RecordId,
    /// The MessageId of this delivery.
    pub message_id: MessageId,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// `ApproximateReceiveCount`, if SQS said it.
    pub receive_count: Option<u32>,
    /// The source queue.
    pub queue: QueueName,
    /// The message group, if any.
    pub group_id: Option<String>,
    /// The redrive run that sent this copy, if it is one.
    pub run_id: Option<RunId>,
}

impl Job {
    /// `<key>-<generation>`: the same for every attempt at the same work, never used again for other work.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}", self.key, self.generation)
    }
}

/// An attempt that is not done.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The work failed: the message's fault, or unknown.
    #[error("{} {}", .0.outcome(), .0.error_code)]
    Failed(Box<Failure>),
    /// The handler could not be reached: nobody's fault (G6).
    #[error(transparent)]
    Unreachable(PortError),
}

/// Runs jobs. Dropping the future of [`Handler::run`] stops the attempt and frees what it holds.
#[async_trait]
pub trait Handler: Send + Sync + std::fmt::Debug {
    /// `exec`, `http`, `lambda` or `library`, as the envelope names it.
    fn kind(&self) -> &'static str;

    /// Checks at start that the handler can be reached at all.
    ///
    /// # Errors
    /// What is missing, in one line that names it.
    async fn check(&self) -> Result<(), String>;

    /// Runs one attempt, for at most `timeout`.
    ///
    /// # Errors
    /// The attempt is not done: see [`HandlerError`].
    async fn run(&self, job: &Job, timeout: Duration) -> Result<Done, HandlerError>;
}
