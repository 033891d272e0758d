//! What a worker does with plain messages.

use std::time::Duration;

use redrive::domain::failure::{Disposition, Reason};
use redrive::domain::record::State;
use redrive::port::clock::Clock as _;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::service::shutdown::Stage;
use redrive::sim::fault::Faults;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_message_that_succeeds_is_committed_and_deleted() {
    let world = World::new();
    let sent = [world.send("fine").await];
    let faults = Faults::new();
    world.work(&faults).await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), 1);
    assert!(world.ledger.records().is_empty() && world.vault.objects().is_empty());
    let calls = faults.log();
    let writes = calls.iter().filter(|call| call.starts_with("ledger")).count();
    assert_eq!(writes, 2, "the happy path is two writes: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn case_c2_a_message_that_never_succeeds_runs_exactly_max_receive_count_times() {
    for limit in [1, 2, 3, 5] {
        let world = World::with_limits(limit, 1_048_576);
        let id = world.send("never").await;
        world.work(&Faults::new()).await;
        world.assert_nothing_lost(std::slice::from_ref(&id));
        assert_eq!(world.handler.runs().len(), usize::try_from(limit).unwrap());
        let record = world.record(&id);
        assert_eq!(
            (record.reason, record.disposition),
            (Reason::Exception, Disposition::Exhausted)
        );
        assert_eq!(record.attempts_total, limit);
        let envelope = world.envelope(&record);
        assert_eq!(envelope.history.len(), usize::try_from(limit).unwrap());
        assert_eq!(envelope.attempts, limit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_fails_its_message_alone() {
    let world = World::new();
    let sent = [world.send("panic").await, world.send("fine").await];
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), 3);
    assert!(world.ledger.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_a1_work_that_outlives_its_visibility_runs_once() {
    let world = World::new();
    let sent = [world.send("slow").await];
    let (one, other) = (world.worker(&Faults::new()).await, world.worker(&Faults::new()).await);
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    assert_eq!((one.stop().await, other.stop().await), (Ending::Drained, Ending::Drained));
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_handlers_finish_within_the_grace() {
    let mut world = World::new();
    world.settings.grace = Duration::from_secs(200);
    let sent = [world.send("slow").await];
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("a run", || world.handler.runs().len() == 1).await;
    assert_eq!(worker.stop().await, Ending::Drained);
    assert_eq!(world.depth(&world.source), Depth::default());
    world.assert_nothing_lost(&sent);
}

#[tokio::test(start_paused = true)]
async fn when_the_grace_runs_out_claims_and_visibility_are_released() {
    let world = World::new();
    world.send("slow").await;
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("a run", || world.handler.runs().len() == 1).await;
    let started = world.clock.mono();
    assert_eq!(worker.stop().await, Ending::GraceRanOut);
    assert!(world.clock.mono().since(started) < Duration::from_secs(31));
    assert_eq!(world.depth(&world.source), Depth { visible: 1, ..Depth::default() });
    let entries = world.entries();
    let states: Vec<_> = entries.iter().map(|e| (e.state.name(), e.attempts)).collect();
    assert_eq!(states, [("open", 0)], "no attempt is counted");
    assert!(world.ledger.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_releases_at_once() {
    let world = World::new();
    world.send("slow").await;
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("a run", || world.handler.runs().len() == 1).await;
    let started = world.clock.mono();
    worker.signal(Stage::Releasing);
    assert_eq!(worker.end().await, Ending::GraceRanOut);
    assert!(world.clock.mono().since(started) < Duration::from_secs(6));
    assert_eq!(world.depth(&world.source).visible, 1);
}

#[tokio::test(start_paused = true)]
async fn repeats_within_the_window_are_done_and_later_ones_are_new_work() {
    let world = World::new();
    let first = world.send("fine").await;
    world.work(&Faults::new()).await;
    let again = world.send("fine").await;
    world.work(&Faults::new()).await;
    assert_eq!(world.handler.runs().len(), 1, "a repeat within five minutes is done");
    tokio::time::advance(Duration::from_secs(301)).await;
    let later = world.send("fine").await;
    world.work(&Faults::new()).await;
    let runs = world.handler.runs();
    assert_eq!(runs.len(), 2, "a repeat after it is new work");
    let keys: Vec<_> = runs.iter().map(|run| run.idempotency_key.clone()).collect();
    assert_ne!(keys.first(), keys.last(), "with a generation of its own");
    let commits: Vec<_> = world.entries().iter().flat_map(|e| e.commits.clone()).collect();
    assert_eq!(commits.len(), 2);
    let origins: Vec<_> = commits.iter().map(|(origin, _)| origin.to_string()).collect();
    assert!(origins.contains(&first.to_string()) && origins.contains(&later.to_string()));
    assert!(!origins.contains(&again.to_string()));
}

#[tokio::test(start_paused = true)]
async fn two_messages_with_one_payload_are_two_records() {
    let world = World::new();
    let sent = [world.send("bad").await, world.send("bad").await];
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&sent);
    let [one, other] = sent.map(|id| world.record(&id));
    assert_eq!((one.state, other.state), (State::Quarantined, State::Quarantined));
    assert_ne!(one.envelope, other.envelope);
    assert_eq!(one.key, other.key);
}

#[tokio::test(start_paused = true)]
async fn a_missing_identity_is_parked_under_the_payload_hash() {
    let mut world = World::new();
    world.settings.strategy = "json:/id".parse().unwrap();
    let sent = [world.send("not json").await, world.send(r#"{"id":null}"#).await];
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&sent);
    assert!(world.handler.runs().is_empty());
    for id in &sent {
        let record = world.record(id);
        assert_eq!(record.error_code.as_str(), "IDENTITY_MISSING");
        assert_eq!(record.key.as_str(), record.payload_sha256.as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn another_payload_under_a_committed_key_is_parked_and_the_entry_untouched() {
    let mut world = World::new();
    world.settings.strategy = "json:/id".parse().unwrap();
    let first = world.send(r#"{"id":1,"amount":5}"#).await;
    world.work(&Faults::new()).await;
    let before = world.entries();
    let other = world.send(r#"{"id":1,"amount":6}"#).await;
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&[first, other.clone()]);
    assert_eq!(world.entries(), before);
    assert_eq!(world.record(&other).error_code.as_str(), "PAYLOAD_MISMATCH");
    assert_eq!(world.handler.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn workers_that_crash_on_a_message_park_it_at_the_crash_limit() {
    let world = World::with_limits(10, 1_048_576);
    let id = world.send("slow").await;
    for crash in 1..=3 {
        let worker = world.worker(&Faults::new()).await;
        world.wait_until("a run", || world.handler.runs().len() == crash).await;
        worker.crash().await;
    }
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(std::slice::from_ref(&id));
    let record = world.record(&id);
    assert_eq!(record.error_code.as_str(), "WORKER_CRASHED");
    assert_eq!(world.handler.runs().len(), 3);
}
