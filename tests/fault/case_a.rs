//! Visibility, receipt handles and deletes, on the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::domain::record::State;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::telemetry::Counter;
use serde_json::{Value, json};

use crate::script::pass;
use crate::wire::act::{Act, Fault, Reply};
use crate::wire::call::{Call, Service};
use crate::wire::rule::Rule;
use crate::world::{Kind, Spec, World};

const EXTEND: &str = "ChangeMessageVisibilityBatch";
const DELETE: &str = "DeleteMessageBatch";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn world(visibility: u64, max_receive_count: u32) -> World {
    let visibility = secs(visibility);
    World::with(Spec { visibility, max_receive_count, ..Spec::default() }).await
}

async fn sent(world: &World, count: usize) -> Vec<redrive::domain::id::MessageId> {
    let mut sent = Vec::new();
    for n in 0..count {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    sent
}

/// The receipt handles of a batch call on the source.
fn receipts(call: &Call) -> BTreeSet<String> {
    let body = call.json();
    let entries = body["Entries"].as_array().unwrap().iter();
    entries.map(|entry| entry["ReceiptHandle"].as_str().unwrap().to_owned()).collect()
}

fn on_source(world: &World, operation: &str) -> Vec<Call> {
    let mut calls = world.wire.calls_of(Service::Sqs, operation);
    calls.retain(|call| call.object == "orders" || call.object == "orders.fifo");
    calls
}

/// No visibility of a message is changed once its delete was sent.
fn assert_no_extension_after_a_delete(world: &World) {
    let mut deleted = BTreeSet::new();
    for call in world.wire.calls() {
        if call.is(Service::Sqs, DELETE) {
            deleted.extend(receipts(&call));
        } else if call.is(Service::Sqs, EXTEND) {
            assert!(receipts(&call).is_disjoint(&deleted), "{call:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn case_a1_work_that_outlives_its_visibility_runs_once() {
    let world = world(4, 5).await;
    world.handler.set_takes([secs(11)]);
    let sent = sent(&world, 1).await;
    let workers = [world.worker().await, world.worker().await];
    world.wait_for_empty_source().await;
    for worker in workers {
        assert_eq!(worker.stop().await, Ending::Drained);
    }
    let runs = world.handler.runs();
    assert_eq!((runs.len(), runs[0].receive_count), (1, Some(1)));
    let times: Vec<Duration> = on_source(&world, EXTEND).iter().map(|call| call.at).collect();
    assert!(times.len() >= 5, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= secs(2)), "{times:?}");
    assert_no_extension_after_a_delete(&world);
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a2_a_delete_whose_handle_has_expired_is_made_good_by_the_next_delivery() {
    let spec = Spec { kind: Kind::Fifo, visibility: secs(2), ..Spec::default() };
    let world = World::with(spec).await;
    world.handler.set_takes([secs(1)]);
    world.wire.add(Rule::on(Service::Sqs, EXTEND, Act::Answer(Reply::sqs(500, "InternalError"))));
    let expired = json!({
        "__type": "com.amazonaws.sqs#InvalidParameterValue",
        "message": "Value AQEB for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
    });
    let expired = Reply::new(400, "application/x-amz-json-1.0", expired.to_string());
    world.wire.add(Rule::on(Service::Sqs, DELETE, Act::Answer(expired)).nth(1));
    let sent = [world.send("fine").await];
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    assert_eq!(worker.telemetry.meter.value(Counter::Committed), 1);
    assert!(worker.telemetry.meter.value(Counter::DuplicatesSkipped) >= 1);
    worker.stop().await;
    let deletes = on_source(&world, DELETE);
    let (first, last) = (deletes.first().unwrap(), deletes.last().unwrap());
    assert!(receipts(first).is_disjoint(&receipts(last)), "with its own handle");
    assert_eq!(world.handler.runs().len(), 1);
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a3_a_late_heartbeat_harms_nobody() {
    let mut world = world(2, 5).await;
    world.settings.concurrency = 20;
    world.handler.set_takes((0..41).map(|n| Duration::from_millis(900 + n * 5)));
    let late = Act::DelayAfter(Duration::from_millis(300));
    world.wire.add(Rule::on(Service::Sqs, EXTEND, late));
    let sent = sent(&world, 200).await;
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    assert_eq!(worker.telemetry.meter.value(Counter::LeaseLost), 0);
    assert_eq!(worker.telemetry.meter.value(Counter::DeleteFailed), 0);
    assert_eq!(worker.stop().await, Ending::Drained);
    assert!(!on_source(&world, EXTEND).is_empty());
    assert_no_extension_after_a_delete(&world);
    assert_eq!(world.handler.runs().len(), 200);
    world.assert_nothing_lost(&sent).await;
}

/// Fails every change of the first delivery of a message, as SQS does for a handle that it does not know.
fn break_handle_of(world: &World, body: &'static str) {
    let handle: Arc<Mutex<Option<String>>> = Arc::default();
    let note = Arc::clone(&handle);
    world.wire.add(Rule::on(
        Service::Sqs,
        "ReceiveMessage",
        Act::json(move |_, answer| {
            for message in answer["Messages"].as_array().into_iter().flatten() {
                if message["Body"] == body {
                    let receipt = message["ReceiptHandle"].as_str().unwrap().to_owned();
                    note.lock().unwrap().get_or_insert(receipt);
                }
            }
        }),
    ));
    for operation in [DELETE, EXTEND] {
        let handle = Arc::clone(&handle);
        // The entry never gets there: the request is refused as a whole if it is alone, else edited.
        let refuse = Act::json(move |call, answer| {
            let Some(broken) = handle.lock().unwrap().clone() else { return };
            let body = call.json();
            for entry in body["Entries"].as_array().unwrap() {
                if entry["ReceiptHandle"] == broken {
                    let id = entry["Id"].clone();
                    let ok = answer["Successful"].as_array_mut();
                    if let Some(ok) = ok {
                        ok.retain(|entry| entry["Id"] != id);
                    }
                    let failed = json!({
                        "Id": id, "Code": "ReceiptHandleIsInvalid", "SenderFault": true, "Message": "no",
                    });
                    match answer["Failed"].as_array_mut() {
                        Some(list) => list.push(failed),
                        None => answer["Failed"] = Value::Array(vec![failed]),
                    }
                }
            }
        });
        world.wire.add(Rule::on(Service::Sqs, operation, refuse));
    }
}

#[tokio::test(start_paused = true)]
async fn case_a4_one_bad_handle_is_one_messages_trouble() {
    let world = world(4, 5).await;
    world.handler.set_takes([secs(2)]);
    break_handle_of(&world, "fine 7");
    let sent = sent(&world, 20).await;
    let worker = world.worker().await;
    pass(secs(30)).await;
    let later = world.send("later").await;
    world.wait_for_empty_source().await;
    assert_eq!(worker.stop().await, Ending::Drained);
    let runs = world.handler.runs();
    let of_seven = runs.iter().filter(|run| run.body == "fine 7").count();
    assert!(runs.iter().filter(|run| run.body != "fine 7").count() == 20 && of_seven >= 1);
    world.assert_nothing_lost(&sent).await;
    world.assert_nothing_lost(&[later]).await;
}

#[tokio::test(start_paused = true)]
async fn case_a6_a_failure_does_not_hide_a_message_for_its_whole_lease() {
    let world = world(3_600, 3).await;
    let id = world.send("never").await;
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    worker.stop().await;
    let runs = world.handler.runs();
    assert_eq!(runs.len(), 3);
    for pair in runs.windows(2) {
        // The back-off of 1 s, then 2 s, and what the next poll takes.
        assert!(pair[1].at - pair[0].at <= secs(4), "{pair:?}");
    }
    assert_eq!(world.record(&id).await.state, State::Quarantined);
    world.assert_nothing_lost(&[id]).await;
}

#[tokio::test(start_paused = true)]
async fn case_a6_slow_changes_of_visibility_never_make_two_runs_overlap() {
    let world = world(2, 10).await;
    world.handler.set_takes([Duration::from_millis(700)]);
    world.wire.add(Rule::on(Service::Sqs, EXTEND, Act::DelayBefore(secs(2))));
    let id = world.send("never").await;
    let workers = [world.worker().await, world.worker().await];
    world.wait_for_empty_source().await;
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(world.handler.overlaps(), 0);
    world.assert_nothing_lost(&[id]).await;
}

#[tokio::test(start_paused = true)]
async fn case_a7_messages_do_not_wait_in_hand_and_burn_their_receives() {
    let mut world = world(3, 2).await;
    world.settings.concurrency = 1;
    world.handler.set_takes([secs(1)]);
    let sent = sent(&world, 30).await;
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    worker.stop().await;
    let runs = world.handler.runs();
    assert_eq!(runs.len(), 30);
    assert!(runs.iter().all(|run| run.receive_count == Some(1)));
    let asked = on_source(&world, "ReceiveMessage");
    assert!(asked.iter().all(|call| call.json()["MaxNumberOfMessages"] == 1));
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a9_each_entry_of_a_delete_is_judged_by_its_own_answer() {
    for (retries, failed) in [(0, 1), (1_000, 2)] {
        let world = world(30, 5).await;
        let broken = Act::fail_entries([2], "InternalError", Fault::Service);
        let refused = Act::fail_entries([5], "ReceiptHandleIsInvalid", Fault::Sender);
        // Both in one answer: the first rule that applies acts, so one edit does both.
        let both = Act::edit(move |call, answer| {
            let [Act::Edit(first), Act::Edit(second)] = [&broken, &refused] else { unreachable!() };
            second.apply(call, first.apply(call, answer))
        });
        world.wire.add(Rule::on(Service::Sqs, DELETE, both).nth(1));
        let again = Act::fail_entries([0], "InternalError", Fault::Service);
        world.wire.add(Rule::on(Service::Sqs, DELETE, again).between(2, 1 + retries));
        let sent = sent(&world, 10).await;
        let worker = world.worker().await;
        pass(secs(60)).await;
        let deletes = on_source(&world, DELETE);
        assert_eq!(deletes[0].entries, 10);
        assert_eq!(deletes[1].entries, 1, "what failed alone is retried alone");
        assert_eq!(worker.telemetry.meter.value(Counter::DeleteFailed), failed);
        worker.stop().await;
        assert_eq!(world.handler.runs().len(), 10);
        world.assert_nothing_lost(&sent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_a10_deletes_that_fail_for_a_while_stay_within_ten_and_all_succeed() {
    let world = world(120, 5).await;
    let down = Act::Answer(Reply::sqs(500, "InternalError"));
    let down = world.wire.add(Rule::on(Service::Sqs, DELETE, down));
    let sent = sent(&world, 60).await;
    let worker = world.worker().await;
    pass(secs(20)).await;
    world.wire.remove(down);
    let mended = tokio::time::Instant::now();
    world.wait_for_empty_source().await;
    assert!(mended.elapsed() <= secs(10), "{:?}", mended.elapsed());
    worker.stop().await;
    assert!(on_source(&world, DELETE).iter().all(|call| (1..=10).contains(&call.entries)));
    assert_eq!(world.handler.runs().len(), 60);
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a11_nothing_is_deleted_before_it_is_durable() {
    let mut world = world(5, 5).await;
    world.settings.concurrency = 20;
    world.handler.set_takes([secs(2)]);
    let sent = sent(&world, 20).await;
    let worker = world.worker().await;
    world.wait_until("twenty runs", async || world.handler.runs().len() == 20).await;
    worker.crash().await;
    assert!(on_source(&world, DELETE).is_empty());
    assert_eq!(world.work().await, Ending::Drained);
    assert!(world.records().await.is_empty());
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a11_a_parking_puts_the_envelope_then_the_token_and_deletes_last() {
    let mut world = world(30, 5).await;
    world.settings.strategy = "json:/id".parse().unwrap();
    let sent = [world.send("not json").await];
    assert_eq!(world.work().await, Ending::Drained);
    let record = world.record(&sent[0]).await;
    assert_eq!(record.error_code.as_str(), "IDENTITY_MISSING");
    assert_eq!(world.envelope(&record).await.payload.body, "not json");
    let order: BTreeMap<u64, String> = world
        .wire
        .calls()
        .into_iter()
        .filter(|call| call.status == Some(200))
        .filter(|call| ["PutObject", "SendMessageBatch", DELETE].contains(&&*call.operation))
        .map(|call| (call.seq, call.operation))
        .collect();
    let order: Vec<String> = order.into_values().collect();
    assert_eq!(order, ["PutObject", "SendMessageBatch", DELETE]);
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a12_an_outage_of_twenty_seconds_uses_up_no_messages_receives() {
    let world = world(30, 5).await;
    world.handler.set_sick(true);
    let sent = sent(&world, 50).await;
    let worker = world.worker().await;
    pass(secs(20)).await;
    world.handler.set_sick(false);
    world.wait_for_empty_source().await;
    worker.stop().await;
    assert!(world.records().await.is_empty());
    assert_eq!(world.dlq_depth().await, Depth::default());
    // The second deliveries do not come in one burst.
    let mut seen = BTreeSet::new();
    let mut second = Vec::new();
    for run in world.handler.runs() {
        if !seen.insert(run.message_id.clone()) && run.attempt == 2 {
            second.push(run.at);
        }
    }
    let spread = *second.iter().max().unwrap() - *second.iter().min().unwrap();
    assert!(second.len() > 1 && spread >= secs(1), "{} in {spread:?}", second.len());
    let changed = on_source(&world, EXTEND);
    assert!(!changed.is_empty(), "the delay is SQS's");
    assert_eq!(on_source(&world, "SendMessageBatch").len(), 0);
    world.assert_nothing_lost(&sent).await;
}
