//! A whole worker: the consumer, and a sweep of the DLQ on its period.

use std::time::Duration;

use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::service::consumer::{self, Ending};
use crate::service::settings::Context;
use crate::service::shutdown::Stage;
use crate::service::sweeper::{SweepError, Sweeper};

/// Messages of one pass of a worker's sweep.
const SWEEP_MOST: u64 = 1_000;

/// Works until a stop.
pub async fn run(ctx: Context, stages: watch::Receiver<Stage>, rng: StdRng) -> Ending {
    let stop = CancellationToken::new();
    let sweeps = sweep_on(ctx.sweeper(), ctx.settings.sweep_every, stop.clone());
    let sweeps = AbortOnDropHandle::new(tokio::spawn(sweeps));
    let ending = consumer::run(ctx, stages, rng).await;
    stop.cancel();
    if sweeps.await.is_err() {
        tracing::error!("the sweep ended unexpectedly");
    }
    ending
}

/// Sweeps now and then every `every`, until `stop`.
async fn sweep_on(sweeper: Sweeper, every: Duration, stop: CancellationToken) {
    loop {
        match sweeper.pass(SWEEP_MOST, &stop).await {
            Ok(swept) if swept.received == 0 => {}
            Ok(swept) => tracing::info!(
                received = swept.received,
                removed = swept.removed,
                kept = swept.kept,
                bare = swept.bare,
                rebuilt = swept.rebuilt,
                errors = swept.errors.len(),
                "swept the DLQ"
            ),
            Err(SweepError::Held { owner, .. }) => {
                tracing::debug!(owner, "another sweep is under way")
            }
            Err(SweepError::Port(error)) => {
                tracing::warn!(%error, "the sweep failed: the next one tries again")
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}
