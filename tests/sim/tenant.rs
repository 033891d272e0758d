//! Workers that execute runs, and runs that nobody executes.

use std::time::Duration;

use redrive::domain::ramp::Trip;
use redrive::domain::record::{Blocked, State};
use redrive::domain::run::State as RunState;
use redrive::service::consumer::Ending;
use redrive::service::settings::ExecuteRuns;
use redrive::sim::fault::{Fault, Faults};
use redrive::telemetry::Counter;

use crate::executor::policy;
use crate::world::World;

async fn pass(time: Duration) {
    tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
}

/// A world whose workers execute runs, with one that is left to them.
async fn left_run(records: usize) -> (World, redrive::domain::id::RunId) {
    let mut world = World::new();
    world.settings.concurrency = 100;
    world.park_many(records).await;
    world.handler.set_fixed(true);
    world.settings.runs = ExecuteRuns::Yes;
    let redriver = world.redriver(&Faults::new(), "cli");
    let run = world.open(&redriver, policy()).await.unwrap();
    let left = redriver.leave(run).await.unwrap();
    (world, left.id)
}

async fn state(world: &World, id: &redrive::domain::id::RunId) -> RunState {
    world.report(id).await.run.state
}

async fn until(world: &World, id: &redrive::domain::id::RunId, wanted: RunState) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    for _ in 0..3_600 {
        tick.tick().await;
        if state(world, id).await == wanted {
            return;
        }
    }
    panic!("never {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_left_is_executed_by_a_worker_and_counted() {
    let (world, id) = left_run(60).await;
    let worker = world.whole_worker(&Faults::new()).await;
    until(&world, &id, RunState::Completed).await;
    let report = world.report(&id).await;
    assert!(report.is_well());
    assert_eq!(report.counts.resolved, 60);
    let count = |counter| worker.telemetry.meter.value(counter);
    assert_eq!((count(Counter::RunSent), count(Counter::RunResolved)), (60, 60));
    assert_eq!((count(Counter::RunFailedAgain), count(Counter::RunTripped)), (0, 0));
    worker.stop().await;
    assert_eq!(world.commits(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_fix_that_does_not_help_trips_the_run_of_a_worker_too() {
    let (world, id) = left_run(60).await;
    world.handler.set_fixed(false);
    let worker = world.whole_worker(&Faults::new()).await;
    until(&world, &id, RunState::Tripped).await;
    assert_eq!(worker.telemetry.meter.value(Counter::RunTripped), 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(world.spy.copies().len(), 5, "nobody takes it up again");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn workers_that_die_or_stop_hand_the_run_on_and_nothing_is_done_twice() {
    for is_killed in [true, false] {
        let (world, id) = left_run(120).await;
        let mut stops = 0;
        for sent in [3, 20, 60] {
            let worker = world.whole_worker(&Faults::new()).await;
            world.wait_until("some sends", || world.spy.copies().len() >= sent).await;
            match is_killed {
                true => worker.crash().await,
                false => assert_eq!(worker.stop().await, Ending::Drained),
            }
            stops += 1;
            assert_eq!(state(&world, &id).await, RunState::Running);
        }
        let worker = world.whole_worker(&Faults::new()).await;
        until(&world, &id, RunState::Completed).await;
        worker.stop().await;
        assert_eq!(world.report(&id).await.counts.resolved, 120);
        assert_eq!(world.commits(), 120);
        let most = 120 + if is_killed { stops * 10 } else { 0 };
        assert!(world.spy.copies().len() <= most, "{}", world.spy.copies().len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_an_executor_for_five_minutes_is_settled_by_a_workers_sweep() {
    let mut world = World::new();
    let ids = world.park_many(30).await;
    world.handler.set_fixed(true);
    // An executor that dies with a batch in hand, none of it sent.
    let faults = Faults::new();
    faults.at_call_of("queue.send orders", 1, Fault::HangBefore);
    let redriver = world.redriver(&faults, "dies");
    let executor = world.start(&redriver, policy()).await;
    let in_hand = || world.states(&ids).iter().filter(|s| **s == State::Redriving).count();
    world.wait_until("a batch in hand", || in_hand() > 0).await;
    let batch = in_hand();
    executor.crash().await;
    world.settings.sweep_every = Duration::from_secs(60);
    let worker = world.whole_worker(&Faults::new()).await;
    pass(Duration::from_secs(240)).await;
    assert!(world.states(&ids).contains(&State::Redriving), "it may yet come back");
    world
        .wait_until("the settling", || {
            world.states(&ids).iter().all(|state| *state == State::Quarantined)
        })
        .await;
    worker.stop().await;
    let blocked: Vec<_> =
        world.ledger.records().into_values().filter_map(|record| record.blocked).collect();
    assert_eq!(blocked, vec![Blocked::Unsettled; batch]);
    let run = redriver.find(None).await.unwrap().unwrap().into_inner();
    assert_eq!((run.state, run.tripped), (RunState::Tripped, Some(Trip::Unattended)));
    assert!(run.batch.is_empty());
    world.assert_none_lost(&ids).await;
}
