//! What a worker asks of AWS, counted on the wire.

use std::sync::Arc;
use std::time::Duration;

use redrive::domain::message::Outgoing;
use redrive::service::consumer::Ending;
use redrive::service::settings::Ports;
use redrive::sim::ledger::SimLedger;

use crate::script::pass;
use crate::wire::call::Service;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn idle_costs_three_receives_a_minute() {
    let mut world = World::new().await;
    world.settings.sweep_every = Duration::from_secs(86_400);
    let worker = world.worker().await;
    // The first sweep looks at the DLQ until it has been empty for some seconds.
    pass(Duration::from_secs(60)).await;
    world.wire.clear_log();
    pass(Duration::from_secs(60)).await;
    let calls = world.wire.calls();
    let others: Vec<_> =
        calls.iter().filter(|call| !call.is(Service::Sqs, "ReceiveMessage")).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(calls.iter().all(|call| call.object == "orders"), "{calls:?}");
    assert!((2..=4).contains(&calls.len()), "{} receives", calls.len());
    assert_eq!(worker.stop().await, Ending::Drained);
}

/// The ledger is in memory: SQS alone is counted.
#[tokio::test(start_paused = true)]
async fn ten_thousand_messages_cost_a_quarter_request_each() {
    const MESSAGES: usize = 10_000;
    let mut world = World::new().await;
    world.settings.concurrency = 64;
    // Uneven work: places become free one by one, not all at once.
    world.handler.set_takes((1..=97).map(|n| Duration::from_millis(n * 37 % 97)));
    let message = |n| Outgoing { body: format!("message {n}"), ..Outgoing::default() };
    world.send_all((0..MESSAGES).map(message).collect()).await;
    let ledger = Arc::new(SimLedger::new());
    let in_memory = |ports| Ports { ledger: ledger.clone(), runs: ledger.clone(), ..ports };
    let worker = world.worker_with(in_memory).await;
    world.wait_for_empty_source().await;
    assert_eq!(worker.stop().await, Ending::Drained);
    let committed = ledger.entries().into_values().map(|entry| entry.commits.len()).sum::<usize>();
    assert_eq!((committed, world.handler.runs().len()), (MESSAGES, MESSAGES));
    assert_eq!(world.wire.entries(Service::Sqs, "DeleteMessageBatch"), MESSAGES);
    let requests = world.wire.calls().iter().filter(|call| call.service == Service::Sqs).count();
    assert!(requests * 4 <= MESSAGES, "{requests} SQS requests");
}
