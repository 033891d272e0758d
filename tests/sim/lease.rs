//! Leases: kept while a message is in hand, never beyond, and lost without harm.

use std::time::Duration;

use redrive::domain::failure::ErrorClass;
use redrive::port::clock::Clock as _;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::sim::fault::{Fault, Faults};
use redrive::telemetry::Counter;

use crate::world::World;

async fn until_empty(world: &World) {
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
}

fn calls(faults: &Faults, operation: &str) -> usize {
    faults.log().iter().filter(|call| call.starts_with(operation)).count()
}

#[tokio::test(start_paused = true)]
async fn case_a3_an_extension_and_a_delete_never_cross() {
    let mut world = World::new();
    world.settings.visibility = Some(Duration::from_secs(2));
    world.settings.concurrency = 20;
    world.handler.set_takes(Duration::from_secs(1));
    let mut sent = Vec::new();
    for n in 0..200 {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    let faults = Faults::new();
    for call in 1..=400 {
        let late = Fault::Late(Duration::from_millis(300));
        faults.at_call_of("queue.change_visibility", call, late);
    }
    let worker = world.worker(&faults).await;
    until_empty(&world).await;
    assert_eq!(worker.telemetry.meter.value(Counter::LeaseLost), 0);
    assert_eq!(worker.telemetry.meter.value(Counter::DeleteFailed), 0);
    assert_eq!(worker.stop().await, Ending::Drained);
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), sent.len());
}

#[tokio::test(start_paused = true)]
async fn extensions_go_together_in_batches_of_ten() {
    let mut world = World::new();
    world.settings.visibility = Some(Duration::from_secs(30));
    world.settings.concurrency = 10;
    world.handler.set_takes(Duration::from_secs(35));
    for n in 0..10 {
        world.send(&format!("fine {n}")).await;
    }
    let faults = Faults::new();
    let worker = world.worker(&faults).await;
    until_empty(&world).await;
    worker.stop().await;
    // At 10, 20 and 30 s.
    assert_eq!(calls(&faults, "queue.change_visibility"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_reported_and_neither_deletes_nor_commits() {
    let mut world = World::new();
    world.settings.visibility = Some(Duration::from_secs(10));
    let sent = [world.send("slow").await];
    let faults = Faults::new();
    let refused = Fault::Refuse(ErrorClass::Transient, "InternalError");
    faults.at_every("queue.change_visibility", refused);
    let worker = world.worker(&faults).await;
    world
        .wait_until("a lost lease", || worker.telemetry.meter.value(Counter::LeaseLost) == 1)
        .await;
    assert_eq!((calls(&faults, "queue.delete"), world.commits()), (0, 0));
    faults.mend();
    until_empty(&world).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.commits(), 1);
}

#[tokio::test(start_paused = true)]
async fn case_a6_a_failure_does_not_hide_a_message_for_its_whole_lease() {
    let mut world = World::with_limits(3, 1_048_576);
    world.settings.visibility = Some(Duration::from_secs(3_600));
    let id = world.send("never").await;
    let started = world.clock.mono();
    world.work(&Faults::new()).await;
    assert!(world.clock.mono().since(started) < Duration::from_secs(30));
    assert_eq!(world.handler.runs().len(), 3);
    world.assert_nothing_lost(&[id]);
}

#[tokio::test(start_paused = true)]
async fn case_a6_slow_extensions_never_make_two_runs_overlap() {
    let mut world = World::with_limits(10, 1_048_576);
    world.settings.visibility = Some(Duration::from_secs(2));
    let id = world.send("never").await;
    let faults = Faults::new();
    faults.at_every("queue.change_visibility", Fault::Late(Duration::from_secs(2)));
    let workers = [world.worker(&faults).await, world.worker(&faults).await];
    until_empty(&world).await;
    for worker in workers {
        worker.stop().await;
    }
    world.assert_nothing_lost(&[id]);
    assert_eq!(world.handler.overlaps(), 0);
}

#[tokio::test(start_paused = true)]
async fn case_a7_no_message_waits_in_hand_for_a_slot() {
    let mut world = World::with_limits(2, 1_048_576);
    world.settings.visibility = Some(Duration::from_secs(3));
    world.settings.concurrency = 1;
    world.handler.set_takes(Duration::from_secs(1));
    let mut sent = Vec::new();
    for n in 0..30 {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    let worker = world.worker(&Faults::new()).await;
    let most = std::cell::Cell::new(0);
    world
        .wait_until("an empty source", || {
            let depth = world.depth(&world.source);
            most.set(most.get().max(depth.in_flight));
            depth == Depth::default()
        })
        .await;
    worker.stop().await;
    assert!(most.get() <= 2, "one in hand, and one whose delete waits for company: {}", most.get());
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), 30);
    assert!(world.handler.runs().iter().all(|run| run.attempt == 1));
    assert!(world.ledger.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_a10_deletes_that_fail_for_a_while_all_succeed_in_the_end() {
    let mut world = World::new();
    world.settings.visibility = Some(Duration::from_secs(120));
    let mut sent = Vec::new();
    for n in 0..60 {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    let faults = Faults::new();
    faults.at_every("queue.delete", Fault::Refuse(ErrorClass::Transient, "InternalError"));
    let worker = world.worker(&faults).await;
    tokio::time::timeout(Duration::from_secs(20), std::future::pending::<()>()).await.unwrap_err();
    let in_flight = world.depth(&world.source).in_flight;
    assert!(in_flight <= 16 + 16 + 10, "what is pending is bounded: {in_flight}");
    faults.mend();
    let mended = world.clock.mono();
    until_empty(&world).await;
    assert!(world.clock.mono().since(mended) < Duration::from_secs(10));
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), 60);
}

#[tokio::test(start_paused = true)]
async fn case_f1_a_crash_leaves_no_claim_that_blocks_for_long() {
    let mut world = World::new();
    world.settings.visibility = Some(Duration::from_secs(3));
    let sent = [world.send("slow").await];
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("a run", || world.handler.runs().len() == 1).await;
    worker.crash().await;
    let crashed = world.clock.mono();
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("another run", || world.handler.runs().len() == 2).await;
    assert!(world.clock.mono().since(crashed) < Duration::from_secs(3 + 3 + 2));
    until_empty(&world).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), 2);
    assert!(world.ledger.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_j2_a_stop_lets_work_finish_and_flushes_its_deletes() {
    let mut world = World::new();
    world.settings.grace = Duration::from_secs(10);
    world.settings.visibility = Some(Duration::from_secs(3));
    world.handler.set_takes(Duration::from_secs(3));
    let mut sent = Vec::new();
    for n in 0..10 {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    let faults = Faults::new();
    let worker = world.worker(&faults).await;
    world.wait_until("ten runs", || world.handler.runs().len() == 10).await;
    let stopped = world.clock.mono();
    let ending = worker.stop().await;
    assert_eq!(ending, Ending::Drained);
    // A poll that was in flight may wait for its twenty seconds; nothing else does.
    assert!(world.clock.mono().since(stopped) < Duration::from_secs(21));
    assert_eq!(world.depth(&world.source), Depth::default());
    assert!(calls(&faults, "queue.change_visibility") > 0, "heartbeats go on while it drains");
    world.assert_nothing_lost(&sent);
}
