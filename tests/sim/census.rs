//! What a worker's gauges say of the ledger, and when.

use std::time::Duration;

use redrive::sim::fault::{Fault, Faults};
use redrive::telemetry::{Gauge, Telemetry};

use crate::world::World;

async fn pass(time: Duration) {
    tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
}

fn gauges(telemetry: &Telemetry) -> [Option<f64>; 4] {
    [
        Gauge::Quarantined,
        Gauge::OldestQuarantinedSeconds,
        Gauge::SecondsToExpiry,
        Gauge::DlqResolutionRate,
    ]
    .map(|gauge| telemetry.meter.gauge(gauge))
}

#[tokio::test(start_paused = true)]
async fn a_sweep_refreshes_what_alarms_watch_and_a_worker_that_does_not_sweep_says_nothing() {
    let world = World::new();
    let faults = Faults::new();
    let worker = world.whole_worker(&faults).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(gauges(&worker.telemetry), [Some(0.0), Some(0.0), None, None]);
    for n in 0..3 {
        world.send(&format!("bad {n}")).await;
    }
    pass(Duration::from_secs(600)).await;
    let [quarantined, oldest, expiry, _] = gauges(&worker.telemetry);
    assert_eq!(quarantined, Some(3.0));
    assert!((200.0..600.0).contains(&oldest.unwrap()), "{oldest:?}");
    let retention = 14.0 * 86_400.0;
    assert!((retention - 600.0..retention).contains(&expiry.unwrap()), "{expiry:?}");

    faults.at_every("runs.lock_sweep", Fault::FailBefore);
    pass(Duration::from_secs(600)).await;
    assert_eq!(gauges(&worker.telemetry), [None; 4]);
    worker.stop().await;
}
