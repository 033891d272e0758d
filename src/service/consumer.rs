//! The consumer: the one owner of what is in hand.
//!
//! Every wake-up becomes one `Event`; `Consumer::handle` says what follows; the loop does it. Polls
//! and lines of messages are tasks of one set, so nothing that has begun is dropped to shut down: at a stop
//! the polls in flight are awaited and their messages released. Only a second signal abandons them, and a
//! poll that hangs far beyond its wait.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::task::AbortOnDropHandle;

use crate::domain::breaker::{Outcome, Reporter};
use crate::domain::failure::ErrorClass;
use crate::domain::lease::Lease;
use crate::domain::message::{MAX_BATCH_ENTRIES, Received};
use crate::domain::time::Mono;
use crate::port::error::{PortError, Reached, Target};
use crate::service::deleter::{Delete, Deleter};
use crate::service::intake::{Gate, Intake, Poll};
use crate::service::keeper::Keeper;
use crate::service::line::{Line, lines};
use crate::service::process::{Report, Stops};
use crate::service::settings::Context;
use crate::service::shutdown::Stage;
use crate::telemetry::{Counter, Gauge};

/// How long released messages may take to be given back after the grace is over, and deletes to be flushed.
const RELEASE_TIME: Duration = Duration::from_secs(5);
/// How much longer than its wait a poll may take before it is abandoned. The client gives up earlier.
const HUNG_AFTER: Duration = Duration::from_secs(30);

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
    Polled(Poll, Result<Vec<Received>, PortError>),
    /// So many messages are settled.
    Settled(usize, Reporter),
    /// A task was abandoned.
    Abandoned,
    /// A try at a message says something of the targets.
    Reported(Report),
    /// The stop went on.
    Stage(Stage),
    /// It is time: for a poll, or for the end of a stage.
    Woke,
}

/// What is to be done.
#[derive(Default)]
struct Effects {
    start: Option<(Vec<Received>, Reporter)>,
    polls: Vec<Poll>,
}

struct Consumer {
    ctx: Arc<Context>,
    gate: Gate,
    stage: Stage,
    /// When the stage is over; none: when all is settled.
    deadline: Option<Mono>,
    wake_at: Option<Mono>,
    is_over: bool,
    rng: StdRng,
}

impl Consumer {
    fn handle(&mut self, event: Event, now: Mono) -> Effects {
        let mut effects = Effects::default();
        match event {
            Event::Polled(poll, Ok(messages)) => {
                self.gate.answered(poll, messages.len(), now);
                self.ctx.telemetry.health.polled(now);
                let count = u64::try_from(messages.len()).unwrap_or(u64::MAX);
                self.ctx.telemetry.meter.add(Counter::Received, count);
                effects.start = Some((messages, poll.by)).filter(|(all, _)| !all.is_empty());
            }
            Event::Polled(poll, Err(error)) => {
                let pause_s = self.gate.failed(poll, now, &mut self.rng).as_secs_f64();
                self.ctx.telemetry.health.poll_failed(now);
                let failed_polls = self.gate.failed_polls();
                tracing::warn!(%error, failed_polls, pause_s, "poll failed");
            }
            Event::Settled(messages, by) => {
                self.gate.settled(messages);
                if by == Reporter::Probe {
                    self.gate.probe_ended(now);
                }
            }
            Event::Abandoned => {}
            Event::Reported((outcome, by)) => self.report(outcome, by, now),
            Event::Stage(stage) => self.enter(stage, now),
            Event::Woke if self.deadline.is_some_and(|at| at <= now) => match self.stage {
                Stage::Releasing => self.is_over = true,
                Stage::Running | Stage::Draining => {
                    tracing::warn!(in_hand = self.gate.in_hand(), "grace ran out: releasing");
                    self.enter(Stage::Releasing, now);
                }
            },
            Event::Woke => {}
        }
        self.plan_polls(&mut effects, now);
        let in_hand = u32::try_from(self.gate.in_hand()).unwrap_or(u32::MAX);
        self.ctx.telemetry.meter.set(Gauge::InFlight, f64::from(in_hand));
        effects
    }

