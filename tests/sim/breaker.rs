//! The breaker: an outage does not burn the receives of what waits, and ends by itself.

use std::time::Duration;

use redrive::domain::failure::ErrorClass;
use redrive::port::queue::Depth;
use redrive::sim::fault::{Fault, Faults};
use redrive::telemetry::Gauge;

use crate::world::{Health, World};

async fn sent(world: &World, count: usize) -> Vec<redrive::domain::id::MessageId> {
    let mut sent = Vec::new();
    for n in 0..count {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    sent
}

async fn pass(time: Duration) {
    tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
}

fn receives(faults: &Faults) -> usize {
    faults.log().iter().filter(|call| *call == "queue.receive orders").count()
}

/// The most receives that a message had when it ran.
fn most_receives(world: &World) -> Option<u32> {
    world.handler.runs().into_iter().filter_map(|run| run.receive_count).max()
}

#[tokio::test(start_paused = true)]
async fn while_the_handler_is_gone_only_probes_are_received() {
    let world = World::new();
    let sent = sent(&world, 40).await;
    world.handler.set_health(Health::Gone);
    let faults = Faults::new();
    let worker = world.worker(&faults).await;
    pass(Duration::from_secs(600)).await;
    // Two polls fill the slots; then 5 s, 10 s, … 60 s.
    assert!((8..=16).contains(&receives(&faults)), "{}", receives(&faults));
    assert_eq!(worker.telemetry.meter.gauge(Gauge::BreakerOpen), Some(1.0));
    assert!(
        worker.telemetry.health.readyz(redrive::port::clock::Clock::mono(&*world.hosts)).is_err()
    );
    world.handler.set_health(Health::Well);
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    assert_eq!(worker.telemetry.meter.gauge(Gauge::BreakerOpen), Some(0.0));
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert!(world.ledger.records().is_empty());
    assert_eq!(world.handler.runs().len(), sent.len());
    let counts = world.handler.runs().into_iter().filter_map(|run| run.receive_count);
    let repeated: u32 = counts.map(|count| count - 1).sum();
    assert!(repeated <= 40, "{repeated} receives of 40 messages in ten minutes were in vain");
}

#[tokio::test(start_paused = true)]
async fn case_f7_while_the_ledger_is_down_nothing_runs_is_parked_or_received_again() {
    for (class, code) in [
        (ErrorClass::Throttled, "ProvisionedThroughputExceededException"),
        (ErrorClass::Throttled, "ThrottlingException"),
        (ErrorClass::Transient, "TransactionConflict"),
        (ErrorClass::Transient, "InternalServerError"),
    ] {
        let world = World::new();
        let sent = sent(&world, 40).await;
        let faults = Faults::new();
        faults.at_every("ledger", Fault::Refuse(class, code));
        let worker = world.worker(&faults).await;
        pass(Duration::from_secs(600)).await;
        assert!(world.handler.runs().is_empty(), "{code}");
        assert!(receives(&faults) <= 3, "{code}: {}", receives(&faults));
        faults.mend();
        let is_empty = || world.depth(&world.source) == Depth::default();
        world.wait_until("an empty source", is_empty).await;
        worker.stop().await;
        world.assert_nothing_lost(&sent);
        assert!(world.ledger.records().is_empty(), "{code}");
        assert_eq!(world.handler.runs().len(), sent.len());
        assert!(most_receives(&world) <= Some(2), "{code}: {:?}", most_receives(&world));
    }
}

#[tokio::test(start_paused = true)]
async fn case_a12_a_dependency_that_is_sick_for_twenty_seconds_costs_no_message() {
    let world = World::new();
    let sent = sent(&world, 50).await;
    world.handler.set_health(Health::Sick);
    let worker = world.worker(&Faults::new()).await;
    pass(Duration::from_secs(20)).await;
    world.handler.set_health(Health::Well);
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert!(world.ledger.records().is_empty());
    assert_eq!(world.depth(&world.dlq), Depth::default());
}

#[tokio::test(start_paused = true)]
async fn messages_that_only_need_parking_do_not_stop_the_others_while_the_vault_is_down() {
    let world = World::new();
    let faults = Faults::new();
    faults.at_every("vault.put", Fault::FailBefore);
    let worker = world.worker(&faults).await;
    world.send("bad 1").await;
    let mut sent = Vec::new();
    for n in 0..20 {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    world.wait_until("all that can be done", || world.commits() == 20).await;
    assert_eq!(worker.telemetry.meter.gauge(Gauge::BreakerOpen), Some(0.0));
    faults.mend();
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.ledger.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_hangs_is_abandoned_and_polling_goes_on() {
    let world = World::new();
    let faults = Faults::new();
    faults.at_call_of("queue.receive", 1, Fault::HangAfter);
    let sent = [world.send("fine").await];
    let worker = world.worker(&faults).await;
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    assert_eq!(worker.telemetry.health.consecutive_poll_errors(), 0);
    worker.stop().await;
    world.assert_nothing_lost(&sent);
}

#[tokio::test(start_paused = true)]
async fn case_b3_polling_survives_every_class_of_error() {
    let world = World::new();
    let sent = [world.send("fine").await];
    let faults = Faults::new();
    for (n, fault) in [
        Fault::FailBefore,
        Fault::Refuse(ErrorClass::Transient, "InternalError"),
        Fault::Refuse(ErrorClass::Denied, "AccessDenied"),
        Fault::Refuse(ErrorClass::NotFound, "QueueDoesNotExist"),
        Fault::Refuse(ErrorClass::Bug, "NonsenseAnswer"),
        Fault::Refuse(ErrorClass::Invalid, "InvalidParameterValue"),
        Fault::Refuse(ErrorClass::Throttled, "OverLimit"),
    ]
    .into_iter()
    .enumerate()
    {
        faults.at_call_of("queue.receive", n + 1, fault);
    }
    let worker = world.worker(&faults).await;
    let now = || redrive::port::clock::Clock::mono(&*world.hosts);
    world
        .wait_until("four errors", || worker.telemetry.health.consecutive_poll_errors() == 4)
        .await;
    assert!(worker.telemetry.health.readyz(now()).is_err());
    assert!(worker.telemetry.health.healthz(now()).is_ok(), "another worker would fare no better");
    world.wait_until("all errors", || worker.telemetry.health.consecutive_poll_errors() == 7).await;
    let last = now();
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    assert!(now().since(last) < Duration::from_secs(60));
    world.wait_until("an answer", || worker.telemetry.health.readyz(now()).is_ok()).await;
    assert_eq!(worker.telemetry.health.consecutive_poll_errors(), 0);
    worker.stop().await;
    world.assert_nothing_lost(&sent);
}

#[tokio::test(start_paused = true)]
async fn case_b4_a_dead_endpoint_is_tried_at_a_pace() {
    let world = World::new();
    let faults = Faults::new();
    faults.at_every("queue.receive", Fault::FailBefore);
    let worker = world.worker(&faults).await;
    pass(Duration::from_secs(30)).await;
    assert!((2..=20).contains(&receives(&faults)), "{}", receives(&faults));
    pass(Duration::from_secs(3_600)).await;
    let before = receives(&faults);
    faults.mend();
    pass(Duration::from_secs(31)).await;
    assert!(receives(&faults) > before, "it recovers within the cap of the back-off");
    worker.stop().await;
}
