//! The wire does what its rules say, as the SDK and the adapters see it; and paused time holds.

use std::time::Duration;

use bytes::Bytes;
use redrive::domain::failure::ErrorClass;
use redrive::domain::id::{EnvelopeKey, MessageId};
use redrive::domain::message::{Outgoing, Received};
use redrive::port::error::{PortError, Reached};
use redrive::port::ledger::Ledger as _;
use redrive::port::queue::{BatchAnswer, Queue as _};
use redrive::port::vault::Vault as _;
use redrive::service::consumer::Ending;
use tokio::time::Instant;

use crate::wire::act::{Act, Fault, Reply};
use crate::wire::call::{Call, Service};
use crate::wire::rule::Rule;
use crate::world::{Kind, Spec, World};

const SEND: &str = "SendMessageBatch";

/// Sends messages over the wire: an answer each.
async fn send(world: &World, bodies: &[&str]) -> Result<BatchAnswer<MessageId>, PortError> {
    let outgoing = |body: &&str| Outgoing { body: (*body).to_owned(), ..Outgoing::default() };
    let messages: Vec<Outgoing> = bodies.iter().map(outgoing).collect();
    let answers = world.faulty.source.send(&messages).await?;
    Ok(answers.into_iter().map(|sent| sent.map(|sent| sent.into_inner().message_id)).collect())
}

async fn receive(world: &World) -> Vec<Received> {
    world.faulty.source.receive(10, Duration::ZERO, None).await.unwrap()
}

/// Sends one message over a wire whose first send goes wrong so. How many there are then, how many
/// requests it took, and how long.
async fn sent_despite(act: Act) -> (u64, usize, Duration) {
    let world = World::new().await;
    let rule = world.wire.add(Rule::on(Service::Sqs, SEND, act).first(1));
    let started = Instant::now();
    send(&world, &["x"]).await.unwrap().remove(0).unwrap();
    assert_eq!(world.wire.acted(rule), 1);
    (world.source_depth().await.visible, world.wire.count(Service::Sqs, SEND), started.elapsed())
}

/// An SDK retry waits up to a second before it, at random.
fn is_about(time: Duration, expected: Duration) -> bool {
    (expected..expected + Duration::from_secs(2)).contains(&time)
}

