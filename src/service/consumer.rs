//! The consumer: the one owner of what is in hand.
//!
//! Every wake-up becomes one `Event`; `Consumer::handle` says what follows; the loop does it. Polls
//! and messages are tasks of one set, so nothing that has begun is dropped to shut down: at a stop the
//! poll in flight is awaited and its messages released. Only a second signal abandons it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::backoff::Backoff;
use crate::domain::id::ReceiptHandle;
use crate::domain::lease::Lease;
use crate::domain::message::{MAX_BATCH_ENTRIES, Received};
use crate::domain::time::Mono;
use crate::port::error::PortError;
use crate::port::evidence::Deletable;
use crate::service::deleter;
use crate::service::process::{Settled, process};
use crate::service::settings::Context;
use crate::service::shutdown::Stage;

/// Back-off of polls that fail.
const POLL_BACKOFF: Backoff =
    Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(30) };
/// How long released messages may take to be given back after the grace is over.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All that was in hand is settled.
    Drained,
    /// The grace ran out, or a second signal came: what was in hand is released.
    GraceRanOut,
}

/// What woke the loop.
enum Event {
    /// A poll was answered.
    Polled(Result<Vec<Received>, PortError>, Mono),
    /// The pause after a failed poll is over, or the poll was abandoned.
    PollAgain,
    /// A message is settled, or some are given back.
    Settled,
    /// A message's task ended without settling it.
    Died,
    /// The stop went on.
    Stage(Stage),
    /// The grace is over.
    GraceOver,
    /// The time for releasing is over.
    ReleaseOver,
}

/// What is to be done.
#[derive(Default)]
struct Effects {
    poll: Option<usize>,
    poll_again_after: Option<Duration>,
    start: Vec<(Received, Mono)>,
    give_back: Vec<Received>,
    release: bool,
}

/// The one poll.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poll {
    /// None is asked for.
    Idle,
    /// It waits for its answer.
    InFlight,
    /// It failed; the next waits out a pause.
    Paused,
}

struct Consumer {
    concurrency: usize,
    in_hand: usize,
    poll: Poll,
    failed_polls: u32,
    stage: Stage,
    rng: StdRng,
}

impl Consumer {
    fn handle(&mut self, event: Event) -> Effects {
        let mut effects = Effects::default();
        match event {
            Event::Polled(Ok(messages), answered) => {
                self.poll = Poll::Idle;
                self.failed_polls = 0;
                if self.stage == Stage::Running {
                    self.in_hand += messages.len();
                    effects.start = messages.into_iter().map(|m| (m, answered)).collect();
                } else if !messages.is_empty() {
                    self.in_hand += 1;
                    effects.give_back = messages;
                }
            }
            Event::Polled(Err(error), _) => {
                self.poll = Poll::Paused;
                self.failed_polls = self.failed_polls.saturating_add(1);
                let pause = POLL_BACKOFF
                    .next_delay(self.failed_polls, None, Duration::ZERO, &mut self.rng)
                    .max(POLL_BACKOFF.base);
                let failed_polls = self.failed_polls;
                tracing::warn!(%error, failed_polls, pause_s = pause.as_secs_f64(), "poll failed");
                effects.poll_again_after = Some(pause);
            }
            Event::PollAgain => self.poll = Poll::Idle,
            Event::Settled => self.in_hand = self.in_hand.saturating_sub(1),
            Event::Died => {
                tracing::error!("a message's task ended unexpectedly: its claim will run out");
                self.in_hand = self.in_hand.saturating_sub(1);
            }
            Event::Stage(stage) => {
                tracing::info!(?stage, in_hand = self.in_hand, "stopping");
                self.stage = self.stage.max(stage);
            }
            Event::GraceOver => {
                tracing::warn!(in_hand = self.in_hand, "grace ran out: releasing");
                self.stage = Stage::Releasing;
            }
            Event::ReleaseOver => {}
        }
        effects.release = self.stage == Stage::Releasing;
        let free = self.concurrency.saturating_sub(self.in_hand);
        if self.stage == Stage::Running && self.poll == Poll::Idle && free > 0 {
            self.poll = Poll::InFlight;
            effects.poll = Some(free.min(MAX_BATCH_ENTRIES));
        }
        effects
    }

    /// Whether the loop may end: nothing in hand, and no poll in flight that may bring something.
    fn is_drained(&self) -> bool {
        match self.stage {
            Stage::Running => false,
            Stage::Draining => self.in_hand == 0 && self.poll != Poll::InFlight,
            Stage::Releasing => self.in_hand == 0,
        }
    }
}

