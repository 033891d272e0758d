//! The sweep: reconciles the DLQ with the ledger.
//!
//! A pass receives the DLQ in batches, deletes tokens that no longer count, rebuilds records that are gone
//! from their envelopes, adopts bare messages, and holds all else until receives come back empty or repeat;
//! then it gives back what it held. A full sweep then walks the index too, and issues again what has no
//! token any more. One at a time for each source; what goes on beside another is decided by conditions, so
//! that two do no harm. A pass that dies costs the held messages their visibility, nothing more.
//!
//! Only our own source's messages are touched. What belongs to no source of this DLQ is left and reported.

mod adopt;
mod batch;
mod hold;
mod reissue;

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use self::hold::Hold;
use crate::domain::failure::{Done, ErrorClass};
use crate::domain::id::{MessageId, ParkToken, QueueName, RecordId};
use crate::domain::message::{MAX_BATCH_ENTRIES, Received};
use crate::domain::sweep::{Coverage, Walk};
use crate::domain::time::Wall;
use crate::port::error::{PortError, Target};
use crate::port::handler::{Handler, HandlerError, Job};
use crate::port::queue::Queue;
use crate::port::runs::SweepLock;
use crate::service::settings::Context;

/// How long the lock is ours after each batch.
const LEASE: Duration = Duration::from_secs(30);
/// How often lock and hold are looked after while a batch is worked on.
const BEAT: Duration = Duration::from_secs(5);
/// How long a receive waits for a message.
const WAIT: Duration = Duration::from_secs(1);
/// How many empty receives in a row mean the end: one may be empty though the queue is not.
const EMPTY_ENOUGH: u32 = 2;
/// How many messages a full sweep holds: SQS hands out no more than 120,000.
const FULL_MOST: u64 = 100_000;

/// What sweeps the DLQ of one source.
#[derive(Debug, Clone)]
pub struct Sweeper {
    ctx: Arc<Context>,
    rng: Arc<Mutex<StdRng>>,
}

/// What a pass did. Every message that was received was adopted, removed or kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Messages received, each once.
    pub received: u64,
    /// Bare messages that were parked, and are out of the DLQ.
    pub adopted: u64,
    /// Messages deleted: tokens that no longer count, bare messages whose work is done.
    pub removed: u64,
    /// Messages left in the DLQ.
    pub kept: u64,
    /// Of these, messages that are no tokens of this source.
    pub bare: u64,
    /// Tokens issued again.
    pub reissued: u64,
    /// Records rebuilt from their envelopes.
    pub rebuilt: u64,
    /// Whether the pass ended before it can have seen all.
    pub truncated: bool,
    /// What could not be done, a message each.
    pub errors: Vec<SweepFailure>,
}

/// What could not be done about one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepFailure {
    /// The message; the original's, where it is about a record.
    pub message_id: MessageId,
    /// Why.
    pub why: String,
}

/// A pass that did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Another sweep of this source is under way.
    #[error("{owner} sweeps this source, until {} at most", until.to_rfc3339())]
    Held {
        /// Whose the lock is.
        owner: String,
        /// Until when.
        until: Wall,
    },
    /// A dependency failed.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// The handler of those who run none: its name is in the envelopes of adopted messages.
#[derive(Debug, Clone, Copy)]
pub struct NoHandler;

#[async_trait]
impl Handler for NoHandler {
    fn kind(&self) -> &'static str {
        "none"
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, _job: &Job, _timeout: Duration) -> Result<Done, HandlerError> {
        let error = PortError::new(ErrorClass::Bug, Target::Handler, "run", "sweep", "NoHandler");
        Err(HandlerError::Unreachable(error))
    }
}

/// One pass under way.
struct Pass<'a> {
    sweeper: &'a Sweeper,
    /// What a full sweep knows of the DLQ, and the tokens that it met, by record.
    full: Option<(Walk, HashMap<RecordId, ParkToken>)>,
    /// The sources of this DLQ, once they were asked for.
    sources: OnceCell<Result<Vec<QueueName>, String>>,
    swept: Swept,
}

impl Sweeper {
    /// A sweeper of this context's DLQ, with its own source of chance.
    #[must_use]
    pub fn new(mut ctx: Context, rng: StdRng) -> Self {
        ctx.ports.handler = Arc::new(NoHandler);
        Self { ctx: Arc::new(ctx), rng: Arc::new(Mutex::new(rng)) }
    }

    /// The DLQ.
    #[must_use]
    pub fn dlq(&self) -> &dyn Queue {
        self.ctx.ports.dlq.as_ref()
    }

    /// Makes one pass over at most `most` messages. `stop` ends it early; what it holds is given back.
    ///
    /// # Errors
    /// See [`SweepError`].
    pub async fn pass(&self, most: u64, stop: &CancellationToken) -> Result<Swept, SweepError> {
        self.sweep(most, None, stop).await
    }

