//! Outcomes of copies whose consumer is another's: it writes no ledger, so queues must tell.
//!
//! A copy that failed is moved to the DLQ by SQS's own policy, where a sweep adopts it: its record says so
//! like any other. Of a copy that worked there is no word. Once the queue has stayed drained for the run's
//! outcome time-out, and a sweep after that has brought back nothing more, what is still in doubt is
//! assumed to be done. While the queue is drained, silence is what is expected, and trips no run.

use tokio_util::sync::CancellationToken;

use super::RedriveError;
use super::executor::{Executor, Swept, Within};
use crate::domain::dispatch::Feedback;
use crate::domain::ramp::Outcome;
use crate::domain::record::{self, Record, State as RecordState, Step};
use crate::domain::run::Standing;
use crate::port::evidence::Stored;
use crate::port::ledger::{Expect, RecordWrite, WriteError, write_record};

impl Executor<'_> {
    /// Looks at the queues now and then, and concludes from them what nobody says.
    pub(super) async fn look_at_queues(
        &mut self,
        stop: &CancellationToken,
    ) -> Result<(), RedriveError> {
        let (wanted, now) = (self.run.policy.outcome_timeout, self.now());
        let is_asked = self.run.dispatch.feedback == Feedback::Queue && !self.doubt.is_empty();
        if !is_asked || !self.drain.is_due(wanted, now) {
            return Ok(());
        }
        let redriver = self.redriver;
        let depth = match redriver.insist(|| redriver.source.facts()).await {
            Ok(facts) => facts.depth,
            Err(error) => {
                tracing::warn!(%error, "whether the queue is drained is not known");
                return Ok(());
            }
        };
        let messages = depth.visible.saturating_add(depth.in_flight).saturating_add(depth.delayed);
        let Some(empty) = self.drain.look(messages, now) else { return Ok(()) };
        self.ramp.heard(now);
        if empty < wanted || !self.has_all_come_back(stop).await? {
            return Ok(());
        }
        self.read_at = None;
        self.read_outcomes().await?;
        self.assume_done().await
    }

    /// Sweeps the DLQ, and says whether it is certain that the sweep saw all.
    async fn has_all_come_back(&mut self, stop: &CancellationToken) -> Result<bool, RedriveError> {
        let swept = self.sweep(Within::All, stop).await?;
        if swept != Swept::Done || stop.is_cancelled() || self.run.desired.is_some() {
            return Ok(false);
        }
        let dlq = self.redriver.sweeper.dlq();
        let facts = self.redriver.insist(|| dlq.facts()).await?;
        Ok(facts.depth.in_flight == 0)
    }

    /// Resolves what is in doubt. A record that changes meanwhile has its own word.
    async fn assume_done(&mut self) -> Result<(), RedriveError> {
        let indices: Vec<usize> = self.doubt.iter().copied().collect();
        let ids: Vec<_> = indices.iter().filter_map(|index| self.id(*index)).collect();
        let records = self.redriver.read_records(&ids).await?;
        for ((index, id), record) in indices.into_iter().zip(ids).zip(records) {
            let Some(record) = record.map(Stored::into_inner) else { continue };
            let Some(write) = self.assuming(&record) else { continue };
            let (ledger, now) = (self.redriver.ledger.as_ref(), self.redriver.clock.wall());
            let write = RecordWrite { id, expect: Expect::Is(Box::new(record)), next: write };
            match self.redriver.insist(|| write_record(ledger, &write, now)).await {
                Ok(_) => {
                    self.ramp.outcome(Outcome::Good, self.now());
                    self.learn(index, Standing::Assumed, true);
                }
                Err(WriteError::Lost(_)) => {}
                Err(WriteError::Unknown(e)) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// The record as it is to be, if its copy of this run is still without a word.
    fn assuming(&self, record: &Record) -> Option<Record> {
        let ours = record.run_id.as_ref() == Some(&self.run.id);
        if !ours || record.state != RecordState::Redriven {
            return None;
        }
        let event = record::Event::Committed { duplicate_of: None };
        let now = self.redriver.clock.wall();
        match record::apply(Some(record), &event, self.redriver.remember, now) {
            Ok(Step::Write(next)) => Some(*next),
            Ok(_) | Err(_) => None,
        }
    }
}
