//! A queue with faults: its calls are named with the queue, `queue.send orders`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Faults;
use crate::domain::id::{QueueName, ReceiptHandle};
use crate::domain::message::{Outgoing, Received};
use crate::port::error::{PortError, Target};
use crate::port::evidence::{Deletable, Stored};
use crate::port::queue::{Accepted, BatchAnswer, Queue, QueueFacts};

/// A queue with faults.
#[derive(Debug, Clone)]
pub struct FaultQueue {
    inner: Arc<dyn Queue>,
    faults: Faults,
}

impl FaultQueue {
    /// Wraps a queue.
    #[must_use]
    pub const fn new(inner: Arc<dyn Queue>, faults: Faults) -> Self {
        Self { inner, faults }
    }

    async fn around<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, PortError>>,
    ) -> Result<T, PortError> {
        self.faults.around(Target::Sqs, operation, self.inner.name().as_str(), call).await
    }
}

#[async_trait]
impl Queue for FaultQueue {
    fn name(&self) -> &QueueName {
        self.inner.name()
    }

    async fn facts(&self) -> Result<QueueFacts, PortError> {
        self.around("queue.facts", self.inner.facts()).await
    }

    async fn sources(&self) -> Result<Vec<QueueName>, PortError> {
        self.around("queue.sources", self.inner.sources()).await
    }

    async fn receive(
        &self,
        max: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, PortError> {
        self.around("queue.receive", self.inner.receive(max, wait, visibility)).await
    }

    async fn send(
        &self,
        messages: &[Outgoing],
    ) -> Result<BatchAnswer<Stored<Accepted>>, PortError> {
        self.around("queue.send", self.inner.send(messages)).await
    }

    async fn delete(&self, messages: &[Deletable]) -> Result<BatchAnswer<()>, PortError> {
        self.around("queue.delete", self.inner.delete(messages)).await
    }

    async fn change_visibility(
        &self,
        changes: &[(ReceiptHandle, Duration)],
    ) -> Result<BatchAnswer<()>, PortError> {
        self.around("queue.change_visibility", self.inner.change_visibility(changes)).await
    }
}
