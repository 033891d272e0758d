//! Traps 6, 7, 9, 10 and 36: what is done, what is new and what is a mismatch, when a redrive comes between.

use std::time::Duration;

use redrive::domain::id::{MessageId, RecordId};
use redrive::domain::record::State;
use redrive::domain::run::Counts;
use redrive::port::queue::Queue as _;
use redrive::sim::fault::{Fault, Faults};

use crate::executor::policy;
use crate::world::World;

const DAY: Duration = Duration::from_secs(86_400);

/// Works off what is in the source.
async fn work(world: &World) {
    world.work(&Faults::new()).await;
}

/// Parks a message whose delete fails, so that it comes back after `hidden` under its old id.
async fn park_leftover(world: &mut World, body: &str, hidden: Duration) -> MessageId {
    let usual = world.settings.visibility.replace(hidden);
    let id = world.send(body).await;
    let faults = Faults::new();
    for k in 1..20 {
        faults.at_call_of("queue.delete", k, Fault::FailBefore);
    }
    let worker = world.worker(&faults).await;
    let is_marked = || world.ledger.records().values().any(|record| record.token_sent.is_some());
    world.wait_until("a parking", is_marked).await;
    worker.crash().await;
    world.settings.visibility = usual;
    assert_eq!(world.depth(&world.source).in_flight, 1, "the leftover");
    id
}

#[tokio::test(start_paused = true)]
async fn trap_06_a_redrive_is_done_if_the_same_content_was_committed_later() {
    let world = World::new();
    let ids = world.park(&["bad nightly"]).await;
    tokio::time::advance(DAY).await;
    world.handler.set_fixed(true);
    let nightly = world.send("bad nightly").await;
    work(&world).await;
    assert_eq!((world.runs_of(&ids[0]), world.commits()), (1, 1));
    let report = world.redrive(policy()).await;
    let expected = Counts { planned: 1, sent: 1, resolved: 1, duplicates: 1, ..Counts::NONE };
    assert_eq!(report.counts, expected);
    assert_eq!((world.runs_of(&ids[0]), world.commits()), (1, 1), "recovered since: not run again");
    let record = &world.ledger.records()[&ids[0]];
    assert_eq!(record.duplicate_of, Some(RecordId::from(&nightly)));
}

#[tokio::test(start_paused = true)]
async fn trap_06_a_redrive_runs_if_the_same_content_was_committed_a_day_before() {
    let world = World::new();
    world.handler.set_fixed(true);
    world.send("bad nightly").await;
    work(&world).await;
    tokio::time::advance(DAY).await;
    world.handler.set_fixed(false);
    let ids = world.park(&["bad nightly"]).await;
    world.handler.set_fixed(true);
    let report = world.redrive(policy()).await;
    let expected = Counts { planned: 1, sent: 1, resolved: 1, ..Counts::NONE };
    assert_eq!(report.counts, expected, "another night's work");
    assert_eq!((world.runs_of(&ids[0]), world.commits()), (2, 2));
    tokio::time::advance(DAY).await;
    world.send("bad nightly").await;
    work(&world).await;
    assert_eq!(world.commits(), 3, "the next night is not skipped");
}