/// Consumes until a stop.
pub async fn run(ctx: Context, mut stages: watch::Receiver<Stage>, rng: StdRng) -> Ending {
    let ctx = Arc::new(ctx);
    let (deletes, incoming) = mpsc::channel(ctx.settings.concurrency.max(MAX_BATCH_ENTRIES));
    let deleter = deleter::run(Arc::clone(&ctx.ports.source), incoming);
    let deleter = AbortOnDropHandle::new(tokio::spawn(deleter));
    let (stop, tasks) = (CancellationToken::new(), JoinSet::new());
    let mut hands = Hands { ctx, deletes, stop, tasks, poll: None };
    let mut consumer = Consumer {
        concurrency: hands.ctx.settings.concurrency,
        in_hand: 0,
        poll: Poll::Idle,
        failed_polls: 0,
        stage: *stages.borrow_and_update(),
        rng,
    };
    let mut grace_over: Option<tokio::time::Instant> = None;
    let mut ending = Ending::Drained;
    let effects = consumer.handle(Event::PollAgain);
    hands.perform(effects, &mut consumer.rng);
    while !consumer.is_drained() {
        let deadline = grace_over.unwrap_or_else(far_future);
        // A stop before anything else, then what has ended, then the grace.
        let event = tokio::select! {
            biased;
            Ok(()) = stages.changed() => Event::Stage(*stages.borrow_and_update()),
            Some(ended) = hands.tasks.join_next() => ended.unwrap_or_else(|e| {
                if e.is_cancelled() { Event::PollAgain } else { Event::Died }
            }),
            () = tokio::time::sleep_until(deadline) => match consumer.stage {
                Stage::Releasing => Event::ReleaseOver,
                Stage::Running | Stage::Draining => Event::GraceOver,
            },
        };
        let over = matches!(event, Event::ReleaseOver);
        let before = consumer.stage;
        let effects = consumer.handle(event);
        if consumer.stage != before {
            let time = match consumer.stage {
                Stage::Releasing => RELEASE_TIME,
                Stage::Running | Stage::Draining => hands.ctx.settings.grace,
            };
            grace_over = Some(tokio::time::Instant::now() + time);
        }
        if consumer.stage == Stage::Releasing {
            ending = Ending::GraceRanOut;
        }
        hands.perform(effects, &mut consumer.rng);
        if over {
            break;
        }
    }
    hands.close(deleter).await;
    ending
}

fn far_future() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(86_400)
}

/// What carries effects out.
struct Hands {
    ctx: Arc<Context>,
    deletes: mpsc::Sender<Deletable>,
    stop: CancellationToken,
    tasks: JoinSet<Event>,
    poll: Option<AbortHandle>,
}

impl Hands {
    fn perform(&mut self, effects: Effects, rng: &mut StdRng) {
        let Effects { poll, poll_again_after, start, give_back, release } = effects;
        if release {
            // The poll first: it must not receive what is about to be released.
            self.poll.take().inspect(AbortHandle::abort);
            self.stop.cancel();
        }
        if let Some(max) = poll {
            let ctx = Arc::clone(&self.ctx);
            self.poll = Some(self.tasks.spawn(async move {
                let wait = ctx.settings.wait;
                let answer = ctx.ports.source.receive(max, wait, Some(ctx.visibility)).await;
                Event::Polled(answer, ctx.ports.clock.mono())
            }));
        }
        if let Some(pause) = poll_again_after {
            self.tasks.spawn(async move {
                tokio::time::sleep(pause).await;
                Event::PollAgain
            });
        }
        for (received, answered) in start {
            let rng = StdRng::from_seed(rng.random());
            self.start(received, answered, rng);
        }
        if !give_back.is_empty() {
            let ctx = Arc::clone(&self.ctx);
            self.tasks.spawn(async move {
                let handles = give_back.into_iter().map(|m| (m.receipt, Duration::ZERO)).collect();
                hide(&ctx, handles).await;
                Event::Settled
            });
        }
    }

    fn start(&mut self, received: Received, answered: Mono, rng: StdRng) {
        let (ctx, stop) = (Arc::clone(&self.ctx), self.stop.clone());
        let deletes = self.deletes.clone();
        self.tasks.spawn(async move {
            let receipt = received.receipt.clone();
            let lease = Lease::received(answered, ctx.visibility);
            let work = process(&ctx, received, lease, &stop, rng);
            match AssertUnwindSafe(work).catch_unwind().await {
                Ok(Settled::Delete(deletable)) => {
                    if deletes.send(deletable).await.is_err() {
                        return Event::Died;
                    }
                }
                Ok(Settled::Hide(delay)) => hide(&ctx, vec![(receipt, delay)]).await,
                Ok(Settled::Leave) => {}
                Err(_panic) => return Event::Died,
            }
            Event::Settled
        });
    }

    /// Ends what is left and flushes the deletes.
    async fn close(self, deleter: AbortOnDropHandle<()>) {
        let Self { deletes, mut tasks, .. } = self;
        tasks.shutdown().await;
        drop(deletes);
        if deleter.await.is_err() {
            tracing::error!(
                "the deleter ended unexpectedly: deleted messages may come back as done"
            );
        }
    }
}

/// Sets when messages become visible again. A failure costs their remaining visibility, nothing more.
async fn hide(ctx: &Context, changes: Vec<(ReceiptHandle, Duration)>) {
    match ctx.ports.source.change_visibility(&changes).await {
        Ok(answers) => {
            for error in answers.into_iter().filter_map(Result::err) {
                tracing::warn!(%error, "visibility not changed: the message comes back with its lease");
            }
        }
        Err(error) => {
            tracing::warn!(%error, "visibility not changed: the messages come back with their lease");
        }
    }
}
