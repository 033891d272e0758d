//! Deletes on the wire: after what is durable, entry by entry, and made good by the next delivery.

use std::time::Duration;

use redrive::domain::failure::Disposition;
use redrive::domain::identity::KeyStrategy;
use redrive::domain::message::Outgoing;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::service::settings::Schema;
use redrive::telemetry::Counter;
use serde_json::json;
use tracing::Level;

use crate::log::Log;
use crate::receipt::{Receipts, assert_batches_are_whole, handles};
use crate::script::pass;
use crate::wire::act::{Act, Reply};
use crate::wire::call::{Call, Service};
use crate::wire::rule::Rule;
use crate::world::{Kind, Spec, World};

const CHANGE: &str = "ChangeMessageVisibilityBatch";
const DELETE: &str = "DeleteMessageBatch";

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Whether a call commits an entry.
fn commits(call: &Call) -> bool {
    call.service == Service::DynamoDb && String::from_utf8_lossy(&call.body).contains("committed")
}

#[tokio::test(start_paused = true)]
async fn case_a2_a_delete_after_the_lease_has_lapsed_is_made_good_by_the_next_delivery() {
    let visibility = secs(2);
    let world = World::with(Spec { kind: Kind::Fifo, visibility, ..Spec::default() }).await;
    world.handler.set_takes([Duration::from_millis(1_500)]);
    let message = Outgoing {
        body: "a2".to_owned(),
        group_id: Some("g".to_owned()),
        deduplication_id: Some("d-a2".to_owned()),
        ..Outgoing::default()
    };
    let sent = world.send_all(vec![message]).await;
    let receipts = Receipts::noted(&world);
    let failing = Act::Answer(Reply::sqs(500, "InternalError"));
    let failing = world.wire.add(Rule::on(Service::Sqs, CHANGE, failing));
    // SQS itself refuses it: it comes after the lease.
    world.wire.add(Rule::on(Service::Sqs, DELETE, Act::DelayBefore(secs(3))).first(1));
    let log = Log::capture();
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    assert!(world.wire.acted(failing) > 0);
    let meter = worker.telemetry.meter.clone();
    assert_eq!(worker.stop().await, Ending::Drained);

    assert_eq!(world.handler.runs().len(), 1);
    let deletes = world.wire.calls_of(Service::Sqs, DELETE);
    let mut deleted: Vec<String> = deletes.iter().flat_map(handles).collect();
    deleted.sort();
    assert_eq!(deleted, receipts.of(&sent[0]), "each delivery by its own handle");
    let late = deleted.len() - 1;
    assert!(late >= 1);
    let commit = world.wire.calls().into_iter().find(commits).unwrap();
    assert!(commit.seq < deletes[0].seq && commit.status == Some(200));
    let expired = log.lines(Level::WARN, "receipt expired");
    assert!((1..=late).contains(&expired.len()), "{expired:?}");
    assert!(expired.iter().all(|line| line.contains(sent[0].as_str())), "{expired:?}");
    assert_eq!(log.complaints(), expired);
    let counted = [
        Counter::DeleteFailed,
        Counter::DuplicatesSkipped,
        Counter::Committed,
        Counter::Retried,
        Counter::LeaseLost,
    ];
    let (failed, late) = (expired.len() as u64, late as u64);
    assert_eq!(counted.map(|counter| meter.value(counter)), [failed, late, 1, 0, 0]);
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_committed_once(&sent).await;
}

/// An answer to a delete of ten: the second failed at SQS, the fifth is the caller's fault, and one names an
/// entry that was never sent.
fn partial() -> Reply {
    let successful = [0, 2, 3, 5, 6, 7, 8, 9].map(|id| json!({ "Id": id.to_string() }));
    let failed =
        |id: &str, code: &str, sender| json!({ "Id": id, "Code": code, "SenderFault": sender });
    let failed = [
        failed("1", "InternalError", false),
        failed("4", "ReceiptHandleIsInvalid", true),
        failed("77", "InternalError", false),
    ];
    let body = json!({ "Successful": successful, "Failed": failed });
    Reply::new(200, "application/x-amz-json-1.0", body.to_string())
}