    fn plan_polls(&mut self, effects: &mut Effects, now: Mono) {
        self.wake_at = self.deadline;
        if self.stage != Stage::Running {
            return;
        }
        loop {
            match self.gate.next(now) {
                Intake::Poll(poll) => {
                    self.ctx.telemetry.health.polling(now);
                    effects.polls.push(poll);
                }
                Intake::Wait(until) => {
                    self.wake_at = until;
                    break;
                }
            }
        }
        if self.gate.polls() == 0 && self.wake_at.is_none() {
            self.ctx.telemetry.health.busy();
        }
    }

    fn report(&mut self, outcome: Outcome<Target>, by: Reporter, now: Mono) {
        let before = self.gate.open_targets();
        self.gate.record(outcome, by, now);
        let open = self.gate.open_targets();
        if before == open {
            return;
        }
        let names: Vec<String> = open.iter().map(ToString::to_string).collect();
        match names.is_empty() {
            true => tracing::info!("breaker closed: receiving again"),
            false => {
                tracing::error!(targets = names.join(", "), "breaker open: receiving only probes")
            }
        }
        self.ctx.telemetry.health.open(open);
    }

    fn enter(&mut self, stage: Stage, now: Mono) {
        if stage <= self.stage {
            return;
        }
        self.stage = stage;
        tracing::info!(?stage, in_hand = self.gate.in_hand(), "stopping");
        self.ctx.telemetry.health.draining();
        self.deadline = Some(now.plus(match stage {
            Stage::Releasing => RELEASE_TIME,
            Stage::Running | Stage::Draining => self.ctx.settings.grace,
        }));
    }

    /// Whether the loop may end: nothing in hand, and no poll in flight that may bring something.
    const fn is_drained(&self) -> bool {
        match self.stage {
            Stage::Running => false,
            Stage::Draining => self.gate.in_hand() == 0 && self.gate.polls() == 0,
            Stage::Releasing => self.is_over || self.gate.in_hand() == 0,
        }
    }
}

/// Consumes until a stop.
pub async fn run(ctx: Context, mut stages: watch::Receiver<Stage>, rng: StdRng) -> Ending {
    let ctx = Arc::new(ctx);
    let clock = Arc::clone(&ctx.ports.clock);
    let (reports, mut reported) = mpsc::channel(ctx.settings.concurrency);
    let (mut hands, keeper, deleter) = Hands::new(Arc::clone(&ctx), reports);
    // Closed, and so to be seen in the metrics.
    ctx.telemetry.health.open(Vec::new());
    let settings = &ctx.settings;
    let mut consumer = Consumer {
        gate: Gate::new(settings.concurrency, settings.pollers_max, settings.breaker),
        stage: Stage::Running,
        deadline: None,
        wake_at: None,
        is_over: false,
        rng,
        ctx,
    };
    let stage = *stages.borrow_and_update();
    let mut effects = consumer.handle(Event::Stage(stage), clock.mono());
    loop {
        hands.perform(effects, consumer.stage, &mut consumer.rng);
        if consumer.is_drained() {
            break;
        }
        let pause = consumer.wake_at.map(|at| at.since(clock.mono()));
        // A stop before anything else, then what is said of the targets, since it decides about polls, then
        // what has ended, then time.
        let event = tokio::select! {
            biased;
            Ok(()) = stages.changed() => Event::Stage(*stages.borrow_and_update()),
            Some(report) = reported.recv() => Event::Reported(report),
            // No task panics: each answers for its own.
            Some(ended) = hands.tasks.join_next() => ended.unwrap_or(Event::Abandoned),
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => Event::Woke,
        };
        effects = consumer.handle(event, clock.mono());
    }
    drop(reported);
    let left = consumer.deadline.map_or(RELEASE_TIME, |at| at.since(clock.mono()));
    hands.close(keeper, deleter, left.max(RELEASE_TIME)).await;
    match consumer.stage {
        Stage::Releasing => Ending::GraceRanOut,
        Stage::Running | Stage::Draining => Ending::Drained,
    }
}

/// What carries effects out.
struct Hands {
    ctx: Arc<Context>,
    keeper: Keeper,
    deletes: mpsc::Sender<Delete>,
    reports: mpsc::Sender<Report>,
    stops: Stops,
    tasks: JoinSet<Event>,
    polls: Vec<AbortHandle>,
}

