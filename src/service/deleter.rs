//! Deletes in batches: at most ten, at most 200 ms late, each entry by its own answer.
//!
//! A delete that fails is tried again until its message is visible to others anyway: an entry that failed
//! alone, alone; the entries of a call that failed as a whole, together again, unless SQS refused the call
//! for one of them. Losing one costs a redelivery, which the ledger recognises as done. What is pending is
//! bounded: beyond that, messages wait with their slots.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::domain::backoff::Backoff;
use crate::domain::message::MAX_BATCH_ENTRIES;
use crate::domain::time::Mono;
use crate::port::clock::Clock;
use crate::port::error::PortError;
use crate::port::evidence::Deletable;
use crate::port::queue::{BatchAnswer, Queue};
use crate::telemetry::{Counter, Meter};

/// How long a delete waits for company.
const LINGER: Duration = Duration::from_millis(200);
/// The pauses between tries, without chance: few workers delete the same message.
const PAUSES: Backoff = Backoff { base: Duration::from_millis(250), cap: Duration::from_secs(5) };
/// Calls at once.
const CALLS: usize = 8;
/// The code of a handle that is over, as FIFO queues say it.
const EXPIRED: &str = "InvalidParameterValue";

/// A message to delete, while it is invisible to others.
#[derive(Debug)]
pub(crate) struct Delete {
    /// The message, with its proof.
    pub deletable: Deletable,
    /// When it becomes visible again: from then on its next delivery is deleted instead.
    pub until: Mono,
}

/// What the deleter works with.
#[derive(Debug, Clone)]
pub(crate) struct Deleter {
    pub source: Arc<dyn Queue>,
    pub clock: Arc<dyn Clock>,
    pub meter: Meter,
    /// Deletes pending at most.
    pub most: usize,
}

struct Pending {
    delete: Delete,
    tried: u32,
    due: Mono,
    alone: bool,
}

type Call = BoxFuture<'static, (Vec<Pending>, Result<BatchAnswer<()>, PortError>)>;

impl Deleter {
    /// Deletes what comes through `incoming` until the channel is closed and all of it is settled.
    pub(crate) async fn run(self, mut incoming: mpsc::Receiver<Delete>) {
        let mut waiting: VecDeque<Pending> = VecDeque::new();
        let mut calls: FuturesUnordered<Call> = FuturesUnordered::new();
        let (mut in_calls, mut is_open) = (0_usize, true);
        while is_open || !waiting.is_empty() || !calls.is_empty() {
            let now = self.clock.mono();
            let has_room = waiting.len().saturating_add(in_calls) < self.most;
            let is_free = calls.len() < CALLS;
            let pause = is_free.then(|| next_call(&waiting, is_open)).flatten();
            tokio::select! {
                biased;
                Some((batch, answer)) = calls.next(), if !calls.is_empty() => {
                    in_calls = in_calls.saturating_sub(batch.len());
                    self.answered(batch, answer, &mut waiting);
                }
                delete = incoming.recv(), if is_open && has_room => match delete {
                    Some(delete) => waiting.push_back(Pending {
                        delete,
                        tried: 0,
                        due: now.plus(LINGER),
                        alone: false,
                    }),
                    None => is_open = false,
                },
                () = tokio::time::sleep(pause.map_or(LINGER, |at| at.since(now))), if pause.is_some() => {
                    let batch = take_batch(&mut waiting, self.clock.mono(), is_open);
                    in_calls = in_calls.saturating_add(batch.len());
                    if batch.is_empty() {
                        continue;
                    }
                    calls.push(Box::pin(call(Arc::clone(&self.source), batch)));
                }
            }
        }
    }

    fn answered(
        &self,
        batch: Vec<Pending>,
        answer: Result<BatchAnswer<()>, PortError>,
        waiting: &mut VecDeque<Pending>,
    ) {
        match answer {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for pending in batch {
                    match answers.next() {
                        Some(Ok(())) => {}
                        Some(Err(e)) if e.sender_fault => self.give_up(&pending, &e.code),
                        Some(Err(_)) | None => self.again(pending, Alone::Yes, waiting),
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%error, entries = batch.len(), "delete failed");
                let is_refused = error.is_of_an_entry();
                let was_alone = batch.len() == 1;
                for pending in batch {
                    match (is_refused, was_alone) {
                        (true, true) => self.give_up(&pending, error.code()),
                        (true, false) => self.again(pending, Alone::Yes, waiting),
                        (false, _) => self.again(pending, Alone::No, waiting),
                    }
                }
            }
        }
    }

    fn again(&self, mut pending: Pending, alone: Alone, waiting: &mut VecDeque<Pending>) {
        let now = self.clock.mono();
        pending.tried = pending.tried.saturating_add(1);
        pending.alone |= matches!(alone, Alone::Yes);
        pending.due = now.plus(PAUSES.ceiling(pending.tried));
        if pending.due < pending.delete.until {
            waiting.push_back(pending);
        } else {
            self.give_up(&pending, "no success in time");
        }
    }

    fn give_up(&self, pending: &Pending, code: &str) {
        let message_id = pending.delete.deletable.message_id();
        self.meter.add(Counter::DeleteFailed, 1);
        if code == EXPIRED {
            tracing::warn!(%message_id, code, "receipt expired: the next delivery is recognised as done");
        } else {
            tracing::error!(%message_id, code, "not deleted: the next delivery is recognised as done");
        }
    }
}

#[derive(Clone, Copy)]
enum Alone {
    Yes,
    No,
}

/// When the next call is due: at once for a full batch, or when nothing more comes.
fn next_call(waiting: &VecDeque<Pending>, is_open: bool) -> Option<Mono> {
    let fresh = waiting.iter().filter(|pending| pending.tried == 0);
    let is_full = fresh.clone().nth(MAX_BATCH_ENTRIES.saturating_sub(1)).is_some();
    let hurries = is_full || !is_open;
    let soonest = waiting.iter().map(|pending| pending.due).min();
    let now = Mono::from_start(Duration::ZERO);
    if hurries && fresh.count() > 0 { Some(now) } else { soonest }
}

/// Takes the batch whose turn it is: an entry that is tried alone, or up to ten of the others.
fn take_batch(waiting: &mut VecDeque<Pending>, now: Mono, is_open: bool) -> Vec<Pending> {
    if let Some(place) = waiting.iter().position(|p| p.alone && p.due <= now) {
        return waiting.remove(place).into_iter().collect();
    }
    let mut batch = Vec::with_capacity(MAX_BATCH_ENTRIES);
    let mut place = 0;
    while let Some(pending) = waiting.get(place) {
        // What is fresh goes along with any batch.
        let may_go = !pending.alone && (pending.due <= now || pending.tried == 0 || !is_open);
        if may_go && batch.len() < MAX_BATCH_ENTRIES {
            batch.extend(waiting.remove(place));
        } else {
            place = place.saturating_add(1);
        }
    }
    batch
}

async fn call(
    source: Arc<dyn Queue>,
    batch: Vec<Pending>,
) -> (Vec<Pending>, Result<BatchAnswer<()>, PortError>) {
    // The port takes what it deletes in one piece.
    let deletables: Vec<Deletable> = batch.iter().map(|p| p.delete.deletable.clone()).collect();
    let answer = source.delete(&deletables).await;
    (batch, answer)
}
