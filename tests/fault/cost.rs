//! What a worker asks of AWS, counted on the wire.

use std::time::Duration;

use redrive::service::consumer::Ending;

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
