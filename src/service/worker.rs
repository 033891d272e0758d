//! A whole worker: the consumer, a sweep of the DLQ on its period, and runs if it executes them.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::time::Mono;
use crate::service::census::{self, Scope};
use crate::service::consumer::{self, Ending};
use crate::service::redrive::{Redriver, Tenant};
use crate::service::settings::{Context, ExecuteRuns};
use crate::service::shutdown::Stage;
use crate::service::sweeper::{SweepError, SweepFailure, Sweeper, Swept};
use crate::telemetry::Counter;

/// Messages of one pass of a worker's sweep.
const SWEEP_MOST: u64 = 1_000;

/// Works until a stop.
pub async fn run(ctx: Context, stages: watch::Receiver<Stage>, mut rng: StdRng) -> Ending {
    let stop = CancellationToken::new();
    let sweeper = Sweeper::new(ctx.clone(), StdRng::from_seed(rng.random()));
    let redriver = Redriver::of(&ctx, sweeper.clone(), ctx.settings.run_lease);
    let tenant = Tenant { redriver: redriver.clone(), meter: ctx.telemetry.meter.clone() };
    let tenant =
        (ctx.settings.runs == ExecuteRuns::Yes).then(|| tokio::spawn(tenant.run(stop.clone())));
    let tenant = tenant.map(AbortOnDropHandle::new);
    let sweeps = Sweeps { sweeper, redriver, ctx: ctx.clone() };
    let sweeps = AbortOnDropHandle::new(tokio::spawn(sweeps.run(stop.clone())));
    let leaving = AbortOnDropHandle::new(tokio::spawn(leave(stages.clone(), stop.clone())));
    let ending = consumer::run(ctx, stages, rng).await;
    drop(leaving);
    stop.cancel();
    if let Some(tenant) = tenant
        && tenant.await.is_err()
    {
        tracing::error!("the executor of runs ended unexpectedly: its run can be taken over");
    }
    if sweeps.await.is_err() {
        tracing::error!("the sweep ended unexpectedly");
    }
    ending
}

/// Ends sweeps and runs with the first sign of a stop, so that their last words fit in the grace.
async fn leave(mut stages: watch::Receiver<Stage>, stop: CancellationToken) {
    if stages.wait_for(|stage| *stage != Stage::Running).await.is_ok() {
        stop.cancel();
    }
}

/// The sweeps of a worker.
struct Sweeps {
    sweeper: Sweeper,
    redriver: Redriver,
    ctx: Context,
}

impl Sweeps {
    /// Sweeps now and then on the period, until `stop`; whole at first and then on its own period.
    async fn run(self, stop: CancellationToken) {
        let (every, full_every) =
            (self.ctx.settings.sweep_every, self.ctx.settings.sweep_full_every);
        let mut full: Option<Mono> = None;
        loop {
            let started = self.ctx.ports.clock.mono();
            let is_full = full.is_none_or(|last| started.since(last) >= full_every);
            self.settle().await;
            let swept = match is_full {
                true => self.sweeper.full(&stop).await,
                false => self.sweeper.pass(SWEEP_MOST, &stop).await,
            };
            if is_full && swept.is_ok() {
                full = Some(started);
            }
            self.count(&swept, if is_full { Scope::All } else { Scope::Quarantined }).await;
            tell(swept);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    /// A run that nobody executes any more must not hold its source for ever.
    async fn settle(&self) {
        match self.redriver.settle_unattended().await {
            Ok(None) => {}
            Ok(Some(run)) => {
                tracing::error!(run_id = %run.id, "nobody executed the run: settled and tripped");
                self.ctx.telemetry.meter.add(Counter::RunTripped, 1);
            }
            Err(error) => tracing::warn!(%error, "whether a run is unattended is not known"),
        }
    }

    async fn count(&self, swept: &Result<Swept, SweepError>, scope: Scope) {
        if swept.is_err() {
            return census::forget(&self.ctx.telemetry.meter);
        }
        if let Err(error) = census::take(&self.ctx, scope).await {
            tracing::warn!(%error, "the quarantined records are not counted");
            census::forget(&self.ctx.telemetry.meter);
        }
    }
}

fn tell(swept: Result<Swept, SweepError>) {
    match swept {
        Ok(swept) => {
            if let Some(SweepFailure { message_id, why }) = swept.errors.first() {
                let all = swept.errors.len();
                tracing::warn!(%message_id, why, all, "DLQ messages not settled; this is the first");
            }
            if swept.received > 0 || swept.reissued > 0 {
                tracing::info!(
                    received = swept.received,
                    adopted = swept.adopted,
                    removed = swept.removed,
                    kept = swept.kept,
                    bare = swept.bare,
                    reissued = swept.reissued,
                    rebuilt = swept.rebuilt,
                    truncated = swept.truncated,
                    errors = swept.errors.len(),
                    "swept the DLQ"
                );
            }
        }
        Err(SweepError::Held { owner, .. }) => {
            tracing::debug!(owner, "another sweep is under way")
        }
        Err(SweepError::Port(error)) => {
            tracing::warn!(%error, "the sweep failed: the next one tries again")
        }
    }
}
