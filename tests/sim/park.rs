//! Trap 13, the parking half: a crash, and a lost answer, at each call of a worker's life.

use redrive::domain::record::State;
use redrive::sim::fault::{Fault, Faults};

use crate::world::World;

/// Calls of a life that parks one message and commits two: more than enough.
const CALLS: usize = 40;

async fn survives(fault: Fault, k: usize) {
    let world = World::new();
    let sent = [world.send("bad").await, world.send("flaky").await, world.send("fine").await];
    let faults = Faults::new();
    faults.at(k, fault);
    if matches!(fault, Fault::HangBefore | Fault::HangAfter) {
        let worker = world.worker(&faults).await;
        world.wait_until("the call", || faults.log().len() >= k).await;
        worker.crash().await;
        world.work(&Faults::new()).await;
    } else {
        world.work(&faults).await;
    }
    world.assert_nothing_lost(&sent);
    let [bad, ..] = &sent;
    assert_eq!(world.record(bad).state, State::Quarantined, "{fault:?} at {k}");
    let committed: usize = world.entries().iter().map(|entry| entry.commits.len()).sum();
    assert_eq!(committed, 2, "{fault:?} at {k}");
    let runs = world.handler.runs();
    let keys: std::collections::BTreeSet<_> =
        runs.iter().map(|run| run.idempotency_key.clone()).collect();
    assert_eq!(keys.len(), 3, "{fault:?} at {k}: one generation a message");
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_crash_before_each_call_of_parking_loses_nothing() {
    for k in 1..CALLS {
        survives(Fault::HangBefore, k).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_crash_after_each_call_of_parking_loses_nothing() {
    for k in 1..CALLS {
        survives(Fault::HangAfter, k).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_lost_answer_of_each_call_of_parking_loses_nothing() {
    for k in 1..CALLS {
        survives(Fault::LostAnswer, k).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_failure_of_each_call_of_parking_loses_nothing() {
    for k in 1..CALLS {
        survives(Fault::FailBefore, k).await;
    }
}

#[tokio::test(start_paused = true)]
async fn parking_puts_the_envelope_then_the_ledger_then_the_token_then_deletes() {
    let world = World::new();
    world.send("bad").await;
    let faults = Faults::new();
    world.work(&faults).await;
    let calls = faults.log();
    let at = |name: &str| calls.iter().position(|call| call.starts_with(name)).unwrap();
    let order = [
        "vault.put",
        "ledger.put_both",
        "queue.send orders-dlq",
        "ledger.put_record",
        "queue.delete",
    ];
    assert!(order.map(at).is_sorted(), "{calls:?}");
}
