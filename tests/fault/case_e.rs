//! Cases of class E: envelopes in a store that is slow, throttled, odd, or wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redrive::domain::failure::{Done, Failure};
use redrive::domain::id::{MessageId, RecordId};
use redrive::domain::message::Outgoing;
use redrive::domain::record::State;
use redrive::domain::run::State as RunState;
use redrive::port::handler::{Handler, HandlerError, Job};
use redrive::service::consumer::Ending;
use redrive::service::settings::Ports;

use crate::redriving::{message, patient, start};
use crate::script::pass;
use crate::wire::act::{Act, Reply};
use crate::wire::call::{Call, Service};
use crate::wire::rule::Rule;
use crate::world::{Kind, Spec, World};

fn bad(count: usize) -> Vec<Outgoing> {
    (0..count).map(|n| message(format!("bad {n}"))).collect()
}

fn message_id(id: &RecordId) -> MessageId {
    MessageId::new(id.as_str()).unwrap()
}

fn is_envelope(call: &Call) -> bool {
    call.object.contains("/envelopes/")
}

/// Every token in the DLQ has an envelope that can be read.
async fn assert_readable(world: &World) -> usize {
    let records = world.records().await;
    let dead = world.dead_letters().await;
    for message in &dead {
        let token = world.token(message).unwrap();
        world.envelope(&records[&token.record]).await;
    }
    dead.len()
}

#[tokio::test(start_paused = true)]
async fn case_e1_evidence_outlives_the_dlq_message_whatever_delete_fails() {
    let world = World::new().await;
    let ids = world.park(bad(5)).await;
    let in_dlq = |call: &Call| call.object == "orders-dlq";
    let act = Act::Answer(Reply::sqs(500, "InternalError"));
    let failing = world.wire.add(Rule::on(Service::Sqs, "DeleteMessageBatch", act).when(in_dlq));
    let redriver = world.redriver().await;
    let (worker, handler) = world.fixed_worker().await;
    let executing = start(&redriver, patient()).await;
    world.wait_until("a failed delete", async || world.wire.acted(failing) > 0).await;
    world
        .wait_until("all resolved", async || {
            world.records().await.values().all(|record| record.state == State::Resolved)
        })
        .await;
    executing.crash().await;
    // What the dead executor held comes back.
    pass(Duration::from_secs(61)).await;
    assert_eq!(assert_readable(&world).await, 5);
    world.wire.remove(failing);
    pass(Duration::from_secs(2)).await;
    let run = world.take_over(&redriver).await.end().await.unwrap();
    assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 5));
    worker.stop().await;
    assert_eq!(handler.attempts().len(), 5);
    let ids: Vec<MessageId> = ids.iter().map(message_id).collect();
    world.assert_committed_once(&ids).await;
    assert_eq!(world.dlq_depth().await, Default::default());
    let deletes = world.wire.calls().into_iter().filter(|call| call.operation == "DeleteObject");
    assert_eq!(deletes.count(), 0, "objects are left to a lifecycle rule");
}

#[tokio::test(start_paused = true)]
async fn case_e3_equal_bodies_have_an_object_each() {
    let world = World::new().await;
    let mut ids = world.park(vec![message("bad twin")]).await;
    ids.extend(world.park(vec![message("bad twin")]).await);
    let records = world.records().await;
    let keys: BTreeSet<_> = ids.iter().map(|id| records[id].envelope.clone()).collect();
    assert_eq!(keys.len(), 2);
    let (report, _) = world.redrive(patient()).await;
    assert_eq!(report.counts.resolved, 2);
    for record in world.records().await.values() {
        world.envelope(record).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_e4_no_put_needs_chunked_trailers_and_a_refused_one_keeps_the_message() {
    let world = World::new().await;
    let refusal = || Act::Answer(Reply::s3(400, "XAmzContentSHA256Mismatch"));
    let is_chunked = |call: &Call| {
        call.headers.get("content-encoding").is_some_and(|value| value.as_bytes() == b"aws-chunked")
            || call.headers.contains_key("x-amz-trailer")
    };
    let chunked = world.wire.add(Rule::on(Service::S3, "PutObject", refusal()).when(is_chunked));
    let refused = world.wire.add(Rule::on(Service::S3, "PutObject", refusal()).first(2));
    let sent = world.send("bad").await;
    let worker = world.worker().await;
    world.wait_until("two refusals", async || world.wire.acted(refused) == 2).await;
    world.wait_for_empty_source().await;
    assert_eq!(worker.stop().await, Ending::Drained);
    assert_eq!(world.wire.acted(chunked), 0);
    world.envelope(&world.record(&sent).await).await;
    world.assert_nothing_lost(&[sent]).await;
}

#[tokio::test(start_paused = true)]
async fn case_e4_what_a_store_kept_with_its_framing_is_not_sent() {
    let world = World::new().await;
    let ids = world.park(bad(1)).await;
    let framed = Act::edit(|_, answer| {
        let (mut parts, body) = answer.into_parts();
        for name in ["content-length", "x-amz-checksum-sha256", "etag"] {
            parts.headers.remove(name);
        }
        let text = [b"1000;chunk-signature=0\r\n".as_slice(), &body, b"\r\n0\r\n"].concat();
        axum::http::Response::from_parts(parts, text.into())
    });
    let rule = world.wire.add(Rule::on(Service::S3, "GetObject", framed).when(is_envelope));
    let (report, handler) = world.redrive(patient()).await;
    assert_eq!((report.counts.errored, report.counts.sent), (1, 0));
    assert!(!report.is_well(), "the exit code is not 0");
    assert_eq!(report.troubles[0].kind, "unreadable");
    assert!(handler.attempts().is_empty());
    world.wire.remove(rule);
    let record = world.record(&message_id(&ids[0])).await;
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 0));
    assert_eq!(world.redrive(patient()).await.0.counts.resolved, 1);
}

