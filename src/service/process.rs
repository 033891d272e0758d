//! One message, from its receive to what is to be done with it.
//!
//! A dependency's fault is nobody's: the claim is given back and the message waits. Three things are held
//! in hand instead, their visibility extended, until the dependency answers: a message on its last permitted
//! receive, since giving it back would let SQS move it; a claim whose fate is unknown, since it would look
//! like a crash; and work that is done but not committed, since it would be done twice.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::breaker::{Outcome, Reporter};
use crate::domain::delivery::{AfterFailure, Kind, Then, decide_failure};
use crate::domain::entry::Event;
use crate::domain::failure::{Disposition, Failure, FailureKind, Reason};
use crate::domain::message::Received;
use crate::port::error::Target;
use crate::port::evidence::Deletable;
use crate::port::handler::HandlerError;
use crate::service::claim::{Claimed, claim};
use crate::service::commit::{commit, resolve_done};
use crate::service::evidence::{self, Cause};
use crate::service::heartbeat::keep_alive;
use crate::service::held::{Held, Interrupted, persevere};
use crate::service::hold::Left;
use crate::service::keeper::LiveLease;
use crate::service::park::{Owner, Park};
use crate::service::settings::Context;
use crate::service::work::{Work, identify};
use crate::telemetry::Counter;

/// How long a message waits at least after a dependency's fault.
const FAULT_PAUSE: Duration = Duration::from_secs(30);

/// What is to be done with the message itself.
#[derive(Debug)]
pub(crate) enum Settled {
    /// Delete it: the evidence is there.
    Delete(Deletable),
    /// Let it come back after this.
    Hide(Duration),
    /// Touch nothing: it may be another worker's by now.
    Leave,
}

/// The two steps of a stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stops {
    /// Wait for nothing but what has begun.
    pub draining: CancellationToken,
    /// Let go of everything.
    pub releasing: CancellationToken,
}

/// What a try at a message says about the targets, and whether it was a probe.
pub(crate) type Report = (Outcome<Target>, Reporter);

/// Where a message is processed.
#[derive(Debug)]
pub(crate) struct Process<'a> {
    pub ctx: &'a Context,
    pub lease: &'a LiveLease,
    pub stops: &'a Stops,
    pub reports: &'a mpsc::Sender<Report>,
    pub by: Reporter,
    pub rng: StdRng,
}

/// What a message met.
enum Met {
    Settled(Settled, Outcome<Target>),
    /// Somebody else works on it, for so long.
    Refused(Duration),
}

/// Why a message is not settled, and the claim that is left.
struct Unsettled {
    why: Interrupted,
    left: Left,
}

impl<E: Into<Interrupted>> From<E> for Unsettled {
    fn from(why: E) -> Self {
        Self { why: why.into(), left: Left::Nothing }
    }
}

