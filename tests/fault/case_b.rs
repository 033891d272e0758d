//! The polling loop, clients and time, on the wire.

use std::time::Duration;

use redrive::port::clock::Clock as _;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;

use crate::script::pass;
use crate::wire::act::{Act, Reply};
use crate::wire::call::{Call, Service};
use crate::wire::rule::Rule;
use crate::world::World;

const RECEIVE: &str = "ReceiveMessage";

fn receives_of_source(world: &World) -> Vec<Call> {
    let mut calls = world.wire.calls_of(Service::Sqs, RECEIVE);
    calls.retain(|call| call.object == "orders");
    calls
}

#[tokio::test(start_paused = true)]
async fn case_b2_idle_polls_end_well_and_are_never_retried() {
    let mut world = World::new().await;
    world.settings.sweep_every = Duration::from_secs(86_400);
    let worker = world.worker().await;
    pass(Duration::from_secs(60)).await;
    let receives = receives_of_source(&world);
    assert!((2..=4).contains(&receives.len()), "{}", receives.len());
    assert!(receives.iter().all(|call| call.json()["WaitTimeSeconds"] == 20));
    assert_eq!(worker.telemetry.health.consecutive_poll_errors(), 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_b2_other_calls_have_a_short_limit() {
    let world = World::new().await;
    let sent = [world.send("fine").await];
    // Each attempt ends after ten seconds at most, and the next is answered.
    world.wire.add(Rule::of(Service::DynamoDb, Act::HangBefore).first(1));
    world.wire.add(Rule::on(Service::Sqs, "DeleteMessageBatch", Act::HangBefore).first(1));
    let started = tokio::time::Instant::now();
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    assert!(started.elapsed() < Duration::from_secs(45), "{:?}", started.elapsed());
    worker.stop().await;
    assert_eq!(world.handler.runs().len(), 1);
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_b3_polling_goes_on_after_every_unusual_error() {
    let mut world = World::new().await;
    world.settings.wait = Duration::from_secs(5);
    let faults = [
        Act::ResetBefore,
        Act::Answer(Reply::sqs(500, "InternalError")),
        Act::Answer(Reply::sqs(403, "AccessDenied")),
        Act::Answer(Reply::sqs(400, "QueueDoesNotExist")),
        Act::Answer(Reply::sqs(403, "ExpiredToken")),
        Act::Answer(Reply::new(200, "application/x-amz-json-1.0", "{\"Messages\":[{\"Mess")),
        Act::Refuse,
    ];
    let mut rules = Vec::new();
    let mut last = None;
    let worker = world.worker().await;
    let id = world.send("fine").await;
    for (n, fault) in faults.into_iter().enumerate() {
        for rule in rules.drain(..) {
            world.wire.remove(rule);
        }
        rules.push(world.wire.add(Rule::on(Service::Sqs, RECEIVE, fault)));
        let errors = || worker.telemetry.health.consecutive_poll_errors() as usize;
        if n == 0 {
            // The poll in flight may still bring the message.
            continue;
        }
        let before = errors();
        world.wait_until("another failed poll", async || errors() > before).await;
        assert!(worker.telemetry.health.readyz(world.clock.mono()).is_err());
        last = Some(tokio::time::Instant::now());
    }
    for rule in rules {
        world.wire.remove(rule);
    }
    let later = world.send("later").await;
    world.wait_for_empty_source().await;
    assert!(last.unwrap().elapsed() < Duration::from_secs(60));
    let is_ready = || worker.telemetry.health.readyz(world.clock.mono()).is_ok();
    world.wait_until("readiness", async || is_ready()).await;
    assert_eq!(worker.telemetry.health.consecutive_poll_errors(), 0);
    assert_eq!(worker.stop().await, Ending::Drained);
    world.assert_nothing_lost(&[id, later]).await;
}

#[tokio::test(start_paused = true)]
async fn case_b4_a_refused_connection_is_no_tight_loop() {
    let world = World::new().await;
    let dead = world.wire.add(Rule::all(Act::Refuse));
    let worker = world.worker().await;
    pass(Duration::from_secs(30)).await;
    let connections = receives_of_source(&world).len();
    assert!((2..=60).contains(&connections), "{connections} connections");
    assert!(worker.telemetry.health.consecutive_poll_errors() <= 20);
    world.wire.remove(dead);
    let id = world.send("fine").await;
    pass(Duration::from_secs(32)).await;
    assert_eq!(world.handler.runs().len(), 1, "it recovers within the cap of its back-off");
    worker.stop().await;
    world.assert_nothing_lost(&[id]).await;
}

#[tokio::test(start_paused = true)]
async fn case_b5_over_limit_is_neither_emptiness_nor_a_lack_of_rights() {
    let world = World::new().await;
    let sent = [world.send("fine").await];
    let forbidden = Reply::sqs(403, "OverLimit");
    world.wire.add(Rule::on(Service::Sqs, RECEIVE, Act::Answer(forbidden)).first(6));
    let worker = world.worker().await;
    let failed = || worker.telemetry.health.consecutive_poll_errors() > 0;
    world.wait_until("a poll that failed", async || failed()).await;
    assert!(world.handler.runs().is_empty());
    world.wait_for_empty_source().await;
    worker.stop().await;
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_b9_a_dlq_that_is_gone_at_run_time_loses_nothing() {
    for spelling in ["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"] {
        let world = World::new().await;
        let sent = [world.send("bad").await];
        let gone = Act::Answer(Reply::sqs(400, spelling));
        let gone = world.wire.add(Rule::on(Service::Sqs, "SendMessageBatch", gone));
        let worker = world.worker().await;
        pass(Duration::from_secs(120)).await;
        assert_eq!(world.wire.count(Service::Sqs, "DeleteMessageBatch"), 0, "{spelling}");
        world.wire.remove(gone);
        world.wait_for_empty_source().await;
        worker.stop().await;
        world.assert_nothing_lost(&sent).await;
        assert_eq!(world.records().await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn case_b9_a_source_that_is_gone_for_a_minute_is_polled_on() {
    let world = World::new().await;
    let gone = Act::Answer(Reply::sqs(400, "QueueDoesNotExist"));
    let gone = world.wire.add(Rule::on(Service::Sqs, RECEIVE, gone));
    let worker = world.worker().await;
    pass(Duration::from_secs(90)).await;
    world.wire.remove(gone);
    let sent = [world.send("fine").await];
    world.wait_for_empty_source().await;
    assert_eq!(worker.stop().await, Ending::Drained);
    world.assert_nothing_lost(&sent).await;
}
