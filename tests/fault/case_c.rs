//! Receive counts and the dead-letter decision, on the wire.

use std::time::Duration;

use redrive::domain::failure::Reason;
use redrive::domain::record::State;
use redrive::port::queue::{Depth, Queue as _};
use redrive::telemetry::Counter;
use serde_json::json;

use crate::script::pass;
use crate::wire::act::{Act, Reply};
use crate::wire::call::Service;
use crate::wire::rule::Rule;
use crate::world::{Spec, World};

const RECEIVE: &str = "ReceiveMessage";

async fn world(visibility: u64, max_receive_count: u32) -> World {
    let visibility = Duration::from_secs(visibility);
    World::with(Spec { visibility, max_receive_count, ..Spec::default() }).await
}

/// Receives what is in the source so many times, as somebody who works on none of it.
async fn receive_in_vain(world: &World, times: usize) {
    for _ in 0..times {
        let hidden = Some(Duration::from_secs(1));
        let got = world.clean.source.receive(10, Duration::ZERO, hidden).await.unwrap();
        assert!(!got.is_empty());
        pass(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_c1_the_failing_delivery_itself_parks_and_no_other_receive_is_needed() {
    let world = world(30, 1).await;
    let sent = [world.send("never").await];
    let started = tokio::time::Instant::now();
    let worker = world.worker().await;
    // Seen or not: the first sweep may be looking at it.
    world.wait_until("a dead letter", async || world.dlq_depth().await != Depth::default()).await;
    assert!(started.elapsed() <= Duration::from_secs(2), "{:?}", started.elapsed());
    let answered = world.wire.calls_of(Service::Sqs, RECEIVE);
    let answered = answered.iter().filter(|c| c.object == "orders" && c.status == Some(200));
    assert_eq!(answered.count(), 1);
    worker.stop().await;
    let record = world.record(&sent[0]).await;
    assert_eq!((record.reason, record.attempts_total), (Reason::Exception, 1));
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_c2_the_handler_runs_as_often_as_the_limit_says() {
    for limit in [1, 2, 3, 5] {
        let world = world(30, limit).await;
        let sent = [world.send("never").await];
        world.work().await;
        assert_eq!(world.handler.runs().len(), limit as usize);
        let record = world.record(&sent[0]).await;
        assert_eq!(world.envelope(&record).await.attempts, limit);
        world.assert_nothing_lost(&sent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_c2_a_message_beyond_the_limit_runs_once_more_and_is_parked() {
    let world = world(30, 8).await;
    let sent = [world.send("never").await];
    receive_in_vain(&world, 7).await;
    world.work().await;
    assert_eq!(world.handler.runs().len(), 1);
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_c3_receives_that_never_ran_are_a_reason_of_their_own() {
    let world = world(30, 5).await;
    let sent = [world.send("never").await];
    receive_in_vain(&world, 4).await;
    world.work().await;
    let record = world.record(&sent[0]).await;
    assert_eq!((record.reason, record.attempts_total), (Reason::ReceivesExhausted, 1));
    assert_eq!(world.handler.runs().len(), 1, "it is tried at least once");
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_c4_a_receive_whose_answer_is_lost_costs_one_receive_and_no_message() {
    let world = world(10, 3).await;
    let sent = [world.send("fine").await];
    let lost = Rule::on(Service::Sqs, RECEIVE, Act::LoseAnswer).when(|c| c.object == "orders");
    world.wire.add(lost.nth(1));
    world.work().await;
    let runs = world.handler.runs();
    assert_eq!((runs.len(), runs[0].receive_count), (1, Some(2)));
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_c5_attempts_survive_restarts_and_the_source_is_never_sent_to() {
    let world = world(1, 4).await;
    let sent = [world.send("never").await];
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(world.worker().await);
    }
    for run in 1..=4 {
        world.wait_until("a run", async || world.handler.runs().len() >= run).await;
        if run < 4 {
            workers.remove(run % workers.len()).crash().await;
            workers.push(world.worker().await);
        }
    }
    world.wait_for_empty_source().await;
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(world.handler.runs().len(), 4);
    let sends = world.wire.calls_of(Service::Sqs, "SendMessageBatch");
    assert!(sends.iter().all(|call| call.object == "orders-dlq"), "{sends:?}");
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_c8_a_dead_letter_target_that_fails_is_tried_at_a_pace_and_loses_nothing() {
    let faults = [
        (Service::Sqs, "SendMessageBatch", Reply::sqs(400, "QueueDoesNotExist")),
        (Service::Sqs, "SendMessageBatch", Reply::sqs(403, "AccessDenied")),
        (Service::Sqs, "SendMessageBatch", Reply::sqs(400, "KmsAccessDenied")),
        (Service::S3, "PutObject", Reply::s3(404, "NoSuchBucket")),
        (Service::S3, "PutObject", Reply::s3(403, "AccessDenied")),
    ];
    for (service, operation, reply) in faults {
        let world = world(30, 5).await;
        let sent = [world.send("bad").await];
        let down = world.wire.add(Rule::on(service, operation, Act::Answer(reply)));
        let worker = world.worker().await;
        pass(Duration::from_secs(90)).await;
        assert_eq!(world.wire.count(Service::Sqs, "DeleteMessageBatch"), 0);
        let failed = worker.telemetry.meter.value(Counter::ParkFailed);
        assert!((2..=3).contains(&failed), "{failed} tries in three visibility timeouts");
        world.wire.remove(down);
        world.wait_for_empty_source().await;
        worker.stop().await;
        assert_eq!(world.record(&sent[0]).await.state, State::Quarantined);
        world.assert_nothing_lost(&sent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_c9_an_own_limit_below_the_native_one_parks_first_and_with_evidence() {
    for own in [2, 3] {
        let mut world = world(30, 3).await;
        world.settings.max_attempts = Some(own);
        let sent = [world.send("never").await];
        world.work().await;
        assert_eq!(world.handler.runs().len(), own as usize);
        let dead = world.dead_letters().await;
        assert_eq!(dead.iter().filter_map(|dead| world.token(dead)).count(), 1);
        pass(Duration::from_secs(2)).await;
        world.assert_nothing_lost(&sent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_c9_what_sqs_moves_itself_is_adopted_with_its_attributes() {
    let world = world(30, 2).await;
    let sent = [world.send("fine").await];
    receive_in_vain(&world, 2).await;
    let moved = world.clean.source.receive(10, Duration::ZERO, None).await.unwrap();
    assert!(moved.is_empty(), "SQS has moved it");
    let worker = world.worker().await;
    world.wait_until("a record", async || !world.records().await.is_empty()).await;
    worker.stop().await;
    let record = world.record(&sent[0]).await;
    assert_eq!(record.reason, Reason::ReceivesExhausted);
    assert_eq!(world.envelope(&record).await.payload.body, "fine");
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_c11_system_attributes_that_are_missing_or_garbage_are_unknown() {
    let acts = [
        Act::strip_attributes(&[
            "ApproximateReceiveCount",
            "SentTimestamp",
            "ApproximateFirstReceiveTimestamp",
        ]),
        Act::json(|_, answer| {
            for message in answer["Messages"].as_array_mut().into_iter().flatten() {
                message["Attributes"]["ApproximateReceiveCount"] = json!("abc");
                message["Attributes"]["SentTimestamp"] = json!("1701176278");
            }
        }),
    ];
    for act in acts {
        let world = world(30, 1).await;
        world.wire.add(Rule::on(Service::Sqs, RECEIVE, act));
        let sent = [world.send("fine").await, world.send("bad").await];
        let worker = world.worker().await;
        world.wait_for_empty_source().await;
        worker.stop().await;
        let runs = world.handler.runs();
        assert_eq!(runs.len(), 2);
        assert!(runs.iter().all(|run| run.receive_count.is_none()));
        assert_eq!(world.record(&sent[1]).await.error_code.as_str(), "BAD");
        world.assert_nothing_lost(&sent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_c11_a_receive_asks_for_all_attributes_and_an_unknown_count_is_not_the_last() {
    let world = world(5, 3).await;
    world.wire.add(Rule::on(
        Service::Sqs,
        RECEIVE,
        Act::strip_attributes(&["ApproximateReceiveCount"]),
    ));
    let sent = [world.send("flaky").await];
    world.work().await;
    assert_eq!(world.handler.runs().len(), 2);
    assert!(world.records().await.is_empty());
    for call in world.wire.calls_of(Service::Sqs, RECEIVE) {
        let body = call.json();
        assert_eq!(body["MessageSystemAttributeNames"], json!(["All"]));
        assert_eq!(body["MessageAttributeNames"], json!(["All"]));
    }
    world.assert_nothing_lost(&sent).await;
}
