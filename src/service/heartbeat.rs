//! Work under a heartbeat: as often as the keeper extends a message's visibility, the ledger's lease follows.
//!
//! An extension that has begun is never dropped: when the work ends first, it is awaited. When the
//! lease is lost, the work is dropped, so that it does not run beside its successor for long.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::entry::Event;
use crate::service::held::{Held, Interrupted};
use crate::service::settings::Context;

/// The pause before the ledger's lease is extended again after a try that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs `work` while the lease is extended.
pub(crate) async fn keep_alive<T>(
    ctx: &Context,
    held: &mut Held,
    stop: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, Interrupted> {
    let finished = CancellationToken::new();
    let beat = beat(ctx, held, &finished);
    tokio::pin!(beat, work);
    // The work first: a result that is there counts, whatever else has become ready.
    let outcome = tokio::select! {
        biased;
        outcome = &mut work => Ok(outcome),
        lost = &mut beat => return Err(lost),
        () = stop.cancelled() => Err(Interrupted::Stopped),
    };
    finished.cancel();
    // Ends at once, or with the extension in flight. Should that find the lease lost, the write that
    // follows is refused by its own condition.
    let _ended = beat.await;
    outcome
}

/// Extends until `finished`, or until the lease is lost.
async fn beat(ctx: &Context, held: &mut Held, finished: &CancellationToken) -> Interrupted {
    let clock = ctx.ports.clock.as_ref();
    let mut lease = held.lease.clone();
    let mut failed = false;
    loop {
        let now = tokio::select! {
            biased;
            () = finished.cancelled() => return Interrupted::Stopped,
            lease = lease.changed(clock) => lease,
            () = tokio::time::sleep(PAUSE), if failed => lease.get(),
        };
        let trusted = now.trust_left(clock.mono());
        if trusted.is_zero() {
            return Interrupted::LeaseLost;
        }
        if !held.is_in_progress() {
            continue;
        }
        let lease_until = ctx.ports.clock.wall().plus(trusted);
        failed = match held.write(ctx, &Event::Extend { lease_until }).await {
            Ok(()) => false,
            // A write whose answer was lost has moved it on: there is nothing to extend.
            Err(Interrupted::LeaseLost) if !held.is_in_progress() => false,
            Err(Interrupted::LeaseLost) => return Interrupted::LeaseLost,
            Err(e) => {
                tracing::debug!(key = %held.key, error = %e, "ledger lease not extended: trying again");
                true
            }
        };
    }
}
