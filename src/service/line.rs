//! A line of messages that are handled one after the other: a message group of one receive, or one message.
//!
//! In order within the group: after a message that does not leave the queue for good, the rest of its group
//! in hand is released unhandled. A message of the rest on its last permitted receive cannot be released, or
//! SQS would move it; so the line waits out the back-off instead, its visibility extended, and tries again.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::mpsc;

use crate::domain::breaker::Reporter;
use crate::domain::id::QueueName;
use crate::domain::lease::Lease;
use crate::domain::message::Received;
use crate::service::deleter::Delete;
use crate::service::keeper::{Keeper, Kept};
use crate::service::process::{Process, Report, Settled, Stops};
use crate::service::settings::Context;

/// The lines of one receive, in the order of their first messages.
pub(crate) fn lines(messages: Vec<Received>, queue: &QueueName) -> Vec<Vec<Received>> {
    let mut lines: Vec<Vec<Received>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for message in messages {
        // A standard queue's group ids are for fairness, not for order.
        let group = message.group_id.clone().filter(|_| queue.is_fifo());
        let place = group.map(|group| *places.entry(group).or_insert(lines.len()));
        match place.and_then(|place| lines.get_mut(place)) {
            Some(line) => line.push(message),
            None => lines.push(vec![message]),
        }
    }
    lines
}

/// What one line needs.
#[derive(Debug)]
pub(crate) struct Line {
    pub ctx: Arc<Context>,
    pub keeper: Keeper,
    pub deletes: mpsc::Sender<Delete>,
    pub reports: mpsc::Sender<Report>,
    pub stops: Stops,
    pub rng: StdRng,
}

/// How the line goes on after a message.
enum Next {
    /// With the next message.
    GoOn,
    /// With the same message, after this.
    Again(Duration),
    /// Not at all: the rest is released.
    Release,
}

impl Line {
    /// Handles the messages; when this returns all are settled.
    pub(crate) async fn run(mut self, messages: Vec<Received>, lease: Lease, by: Reporter) {
        let mut waiting = std::collections::VecDeque::with_capacity(messages.len());
        for message in messages {
            let kept = self.keeper.keep(message.receipt.clone(), lease).await;
            waiting.push_back((message, kept));
        }
        while let Some((message, kept)) = waiting.pop_front() {
            let settled = self.process(&message, &kept, by).await;
            let next = match &settled {
                Settled::Delete(_) => Next::GoOn,
                Settled::Hide(delay) if self.must_stay(waiting.iter().map(|(m, _)| m)) => {
                    Next::Again(*delay)
                }
                Settled::Hide(_) | Settled::Leave => Next::Release,
            };
            if let Next::Again(delay) = next
                && self.wait(&kept, delay).await
            {
                waiting.push_front((message, kept));
                continue;
            }
            self.end(settled, kept).await;
            if !matches!(next, Next::GoOn) {
                break;
            }
        }
        for (_, kept) in waiting {
            kept.hide(Duration::ZERO).await;
        }
    }

    fn must_stay<'a>(&self, mut rest: impl Iterator<Item = &'a Received>) -> bool {
        rest.any(|message| self.ctx.limits.is_last_receive(message.receive_count))
    }

    async fn process(&mut self, message: &Received, kept: &Kept, by: Reporter) -> Settled {
        let process = Process {
            ctx: &self.ctx,
            lease: kept.lease(),
            stops: &self.stops,
            reports: &self.reports,
            by,
            rng: StdRng::from_seed(self.rng.random()),
        };
        let settled = AssertUnwindSafe(process.run(message)).catch_unwind().await;
        settled.unwrap_or_else(|_panic| {
            let message_id = &message.message_id;
            tracing::error!(%message_id, "processing panicked: its claim will run out");
            Settled::Leave
        })
    }

    /// Waits, with all that is in hand kept; says whether the message may be tried again.
    async fn wait(&self, kept: &Kept, delay: Duration) -> bool {
        let mut lease = kept.lease().clone();
        tokio::select! {
            biased;
            () = self.stops.draining.cancelled() => false,
            () = lease.lost(self.ctx.ports.clock.as_ref()) => false,
            () = tokio::time::sleep(delay) => true,
        }
    }

    async fn end(&self, settled: Settled, kept: Kept) {
        match settled {
            Settled::Hide(delay) => kept.hide(delay).await,
            Settled::Leave => drop(kept),
            Settled::Delete(deletable) => {
                let until = kept.let_go().await.ends_at();
                if self.deletes.send(Delete { deletable, until }).await.is_err() {
                    tracing::error!("the deleter is gone: a message comes back as done");
                }
            }
        }
    }
}