#[tokio::test(start_paused = true)]
async fn case_e5_a_slow_store_is_waited_for_or_tried_again_and_the_lease_is_kept() {
    let world = World::new().await;
    let slow = |operation: &str, act| Rule::on(Service::S3, operation, act).when(is_envelope);
    let seconds = Duration::from_secs;
    for late in [8, 15] {
        world.wire.add(slow("PutObject", Act::DelayBefore(seconds(late))).first(1));
        let runs = world.handler.runs().len();
        let ids = world.park(vec![message(format!("bad {late}"))]).await;
        assert_eq!(world.handler.runs().len(), runs + 1, "no second delivery: {late} s");
        let record = world.record(&message_id(&ids[0])).await;
        assert_eq!(record.error_code.as_str(), "BAD");
    }
    world.wire.add(slow("GetObject", Act::DelayAfter(seconds(8))).first(1));
    world.wire.add(slow("GetObject", Act::DelayAfter(seconds(15))).nth(2));
    let (report, _) = world.redrive(patient()).await;
    assert_eq!((report.run.state, report.counts.resolved), (RunState::Completed, 2));
}

/// Fails for good, with many words.
#[derive(Debug)]
struct Wordy(String);

#[async_trait]
impl Handler for Wordy {
    fn kind(&self) -> &'static str {
        "library"
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, _job: &Job, _timeout: Duration) -> Result<Done, HandlerError> {
        Err(HandlerError::Failed(Box::new(Failure::permanent("WORDY", &self.0))))
    }
}

#[tokio::test(start_paused = true)]
async fn case_e8_no_text_of_a_failure_travels_in_headers() {
    let world = World::new().await;
    let text = format!("Ungültig: naïve ✓\nline2 {}", "ü".repeat(2_500));
    let handler = Arc::new(Wordy(text.clone()));
    let sent = world.send("body").await;
    let worker = world.worker_with(|ports| Ports { handler, ..ports }).await;
    world.wait_for_empty_source().await;
    worker.stop().await;
    let puts = world.wire.calls_of(Service::S3, "PutObject");
    assert_eq!(puts.len(), 1, "at the first try");
    for (name, value) in &puts[0].headers {
        assert!(value.as_bytes().iter().all(|b| (0x20..0x7f).contains(b)), "{name}");
        assert!(!name.as_str().starts_with("x-amz-meta-"), "{name}");
    }
    assert!(puts[0].object.is_ascii());
    assert_eq!(world.envelope(&world.record(&sent).await).await.error_message, text);
}

#[tokio::test(start_paused = true)]
async fn case_e9_a_store_that_slows_down_is_waited_for_and_an_error_is_no_envelope() {
    let world = World::new().await;
    let slow = Act::Answer(Reply::s3(503, "SlowDown"));
    let throttled = world.wire.add(Rule::on(Service::S3, "PutObject", slow).first(6));
    let ids = world.park(bad(1)).await;
    assert_eq!(world.wire.acted(throttled), 6);
    assert_eq!(world.handler.runs().len(), 1, "the lease was extended meanwhile");
    // HTTP 200, with an error in the body.
    let error = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code></Error>";
    let within = Act::Answer(Reply::new(200, "application/xml", error));
    let rule =
        world.wire.add(Rule::on(Service::S3, "GetObject", within).when(is_envelope).first(1));
    let (report, handler) = world.redrive(patient()).await;
    assert_eq!(world.wire.acted(rule), 1);
    assert_eq!((report.counts.resolved, handler.bodies()), (1, vec!["bad 0".to_owned()]));
    world.assert_committed_once(&[message_id(&ids[0])]).await;
}

#[tokio::test(start_paused = true)]
async fn case_e10_no_character_of_a_message_reaches_a_key() {
    let world = World::with(Spec { kind: Kind::Fifo, ..Spec::default() }).await;
    let groups =
        ["../../x", "%2e%2e", "a+b", "a%2Fb", "Same", "same", "!\"#$%&'()*+,-./:;<=>?@[\\]^_{|}~"];
    let odd = |(n, group): (usize, &&str)| Outgoing {
        group_id: Some((*group).to_owned()),
        deduplication_id: Some(format!("{}{n}", "!".repeat(127))),
        ..message(format!("bad {n}"))
    };
    let ids = world.park(groups.iter().enumerate().map(odd).collect()).await;
    let records = world.records().await;
    let mut keys = BTreeSet::new();
    for (id, group) in ids.iter().zip(groups) {
        let record = &records[id];
        let key = record.envelope.as_str();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_=.-".contains(c);
        assert!(key.len() <= 512 && key.chars().all(is_plain) && !key.contains(".."), "{key}");
        assert_eq!(record.group_id.as_deref(), Some(group));
        let envelope = world.envelope(record).await;
        assert_eq!(envelope.message.group_id.as_deref(), Some(group));
        keys.insert(key.to_owned());
    }
    assert_eq!(keys.len(), groups.len());
    let (report, handler) = world.redrive(patient()).await;
    assert_eq!(report.counts.resolved, groups.len() as u64);
    let seen: BTreeSet<String> =
        handler.attempts().into_iter().filter_map(|attempt| attempt.group_id).collect();
    assert_eq!(seen, groups.map(str::to_owned).into());
}
