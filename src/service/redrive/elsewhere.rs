//! Copies that go to another queue than their source: to the redriver it is the source all the same, which
//! is only reached in another place. The name stays, since records are of the source they failed in.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Redriver;
use crate::domain::id::{QueueName, ReceiptHandle};
use crate::domain::message::{Outgoing, Received};
use crate::port::error::PortError;
use crate::port::evidence::{Deletable, Stored};
use crate::port::queue::{Accepted, BatchAnswer, Queue, QueueFacts};

#[derive(Debug)]
struct Elsewhere {
    source: QueueName,
    queue: Arc<dyn Queue>,
}

impl Redriver {
    /// The same redriver, whose copies go to another queue.
    #[must_use]
    pub fn sending_to(self, queue: Arc<dyn Queue>, max_message_bytes: usize) -> Self {
        let (source, to) = (self.source.name().clone(), queue.name().clone());
        let source = Arc::new(Elsewhere { source, queue });
        Self { source, to: Some(to), max_message_bytes, ..self }
    }
}

#[async_trait]
impl Queue for Elsewhere {
    fn name(&self) -> &QueueName {
        &self.source
    }

    async fn facts(&self) -> Result<QueueFacts, PortError> {
        self.queue.facts().await
    }

    async fn sources(&self) -> Result<Vec<QueueName>, PortError> {
        self.queue.sources().await
    }

    async fn receive(
        &self,
        max: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, PortError> {
        self.queue.receive(max, wait, visibility).await
    }

    async fn send(
        &self,
        messages: &[Outgoing],
    ) -> Result<BatchAnswer<Stored<Accepted>>, PortError> {
        self.queue.send(messages).await
    }

    async fn delete(&self, messages: &[Deletable]) -> Result<BatchAnswer<()>, PortError> {
        self.queue.delete(messages).await
    }

    async fn change_visibility(
        &self,
        changes: &[(ReceiptHandle, Duration)],
    ) -> Result<BatchAnswer<()>, PortError> {
        self.queue.change_visibility(changes).await
    }
}
