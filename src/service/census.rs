//! What the metrics say of the ledger, as one worker of a source reads it after each of its sweeps.
//!
//! The quarantined records are walked, up to a bound, since alarms need them fresh; all records only after
//! a full sweep, for the resolution rate. A worker that did not sweep says nothing: another one does.

use crate::domain::record::State;
use crate::port::error::PortError;
use crate::service::settings::Context;
use crate::service::stats::Stats;
use crate::telemetry::{Gauge, Meter};

/// Quarantined records that are walked at most: beyond that the gauge says "at least so many".
const MOST: usize = 10_000;
/// The gauges that come from the ledger.
const GAUGES: [Gauge; 4] = [
    Gauge::Quarantined,
    Gauge::OldestQuarantinedSeconds,
    Gauge::SecondsToExpiry,
    Gauge::DlqResolutionRate,
];

/// Which records are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those in quarantine.
    Quarantined,
    /// All.
    All,
}

/// Reads the ledger and sets the gauges.
///
/// # Errors
/// The ledger or the DLQ did not answer.
pub(crate) async fn take(ctx: &Context, scope: Scope) -> Result<(), PortError> {
    let (meter, ledger) = (&ctx.telemetry.meter, ctx.ports.ledger.as_ref());
    let now = ctx.ports.clock.wall();
    let stats = match scope {
        Scope::Quarantined => Stats::of_states(ledger, &[State::Quarantined], MOST, now).await?,
        Scope::All => Stats::gather(ledger, now).await?,
    };
    meter.set(Gauge::Quarantined, lossy(stats.of(State::Quarantined)));
    match stats.oldest_parked() {
        Some(oldest) => {
            meter.set(Gauge::OldestQuarantinedSeconds, now.since(oldest).as_secs_f64());
        }
        None => meter.set(Gauge::OldestQuarantinedSeconds, 0.0),
    }
    match stats.oldest_token {
        Some(oldest) => {
            let retention = ctx.ports.dlq.facts().await?.retention;
            let left = oldest.plus(retention).since(now);
            meter.set(Gauge::SecondsToExpiry, left.as_secs_f64());
        }
        None => meter.clear(Gauge::SecondsToExpiry),
    }
    if scope == Scope::All {
        match stats.resolution_rate() {
            Some(rate) => meter.set(Gauge::DlqResolutionRate, rate),
            None => meter.clear(Gauge::DlqResolutionRate),
        }
    }
    Ok(())
}

/// Another worker sweeps: what this one once read would contradict it.
pub(crate) fn forget(meter: &Meter) {
    GAUGES.into_iter().for_each(|gauge| meter.clear(gauge));
}

#[expect(clippy::cast_precision_loss, reason = "a gauge needs no 53 bits")]
fn lossy(count: u64) -> f64 {
    count as f64
}
