//! Traps 17 to 21: executors that are late, that died, and answers that were lost.

use std::time::Duration;

use redrive::domain::id::RecordId;
use redrive::domain::record::State;
use redrive::domain::run::{Run, State as RunState};
use redrive::port::clock::Clock as _;
use redrive::port::runs::Runs as _;
use redrive::service::redrive::RedriveError;
use redrive::sim::fault::{Fault, Faults};

use crate::bound::assert_doubt;
use crate::executor::{Executing, LEASE, execute, patient};
use crate::world::World;

/// How long a late executor is paused.
const PAUSE: Duration = Duration::from_secs(100);

/// What `abort` writes.
async fn abort(world: &World, run: &Run) {
    let now = world.hosts.wall();
    let rev = run.rev + 1;
    let aborted =
        Run { state: RunState::Aborted, rev, lease: None, ended_at: Some(now), ..run.clone() };
    assert!(world.ledger.put_run(run, &aborted).await.is_ok(), "it had changed");
}

/// An executor that is paused before this call, which is its `k`-th of that name.
async fn late(world: &World, call: &'static str, k: usize) -> Executing {
    let faults = Faults::new();
    faults.at_call_of(call, k, Fault::Late(PAUSE));
    let executor = world.start(&world.redriver(&faults, "late"), patient()).await;
    let calls = || faults.log().iter().filter(|made| made.starts_with(call)).count();
    world.wait_until("the paused call", || calls() == k).await;
    tokio::time::advance(LEASE).await;
    executor
}

