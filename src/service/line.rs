//! A line of messages that are handled one after the other: a message group of one receive, or one message.
//!
//! In order within the group: after a message that does not leave the queue for good, the rest of its group
//! in hand is released unhandled. That never hands a message to SQS's own policy: within a group no message
//! has been received more often than one before it, and that one was not on its last permitted receive.

use std::collections::{HashMap, VecDeque};
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

impl Line {
    /// Handles the messages; when this returns all are settled.
    pub(crate) async fn run(mut self, messages: Vec<Received>, lease: Lease, by: Reporter) {
        let mut waiting = VecDeque::with_capacity(messages.len());
        for message in messages {
            let kept = self.keeper.keep(message.receipt.clone(), lease).await;
            waiting.push_back((message, kept));
        }
        while let Some((message, kept)) = waiting.pop_front() {
            let settled = self.process(&message, &kept, by).await;
            let goes_on = matches!(settled, Settled::Delete(_));
            self.end(settled, kept).await;
            if !goes_on {
                break;
            }
        }
        for (_, kept) in waiting {
            kept.hide(Duration::ZERO).await;
        }
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
