//! Outages: what is held in hand, what goes back, and that nothing is parked or done twice for them.

use std::time::Duration;

use redrive::domain::failure::Reason;
use redrive::domain::id::{MessageId, RecordId};
use redrive::domain::record::State;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::sim::fault::{Fault, Faults};
use redrive::telemetry::Counter;

use crate::world::{Health, World};

const HOURS: Duration = Duration::from_secs(2 * 3_600);

/// Sends a message to a world where each receive is the last permitted one, and works on it through an
/// outage of two hours.
async fn outage(body: &str, down: &'static str, fault: Fault) -> (World, MessageId, Faults) {
    let world = World::with_limits(1, 1_048_576);
    let id = world.send(body).await;
    let faults = Faults::new();
    faults.at_every(down, fault);
    let worker = world.worker(&faults).await;
    tokio::time::timeout(HOURS, std::future::pending::<()>()).await.unwrap_err();
    let held = Depth { in_flight: 1, ..Depth::default() };
    assert_eq!(world.depth(&world.source), held, "{down}: the message is held");
    assert_eq!(world.depth(&world.dlq), Depth::default(), "and not moved by SQS");
    faults.mend();
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    assert_eq!(worker.stop().await, Ending::Drained);
    world.assert_nothing_lost(std::slice::from_ref(&id));
    (world, id, faults)
}

