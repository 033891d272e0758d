//! FIFO order on the wire.

use std::time::Duration;

use redrive::domain::message::Outgoing;
use redrive::domain::record::State;
use redrive::service::consumer::Ending;
use redrive::telemetry::Counter;
use tokio::time::Instant;

use crate::world::{Kind, Spec, World};

#[tokio::test(start_paused = true)]
async fn case_h2_a_poison_head_is_parked_and_its_group_goes_on_in_order() {
    let visibility = Duration::from_secs(600);
    let world = World::with(Spec { kind: Kind::Fifo, visibility, ..Spec::default() }).await;
    world.handler.set_takes([Duration::from_millis(100)]);
    let message = |group: &str, body: String| Outgoing {
        deduplication_id: Some(format!("{group}-{}", body.replace(' ', "-"))),
        body,
        group_id: Some(group.to_owned()),
        ..Outgoing::default()
    };
    let mut messages = Vec::new();
    for n in 1..=5 {
        messages.push(message("g", format!("{} g{n}", if n == 1 { "bad" } else { "fine" })));
        messages.push(message("h", format!("fine h{n}")));
    }
    let sent = world.send_all(messages).await;
    let started = Instant::now();
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let meter = worker.telemetry.meter.clone();
    assert_eq!(worker.stop().await, Ending::Drained);

    let runs = world.handler.runs();
    let of = |group: char| -> Vec<&str> {
        let bodies = runs.iter().map(|run| run.body.as_str());
        bodies.filter(|body| body.contains(group)).collect()
    };
    assert_eq!(of('g')[1..], ["fine g2", "fine g3", "fine g4", "fine g5"]);
    assert_eq!(of('h'), ["fine h1", "fine h2", "fine h3", "fine h4", "fine h5"]);
    let poison = runs.iter().find(|run| run.body == "bad g1").unwrap();
    let first_of_h = runs.iter().find(|run| run.body == "fine h1").unwrap();
    assert!(first_of_h.at <= poison.at + Duration::from_millis(100), "groups are side by side");
    assert_eq!((meter.value(Counter::Parked), meter.value(Counter::Committed)), (1, 9));
    let record = world.record(&sent[0]).await;
    assert_eq!((record.state, record.group_id.as_deref()), (State::Quarantined, Some("g")));
    let dead = world.dead_letters().await;
    let parks: Vec<_> = dead.iter().map(|dead| world.token(dead).unwrap().park).collect();
    assert_eq!(parks, [record.park_token]);
    world.assert_nothing_lost(&sent).await;
}
