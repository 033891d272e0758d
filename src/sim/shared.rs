//! The engine, shared: a lock, a clock, and the waiting that makes a receive a long poll.
//!
//! A poll sleeps until a call touches its queue, until the next thing is due, or until its time is over,
//! and looks again. It runs under tokio's paused time. The lock is never held across an await.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::sqs::{Engine, ReceiveMessage, SqsError};
use crate::domain::id::QueueName;
use crate::domain::message::Received;
use crate::domain::time::Wall;
use crate::port::clock::Clock;

/// An engine that many tasks use.
#[derive(Debug)]
pub struct SharedEngine {
    inner: Mutex<Inner>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    polls: HashMap<QueueName, Arc<Notify>>,
}

impl SharedEngine {
    /// Shares an engine whose `now` is this clock's.
    #[must_use]
    pub fn new(engine: Engine, clock: Arc<dyn Clock>) -> Self {
        Self { inner: Mutex::new(Inner { engine, polls: HashMap::new() }), clock }
    }

    /// Runs one operation, and wakes the polls of the queues that it touched.
    pub fn with<T>(&self, operation: impl FnOnce(&mut Engine, Wall) -> T) -> T {
        let now = self.clock.wall();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = operation(&mut inner.engine, now);
        for queue in inner.engine.take_touched() {
            if let Some(poll) = inner.polls.get(&queue) {
                poll.notify_waiters();
            }
        }
        answer
    }

    /// Makes every poll look again, as after a step of the wall clock.
    pub fn wake_all(&self) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.polls.values().for_each(|poll| poll.notify_waiters());
    }

    /// ReceiveMessage, waiting for at most `wait` (the queue's own wait when absent) for a first message.
    ///
    /// # Errors
    /// As [`Engine::receive`]; also when the queue is deleted meanwhile.
    pub async fn receive(
        &self,
        queue: &QueueName,
        request: &ReceiveMessage,
        wait: Option<Duration>,
    ) -> Result<Vec<Received>, SqsError> {
        let wait = match wait {
            Some(wait) => wait,
            None => self.with(|engine, _| engine.receive_wait(queue))?,
        };
        let deadline = self.clock.mono().plus(wait);
        let poll = self.poll_of(queue);
        loop {
            let mut woken = pin!(poll.notified());
            woken.as_mut().enable();
            let (received, due) = self.with(|engine, now| {
                let received = engine.receive(now, queue, request);
                (received, engine.next_due(queue).map(|due| due.since(now)))
            });
            let received = received?;
            let left = deadline.since(self.clock.mono());
            if !received.is_empty() || left.is_zero() {
                return Ok(received);
            }
            // A millisecond is the engine's smallest step: without it, a due time that is already past
            // would spin.
            let pause = due.map_or(left, |due| due.max(Duration::from_millis(1)).min(left));
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Whether anyone has ever polled the queue of this name.
    #[cfg(all(test, feature = "local"))]
    pub(crate) fn is_polled(&self, queue: &str) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.polls.keys().any(|name| name.as_str() == queue)
    }

    fn poll_of(&self, queue: &QueueName) -> Arc<Notify> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(inner.polls.entry(queue.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::Outgoing;
    use crate::sim::clock::SimClock;

    fn shared() -> (Arc<SharedEngine>, QueueName) {
        let clock = Arc::new(SimClock::starting_at(Wall::from_ms(1_000_000)));
        let shared = Arc::new(SharedEngine::new(Engine::new(1), clock));
        let queue = shared
            .with(|e, now| e.create_queue(now, "q", &Default::default(), Default::default()))
            .unwrap();
        (shared, queue)
    }

    fn send(shared: &SharedEngine, queue: &QueueName) {
        let message = Outgoing { body: "x".into(), ..Outgoing::default() };
        shared.with(|engine, now| engine.send(now, queue, message.into())).unwrap();
    }

    async fn poll(shared: &SharedEngine, queue: &QueueName, secs: u64) -> (usize, Duration) {
        let started = tokio::time::Instant::now();
        let wait = Some(Duration::from_secs(secs));
        let got = shared.receive(queue, &ReceiveMessage::default(), wait).await.unwrap();
        (got.len(), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_queue_is_waited_for_to_the_end() {
        let (shared, queue) = shared();
        assert_eq!(poll(&shared, &queue, 20).await, (0, Duration::from_secs(20)));
        assert_eq!(poll(&shared, &queue, 0).await, (0, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_send_wakes_a_poll_at_once() {
        let (shared, queue) = shared();
        let later = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            send(&shared, &queue);
        };
        let (answer, ()) = tokio::join!(poll(&shared, &queue, 20), later);
        assert_eq!(answer, (1, Duration::from_secs(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_comes_back_into_view_wakes_a_poll() {
        let (shared, queue) = shared();
        send(&shared, &queue);
        assert_eq!(poll(&shared, &queue, 0).await.0, 1);
        assert_eq!(poll(&shared, &queue, 20).await, (0, Duration::from_secs(20)));
        assert_eq!(poll(&shared, &queue, 20).await, (1, Duration::from_secs(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_queue_ends_its_polls() {
        let (shared, queue) = shared();
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            shared.with(|engine, _| engine.delete_queue(&queue)).unwrap();
        };
        let wait = Some(Duration::from_secs(20));
        let request = ReceiveMessage::default();
        let (answer, ()) = tokio::join!(shared.receive(&queue, &request, wait), later);
        assert_eq!(answer, Err(SqsError::QueueDoesNotExist));
    }
}