#[tokio::test(start_paused = true)]
async fn case_a9_entries_of_a_delete_fail_one_by_one_and_nothing_runs_again() {
    for recovers in [true, false] {
        let world = World::new().await;
        world.handler.set_takes([secs(1)]);
        let mut sent = Vec::new();
        for n in 0..10 {
            sent.push(world.send(&format!("fine {n}")).await);
        }
        let receipts = Receipts::noted(&world);
        // Nothing is deleted by it, so that SQS delivers all once more.
        let partly =
            world.wire.add(Rule::on(Service::Sqs, DELETE, Act::Answer(partial())).first(1));
        let fails = Act::Answer(Reply::sqs(500, "InternalError"));
        let alone = move |call: &Call| !recovers && call.entries == 1 && call.at < secs(31);
        world.wire.add(Rule::on(Service::Sqs, DELETE, fails).when(alone));
        let log = Log::capture();
        let worker = world.worker().await;
        world.wait_until("the runs", async || world.handler.runs().len() == 10).await;
        pass(secs(28)).await;
        let first = world.wire.calls_of(Service::Sqs, DELETE);
        world.wait_for_empty_source().await;
        let meter = worker.telemetry.meter.clone();
        assert_eq!(worker.stop().await, Ending::Drained);

        assert_eq!((world.wire.acted(partly), first[0].entries), (1, 10));
        let ten = handles(&first[0]);
        let again: Vec<String> = first[1..].iter().flat_map(handles).collect();
        assert!(again.iter().all(|handle| *handle == ten[1]), "alone, and no other: {again:?}");
        assert_eq!(first.len() == 2, recovers, "{}", first.len());
        assert!(first.len() <= 60, "it is tried at a pace: {}", first.len());
        let errors = log.lines(Level::ERROR, "not deleted");
        assert!(errors[0].contains(&receipts.message(&ten[4])), "{errors:?}");
        let failed = if recovers { 1 } else { 2 };
        assert_eq!(meter.value(Counter::DeleteFailed), failed);
        assert_eq!(errors.len() as u64, failed, "{errors:?}");
        assert_eq!(meter.value(Counter::DuplicatesSkipped), 8 + failed);
        assert_eq!(world.handler.runs().len(), 10, "what comes back is done");
        world.assert_committed_once(&sent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_a10_deletes_that_fail_for_a_while_stay_within_ten_and_all_succeed() {
    let visibility = secs(120);
    let world = World::with(Spec { visibility, ..Spec::default() }).await;
    let mut sent = Vec::new();
    for n in 0..60 {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    let fails = Act::Answer(Reply::sqs(500, "InternalError"));
    let fails = world.wire.add(Rule::on(Service::Sqs, DELETE, fails));
    let worker = world.worker().await;
    pass(secs(20)).await;
    assert!(world.wire.acted(fails) > 0);
    let in_flight = world.source_depth().await.in_flight;
    assert!((16..=16 + 16 + 10).contains(&in_flight), "what is pending is bounded: {in_flight}");
    world.wire.remove(fails);
    let mended = tokio::time::Instant::now();
    world.wait_for_empty_source().await;
    assert!(mended.elapsed() < secs(10), "{:?}", mended.elapsed());
    assert_eq!(worker.telemetry.meter.value(Counter::DeleteFailed), 0);
    assert_eq!(worker.stop().await, Ending::Drained);
    assert_batches_are_whole(&world);
    assert_eq!(world.handler.runs().len(), 60);
    world.assert_committed_once(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a11_a_crash_in_the_middle_of_the_work_loses_nothing() {
    let mut world = World::with(Spec { visibility: secs(5), ..Spec::default() }).await;
    world.settings.concurrency = 20;
    world.handler.set_takes([secs(2)]);
    let mut sent = Vec::new();
    for n in 0..20 {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    let worker = world.worker().await;
    world.wait_until("all runs", async || world.handler.runs().len() == 20).await;
    pass(Duration::from_millis(200)).await;
    worker.crash().await;
    assert_eq!(world.wire.count(Service::Sqs, DELETE), 0, "nothing is deleted before it is done");
    assert_eq!(world.source_depth().await.in_flight, 20);
    assert_eq!(world.work().await, Ending::Drained);
    world.assert_committed_once(&sent).await;
    assert!(world.records().await.is_empty());
    assert_eq!(world.handler.runs().len(), 40);
}

/// The calls of a parking: the envelope, the token and the delete.
fn is_parking(call: &Call) -> bool {
    call.is(Service::S3, "PutObject")
        || (call.object == "orders-dlq" && call.operation == "SendMessageBatch")
        || (call.object == "orders" && call.operation == DELETE)
}

fn parking(world: &World) -> Vec<(String, Option<u16>)> {
    let calls = world.wire.calls().into_iter().filter(is_parking);
    calls.map(|call| (call.operation, call.status)).collect()
}

#[tokio::test(start_paused = true)]
async fn case_a11_what_no_handler_can_take_is_parked_before_it_is_deleted() {
    for (body, code) in [
        ("bad", "BAD"),
        ("not json", "IDENTITY_MISSING"),
        (r#"{"id":"a11","type":"nobody-knows"}"#, "SCHEMA_VERSION_UNSUPPORTED"),
    ] {
        let mut world = World::new().await;
        if code != "BAD" {
            world.settings.strategy = KeyStrategy::Json(vec!["/id".to_owned()]);
            let version = "/type".parse().unwrap();
            world.settings.schema = Some(Schema { version, supported: vec!["known".to_owned()] });
        }
        let id = world.send(body).await;
        assert_eq!(world.work().await, Ending::Drained);
        let names = ["PutObject", "SendMessageBatch", DELETE];
        assert_eq!(parking(&world), names.map(|name| (name.to_owned(), Some(200))), "{code}");
        let record = world.record(&id).await;
        assert_eq!(
            (record.error_code.as_str(), record.disposition),
            (code, Disposition::Permanent)
        );
        let envelope = world.envelope(&record).await;
        assert_eq!((envelope.payload.body.as_str(), envelope.attempts), (body, 1));
        assert_eq!(world.dead_letters().await.len(), 1, "{code}");
        assert_eq!(world.handler.runs().len(), usize::from(code == "BAD"));
        world.assert_nothing_lost(&[id]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_a11_while_a_step_of_a_parking_fails_no_later_step_is_tried() {
    let s3 = Rule::on(Service::S3, "PutObject", Act::Answer(Reply::s3(500, "InternalError")));
    let dlq =
        Rule::on(Service::Sqs, "SendMessageBatch", Act::Answer(Reply::sqs(500, "InternalError")));
    for (rule, tried) in [(s3, "PutObject"), (dlq, "SendMessageBatch")] {
        let world = World::new().await;
        let rule = world.wire.add(rule);
        let sent = [world.send("bad").await];
        let worker = world.worker().await;
        pass(secs(120)).await;
        let calls = parking(&world);
        let last = calls.iter().rposition(|(_, status)| *status != Some(200)).unwrap();
        assert_eq!(calls[last].0, tried);
        let wrong = ["PutObject", "SendMessageBatch", DELETE]
            .into_iter()
            .skip_while(|name| *name != tried)
            .skip(1);
        for name in wrong {
            assert!(calls.iter().all(|(other, _)| other != name), "{name} after a failed {tried}");
        }
        assert_eq!(world.source_depth().await.visible + world.source_depth().await.in_flight, 1);
        world.wire.remove(rule);
        world.wait_for_empty_source().await;
        assert_eq!(worker.stop().await, Ending::Drained);
        assert_eq!(world.dead_letters().await.len(), 1);
        world.assert_nothing_lost(&sent).await;
    }
}