#[tokio::test(start_paused = true)]
async fn trap_17_an_executor_that_wakes_before_its_take_takes_nothing() {
    for wakes in ["when taken over", "when aborted", "in the next run"] {
        let world = World::new();
        let ids = world.park_many(12).await;
        world.handler.set_fixed(true);
        let worker = world.worker(&Faults::new()).await;
        let executor = late(&world, "runs.take", 2).await;
        let heir = world.redriver(&Faults::new(), "heir");
        let run = heir.find(None).await.unwrap().unwrap();
        let mut run = heir.claim(run.get()).await.unwrap();
        let first = run.get().id.clone();
        if wakes != "when taken over" {
            abort(&world, run.get()).await;
        }
        if wakes == "in the next run" {
            world.handler.set_takes(2 * PAUSE);
            run = world.open(&heir, patient()).await.unwrap();
        }
        let second = (wakes == "in the next run").then(|| execute(heir.clone(), run));
        let ended = executor.end().await;
        assert!(matches!(ended, Err(RedriveError::Fenced(id)) if id == first), "{wakes}");
        let records = world.ledger.records();
        let of_first = records.values().filter(|r| r.run_id.as_ref() == Some(&first)).count();
        assert_eq!(of_first, 5, "{wakes}: the canary, and nothing after it");
        assert_eq!(world.spy.copies().iter().filter(|c| c.run == first).count(), 5, "{wakes}");
        match (second, wakes) {
            (Some(second), _) => second.end().await.unwrap(),
            (None, "when taken over") => world.resume(&heir).await.end().await.unwrap(),
            (None, _) => world.start(&heir, patient()).await.end().await.unwrap(),
        };
        worker.stop().await;
        assert_eq!((world.commits(), world.spy.copies().len()), (12, 12), "{wakes}");
        assert_eq!(world.states(&ids), [State::Resolved; 12], "{wakes}");
        world.report(&first).await;
        world.assert_none_lost(&ids).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_17_an_executor_that_wakes_after_its_take_sends_a_copy_that_is_absorbed() {
    for is_fixed in [true, false] {
        let world = World::new();
        let ids = world.park_many(5).await;
        world.handler.set_fixed(is_fixed);
        let worker = world.worker(&Faults::new()).await;
        let executor = late(&world, "queue.send", 1).await;
        let heir = world.redriver(&Faults::new(), "heir");
        let run = world.resume(&heir).await.end().await.unwrap();
        let before = world.report(&run.id).await;
        // The next run has the records, and their second copies are on their way.
        world.handler.set_takes(2 * PAUSE);
        let mut next = None;
        if !is_fixed {
            next = Some(world.start(&heir, patient()).await);
        }
        assert!(matches!(executor.end().await, Err(RedriveError::Fenced(_))));
        if let Some(next) = next {
            let run = next.end().await.unwrap();
            assert_eq!(world.report(&run.id).await.counts.failed_again, 5);
            assert!(world.ledger.records().values().all(|record| record.redrive_count == 2));
        }
        world
            .wait_until("an empty source", || world.depth(&world.source) == Default::default())
            .await;
        worker.stop().await;
        assert_eq!(world.commits(), if is_fixed { 5 } else { 0 });
        let after = world.report(&run.id).await;
        assert_eq!(after.counts, before.counts, "a closed run's report does not change");
        world.assert_none_lost(&ids).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_18_a_takeover_counts_what_is_in_doubt_and_proves_anew() {
    let mut world = World::new();
    world.settings.concurrency = 1_000;
    let ids = world.park_many(80).await;
    world.handler.set_fixed(true);
    world.handler.set_takes(Duration::from_secs(40));
    let worker = world.worker(&Faults::new()).await;
    let first = world.start(&world.redriver(&Faults::new(), "first"), patient()).await;
    let in_doubt = || world.spy.batches().last().map_or(0, |batch| batch.in_doubt);
    world.wait_until("a wide window", || in_doubt() >= 20).await;
    first.crash().await;
    let (sent, proven) = (world.spy.batches().len(), world.spy.batches().last().unwrap().proven);
    let heir = world.redriver(&Faults::new(), "heir");
    let run = world.resume(&heir).await.end().await.unwrap();
    worker.stop().await;
    let batches = world.spy.batches();
    assert_doubt(&batches, 5);
    for batch in batches.iter().skip(sent) {
        let since = batch.proven - proven;
        assert!(batch.in_doubt <= 5.max(since), "{} in doubt, {since} proven", batch.in_doubt);
    }
    assert_eq!(world.report(&run.id).await.counts.resolved, 80);
    assert_eq!((world.commits(), world.spy.copies().len()), (80, 80));
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn trap_19_a_takeover_sends_nothing_again_that_failed_again_and_remembers_it() {
    let world = World::new();
    let ids = world.park_many(8).await;
    let redriver = world.redriver(&Faults::new(), "heir");
    let draft = world.plan_all(&redriver).await.unwrap();
    let canary: Vec<RecordId> =
        draft.plan.records().iter().take(5).map(|planned| planned.record_id.clone()).collect();
    world.handler.set_hard(canary[..3].iter().cloned());
    world.handler.set_fixed(true);
    let faults = Faults::new();
    faults.at_call_of("queue.send", 1, Fault::HangAfter);
    let first = world.start(&world.redriver(&faults, "first"), patient()).await;
    let worker = world.worker(&Faults::new()).await;
    let back = || world.commits() == 2 && world.depth(&world.source) == Default::default();
    world.wait_until("the canary is back", back).await;
    first.crash().await;
    let run = world.resume(&redriver).await.end().await.unwrap();
    assert!(ids.iter().all(|id| world.spy.sends_of(id) == 1));
    let counts = world.report(&run.id).await.counts;
    assert_eq!((counts.failed_again, counts.resolved, counts.sent), (3, 5, 8));
    // A later run of these records does not change what this one says.
    world.handler.set_hard([]);
    let next = world.start(&redriver, patient()).await.end().await.unwrap();
    worker.stop().await;
    assert_eq!(world.report(&next.id).await.counts.resolved, 3);
    assert_eq!(world.report(&run.id).await.counts, counts);
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn trap_20_a_worker_faster_than_the_executors_confirmation_is_counted_right() {
    for is_fixed in [true, false] {
        let world = World::new();
        let ids = world.park_many(5).await;
        world.handler.set_fixed(is_fixed);
        let faults = Faults::new();
        for k in 1..=5 {
            faults.at_call_of("ledger.put_record", k, Fault::Late(Duration::from_secs(2)));
        }
        let worker = world.worker(&Faults::new()).await;
        let executor = world.start(&world.redriver(&faults, "executor"), patient()).await;
        world.wait_until("the first confirmation", || !world.spy.copies().is_empty()).await;
        let is_out = |state: &State| matches!(state, State::Redriving);
        world.wait_until("the workers are done", || !world.states(&ids).iter().any(is_out)).await;
        let run = executor.end().await.unwrap();
        worker.stop().await;
        let counts = world.report(&run.id).await.counts;
        let expected = if is_fixed { (5, 0) } else { (0, 5) };
        assert_eq!((counts.resolved, counts.failed_again), expected);
        assert_eq!((counts.sent, counts.planned), (5, 5));
        assert!(world.ledger.records().values().all(|record| record.redrive_count == 1));
        world.assert_none_lost(&ids).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_21_a_refusal_after_a_lost_answer_keeps_n_so_the_first_copy_stays_in_order() {
    let world = World::new();
    let ids = world.park_many(1).await;
    let id = &ids[0];
    let faults = Faults::new();
    faults.at_call_of("queue.send", 1, Fault::LostAnswer);
    world.spy.refuse(id, 2);
    let redriver = world.redriver(&faults, "executor");
    let run = world.start(&redriver, patient()).await.end().await.unwrap();
    assert_eq!((run.state, run.counts.errored), (RunState::Completed, 1));
    let record = &world.ledger.records()[id];
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 1));
    // The first copy is still in the source when the next run sends its own.
    let next = world.start(&redriver, patient()).await;
    world.wait_until("another copy", || world.spy.sends_of(id) == 3).await;
    let worker = world.worker(&Faults::new()).await;
    let next = next.end().await.unwrap();
    world.wait_until("an empty source", || world.depth(&world.source) == Default::default()).await;
    worker.stop().await;
    let record = &world.ledger.records()[id];
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 2));
    assert_eq!(record.run_id.as_ref(), Some(&next.id));
    assert_eq!(world.report(&next.id).await.counts.failed_again, 1);
    assert_eq!(world.report(&run.id).await.counts.errored, 1);
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn trap_21_the_first_copy_may_fail_before_the_resend_is_refused() {
    let world = World::new();
    let ids = world.park_many(1).await;
    let faults = Faults::new();
    faults.at_call_of("queue.send", 1, Fault::LostAnswer);
    faults.at_call_of("queue.send", 2, Fault::Late(Duration::from_secs(9)));
    world.spy.refuse(&ids[0], 2);
    let worker = world.worker(&Faults::new()).await;
    let executor = world.start(&world.redriver(&faults, "executor"), patient()).await;
    let run = executor.end().await.unwrap();
    worker.stop().await;
    let record = &world.ledger.records()[&ids[0]];
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 1));
    assert_eq!(record.blocked, None);
    let counts = world.report(&run.id).await.counts;
    assert_eq!((counts.failed_again, counts.errored, counts.sent), (1, 0, 1));
    world.assert_none_lost(&ids).await;
}