    /// Makes a full sweep: a pass over the DLQ, then over the index of quarantined records.
    ///
    /// # Errors
    /// See [`SweepError`].
    pub async fn full(&self, stop: &CancellationToken) -> Result<Swept, SweepError> {
        let retention = self.dlq().facts().await?.retention;
        let walk = Walk { began: self.wall(), retention, coverage: Coverage::Part };
        self.sweep(FULL_MOST, Some(walk), stop).await
    }

    async fn sweep(
        &self,
        most: u64,
        walk: Option<Walk>,
        stop: &CancellationToken,
    ) -> Result<Swept, SweepError> {
        self.lock().await?;
        let full = walk.map(|walk| (walk, HashMap::new()));
        let sources = OnceCell::new();
        let mut pass = Pass { sweeper: self, full, sources, swept: Swept::default() };
        let mut hold = Hold::default();
        let mut ended = pass.look(most, stop, &mut hold).await;
        let given_back = hold.give_back(self).await;
        if ended.is_ok() {
            ended = pass.walk_index(stop).await;
        }
        let unlocked = self.ctx.ports.runs.unlock_sweep(&self.ctx.settings.owner).await;
        ended?;
        given_back?;
        unlocked?;
        Ok(pass.swept)
    }

    /// Takes the lock, or keeps it.
    async fn lock(&self) -> Result<(), SweepError> {
        let Context { ports, settings, .. } = self.ctx.as_ref();
        match ports.runs.lock_sweep(&settings.owner, LEASE, self.wall()).await? {
            SweepLock::Ours => Ok(()),
            SweepLock::Held { owner, until } => Err(SweepError::Held { owner, until }),
        }
    }

    /// Does some work while the lock stays ours and what is held stays held. Work that has begun is not
    /// dropped: that the lock is lost is said afterwards, and conditions keep two sweeps from harm.
    async fn beside<T>(
        &self,
        hold: &mut Hold,
        work: impl Future<Output = T>,
    ) -> (T, Result<(), SweepError>) {
        let mut work = pin!(work);
        let mut kept = Ok(());
        loop {
            tokio::select! {
                biased;
                done = &mut work => return (done, kept),
                () = tokio::time::sleep(BEAT) => {
                    hold.extend_due(self).await;
                    kept = self.lock().await;
                }
            }
        }
    }

    fn wall(&self) -> Wall {
        self.ctx.ports.clock.wall()
    }

    /// Chance of its own for one piece of work.
    fn chance(&self) -> StdRng {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        StdRng::from_seed(rng.random())
    }
}

impl Pass<'_> {
    /// Looks through the DLQ until receives come back empty or repeat.
    async fn look(
        &mut self,
        most: u64,
        stop: &CancellationToken,
        hold: &mut Hold,
    ) -> Result<(), SweepError> {
        let sweeper = self.sweeper;
        let mut met: HashSet<MessageId> = HashSet::new();
        let mut empty = 0;
        while empty < EMPTY_ENOUGH {
            if stop.is_cancelled() || self.swept.received >= most {
                self.swept.truncated = true;
                return Ok(());
            }
            sweeper.lock().await?;
            hold.extend_due(sweeper).await;
            let answer = sweeper.dlq().receive(MAX_BATCH_ENTRIES, WAIT, Some(hold::HOLD)).await;
            let batch = match answer {
                Err(error) if error.code() == OVER_LIMIT => {
                    self.swept.truncated = true;
                    return Ok(());
                }
                answer => answer?,
            };
            empty = if batch.is_empty() { empty.saturating_add(1) } else { 0 };
            let answered = sweeper.ctx.ports.clock.mono();
            hold.add(&batch, answered);
            let all = batch.len();
            let new: Vec<Received> =
                batch.into_iter().filter(|m| met.insert(m.message_id.clone())).collect();
            let repeats = new.len() < all;
            let (settled, kept) = sweeper.beside(hold, self.settle(new, answered)).await;
            hold.forget(&settled?);
            kept?;
            if repeats {
                // A hold has run out, so that what was not met yet may be behind what was.
                self.swept.truncated = true;
                return Ok(());
            }
        }
        self.cover().await
    }

    /// All that could be received was met, unless others hold so much that SQS hands out no more.
    async fn cover(&mut self) -> Result<(), SweepError> {
        let Some((walk, _)) = &mut self.full else { return Ok(()) };
        let depth = self.sweeper.dlq().facts().await?.depth;
        if depth.in_flight >= FULL_MOST {
            self.swept.truncated = true;
        } else {
            walk.coverage = Coverage::Whole;
        }
        Ok(())
    }

    fn fail(&mut self, message_id: MessageId, why: String) {
        self.swept.errors.push(SweepFailure { message_id, why });
    }
}

/// SQS's word for too many messages in flight.
const OVER_LIMIT: &str = "OverLimit";

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