#[tokio::test(start_paused = true)]
async fn trap_07_a_leftover_that_comes_back_after_its_copy_committed_is_done() {
    let mut world = World::new();
    let hidden = Duration::from_secs(11 * 3_600);
    let id = park_leftover(&mut world, "bad", hidden).await;
    world.handler.set_fixed(true);
    let report = world.redrive(policy()).await;
    assert_eq!((report.counts.resolved, world.commits()), (1, 1));
    let runs = world.handler.runs().len();
    tokio::time::advance(hidden).await;
    assert_eq!(world.depth(&world.source).visible, 1, "it is back, under its old id");
    work(&world).await;
    assert_eq!((world.commits(), world.handler.runs().len()), (1, runs));
    assert_eq!(world.record(&id).state, State::Resolved);
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn trap_07_a_leftover_that_comes_back_while_its_copy_is_out_is_deleted_unrun() {
    let mut world = World::new();
    let hidden = Duration::from_secs(600);
    let id = park_leftover(&mut world, "bad", hidden).await;
    world.handler.set_fixed(true);
    let redriver = world.redriver(&Faults::new(), "executor");
    let executor = world.start(&redriver, policy()).await;
    world.wait_until("a redriven record", || world.record(&id).state == State::Redriven).await;
    // The copy waits, hidden; the leftover comes first.
    let copy = world.source.receive(1, Duration::ZERO, Some(Duration::from_secs(700))).await;
    assert_eq!(copy.unwrap().len(), 1);
    tokio::time::advance(hidden).await;
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("the leftover is gone", || world.depth(&world.source).visible == 0).await;
    let run = executor.end().await.unwrap();
    worker.stop().await;
    assert_eq!(world.report(&run.id).await.counts.resolved, 1);
    let origins: Vec<_> = world.handler.runs().into_iter().map(|run| run.message_id).collect();
    assert_eq!(origins.iter().filter(|run| *run == id.as_str()).count(), 1, "parked, then unrun");
    assert_eq!((world.commits(), world.handler.runs().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn trap_09_a_producers_retry_that_arrives_after_the_copys_commit_is_done() {
    let world = World::new();
    let ids = world.park(&["bad"]).await;
    let retry = world.send("bad").await;
    // A consumer that died has it for two hours.
    let two_hours = Duration::from_secs(7_200);
    let taken = world.source.receive(1, Duration::ZERO, Some(two_hours)).await.unwrap();
    assert_eq!(taken[0].message_id, retry);
    tokio::time::advance(two_hours / 2).await;
    world.handler.set_fixed(true);
    let report = world.redrive(policy()).await;
    assert_eq!((report.counts.resolved, world.commits()), (1, 1));
    tokio::time::advance(two_hours / 2).await;
    assert_eq!(world.depth(&world.source).visible, 1);
    work(&world).await;
    assert_eq!(world.commits(), 1, "judged by when it was sent, not by when it came");
    assert_eq!((world.runs_of(&ids[0]), world.runs_of(&RecordId::from(&retry))), (2, 0));
}

/// A world keyed by `/id`.
fn keyed_world() -> World {
    let mut world = World::new();
    world.settings.strategy = "json:/id".parse().unwrap();
    world
}

/// The one planned copy is parked as a mismatch: not run, nothing of the entry changed.
async fn assert_mismatch(world: &World, id: &RecordId) {
    let (entries, runs) = (world.entries(), world.runs_of(id));
    let report = world.redrive_of(id, policy()).await;
    assert_eq!((report.counts.planned, report.counts.failed_again), (1, 1));
    let record = world.ledger.records()[id].clone();
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 1));
    assert_eq!(record.error_code.as_str(), "PAYLOAD_MISMATCH");
    assert_eq!(world.runs_of(id), runs, "it was not run");
    assert_eq!(world.entries(), entries, "the entry is another payload's");
}

#[tokio::test(start_paused = true)]
async fn trap_10_a_copy_that_meets_a_commit_of_other_content_is_a_mismatch() {
    let world = keyed_world();
    let ids = world.park(&[r#"{"id":1,"amount":5,"do":"bad"}"#]).await;
    world.handler.set_fixed(true);
    tokio::time::advance(DAY).await;
    world.send(r#"{"id":1,"amount":6,"do":"bad"}"#).await;
    work(&world).await;
    assert_eq!(world.commits(), 1);
    assert_mismatch(&world, &ids[0]).await;
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn trap_36_a_mismatch_is_seen_whatever_state_a_newer_generation_left_the_entry_in() {
    for (verb, state) in [("never", "open"), ("bad", "parked"), ("slow", "in_progress")] {
        let world = keyed_world();
        let ids = world.park(&[r#"{"id":1,"amount":5,"do":"bad"}"#]).await;
        let other = format!(r#"{{"id":1,"amount":6,"do":"{verb}"}}"#);
        world.handler.set_fixed(true);
        world.send(&other).await;
        work(&world).await;
        assert_eq!(world.commits(), 1);
        // A repeat of it, a day later, begins a generation that does not come to its end.
        tokio::time::advance(DAY).await;
        world.handler.set_fixed(false);
        world.send(&other).await;
        let runs = world.handler.runs().len();
        let worker = world.worker(&Faults::new()).await;
        let left = || world.entries()[0].state.name() == state && world.handler.runs().len() > runs;
        world.wait_until("the state", left).await;
        worker.crash().await;
        if state != "parked" {
            world.wait_until("its return", || world.depth(&world.source).visible == 1).await;
            let aside = Some(Duration::from_secs(11 * 3_600));
            assert_eq!(world.source.receive(1, Duration::ZERO, aside).await.unwrap().len(), 1);
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        world.handler.set_fixed(true);
        assert_mismatch(&world, &ids[0]).await;
        world.assert_none_lost(&ids).await;
    }
}
