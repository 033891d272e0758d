//! One message, from its receive to what is to be done with it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;

use crate::domain::backoff::Backoff;
use crate::domain::delivery::{AfterFailure, Kind, Then, decide_failure};
use crate::domain::entry::Event;
use crate::domain::failure::{Disposition, Failure, Reason};
use crate::domain::lease::Lease;
use crate::domain::message::Received;
use crate::port::evidence::Deletable;
use crate::port::handler::HandlerError;
use crate::service::claim::{Claimed, claim};
use crate::service::commit::{commit, resolve_done};
use crate::service::evidence::{self, Cause};
use crate::service::heartbeat::keep_alive;
use crate::service::held::{Held, Interrupted, persevere};
use crate::service::park::{Owner, Park};
use crate::service::settings::Context;
use crate::service::work::{Work, identify};

/// How long a message waits after a dependency's fault: twice as long with each receive, so that an outage
/// does not burn the receives that SQS's own policy counts.
const FAULT_PAUSE: Backoff =
    Backoff { base: Duration::from_secs(30), cap: Duration::from_secs(3_600) };

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

/// Processes one message. Never fails: whatever happens, the message is settled.
pub(crate) async fn process(
    ctx: &Context,
    received: Received,
    lease: Lease,
    stop: &CancellationToken,
    rng: StdRng,
) -> Settled {
    let message_id = received.message_id.clone();
    let attempt = received.receive_count.unwrap_or(1);
    let mut process = Process { ctx, lease, stop, rng };
    match process.settle(received).await {
        Ok(settled) => settled,
        Err(Interrupted::Stopped) => Settled::Hide(Duration::ZERO),
        Err(Interrupted::LeaseLost) => {
            tracing::warn!(%message_id, "lease lost: the message is left to its next delivery");
            Settled::Leave
        }
        Err(Interrupted::Dependency(error)) => {
            tracing::warn!(%message_id, %error, "dependency fault: the message goes back");
            Settled::Hide(process.fault_pause(attempt))
        }
        Err(Interrupted::Illegal(error)) => {
            tracing::error!(%message_id, error, "state that no table lists: the message goes back");
            Settled::Hide(process.fault_pause(attempt))
        }
    }
}

struct Process<'a> {
    ctx: &'a Context,
    lease: Lease,
    stop: &'a CancellationToken,
    rng: StdRng,
}