#[tokio::test(start_paused = true)]
async fn trap_29_a_ledger_outage_on_the_last_permitted_receive_holds_the_message() {
    for fault in [Fault::FailBefore, Fault::LostAnswer] {
        let (world, _, _) = outage("fine", "ledger", fault).await;
        assert!(world.ledger.records().is_empty());
        let entries = world.entries();
        assert_eq!((entries[0].attempts, entries[0].crashes, entries[0].commits.len()), (1, 0, 1));
        assert_eq!(world.handler.runs().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_gone_on_the_last_permitted_receive_holds_the_message() {
    let world = World::with_limits(1, 1_048_576);
    let sent = [world.send("fine").await];
    world.handler.set_health(Health::Gone);
    let worker = world.worker(&Faults::new()).await;
    tokio::time::timeout(HOURS, std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(world.depth(&world.dlq), Depth::default());
    world.handler.set_health(Health::Well);
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert!(world.ledger.records().is_empty());
    assert_eq!(world.entries()[0].attempts, 1, "no try at it counted");
}

#[tokio::test(start_paused = true)]
async fn a_vault_or_dlq_that_is_down_holds_what_is_to_be_parked_and_runs_it_no_more() {
    for down in ["vault.put", "queue.send orders-dlq"] {
        let (world, id, _) = outage("bad", down, Fault::FailBefore).await;
        assert_eq!(world.handler.runs().len(), 1, "{down}");
        assert_eq!(world.record(&id).state, State::Quarantined);
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_done_is_held_until_it_is_committed_and_done_once() {
    let world = World::new();
    let sent = [world.send("fine").await];
    let faults = Faults::new();
    world.handler.set_takes(Duration::from_secs(5));
    let worker = world.worker(&faults).await;
    world.wait_until("a run", || !world.handler.runs().is_empty()).await;
    faults.at_every("ledger", Fault::FailBefore);
    tokio::time::timeout(HOURS, std::future::pending::<()>()).await.unwrap_err();
    faults.mend();
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn trap_30_a_claim_whose_answer_is_lost_is_no_crash() {
    let world = World::new();
    let sent = [world.send("fine").await];
    let faults = Faults::new();
    let worker = world.worker(&faults).await;
    // Three deliveries in a row lose the answer of their claim and of every try to give it back.
    for _ in 0..3 {
        faults.at_every("ledger.put_entry", Fault::LostAnswer);
        tokio::time::timeout(Duration::from_secs(300), std::future::pending::<()>())
            .await
            .unwrap_err();
        faults.mend();
        let before = faults.log().len();
        world
            .wait_until("another call", || {
                faults.log().iter().skip(before).any(|call| call == "ledger.put_entry")
            })
            .await;
    }
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert!(world.ledger.records().is_empty(), "nothing is parked");
    assert_eq!(world.entries()[0].crashes, 0);
}

#[tokio::test(start_paused = true)]
async fn trap_32_a_slow_queue_survives_five_minutes_of_outage_with_nothing_parked() {
    for down in ["ledger", "vault", "queue.send", "runs"] {
        let world = World::with_limits(2, 1_048_576);
        let faults = Faults::new();
        let worker = world.worker(&faults).await;
        let mut sent = Vec::new();
        let mut minute = tokio::time::interval(Duration::from_secs(60));
        for n in 0..12 {
            minute.tick().await;
            match n {
                2 => faults.at_every(down, Fault::FailBefore),
                7 => faults.mend(),
                _ => {}
            }
            sent.push(world.send(&format!("fine {n}")).await);
        }
        let is_empty = || world.depth(&world.source) == Depth::default();
        world.wait_until("an empty source", is_empty).await;
        worker.stop().await;
        world.assert_nothing_lost(&sent);
        assert!(world.ledger.records().is_empty(), "{down}");
        assert_eq!(world.handler.runs().len(), sent.len(), "{down}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_refused_on_its_last_permitted_receive_waits_in_hand() {
    let world = World::with_limits(1, 1_048_576);
    // Two messages with one payload: the second meets the first one's live lease.
    let first = [world.send("slow").await];
    world.send("slow").await;
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&first);
    assert_eq!(world.handler.runs().len(), 1, "the second is a repeat");
    assert!(world.ledger.records().is_empty());
    assert_eq!(world.depth(&world.dlq), Depth::default());
}

#[tokio::test(start_paused = true)]
async fn case_c2_the_handler_runs_as_often_as_the_limit_says() {
    for limit in [1, 2, 3, 5] {
        let world = World::with_limits(limit, 1_048_576);
        let id = world.send("never").await;
        world.work(&Faults::new()).await;
        world.assert_nothing_lost(std::slice::from_ref(&id));
        let runs = u32::try_from(world.handler.runs().len()).unwrap();
        let record = world.record(&id);
        assert_eq!((runs, record.attempts_total), (limit, limit));
        assert_eq!(record.reason, Reason::Exception);
        assert_eq!(world.envelope(&record).attempts, limit);
    }
}

#[tokio::test(start_paused = true)]
async fn case_c2_a_message_far_beyond_a_lowered_limit_runs_once_more_and_is_parked() {
    let world = World::with_limits(10, 1_048_576);
    let id = world.send("never").await;
    world.receive_in_vain(7).await;
    world.set_limit(8);
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(std::slice::from_ref(&id));
    assert_eq!(world.handler.runs().len(), 1);
    assert_eq!(world.record(&id).reason, Reason::ReceivesExhausted);
}

#[tokio::test(start_paused = true)]
async fn case_c3_receives_that_never_ran_are_told_from_attempts_that_failed() {
    let world = World::with_limits(5, 1_048_576);
    let [good, bad] = [world.send("fine").await, world.send("never").await];
    world.receive_in_vain(4).await;
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&[good.clone(), bad.clone()]);
    assert_eq!(world.handler.runs().len(), 2, "each runs once, whatever its receive count");
    assert!(!world.ledger.records().contains_key(&RecordId::from(&good)));
    let record = world.record(&bad);
    assert_eq!((record.reason, record.attempts_total), (Reason::ReceivesExhausted, 1));
}

#[tokio::test(start_paused = true)]
async fn case_c5_attempts_are_counted_across_workers_that_crash_and_nothing_is_sent_to_the_source()
{
    let world = World::with_limits(4, 1_048_576);
    let id = world.send("never").await;
    let faults = Faults::new();
    for run in 1..=4 {
        let workers = [world.worker(&faults).await, world.worker(&faults).await];
        world.wait_until("a run", || world.handler.runs().len() >= run).await;
        for worker in workers {
            worker.crash().await;
        }
    }
    world.work(&faults).await;
    world.assert_nothing_lost(std::slice::from_ref(&id));
    assert_eq!(world.handler.runs().len(), 4);
    assert!(!faults.log().iter().any(|call| call == "queue.send orders"));
}

#[tokio::test(start_paused = true)]
async fn case_c8_a_dlq_that_is_gone_loses_nothing_and_is_tried_at_a_pace() {
    let world = World::new();
    let sent = [world.send("bad").await];
    let faults = Faults::new();
    faults.at_every(
        "queue.send orders-dlq",
        Fault::Refuse(redrive::domain::failure::ErrorClass::NotFound, "QueueDoesNotExist"),
    );
    let worker = world.worker(&faults).await;
    tokio::time::timeout(Duration::from_secs(60), std::future::pending::<()>()).await.unwrap_err();
    let sends = faults.log().iter().filter(|call| *call == "queue.send orders-dlq").count();
    // Each try is made four times within a second, as a call without a verdict is.
    assert!((1..=3 * 4).contains(&sends), "{sends}");
    assert!(worker.telemetry.meter.value(Counter::ParkFailed) > 0);
    faults.mend();
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.dead_letters_after_a_second().await.len(), 1);
}
