//! FIFO: in order within a group, groups beside one another.

use std::time::Duration;

use redrive::domain::id::MessageId;
use redrive::domain::message::Outgoing;
use redrive::port::clock::Clock as _;
use redrive::port::queue::Depth;
use redrive::sim::fault::{Fault, Faults};

use crate::world::{Health, World};

async fn send(world: &World, group: &str, body: &str) -> MessageId {
    let message = Outgoing {
        body: format!("{body} {group}"),
        group_id: Some(group.to_owned()),
        deduplication_id: Some(format!("{group}-{}", body.replace(' ', "-"))),
        ..Outgoing::default()
    };
    world.send_message(message).await
}

fn runs_of(world: &World, group: &str) -> Vec<String> {
    let runs = world.handler.runs().into_iter();
    runs.map(|run| run.body).filter(|body| body.ends_with(group)).collect()
}

async fn until_empty(world: &World) {
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
}

#[tokio::test(start_paused = true)]
async fn case_h2_a_poison_head_is_parked_and_its_group_goes_on_in_order() {
    let mut world = World::fifo();
    world.settings.visibility = Some(Duration::from_secs(600));
    let mut sent = Vec::new();
    for body in ["bad 1", "fine 2", "fine 3", "fine 4", "fine 5"] {
        sent.push(send(&world, "g", body).await);
        sent.push(send(&world, "h", &body.replace("bad", "fine")).await);
    }
    let started = world.clock.mono();
    let worker = world.worker(&Faults::new()).await;
    until_empty(&world).await;
    assert!(world.clock.mono().since(started) < Duration::from_secs(10));
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert_eq!(runs_of(&world, "g"), ["bad 1 g", "fine 2 g", "fine 3 g", "fine 4 g", "fine 5 g"]);
    assert_eq!(runs_of(&world, "h").len(), 5);
    assert_eq!(world.record(&sent[0]).group_id.as_deref(), Some("g"));
    assert_eq!(world.dead_letters_after_a_second().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_transient_failure_the_rest_of_the_group_waits_for_it() {
    let world = World::fifo();
    let mut sent = Vec::new();
    for body in ["fine 1", "flaky 2", "fine 3", "fine 4"] {
        sent.push(send(&world, "g", body).await);
    }
    sent.push(send(&world, "h", "fine 1").await);
    let worker = world.worker(&Faults::new()).await;
    until_empty(&world).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    let expected = ["fine 1 g", "flaky 2 g", "flaky 2 g", "fine 3 g", "fine 4 g"];
    assert_eq!(runs_of(&world, "g"), expected);
    assert!(world.ledger.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn groups_are_handled_beside_one_another() {
    let world = World::fifo();
    world.handler.set_takes(Duration::from_secs(10));
    for group in ["a", "b", "c", "d"] {
        for n in 0..2 {
            send(&world, group, &format!("fine {n}")).await;
        }
    }
    let started = world.clock.mono();
    let worker = world.worker(&Faults::new()).await;
    until_empty(&world).await;
    let took = world.clock.mono().since(started);
    assert!(took < Duration::from_secs(30), "{took:?}");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_head_fails_to_the_limit_loses_nothing_and_keeps_its_order() {
    for limit in [1, 2, 3] {
        let world = World::fifo_with_limit(limit);
        let mut sent = Vec::new();
        for body in ["never 1", "fine 2", "flaky 3", "fine 4"] {
            sent.push(send(&world, "g", body).await);
        }
        let worker = world.worker(&Faults::new()).await;
        until_empty(&world).await;
        worker.stop().await;
        world.assert_nothing_lost(&sent);
        let mut order = runs_of(&world, "g");
        order.dedup();
        assert_eq!(order, ["never 1 g", "fine 2 g", "flaky 3 g", "fine 4 g"], "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_the_order_and_parks_nothing() {
    let world = World::fifo_with_limit(2);
    world.handler.set_health(Health::Gone);
    let mut sent = Vec::new();
    for n in 1..=5 {
        sent.push(send(&world, "g", &format!("fine {n}")).await);
    }
    let worker = world.worker(&Faults::new()).await;
    tokio::time::timeout(Duration::from_secs(1_800), std::future::pending::<()>())
        .await
        .unwrap_err();
    world.handler.set_health(Health::Well);
    until_empty(&world).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert!(world.ledger.records().is_empty());
    let expected: Vec<String> = (1..=5).map(|n| format!("fine {n} g")).collect();
    assert_eq!(runs_of(&world, "g"), expected);
}

#[tokio::test(start_paused = true)]
async fn a_stop_releases_the_rest_of_a_group_and_the_order_stays() {
    let world = World::fifo();
    world.handler.set_takes(Duration::from_secs(3));
    let mut sent = Vec::new();
    for n in 1..=4 {
        sent.push(send(&world, "g", &format!("fine {n}")).await);
    }
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("a run", || !world.handler.runs().is_empty()).await;
    worker.stop().await;
    assert_eq!(runs_of(&world, "g").len(), 1, "what had begun was finished, and no more");
    assert_eq!(world.depth(&world.source), Depth { visible: 3, ..Depth::default() });
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&sent);
    let expected: Vec<String> = (1..=4).map(|n| format!("fine {n} g")).collect();
    assert_eq!(runs_of(&world, "g"), expected);
}

#[tokio::test(start_paused = true)]
async fn case_a2_a_delete_after_the_lease_has_lapsed_is_made_good_by_the_next_delivery() {
    let mut world = World::fifo();
    world.settings.visibility = Some(Duration::from_secs(2));
    world.handler.set_takes(Duration::from_secs(1));
    let sent = [send(&world, "g", "fine").await];
    let faults = Faults::new();
    faults.at_every("queue.change_visibility", Fault::FailBefore);
    // The first delete comes only after the visibility timeout.
    faults.at_call_of("queue.delete", 1, Fault::Late(Duration::from_secs(10)));
    let worker = world.worker(&faults).await;
    until_empty(&world).await;
    worker.stop().await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.handler.runs().len(), 1, "the next delivery is recognised as done");
    assert_eq!(world.depth(&world.dlq), Depth::default());
}