impl Hands {
    fn new(
        ctx: Arc<Context>,
        reports: mpsc::Sender<Report>,
    ) -> (Self, AbortOnDropHandle<()>, AbortOnDropHandle<()>) {
        let (source, clock) = (Arc::clone(&ctx.ports.source), Arc::clone(&ctx.ports.clock));
        let (keeper, keeping) = Keeper::start(Arc::clone(&source), Arc::clone(&clock));
        let most = ctx.settings.concurrency.max(MAX_BATCH_ENTRIES);
        let (deletes, incoming) = mpsc::channel(MAX_BATCH_ENTRIES);
        let deleter = Deleter { source, clock, meter: ctx.telemetry.meter.clone(), most };
        let deleting = AbortOnDropHandle::new(tokio::spawn(deleter.run(incoming)));
        let stops = Stops::default();
        let (tasks, polls) = (JoinSet::new(), Vec::new());
        (Self { ctx, keeper, deletes, reports, stops, tasks, polls }, keeping, deleting)
    }

    fn perform(&mut self, effects: Effects, stage: Stage, rng: &mut StdRng) {
        if stage >= Stage::Draining {
            self.stops.draining.cancel();
        }
        if stage >= Stage::Releasing {
            // The polls first: they must not receive what is about to be released.
            self.polls.drain(..).for_each(|poll| poll.abort());
            self.stops.releasing.cancel();
        }
        self.polls.retain(|poll| !poll.is_finished());
        for poll in effects.polls {
            let ctx = Arc::clone(&self.ctx);
            self.polls.push(self.tasks.spawn(receive(ctx, poll)));
        }
        let Some((messages, by)) = effects.start else { return };
        let lease = Lease::received(self.ctx.ports.clock.mono(), self.ctx.visibility);
        for messages in lines(messages, self.ctx.ports.source.name()) {
            let line = Line {
                ctx: Arc::clone(&self.ctx),
                keeper: self.keeper.clone(),
                deletes: self.deletes.clone(),
                reports: self.reports.clone(),
                stops: self.stops.clone(),
                rng: StdRng::from_seed(rng.random()),
            };
            let count = messages.len();
            self.tasks.spawn(async move {
                if AssertUnwindSafe(line.run(messages, lease, by)).catch_unwind().await.is_err() {
                    tracing::error!("a line of messages panicked: its claims will run out");
                }
                Event::Settled(count, by)
            });
        }
    }

    /// Ends what is left, gives back what is released and flushes the deletes, for at most `time`.
    async fn close(
        self,
        keeper: AbortOnDropHandle<()>,
        deleter: AbortOnDropHandle<()>,
        time: Duration,
    ) {
        let Self { deletes, keeper: keep, mut tasks, .. } = self;
        tasks.shutdown().await;
        drop((deletes, keep));
        let flushed = async { tokio::join!(keeper, deleter) };
        match tokio::time::timeout(time, flushed).await {
            Ok((Ok(()), Ok(()))) => {}
            Ok(_) => tracing::error!("a task ended unexpectedly: messages may come back as done"),
            Err(_) => tracing::warn!("deletes are not flushed in time: messages come back as done"),
        }
    }
}

/// One poll. One that hangs is abandoned: what it was handed comes back with its visibility timeout.
async fn receive(ctx: Arc<Context>, poll: Poll) -> Event {
    let (wait, source) = (ctx.settings.wait, &ctx.ports.source);
    let failed = |class, code: &str| {
        let name = source.name().as_str();
        PortError::new(class, Target::Sqs, "ReceiveMessage", name, code)
            .with_reached(Reached::NoAnswer)
    };
    let answer = AssertUnwindSafe(source.receive(poll.max, wait, Some(ctx.visibility)));
    let in_time = tokio::time::timeout(wait.saturating_add(HUNG_AFTER), answer.catch_unwind());
    Event::Polled(
        poll,
        match in_time.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_panic)) => Err(failed(ErrorClass::Bug, "panicked")),
            Err(_elapsed) => Err(failed(ErrorClass::Transient, "hangs")),
        },
    )
}
