//! The ledger, on the wire.

use std::collections::BTreeSet;
use std::time::Duration;

use redrive::domain::failure::ErrorClass;
use redrive::domain::message::Outgoing;
use redrive::port::ledger::{Expiry, Ledger as _};
use redrive::port::queue::Depth;
use redrive::telemetry::Counter;
use serde_json::json;

use crate::script::pass;
use crate::wire::act::{Act, Reply};
use crate::wire::call::Service;
use crate::wire::rule::Rule;
use crate::world::{Kind, Spec, World};

async fn world(visibility: u64, max_receive_count: u32) -> World {
    let visibility = Duration::from_secs(visibility);
    World::with(Spec { visibility, max_receive_count, ..Spec::default() }).await
}

#[tokio::test(start_paused = true)]
async fn case_f1_a_crash_leaves_no_claim_that_blocks_and_counts_as_no_failure() {
    let world = world(3, 5).await;
    world.handler.set_takes([Duration::from_secs(2)]);
    let sent = [world.send("fine").await];
    let worker = world.worker().await;
    world.wait_until("a run", async || !world.handler.runs().is_empty()).await;
    worker.crash().await;
    let crashed = tokio::time::Instant::now();
    world.work().await;
    assert!(crashed.elapsed() < Duration::from_secs(3 + 3 + 2 + 2 + 21), "{:?}", crashed.elapsed());
    assert_eq!((world.handler.runs().len(), world.handler.overlaps()), (2, 0));
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_f3_the_stored_times_are_in_the_units_that_their_names_say() {
    let world = world(30, 5).await;
    world.handler.set_takes([Duration::from_secs(5)]);
    world.send("fine").await;
    let worker = world.worker().await;
    world.wait_until("a run", async || !world.handler.runs().is_empty()).await;
    let entry = world.entry_items().await.into_iter().next().unwrap();
    let number = |name: &str| entry[name].as_n().unwrap().clone();
    assert_eq!(number("expires_at").len(), 10, "epoch seconds");
    assert_eq!(number("lease_until_ms").len(), 13, "epoch milliseconds");
    let now = redrive::port::clock::Clock::wall(&*world.clock);
    assert!(number("expires_at").parse::<u64>().unwrap() > now.as_secs() + 29 * 86_400);
    assert!(number("lease_until_ms").parse::<u64>().unwrap() > now.as_ms());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn case_f7_no_error_of_the_ledger_but_a_failed_condition_is_a_verdict() {
    let replies = [
        Reply::dynamodb(400, "ProvisionedThroughputExceededException"),
        Reply::dynamodb(400, "ThrottlingException"),
        Reply::dynamodb(400, "RequestLimitExceeded"),
        Reply::transaction_canceled(&["None", "TransactionConflict"]),
        Reply::dynamodb(500, "InternalServerError"),
    ];
    for reply in replies {
        let world = world(30, 2).await;
        let sent = [world.send("fine").await, world.send("bad").await];
        let text = format!("{reply:?}");
        let down = world.wire.add(Rule::of(Service::DynamoDb, Act::Answer(reply)));
        let worker = world.worker().await;
        pass(Duration::from_secs(10)).await;
        assert!(world.handler.runs().is_empty(), "{text}");
        assert_eq!(world.wire.count(Service::Sqs, "DeleteMessageBatch"), 0, "{text}");
        assert_eq!(world.wire.count(Service::Sqs, "SendMessageBatch"), 0, "{text}");
        world.wire.remove(down);
        world.wait_for_empty_source().await;
        worker.stop().await;
        assert_eq!(world.handler.runs().len(), 2, "{text}");
        assert_eq!(world.records().await.len(), 1, "{text}");
        world.assert_nothing_lost(&sent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_f9_two_honest_messages_with_one_payload() {
    for kind in [Kind::Standard, Kind::Fifo] {
        let mut world = World::with(Spec { kind, ..Spec::default() }).await;
        let send = |n: usize| Outgoing {
            body: r#"{"itemid":123}"#.to_owned(),
            group_id: (kind == Kind::Fifo).then(|| format!("g{n}")),
            deduplication_id: (kind == Kind::Fifo).then(|| format!("d{n}")),
            ..Outgoing::default()
        };
        // Within the window the second is a repeat: counted, and told with both ids.
        world.send_all(vec![send(1)]).await;
        world.work().await;
        pass(Duration::from_secs(60)).await;
        world.send_all(vec![send(2)]).await;
        let worker = world.worker().await;
        world.wait_for_empty_source().await;
        assert_eq!(worker.telemetry.meter.value(Counter::DuplicatesSkipped), 1);
        worker.stop().await;
        assert_eq!(world.handler.runs().len(), 1);
        // Beyond it, it is new work.
        pass(Duration::from_secs(301)).await;
        world.send_all(vec![send(3)]).await;
        world.work().await;
        assert_eq!(world.handler.runs().len(), 2);
        // Keyed by message, each runs.
        world.settings.repeat_window = Duration::ZERO;
        world.send_all(vec![send(4)]).await;
        world.work().await;
        assert_eq!(world.handler.runs().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn case_f10_deletes_that_fail_three_times_run_nothing_twice() {
    let world = world(5, 5).await;
    let sent = [world.send("fine").await];
    let failing = Act::Answer(Reply::sqs(500, "InternalError"));
    // Three tries of the SDK each.
    world.wire.add(Rule::on(Service::Sqs, "DeleteMessageBatch", failing).first(9));
    world.work().await;
    assert_eq!(world.handler.runs().len(), 1);
    let committed: BTreeSet<_> = world.commits().await.into_values().flatten().collect();
    assert_eq!(committed.len(), 1);
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_f11_a_ttl_on_another_attribute_is_seen() {
    let world = world(30, 5).await;
    let ttl = |status: &str, attribute: &str| {
        let described = json!({ "TimeToLiveDescription": {
            "TimeToLiveStatus": status, "AttributeName": attribute,
        } });
        Reply::new(200, "application/x-amz-json-1.0", described.to_string())
    };
    let expiry = || world.faulty.ledger.expiry();
    assert_eq!(expiry().await, Ok(Expiry::Ours));
    for (reply, expected) in [
        (ttl("ENABLED", "expires"), Expiry::Other("expires".into())),
        (ttl("DISABLED", "expires_at"), Expiry::Off),
        (ttl("ENABLING", "expires_at"), Expiry::Ours),
    ] {
        let rule = Rule::on(Service::DynamoDb, "DescribeTimeToLive", Act::Answer(reply));
        let rule = world.wire.add(rule);
        assert_eq!(expiry().await, Ok(expected));
        world.wire.remove(rule);
    }
    let denied = Act::Answer(Reply::dynamodb(400, "AccessDeniedException"));
    world.wire.add(Rule::on(Service::DynamoDb, "DescribeTimeToLive", denied));
    assert_eq!(expiry().await.unwrap_err().class(), ErrorClass::Denied, "said, and no more");
}