#[tokio::test(start_paused = true)]
async fn what_is_not_forwarded_is_sent_once_by_a_retry() {
    for act in [Act::Refuse, Act::ResetBefore, Act::Answer(Reply::sqs(500, "InternalError"))] {
        let (messages, requests, time) = sent_despite(act.clone()).await;
        assert_eq!((messages, requests), (1, 2), "{act:?}");
        assert!(is_about(time, Duration::ZERO), "{act:?}: {time:?}");
    }
    let (messages, requests, time) = sent_despite(Act::HangBefore).await;
    assert_eq!((messages, requests), (1, 2));
    assert!(is_about(time, Duration::from_secs(10)), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_forwarded_and_unanswered_is_sent_twice_by_a_retry() {
    let replaced = Act::ReplaceAnswer(Reply::sqs(500, "InternalError"));
    for act in [Act::LoseAnswer, replaced] {
        let (messages, requests, time) = sent_despite(act.clone()).await;
        assert_eq!((messages, requests), (2, 2), "{act:?}");
        assert!(is_about(time, Duration::ZERO), "{act:?}: {time:?}");
    }
    for act in [Act::HangAfter, Act::DelayAfter(Duration::from_secs(11))] {
        let (messages, requests, time) = sent_despite(act.clone()).await;
        assert_eq!((messages, requests), (2, 2), "{act:?}");
        assert!(is_about(time, Duration::from_secs(10)), "{act:?}: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_waited_for() {
    let (messages, requests, time) =
        sent_despite(Act::DelayAfter(Duration::from_millis(9_500))).await;
    assert_eq!((messages, requests), (1, 1));
    assert!(is_about(time, Duration::from_millis(9_500)), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_late_request_arrives_after_its_sender_has_given_up() {
    let world = World::new().await;
    let late = Act::DelayBefore(Duration::from_secs(20));
    world.wire.add(Rule::on(Service::Sqs, SEND, late).first(1));
    send(&world, &["x"]).await.unwrap().remove(0).unwrap();
    assert_eq!(world.source_depth().await.visible, 1);
    world.wait_until("the late one", async || world.source_depth().await.visible == 2).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_is_no_answer() {
    let world = World::new().await;
    world.wire.add(Rule::on(Service::Sqs, SEND, Act::BreakOff(5)));
    let error = send(&world, &["x"]).await.unwrap_err();
    assert_eq!(error.reached(), Reached::NoAnswer);
    let (sent, calls) = (world.source_depth().await.visible, world.wire.calls());
    assert!(sent >= 1 && sent == calls.len() as u64, "{sent} {calls:?}");
    assert!(calls.iter().all(|call| call.status == Some(200)), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_gone_is_told_apart_from_one_that_refuses() {
    let world = World::new().await;
    let gone = world.wire.add(Rule::of(Service::Sqs, Act::Refuse));
    assert_eq!(send(&world, &["x"]).await.unwrap_err().reached(), Reached::NoAnswer);
    assert_eq!(world.wire.acted(gone), 3, "as often as an operation is tried");
    world.wire.remove(gone);
    world.wire.add(Rule::of(Service::Sqs, Act::Answer(Reply::over_limit())));
    let error = world.faulty.source.receive(1, Duration::ZERO, None).await.unwrap_err();
    assert_eq!(error.code(), "OverLimit");
    assert_eq!(world.source_depth().await.visible, 0);
}

#[tokio::test(start_paused = true)]
async fn entries_of_a_batch_fail_or_vanish_from_its_answer_one_by_one() {
    let world = World::new().await;
    let failed = Act::fail_entries([1, 2], "InternalError", Fault::Service);
    world.wire.add(Rule::on(Service::Sqs, SEND, failed).nth(1));
    world.wire.add(Rule::on(Service::Sqs, SEND, Act::omit_entries([0])).nth(2));
    let answers = send(&world, &["a", "b", "c", "d"]).await.unwrap();
    let codes: Vec<&str> = answers
        .iter()
        .map(|answer| answer.as_ref().map_or_else(|error| error.code.as_str(), |_| "sent"))
        .collect();
    assert_eq!(codes, ["sent", "InternalError", "InternalError", "sent"]);
    assert!(answers.iter().filter_map(|answer| answer.as_ref().err()).all(|e| !e.sender_fault));
    let answers = send(&world, &["a", "b"]).await.unwrap();
    assert!(answers[0].is_err() && answers[1].is_ok(), "{answers:?}");
    assert_eq!(world.source_depth().await.visible, 6, "all were sent");
    assert_eq!(world.wire.entries(Service::Sqs, SEND), 6);
}

#[tokio::test(start_paused = true)]
async fn received_messages_lose_attributes_come_twice_or_not_at_all() {
    let world = World::new().await;
    let on = |act| Rule::on(Service::Sqs, "ReceiveMessage", act);
    world.wire.add(on(Act::strip_attributes(&["ApproximateReceiveCount"])).nth(1));
    world.wire.add(on(Act::duplicate_message()).nth(2));
    world.wire.add(on(Act::no_messages()).nth(3));
    for _ in 0..3 {
        world.send("x").await;
        match receive(&world).await.as_slice() {
            [one] => assert_eq!((one.receive_count, one.sent.is_some()), (None, true)),
            [one, other] => assert_eq!(one, other),
            none => assert_eq!(none, []),
        }
    }
    assert_eq!(world.source_depth().await.in_flight, 3, "all were taken");
}

#[tokio::test(start_paused = true)]
async fn each_service_refuses_in_its_own_words() {
    let world = World::new().await;
    let throttled = Reply::dynamodb(400, "ProvisionedThroughputExceededException");
    world.wire.add(Rule::of(Service::DynamoDb, Act::Answer(throttled)));
    let slow = Act::Answer(Reply::s3(503, "SlowDown"));
    world.wire.add(Rule::on(Service::S3, "PutObject", slow));
    let error = world.faulty.ledger.identity().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Throttled, "{error}");
    let key = EnvelopeKey::new("a/b=c.json").unwrap();
    let error = world.faulty.vault.put(&key, Bytes::from_static(b"{}")).await.unwrap_err();
    assert_eq!((error.class(), error.code()), (ErrorClass::Throttled, "SlowDown"));
    let puts = world.wire.calls_of(Service::S3, "PutObject");
    assert!(puts.iter().all(|put| put.object == "vault/a/b=c.json"), "{puts:?}");
    let error = world.clean.vault.get(&key).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_transaction_is_a_parking_that_waits() {
    let world = World::new().await;
    let id = world.send("bad").await;
    let cancelled = Reply::transaction_canceled(&["TransactionConflict", "None"]);
    let rule = Rule::on(Service::DynamoDb, "TransactWriteItems", Act::Answer(cancelled));
    let rule = world.wire.add(rule.first(3));
    world.work().await;
    assert_eq!(world.wire.acted(rule), 3);
    world.assert_nothing_lost(std::slice::from_ref(&id)).await;
    assert_eq!(world.record(&id).await.error_code.as_str(), "BAD");
}

#[tokio::test(start_paused = true)]
async fn a_rule_acts_on_the_calls_that_it_names() {
    let world = World::new().await;
    let fail = || Act::Answer(Reply::sqs(400, "InvalidAddress"));
    let on = || Rule::on(Service::Sqs, SEND, fail());
    let failures = async |rule: Rule| {
        let rule = world.wire.add(rule);
        let mut failed = Vec::new();
        for n in 1..=8 {
            if send(&world, &["x"]).await.is_err() {
                failed.push(n);
            }
        }
        assert_eq!(world.wire.acted(rule), failed.len() as u64);
        world.wire.remove(rule);
        failed
    };
    assert_eq!(failures(on().nth(3)).await, [3]);
    assert_eq!(failures(on().between(2, 4)).await, [2, 3, 4]);
    assert_eq!(failures(on().every_nth(3)).await, [3, 6]);
    assert_eq!(failures(on().when(|call| call.seq.is_multiple_of(2)).nth(2)).await.len(), 1);
    assert_eq!(failures(Rule::on(Service::Sqs, "SendMessage", fail())).await, [0; 0]);
    let by_chance = failures(on().chance(0.5, 7)).await;
    assert_eq!(by_chance, failures(on().chance(0.5, 7)).await, "chance repeats");
    assert!(!by_chance.is_empty() && by_chance.len() < 8, "{by_chance:?}");
    assert_eq!(failures(Rule::all(fail())).await.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_acts_and_all_count() {
    let world = World::new().await;
    let first = world.wire.add(Rule::of(Service::Sqs, Act::DelayAfter(Duration::ZERO)).nth(1));
    let refused = Act::Answer(Reply::sqs(400, "InvalidAddress"));
    let second = world.wire.add(Rule::of(Service::Sqs, refused).first(2));
    send(&world, &["x"]).await.unwrap();
    send(&world, &["x"]).await.unwrap_err();
    send(&world, &["x"]).await.unwrap();
    assert_eq!((world.wire.acted(first), world.wire.acted(second)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn every_request_of_a_worker_has_a_name_a_time_and_a_status() {
    let world = World::new().await;
    let sent = [world.send("fine").await, world.send("bad").await, world.send("flaky").await];
    assert_eq!(world.work().await, Ending::Drained);
    world.assert_nothing_lost(&sent).await;
    let calls = world.wire.calls();
    let name = |call: &Call| format!("{:?} {}", call.service, call.operation);
    let names: std::collections::BTreeSet<String> = calls.iter().map(name).collect();
    for expected in
        ["Sqs ReceiveMessage", "DynamoDb PutItem", "S3 PutObject", "Sqs SendMessageBatch"]
    {
        assert!(names.contains(expected), "{expected}: {names:?}");
    }
    assert!(names.iter().all(|name| !name.contains(['/', '?'])), "{names:?}");
    assert!(calls.is_sorted_by(|one, other| one.seq < other.seq && one.at <= other.at));
    // The last poll may be under way.
    assert!(calls.iter().filter(|call| call.status.is_none()).count() <= 1, "{calls:?}");
    assert_eq!(world.wire.entries(Service::Sqs, "DeleteMessageBatch"), 3);
    world.wire.clear_log();
    assert_eq!(world.wire.calls().len(), 0);
}

/// How many answers were lost while a worker worked and lost a tenth of them.
async fn lost_answers(seed: u64) -> u64 {
    let world = World::new().await;
    let mut sent = Vec::new();
    for n in 0..20 {
        let verb = ["fine", "bad", "flaky"][n % 3];
        sent.push(world.send(&format!("{verb} {n}")).await);
    }
    world.handler.set_takes([10, 70, 30].map(Duration::from_millis));
    let rule = world.wire.add(Rule::all(Act::LoseAnswer).chance(0.1, seed));
    world.work().await;
    world.assert_nothing_lost(&sent).await;
    world.wire.acted(rule)
}

#[tokio::test(start_paused = true)]
async fn a_worker_loses_nothing_when_a_tenth_of_all_answers_is_lost() {
    for seed in 1..=3 {
        let lost = lost_answers(seed).await;
        assert!(lost > 3, "{lost} of seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_crashes_leaves_its_message_to_the_next() {
    let world = World::new().await;
    let sent = [world.send("slow").await];
    let worker = world.worker().await;
    world.wait_until("a run", async || world.handler.runs().len() == 1).await;
    worker.crash().await;
    world.work().await;
    world.assert_nothing_lost(&sent).await;
    world.assert_committed_once(&sent).await;
    assert_eq!(world.handler.runs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_world_has_the_queues_that_it_is_asked_for() {
    let (visibility, max_receive_count) = (Duration::from_secs(45), 2);
    for kind in [Kind::Standard, Kind::Fifo] {
        let world = World::with(Spec { kind, visibility, max_receive_count }).await;
        let facts = world.clean.source.facts().await.unwrap();
        assert_eq!(facts.visibility_timeout, visibility);
        assert_eq!(facts.redrive_policy.unwrap().max_receive_count, max_receive_count);
        let sent = [world.send("never").await, world.send("fine").await];
        world.work().await;
        world.assert_nothing_lost(&sent).await;
        assert_eq!(world.handler.runs().len(), 3, "{kind:?}");
        assert_eq!(world.dlq_depth().await.visible + world.dlq_depth().await.in_flight, 1);
    }
}

/// What a worker's requests were, in order.
async fn trace() -> Vec<String> {
    let world = World::new().await;
    world.handler.set_takes([10, 70, 30].map(Duration::from_millis));
    let refused = Act::Answer(Reply::sqs(400, "InvalidAddress"));
    world.wire.add(Rule::of(Service::Sqs, refused).every_nth(4));
    for body in ["fine", "bad", "flaky", "never", "fine 2", "bad 2", "flaky 2"] {
        world.send(body).await;
    }
    world.work().await;
    let line = |call: Call| format!("{:?} {} {:?}", call.service, call.operation, call.status);
    world.wire.calls().into_iter().map(line).collect()
}

/// But for the SDK's retries, whose jitter is not ours.
#[tokio::test(start_paused = true)]
async fn the_same_world_makes_the_same_requests() {
    let first = trace().await;
    assert!(first.len() > 50, "{}", first.len());
    assert_eq!(first, trace().await);
}