impl Process<'_> {
    fn backoff(&mut self, attempt: u32, retry_after: Option<Duration>) -> Duration {
        let elapsed = self.lease.elapsed(self.ctx.ports.clock.mono());
        self.ctx.settings.retry.next_delay(attempt, retry_after, elapsed, &mut self.rng)
    }

    /// Between the whole pause and half of it more, so that messages do not come back all at once.
    fn fault_pause(&mut self, receives: u32) -> Duration {
        let pause = FAULT_PAUSE.ceiling(receives);
        let elapsed = self.lease.elapsed(self.ctx.ports.clock.mono());
        let jitter = FAULT_PAUSE.next_delay(receives, None, elapsed, &mut self.rng);
        pause.saturating_add(jitter.div_f64(2.0))
    }

    async fn settle(&mut self, received: Received) -> Result<Settled, Interrupted> {
        if self.stop.is_cancelled() {
            return Err(Interrupted::Stopped);
        }
        let work = identify(self.ctx, received).await?;
        match claim(self.ctx, &work, self.lease, &mut self.rng).await? {
            Claimed::Held(mut held, then) => {
                let settled = self.held(&work, &mut held, then).await;
                if settled.as_ref().is_err_and(|e| !matches!(e, Interrupted::LeaseLost)) {
                    held.release(self.ctx).await;
                }
                settled
            }
            Claimed::Done { entry, by } => {
                tracing::info!(
                    message_id = %work.received.message_id, origin = %work.content.origin,
                    committed_by = %by, key = %work.key, "done already: duplicate deleted"
                );
                resolve_done(self.ctx, &work, &self.lease, &by).await?;
                Deletable::committed(&work.received, &entry, &by)
                    .map(Settled::Delete)
                    .ok_or(Interrupted::LeaseLost)
            }
            Claimed::Refused { until } => {
                let wait = until.since(self.ctx.ports.clock.wall());
                let attempt = work.received.receive_count.unwrap_or(1);
                Ok(Settled::Hide(self.backoff(attempt, None).max(wait)))
            }
            Claimed::FinishParking(entry) => {
                let mut park = Park { ctx: self.ctx, work: &work, rng: &mut self.rng };
                Ok(Settled::Delete(park.resume(self.lease, entry.get()).await?))
            }
            Claimed::Mismatch => {
                let cause = Cause {
                    failure: Failure::permanent(
                        "PAYLOAD_MISMATCH",
                        format!("another payload was committed under the key {}", work.key),
                    ),
                    reason: Reason::Validation,
                    disposition: Disposition::Permanent,
                    attempts: 0,
                    history: Vec::new(),
                };
                self.park(&work, Owner::Nobody(self.lease), &cause).await
            }
        }
    }

    async fn held(
        &mut self,
        work: &Work,
        held: &mut Held,
        then: Then,
    ) -> Result<Settled, Interrupted> {
        match then {
            Then::ParkCrashed => {
                let crashes = held.entry().crashes;
                let failure = Failure::transient(
                    "WORKER_CRASHED",
                    format!("{crashes} workers ended while they worked on this message"),
                );
                let why = AfterFailure::Park(Reason::Exception, Disposition::Exhausted);
                return self.failed(work, held, failure, why).await;
            }
            Then::ReadRecord => {
                let now = self.ctx.ports.clock.wall();
                let ledger = &self.ctx.ports.ledger;
                let id = &work.content.origin;
                let record = persevere(self.ctx, &held.lease, || ledger.record(id, now)).await?;
                if record.is_some() {
                    let cause = Cause::remembered(held.entry(), id);
                    return self.park(work, Owner::Claim(held, Event::Park(None)), &cause).await;
                }
            }
            Then::Run => {}
        }
        match self.attempt(work, held).await? {
            None => Ok(Settled::Delete(commit(self.ctx, work, held).await?)),
            Some(failure) => {
                let attempts = held.entry().attempts;
                let count = work.received.receive_count;
                let after = decide_failure(&failure, attempts, count, self.ctx.limits);
                self.failed(work, held, failure, after).await
            }
        }
    }

    /// Runs the handler once under a heartbeat; says how it failed, if it did.
    async fn attempt(&self, work: &Work, held: &mut Held) -> Result<Option<Failure>, Interrupted> {
        if let Some(refusal) = work.refusal(self.ctx) {
            return Ok(Some(refusal));
        }
        let job = work.job(self.ctx, held);
        let timeout = self.ctx.settings.handler_timeout;
        let run = AssertUnwindSafe(self.ctx.ports.handler.run(&job, timeout)).catch_unwind();
        let receipt = &work.received.receipt;
        Ok(match keep_alive(self.ctx, held, receipt, self.stop, run).await? {
            Ok(Ok(done)) => done.below_floor(self.ctx.settings.confidence_floor),
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
                self.lease = held.lease;
                let delay = self.backoff(attempts, retry_after);
                let delay_s = delay.as_secs_f64();
                tracing::info!(%message_id, %error_code, attempts, delay_s, "transient failure");
                Ok(Settled::Hide(delay))
            }
            AfterFailure::Park(reason, disposition) => {
                let origin = &work.content.origin;
                let mut history = evidence::own_history(held.entry(), origin);
                history.push(attempt.clone());
                let cause = Cause { failure, reason, disposition, attempts, history };
                self.park(work, Owner::Claim(held, Event::Park(Some(attempt))), &cause).await
            }
        }
    }

    async fn park(
        &mut self,
        work: &Work,
        owner: Owner<'_>,
        cause: &Cause,
    ) -> Result<Settled, Interrupted> {
        let mut park = Park { ctx: self.ctx, work, rng: &mut self.rng };
        let parked = park.park(owner, cause).await;
        let kind = match work.delivery.kind {
            Kind::Plain => "message",
            Kind::Copy(_) => "copy",
            Kind::RedrivenToken(_) => "redriven token",
        };
        let (record_id, error_code) = (&work.content.origin, &cause.failure.error_code);
        let reason = cause.reason.as_str();
        match &parked {
            Ok(_) => tracing::info!(%record_id, %error_code, reason, kind, "parked"),
            Err(error) => {
                tracing::warn!(%record_id, %error_code, reason, kind, %error, "parking failed");
            }
        }
        parked.map(Settled::Delete)
    }
}
