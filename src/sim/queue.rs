//! The queue port on the shared engine.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::shared::SharedEngine;
use super::sqs::{Entries, ReceiveMessage, SqsError};
use crate::domain::failure::ErrorClass;
use crate::domain::id::{QueueName, ReceiptHandle};
use crate::domain::message::{Outgoing, Received};
use crate::port::error::{PortError, Target};
use crate::port::evidence::{Deletable, Stored};
use crate::port::queue::{Accepted, BatchAnswer, EntryError, Queue, QueueFacts};

/// One queue of a shared engine.
#[derive(Debug, Clone)]
pub struct SimQueue {
    engine: Arc<SharedEngine>,
    name: QueueName,
}

impl SimQueue {
    /// The queue of this name, which need not exist yet.
    #[must_use]
    pub const fn new(engine: Arc<SharedEngine>, name: QueueName) -> Self {
        Self { engine, name }
    }

    fn error(&self, operation: &'static str, error: &SqsError) -> PortError {
        let class = match error {
            SqsError::QueueDoesNotExist | SqsError::ResourceNotFound(_) => ErrorClass::NotFound,
            SqsError::OverLimit => ErrorClass::Throttled,
            _ => ErrorClass::Invalid,
        };
        PortError::new(class, Target::Sqs, operation, self.name.as_str(), error.query_code())
    }
}

#[async_trait]
impl Queue for SimQueue {
    fn name(&self) -> &QueueName {
        &self.name
    }

    async fn facts(&self) -> Result<QueueFacts, PortError> {
        self.engine
            .with(|engine, now| engine.facts(now, &self.name))
            .map_err(|error| self.error("GetQueueAttributes", &error))
    }

    async fn sources(&self) -> Result<Vec<QueueName>, PortError> {
        self.engine
            .with(|engine, _| engine.dead_letter_sources(&self.name))
            .map_err(|error| self.error("ListDeadLetterSourceQueues", &error))
    }

    async fn receive(
        &self,
        max: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, PortError> {
        let request = ReceiveMessage { max, visibility, attempt_id: None };
        self.engine
            .receive(&self.name, &request, Some(wait))
            .await
            .map_err(|error| self.error("ReceiveMessage", &error))
    }

    async fn send(
        &self,
        messages: &[Outgoing],
    ) -> Result<BatchAnswer<Stored<Accepted>>, PortError> {
        let entries = numbered(messages.iter().cloned().map(Into::into));
        let sent = self
            .engine
            .with(|engine, now| engine.send_batch(now, &self.name, entries))
            .map_err(|error| self.error("SendMessageBatch", &error))?;
        let stored = answers(sent).into_iter().map(|answer| {
            answer.map(|sent| Stored::witnessed(Accepted { message_id: sent.message_id }))
        });
        Ok(stored.collect())
    }

    async fn delete(&self, messages: &[Deletable]) -> Result<BatchAnswer<()>, PortError> {
        let entries = numbered(messages.iter().map(|message| message.receipt().clone()));
        self.engine
            .with(|engine, now| engine.delete_batch(now, &self.name, entries))
            .map(answers)
            .map_err(|error| self.error("DeleteMessageBatch", &error))
    }

    async fn change_visibility(
        &self,
        changes: &[(ReceiptHandle, Duration)],
    ) -> Result<BatchAnswer<()>, PortError> {
        let entries = numbered(changes.iter().cloned())
            .into_iter()
            .map(|(id, (handle, timeout))| (id, handle, timeout))
            .collect();
        self.engine
            .with(|engine, now| engine.change_visibility_batch(now, &self.name, entries))
            .map(answers)
            .map_err(|error| self.error("ChangeMessageVisibilityBatch", &error))
    }
}

fn numbered<T>(entries: impl Iterator<Item = T>) -> Vec<(String, T)> {
    entries.enumerate().map(|(n, entry)| (n.to_string(), entry)).collect()
}

/// The engine answers in the order asked, so the ids have done their work.
fn answers<T>(entries: Entries<T>) -> BatchAnswer<T> {
    let error =
        |error: SqsError| EntryError { code: error.query_code().to_owned(), sender_fault: true };
    entries.into_iter().map(|(_, answer)| answer.map_err(error)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Wall;
    use crate::sim::clock::SimClock;
    use crate::sim::sqs::Engine;

    fn body(text: &str) -> Outgoing {
        Outgoing { body: text.to_owned(), ..Outgoing::default() }
    }

    fn queue(create: bool) -> SimQueue {
        let clock = Arc::new(SimClock::starting_at(Wall::from_ms(1_000_000)));
        let engine = Arc::new(SharedEngine::new(Engine::new(1), clock));
        if create {
            engine
                .with(|e, now| e.create_queue(now, "q", &Default::default(), Default::default()))
                .unwrap();
        }
        SimQueue::new(engine, QueueName::new("q").unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_answered_entry_by_entry_in_the_order_asked() {
        let queue = queue(true);
        let sent = queue.send(&[body("a"), body("\u{0}"), body("b")]).await.unwrap();
        assert!(sent[0].is_ok() && sent[2].is_ok());
        assert_eq!(sent[1].as_ref().unwrap_err().code, "InvalidMessageContents");
        let got = queue.receive(10, Duration::ZERO, None).await.unwrap();
        assert_eq!(got.len(), 2);
        let back = [(got[1].receipt.clone(), Duration::ZERO)];
        assert_eq!(queue.change_visibility(&back).await.unwrap(), [Ok(())]);
        assert_eq!(queue.receive(10, Duration::ZERO, None).await.unwrap()[0].body, "b");
        assert_eq!(queue.facts().await.unwrap().depth.in_flight, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_queue_is_not_found() {
        let error = queue(false).facts().await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::NotFound);
    }
}
