//! Work under a heartbeat: visibility and ledger lease are extended together at a third of the timeout.
//!
//! An extension that has begun is never dropped: when the work ends first, it is awaited. When the
//! lease is lost, the work is dropped, so that it does not run beside its successor for long.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::entry::Event;
use crate::domain::id::ReceiptHandle;
use crate::port::queue::EntryError;
use crate::service::held::{Held, Interrupted};
use crate::service::settings::Context;

/// The pause between tries of an extension that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs `work` while the lease is extended.
pub(crate) async fn keep_alive<T>(
    ctx: &Context,
    held: &mut Held,
    receipt: &ReceiptHandle,
    stop: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, Interrupted> {
    let finished = CancellationToken::new();
    let beat = beat(ctx, held, receipt, &finished);
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
async fn beat(
    ctx: &Context,
    held: &mut Held,
    receipt: &ReceiptHandle,
    finished: &CancellationToken,
) -> Interrupted {
    let mut next = held.lease.extend_at();
    loop {
        let now = ctx.ports.clock.mono();
        tokio::select! {
            biased;
            () = finished.cancelled() => return Interrupted::Stopped,
            () = tokio::time::sleep(next.since(now)) => {}
        }
        let now = ctx.ports.clock.mono();
        if !held.lease.is_trusted(now) {
            return Interrupted::LeaseLost;
        }
        next = match extend(ctx, held, receipt).await {
            Ok(Extended::Yes) => held.lease.extend_at(),
            Ok(Extended::NoMore) => held.lease.trusted_until(),
            Ok(Extended::Later) => ctx.ports.clock.mono().plus(PAUSE),
            Err(Interrupted::LeaseLost) => return Interrupted::LeaseLost,
            Err(e) => {
                tracing::debug!(key = %held.key, error = %e, "extension failed: trying again");
                ctx.ports.clock.mono().plus(PAUSE)
            }
        };
    }
}

/// What became of one extension.
enum Extended {
    /// The lease is longer.
    Yes,
    /// The twelve hours leave no room.
    NoMore,
    /// SQS failed on its side.
    Later,
}

async fn extend(
    ctx: &Context,
    held: &mut Held,
    receipt: &ReceiptHandle,
) -> Result<Extended, Interrupted> {
    let started = ctx.ports.clock.mono();
    let Some(duration) = held.lease.next_extension(started) else { return Ok(Extended::NoMore) };
    let answer = ctx.ports.source.change_visibility(&[(receipt.clone(), duration)]).await?;
    match answer.into_iter().next() {
        Some(Ok(())) => held.lease = held.lease.extended(started, duration),
        Some(Err(EntryError { code, sender_fault: true })) => {
            tracing::debug!(key = %held.key, code, "message is not ours any more");
            return Err(Interrupted::LeaseLost);
        }
        Some(Err(_)) | None => return Ok(Extended::Later),
    }
    let trusted = held.lease.trust_left(ctx.ports.clock.mono());
    let lease_until = ctx.ports.clock.wall().plus(trusted);
    held.write(ctx, &Event::Extend { lease_until }).await?;
    Ok(Extended::Yes)
}
