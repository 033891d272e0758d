//! Trap 13, the sweep's half: a crash, and a lost answer, at each call of a pass.

use std::time::Duration;

use redrive::domain::id::RecordId;
use redrive::domain::record::State;
use redrive::sim::fault::{Fault, Faults};
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// A kind of pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Ordinary,
    Full,
}

/// A DLQ with a bare message of each kind and a token, and what must be quarantined after it is swept.
async fn scene() -> (World, Vec<RecordId>) {
    let world = World::new();
    // A copy whose worker died.
    let mut ids = world.park(&["bad copy"]).await;
    world.send_copy().await;
    // A leftover that is committed: its worker died before the delete.
    let faults = Faults::new();
    world.send("fine").await;
    faults.at_call_of("queue.delete", 1, Fault::HangBefore);
    let done = world.worker(&faults).await;
    world.wait_until("a commit", || world.commits() == 1).await;
    world
        .wait_until("a delete", || faults.log().iter().any(|c| c.starts_with("queue.delete")))
        .await;
    done.crash().await;
    // A parking that died before its token, and one that never began.
    world.bury().await;
    ids.push(RecordId::from(&world.send("bad unsent").await));
    let faults = Faults::new();
    faults.at_call_of("queue.send orders-dlq", 1, Fault::HangBefore);
    let parking = world.worker(&faults).await;
    let is_sending = || faults.log().iter().any(|call| call == "queue.send orders-dlq");
    world.wait_until("a token", is_sending).await;
    parking.crash().await;
    ids.push(RecordId::from(&world.send("bad plain").await));
    tokio::time::advance(Duration::from_secs(61)).await;
    world.bury().await;
    // A token that is gone.
    ids.extend(world.park(&["bad gone"]).await);
    tokio::time::advance(Duration::from_secs(2)).await;
    let name = redrive::port::queue::Queue::name(&world.dlq).clone();
    for message in world.dead_letters() {
        if message.body == "bad gone" {
            world.engine.with(|engine, now| engine.delete(now, &name, &message.receipt)).unwrap();
        }
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    (world, ids)
}

/// Makes a pass; whether it died at its fault.
async fn pass(world: &World, scope: Scope, faults: &Faults, k: usize) -> bool {
    let sweeper = world.sweeper(faults, "sweeper");
    let task = tokio::spawn(async move {
        let stop = CancellationToken::new();
        match scope {
            Scope::Ordinary => sweeper.pass(u64::MAX, &stop).await,
            Scope::Full => sweeper.full(&stop).await,
        }
    });
    world.wait_until("the call", || task.is_finished() || faults.log().len() >= k).await;
    // What is on its way beside the call that hangs comes to its end.
    let second = tokio::time::Instant::now() + Duration::from_secs(1);
    world
        .wait_until("a second", || task.is_finished() || tokio::time::Instant::now() >= second)
        .await;
    let died = !task.is_finished();
    task.abort();
    died
}

async fn survives(scope: Scope, fault: Fault, k: usize) {
    let (world, ids) = scene().await;
    let faults = Faults::new();
    faults.at(k, fault);
    pass(&world, scope, &faults, k).await;
    for round in 0..3 {
        tokio::time::advance(Duration::from_secs(301)).await;
        assert_eq!(world.sweep_full().await.errors, [], "{scope:?} {fault:?} at {k}, {round}");
    }
    let states = world.states(&ids);
    assert_eq!(states, [State::Quarantined; 4], "{scope:?} {fault:?} at {k}");
    assert_eq!(world.ledger.records().len(), 4, "the committed one has no record");
    world.assert_none_lost(&ids).await;
    world.assert_one_token_each(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn the_scene_has_one_of_each_kind() {
    let (world, ids) = scene().await;
    let swept = world.sweep_full().await;
    assert_eq!((swept.adopted, swept.reissued, swept.errors), (3, 1, vec![]));
    assert_eq!(world.ledger.records().len(), ids.len());
    // The old token of the copy's record, and the leftover that is committed.
    assert_eq!((swept.removed, swept.truncated), (2, false));
}

async fn calls(scope: Scope) -> usize {
    let (world, _) = scene().await;
    let faults = Faults::new();
    assert!(!pass(&world, scope, &faults, usize::MAX).await);
    faults.log().len()
}

async fn survives_at_each_call(scope: Scope, fault: Fault) {
    let calls = calls(scope).await;
    assert!(calls > 20, "{calls}");
    for k in 1..=calls {
        survives(scope, fault, k).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_crash_before_each_call_of_a_pass_loses_nothing() {
    survives_at_each_call(Scope::Ordinary, Fault::HangBefore).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_crash_after_each_call_of_a_pass_loses_nothing() {
    survives_at_each_call(Scope::Ordinary, Fault::HangAfter).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_failure_of_each_call_of_a_pass_loses_nothing() {
    survives_at_each_call(Scope::Ordinary, Fault::FailBefore).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_crash_before_each_call_of_a_full_sweep_loses_nothing() {
    survives_at_each_call(Scope::Full, Fault::HangBefore).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_crash_after_each_call_of_a_full_sweep_loses_nothing() {
    survives_at_each_call(Scope::Full, Fault::HangAfter).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_failure_of_each_call_of_a_full_sweep_loses_nothing() {
    survives_at_each_call(Scope::Full, Fault::FailBefore).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_lost_answer_of_each_call_of_a_full_sweep_loses_nothing() {
    let calls = calls(Scope::Full).await;
    for k in 1..=calls {
        let (world, ids) = scene().await;
        let faults = Faults::new();
        faults.at(k, Fault::LostAnswer);
        pass(&world, Scope::Full, &faults, k).await;
        tokio::time::advance(Duration::from_secs(301)).await;
        world.sweep_full().await;
        world.sweep_full().await;
        world.assert_none_lost(&ids).await;
        tokio::time::advance(Duration::from_secs(301)).await;
        // A token whose answer was lost is sent again: the same one twice, at most.
        assert!(world.dead_letters().len() <= ids.len() + 1, "at {k}");
    }
}
