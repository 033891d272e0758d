//! What holds a run back: a source with too much waiting, and an SQS that asks for fewer calls.
//!
//! The backlog is looked at now and then, not each tick, since each look is a request. A send that is throttled,
//! or has no answer, is made again for as long as the lease can be kept: the batch in hand is always brought
//! to its end, and an outage of some seconds is no reason to give the run up.

use std::time::Duration;

use super::RedriveError;
use super::batch::{Sent, Taken};
use super::executor::Executor;
use crate::domain::failure::ErrorClass;
use crate::domain::ramp::{Phase, Pressure};
use crate::domain::record::EarlierSend;
use crate::domain::run::{Event, Run};
use crate::domain::time::Mono;
use crate::port::error::PortError;
use crate::port::ledger::WriteError;

/// How often the backlog is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a batch is sent again after all tries of a send failed.
const RESENDS: u32 = 8;
/// The first pause before it is; it doubles up to ten seconds.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_CAP: Duration = Duration::from_secs(10);

/// What is known of the source's strain.
#[derive(Debug, Default)]
pub(super) struct Strain {
    throttled: bool,
    backlogged: bool,
    looked_at: Option<Mono>,
}

impl Strain {
    /// Notes what a send that had no answer at once says.
    pub(super) fn heard(&mut self, error: &PortError) {
        self.throttled |= error.class() == ErrorClass::Throttled;
    }

    /// Notes the code of an entry that SQS did not carry out.
    pub(super) fn heard_code(&mut self, code: &str) {
        self.throttled |= code.contains("Throttl") || code == "OverLimit";
    }

    const fn pressure(&self) -> Pressure {
        match (self.throttled, self.backlogged) {
            (true, _) => Pressure::Throttled,
            (false, true) => Pressure::Under,
            (false, false) => Pressure::None,
        }
    }
}

impl Executor<'_> {
    /// The pressure of now. What was throttled counts once.
    pub(super) async fn pressure(&mut self) -> Pressure {
        let now = self.now();
        let is_due = self.strain.looked_at.is_none_or(|at| now.since(at) >= LOOK_EVERY);
        if is_due && self.ramp.phase() != Phase::Canary && self.place < self.tracked.len() {
            self.strain.looked_at = Some(now);
            match self.redriver.source.facts().await {
                Ok(facts) => {
                    let waiting = facts.depth.visible.saturating_add(facts.depth.delayed);
                    self.strain.backlogged = waiting > self.run.policy.max_backlog;
                }
                Err(error) => {
                    tracing::warn!(%error, "the source's backlog is not known");
                    self.strain.heard(&error);
                }
            }
        }
        let pressure = self.strain.pressure();
        self.strain.throttled = false;
        pressure
    }

    /// Sends a batch that is taken until each copy is accepted or refused.
    pub(super) async fn send_to_the_end(
        &mut self,
        taken: &[Taken],
        mut earlier: EarlierSend,
    ) -> Result<Vec<Sent>, RedriveError> {
        let copies: Vec<_> = taken.iter().map(|taken| &taken.copy).collect();
        let mut pause = PAUSE;
        for _ in 0..RESENDS {
            match self.redriver.send(&copies, earlier, &mut self.strain).await {
                Ok(sent) => return Ok(sent),
                Err(error) => tracing::warn!(%error, "a batch is not sent yet: trying again"),
            }
            earlier = EarlierSend::Unknown;
            self.keep_batch().await?;
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(PAUSE_CAP);
        }
        Ok(self.redriver.send(&copies, earlier, &mut self.strain).await?)
    }

    /// Extends the lease with the batch still in hand.
    async fn keep_batch(&mut self) -> Result<(), RedriveError> {
        let next = self.next_run(&Event::Extend { lease: self.redriver.lease })?;
        let next = Run { batch: self.run.batch.clone(), ..next };
        match self.redriver.insist(|| self.redriver.runs.put_run(&self.run, &next)).await {
            Ok(stored) => {
                self.run = stored.into_inner();
                self.written_at = self.now();
                Ok(())
            }
            Err(WriteError::Lost(_)) => Err(RedriveError::Fenced(self.run.id.clone())),
            Err(WriteError::Unknown(e)) => Err(e.into()),
        }
    }
}