impl Process<'_> {
    /// Processes one message. Never fails: whatever happens, the message is settled.
    pub(crate) async fn run(mut self, received: &Received) -> Settled {
        let message_id = &received.message_id;
        let mut tried = 0_u32;
        loop {
            tried = tried.saturating_add(1);
            let pause = match self.settle(received).await {
                Ok(Met::Settled(settled, outcome)) => {
                    self.report(outcome).await;
                    return settled;
                }
                Ok(Met::Refused(wait)) => {
                    self.report(Outcome::Silent).await;
                    wait
                }
                Err(unsettled) => match self.unsettled(received, unsettled, tried).await {
                    Ok(pause) => pause,
                    Err(settled) => return settled,
                },
            };
            if !self.is_last_receive(received) {
                return Settled::Hide(pause);
            }
            let pause_s = pause.as_secs_f64();
            tracing::info!(%message_id, pause_s, "held: its last permitted receive");
            match self.wait(pause, &self.stops.draining).await {
                Ok(()) => {}
                Err(Interrupted::LeaseLost) => return self.lost(message_id),
                Err(_stopped) => return Settled::Hide(Duration::ZERO),
            }
        }
    }

    /// Gives back what is left of a claim; says how long the message is to wait, or what it comes to.
    async fn unsettled(
        &mut self,
        received: &Received,
        unsettled: Unsettled,
        tried: u32,
    ) -> Result<Duration, Settled> {
        let message_id = &received.message_id;
        let Unsettled { why, left } = unsettled;
        match &why {
            Interrupted::LeaseLost => {
                self.report(Outcome::Silent).await;
                self.let_go(left).await;
                return Err(self.lost(message_id));
            }
            Interrupted::Stopped => {}
            Interrupted::Dependency(error) => {
                tracing::warn!(%message_id, %error, "dependency fault: the message waits");
                self.fault(error).await;
            }
            Interrupted::Illegal(error) => {
                tracing::error!(%message_id, error, "state that no table lists: the message waits");
                self.report(Outcome::Silent).await;
            }
        }
        match self.give_back(left).await {
            Ok(()) if matches!(why, Interrupted::Stopped) => Err(Settled::Hide(Duration::ZERO)),
            Ok(()) if self.is_last_receive(received) => Ok(self.hold_pause(tried)),
            Ok(()) => Ok(FAULT_PAUSE.mul_f64(1.0 + self.rng.random::<f64>() / 2.0)),
            Err(Interrupted::LeaseLost) => Err(self.lost(message_id)),
            Err(_stopped) => Err(Settled::Hide(Duration::ZERO)),
        }
    }

    fn lost(&self, message_id: &crate::domain::id::MessageId) -> Settled {
        tracing::warn!(%message_id, "lease lost: the message is left to its next delivery");
        self.ctx.telemetry.meter.add(Counter::LeaseLost, 1);
        Settled::Leave
    }

    fn backoff(&mut self, attempt: u32, retry_after: Option<Duration>) -> Duration {
        let elapsed = self.lease.get().elapsed(self.ctx.ports.clock.mono());
        self.ctx.settings.retry.next_delay(attempt, retry_after, elapsed, &mut self.rng)
    }

    async fn settle(&mut self, received: &Received) -> Result<Met, Unsettled> {
        if self.stops.draining.is_cancelled() {
            return Err(Interrupted::Stopped.into());
        }
        let work = identify(self.ctx, received.clone()).await?;
        match claim(self.ctx, &work, self.lease, &mut self.rng).await? {
            Claimed::Held(mut held, then) => match self.held(&work, &mut held, then).await {
                Ok((settled, outcome)) => Ok(Met::Settled(settled, outcome)),
                Err(why) => Err(Unsettled { why, left: Left::Claim(held) }),
            },
            Claimed::InDoubt(doubt, error) => {
                Err(Unsettled { why: error.into(), left: Left::Doubt(doubt) })
            }
            Claimed::Done { entry, by } => {
                tracing::info!(
                    message_id = %work.received.message_id, origin = %work.content.origin,
                    committed_by = %by, key = %work.key, "done already: duplicate deleted"
                );
                resolve_done(self.ctx, &work, self.lease, &by).await?;
                self.ctx.telemetry.meter.add(Counter::DuplicatesSkipped, 1);
                let deletable = Deletable::committed(&work.received, &entry, &by);
                let deletable = deletable.ok_or(Interrupted::LeaseLost)?;
                Ok(Met::Settled(Settled::Delete(deletable), Outcome::Silent))
            }
            Claimed::Refused { until } => {
                let wait = until.since(self.ctx.ports.clock.wall());
                let attempt = work.received.receive_count.unwrap_or(1);
                Ok(Met::Refused(self.backoff(attempt, None).max(wait)))
            }
            Claimed::FinishParking(entry) => {
                let mut park = Park { ctx: self.ctx, work: &work, rng: &mut self.rng };
                let resumed = park.resume(self.lease, entry.get()).await;
                if resumed.is_err() {
                    self.ctx.telemetry.meter.add(Counter::ParkFailed, 1);
                }
                Ok(Met::Settled(Settled::Delete(resumed?), Outcome::Silent))
            }
            Claimed::Mismatch => {
                let cause = Cause::mismatch(&work.key);
                let parked = self.park(&work, Owner::Nobody(self.lease), &cause).await?;
                Ok(Met::Settled(parked, Outcome::Silent))
            }
        }
    }

    async fn held(
        &mut self,
        work: &Work,
        held: &mut Held,
        then: Then,
    ) -> Result<(Settled, Outcome<Target>), Interrupted> {
        match then {
            Then::ParkCrashed => {
                let crashes = held.entry().crashes;
                let failure = Failure::transient(
                    "WORKER_CRASHED",
                    format!("{crashes} workers ended while they worked on this message"),
                );
                let why = AfterFailure::Park(Reason::Exception, Disposition::Exhausted);
                let settled = self.failed(work, held, failure, why).await?;
                return Ok((settled, Outcome::Silent));
            }
            Then::ReadRecord => {
                let now = self.ctx.ports.clock.wall();
                let ledger = &self.ctx.ports.ledger;
                let id = &work.content.origin;
                let record = persevere(self.ctx, self.lease, || ledger.record(id, now)).await?;
                if record.is_some() {
                    let cause = Cause::remembered(held.entry(), id);
                    let owner = Owner::Claim(held, Event::Park(None));
                    return Ok((self.park(work, owner, &cause).await?, Outcome::Silent));
                }
            }
            Then::Run => {}
        }
        let refusal = work.refusal(self.ctx);
        let is_refused = refusal.is_some();
        let failure = match refusal {
            Some(refusal) => Some(refusal),
            None => self.attempt(work, held).await?,
        };
        let Some(failure) = failure else {
            let mut tried = 0;
            let done = loop {
                match commit(self.ctx, work, held).await {
                    Err(Interrupted::Dependency(error)) => {
                        self.hold(held, &error, &mut tried, Duration::ZERO).await?;
                    }
                    verdict => break verdict?,
                }
            };
            self.ctx.telemetry.meter.add(Counter::Committed, 1);
            return Ok((Settled::Delete(done), Outcome::Good));
        };
        let outcome = match failure.kind {
            FailureKind::Transient { .. } => Outcome::Transient(Target::Handler),
            FailureKind::Permanent | FailureKind::LowConfidence if is_refused => Outcome::Silent,
            FailureKind::Permanent | FailureKind::LowConfidence => Outcome::Good,
        };
        let count = work.received.receive_count;
        let after = decide_failure(&failure, held.entry().attempts, count, self.ctx.limits);
        Ok((self.failed(work, held, failure, after).await?, outcome))
    }

    /// Runs the handler once under a heartbeat; says how it failed, if it did.
    async fn attempt(&self, work: &Work, held: &mut Held) -> Result<Option<Failure>, Interrupted> {
        let ctx = self.ctx;
        let job = work.job(ctx, held);
        let timeout = ctx.settings.handler_timeout;
        let started = ctx.ports.clock.mono();
        let run = AssertUnwindSafe(ctx.ports.handler.run(&job, timeout)).catch_unwind();
        let answer = keep_alive(ctx, held, &self.stops.releasing, run).await?;
        ctx.telemetry.meter.handler_took(ctx.ports.clock.mono().since(started));
        Ok(match answer {
            Ok(Ok(done)) => done.below_floor(ctx.settings.confidence_floor),
            Ok(Err(HandlerError::Failed(failure))) => Some(*failure),
            Ok(Err(HandlerError::Unreachable(e))) => return Err(e.into()),
            Err(_panic) => Some(Failure::transient("HANDLER_PANIC", "the handler panicked")),
        })
    }

    async fn failed(
        &mut self,
        work: &Work,
        held: &mut Held,
        failure: Failure,
        after: AfterFailure,
    ) -> Result<Settled, Interrupted> {
        let attempts = held.entry().attempts;
        let attempt = evidence::attempt(self.ctx, work, &failure, attempts);
        let (message_id, error_code) = (&work.received.message_id, &failure.error_code);
        match after {
            AfterFailure::Retry { retry_after } => {
                held.write(self.ctx, &Event::Transient(attempt)).await?;
                let delay = self.backoff(attempts, retry_after);
                let delay_s = delay.as_secs_f64();
                tracing::info!(%message_id, %error_code, attempts, delay_s, "transient failure");
                self.ctx.telemetry.meter.add(Counter::Retried, 1);
                Ok(Settled::Hide(delay))
            }
            AfterFailure::Park(reason, disposition) => {
                let mut history = evidence::own_history(held.entry(), &work.content.origin);
                history.push(attempt.clone());
                let cause = Cause { failure, reason, disposition, attempts, history };
                let mut tried = 0;
                loop {
                    let owner = Owner::Claim(held, Event::Park(Some(attempt.clone())));
                    match self.park(work, owner, &cause).await {
                        // Given back, it would be moved by SQS. An entry that is parked already needs no
                        // claim: the parking is finished like another delivery's.
                        Err(Interrupted::Dependency(error))
                            if held.is_in_progress() && self.is_last_receive(&work.received) =>
                        {
                            self.hold(held, &error, &mut tried, FAULT_PAUSE).await?;
                        }
                        verdict => return verdict,
                    }
                }
            }
        }
    }

    async fn park(
        &mut self,
        work: &Work,
        owner: Owner<'_>,
        cause: &Cause,
    ) -> Result<Settled, Interrupted> {
        let parked = Park { ctx: self.ctx, work, rng: &mut self.rng }.park(owner, cause).await;
        let kind = match work.delivery.kind {
            Kind::Plain => "message",
            Kind::Copy(_) => "copy",
            Kind::RedrivenToken(_) => "redriven token",
        };
        let (record_id, error_code) = (&work.content.origin, &cause.failure.error_code);
        let (reason, meter) = (cause.reason.as_str(), &self.ctx.telemetry.meter);
        match &parked {
            Ok(_) => {
                tracing::info!(%record_id, %error_code, reason, kind, "parked");
                meter.parked(error_code);
            }
            Err(error) => {
                tracing::warn!(%record_id, %error_code, reason, kind, %error, "parking failed");
                meter.add(Counter::ParkFailed, 1);
            }
        }
        parked.map(Settled::Delete)
    }
}
