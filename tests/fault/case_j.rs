//! Stops on the wire: work finishes or is given back, and its deletes are sent.

use std::time::Duration;

use redrive::domain::id::MessageId;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::service::shutdown::Stage;
use redrive::telemetry::Counter;
use tokio::time::Instant;

use crate::receipt::{Receipts, assert_none_changed_after_its_delete, changes};
use crate::script::pass;
use crate::wire::act::Act;
use crate::wire::call::Service;
use crate::wire::rule::Rule;
use crate::world::{Spec, Worker, World};

const CHANGE: &str = "ChangeMessageVisibilityBatch";
const DELETE: &str = "DeleteMessageBatch";

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Ten messages whose handlers all run for a second already.
async fn ten_at_work(
    takes: Duration,
    grace: Duration,
) -> (World, Worker, Vec<MessageId>, Receipts) {
    let mut world = World::with(Spec { visibility: secs(3), ..Spec::default() }).await;
    world.settings.grace = grace;
    world.settings.concurrency = 10;
    world.handler.set_takes([takes]);
    let mut sent = Vec::new();
    for n in 0..10 {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    let receipts = Receipts::noted(&world);
    let worker = world.worker().await;
    world.wait_until("ten runs", async || world.handler.runs().len() == 10).await;
    pass(secs(1)).await;
    world.wire.clear_log();
    (world, worker, sent, receipts)
}

#[tokio::test(start_paused = true)]
async fn case_j2_a_stop_lets_work_finish_under_its_heartbeat_and_flushes_its_deletes() {
    let (world, worker, sent, _) = ten_at_work(secs(3), secs(10)).await;
    // Nor is a delete that is under way left behind.
    world.wire.add(Rule::on(Service::Sqs, DELETE, Act::DelayBefore(secs(2))));
    let (stopped, meter) = (Instant::now(), worker.telemetry.meter.clone());
    assert_eq!(worker.stop().await, Ending::Drained);
    assert!(stopped.elapsed() < secs(10), "{:?}", stopped.elapsed());
    assert_eq!(world.source_depth().await, Depth::default());
    assert!(world.wire.entries(Service::Sqs, CHANGE) >= 10, "heartbeats go on while it drains");
    assert_none_changed_after_its_delete(&world);
    assert_eq!(world.wire.entries(Service::Sqs, DELETE), 10);
    let received = world.wire.calls_of(Service::Sqs, "ReceiveMessage");
    assert!(received.iter().all(|call| call.object != "orders"), "{received:?}");
    assert_eq!((meter.value(Counter::Committed), meter.value(Counter::LeaseLost)), (10, 0));
    assert_eq!(world.handler.runs().len(), 10);
    world.assert_committed_once(&sent).await;
}

/// All ten are visible again, their claims given back, uncounted; the next worker runs each once more.
async fn assert_given_back(world: &mut World, sent: &[MessageId], receipts: &Receipts) {
    assert_eq!(world.source_depth().await, Depth { visible: 10, ..Depth::default() });
    let changes = changes(world);
    for id in sent {
        let receipt = receipts.of(id).remove(0);
        assert_eq!(changes[&receipt].last().unwrap().1, 0, "{id} is released");
    }
    assert_eq!(world.wire.count(Service::Sqs, DELETE), 0);
    assert!(world.records().await.is_empty());
    world.settings.grace = secs(25);
    world.handler.set_takes([secs(1)]);
    let restarted = Instant::now();
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    assert!(
        restarted.elapsed() < secs(3),
        "no claim is left in the way: {:?}",
        restarted.elapsed()
    );
    assert_eq!(worker.stop().await, Ending::Drained);
    let runs = world.handler.runs();
    let again: Vec<_> = runs[10..].iter().map(|run| (run.attempt, run.receive_count)).collect();
    assert_eq!(again, [(1, Some(2)); 10], "one receive more, and no attempt");
    assert!(world.records().await.is_empty());
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_committed_once(sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_j2_when_the_grace_runs_out_claims_and_messages_are_given_back() {
    let (mut world, worker, sent, receipts) = ten_at_work(secs(30), secs(5)).await;
    let stopped = Instant::now();
    assert_eq!(worker.stop().await, Ending::GraceRanOut);
    assert!((secs(5)..secs(7)).contains(&stopped.elapsed()), "{:?}", stopped.elapsed());
    assert_given_back(&mut world, &sent, &receipts).await;
}

#[tokio::test(start_paused = true)]
async fn case_j2_a_second_signal_gives_everything_back_at_once() {
    let (mut world, worker, sent, receipts) = ten_at_work(secs(30), secs(25)).await;
    worker.signal(Stage::Draining);
    pass(secs(1)).await;
    let stopped = Instant::now();
    worker.signal(Stage::Releasing);
    assert_eq!(worker.end().await, Ending::GraceRanOut);
    assert!(stopped.elapsed() < secs(1), "{:?}", stopped.elapsed());
    assert_given_back(&mut world, &sent, &receipts).await;
}
