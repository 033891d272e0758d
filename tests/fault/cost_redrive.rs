//! What a run asks of AWS, counted on the wire: the DLQ is swept, the copies are sent, and each envelope is
//! read once. The ledger is in memory: SQS and S3 are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::domain::ramp::RampPolicy;
use redrive::domain::run::State as RunState;

use crate::redriving::{in_memory, patient, start};
use crate::wire::call::{Call, Service};
use crate::world::World;

/// SQS's requests by operation and queue.
fn tally(calls: &[Call]) -> BTreeMap<(&str, &str), usize> {
    let mut tally = BTreeMap::new();
    for call in calls.iter().filter(|call| call.service == Service::Sqs) {
        *tally.entry((call.operation.as_str(), call.object.as_str())).or_default() += 1;
    }
    tally
}

#[tokio::test(start_paused = true)]
async fn two_thousand_records_cost_a_third_of_a_request_and_one_object_each() {
    const RECORDS: usize = 2_000;
    let world = World::new().await;
    let ledger = world.park_in_memory(RECORDS).await;
    let policy = RampPolicy {
        start_rate: 200.0,
        max_rate: 2_000.0,
        step: Duration::from_secs(1),
        ..patient()
    };
    let redriver = world.redriver_with(in_memory(&ledger)).await;
    // The worker's requests go another way: they are what any message costs.
    let worker = world.clean_worker(&ledger).await;
    world.wire.clear_log();
    let run = start(&redriver, policy).await.end().await.unwrap();
    let calls = world.wire.calls();
    worker.stop().await;
    assert_eq!((run.state, run.counts.resolved), (RunState::Completed, RECORDS as u64));
    let sqs = calls.iter().filter(|call| call.service == Service::Sqs).count();
    assert!(sqs * 100 <= RECORDS * 35, "{sqs} SQS requests: {:?}", tally(&calls));
    let is_envelope =
        |call: &&Call| call.is(Service::S3, "GetObject") && call.object.contains("/envelopes/");
    assert_eq!(calls.iter().filter(is_envelope).count(), RECORDS);
    assert_eq!(world.dlq_depth().await, Default::default());
}
