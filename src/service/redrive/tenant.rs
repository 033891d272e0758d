//! A worker as executor: it takes up the run that nobody executes, beside its consumer.
//!
//! It looks for one now and then, so a run that was left to a worker, or whose executor died, goes on within
//! seconds of the end of its lease. A run that is paused or tripped waits for an operator. When the worker
//! stops, the run is left running, for the next worker.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::executor::Progress;
use super::takeover::AtStop;
use super::{RedriveError, Redriver};
use crate::domain::run::{Counts, State};
use crate::telemetry::{Counter, Meter};

/// How often it looks for a run.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Executes runs in a worker.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub redriver: Redriver,
    pub meter: Meter,
}

impl Tenant {
    /// Executes what it finds until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            match self.execute_next(&stop).await {
                Ok(()) => {}
                Err(RedriveError::Fenced(run_id)) => {
                    tracing::info!(%run_id, "another executor has the run");
                }
                Err(error) => tracing::warn!(%error, "the run is not executed: trying again"),
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn execute_next(&self, stop: &CancellationToken) -> Result<(), RedriveError> {
        let Some(run) = self.redriver.unattended(Duration::ZERO).await? else { return Ok(()) };
        // What goes to another queue is not ours to send; a wish is for whoever wished it.
        if run.dispatch.to.is_some() || run.desired.is_some() {
            return Ok(());
        }
        let run = match self.redriver.claim(&run).await {
            Err(RedriveError::Refused { .. }) => return Ok(()),
            claimed => claimed?,
        };
        tracing::info!(run_id = %run.get().id, fence = run.get().fence, "executing a run");
        let mut known = run.get().counts;
        let mut watch = |progress: Progress| {
            self.count(known, progress.counts);
            known = progress.counts;
        };
        let run = self.redriver.execute_until(run, AtStop::Leave, stop, &mut watch).await?;
        if run.state == State::Tripped {
            self.meter.add(Counter::RunTripped, 1);
        }
        tracing::info!(run_id = %run.id, state = run.state.name(), "the run is not executed any more");
        Ok(())
    }

    fn count(&self, before: Counts, now: Counts) {
        for (counter, before, now) in [
            (Counter::RunSent, before.sent, now.sent),
            (Counter::RunResolved, before.resolved, now.resolved),
            (Counter::RunFailedAgain, before.failed_again, now.failed_again),
        ] {
            self.meter.add(counter, now.saturating_sub(before));
        }
    }
}
