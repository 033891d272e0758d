//! The rules of a FIFO queue that decisions rest on: order in a group, the group's lock, deduplication.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::domain::id::QueueName;
use redrive::domain::message::Outgoing;
use redrive::port::queue::Queue;
use redrive::sim::clock::SimClock;
use redrive::sim::queue::SimQueue;
use redrive::sim::shared::SharedEngine;
use redrive::sim::sqs::Engine;

use crate::embedded::{Embedded, spec};
use crate::item::NOW;
use crate::on_both;

type Subject = Arc<dyn Queue>;

async fn sim() -> Subject {
    let clock = Arc::new(SimClock::starting_at(NOW));
    let engine = Arc::new(SharedEngine::new(Engine::new(1), clock));
    let fifo = BTreeMap::from([("FifoQueue".to_owned(), "true".to_owned())]);
    engine
        .with(|engine, now| engine.create_queue(now, "orders.fifo", &fifo, BTreeMap::new()))
        .unwrap();
    Arc::new(SimQueue::new(engine, QueueName::new("orders.fifo").unwrap()))
}

async fn aws() -> (Embedded, Subject) {
    let embedded = Embedded::start_with(spec("orders.fifo", "orders-dlq.fifo")).await;
    let queue = embedded.queue().await;
    (embedded, Arc::new(queue))
}

on_both!(
    a_group_is_in_order_and_locked_while_in_flight,
    a_repeated_deduplication_id_is_accepted_and_not_sent,
);

fn message(group: &str, deduplication: &str) -> Outgoing {
    Outgoing {
        body: deduplication.to_owned(),
        group_id: Some(group.to_owned()),
        deduplication_id: Some(deduplication.to_owned()),
        ..Outgoing::default()
    }
}

async fn send(queue: &Subject, messages: &[Outgoing]) -> Vec<String> {
    let answers = queue.send(messages).await.unwrap().into_iter();
    answers.map(|answer| answer.unwrap().get().message_id.to_string()).collect()
}

async fn a_group_is_in_order_and_locked_while_in_flight(queue: &Subject) {
    send(queue, &[message("a", "1"), message("a", "2"), message("b", "3")]).await;
    let first = queue.receive(1, Duration::ZERO, None).await.unwrap();
    assert_eq!(first[0].body, "1");
    assert_eq!(first[0].group_id.as_deref(), Some("a"));
    assert_eq!(first[0].deduplication_id.as_deref(), Some("1"));
    assert!(first[0].sequence_number.is_some());
    let rest = queue.receive(10, Duration::ZERO, None).await.unwrap();
    let rest: Vec<_> = rest.iter().map(|m| m.body.as_str()).collect();
    assert_eq!(rest, ["3"]);
    let back = [(first[0].receipt.clone(), Duration::ZERO)];
    assert_eq!(queue.change_visibility(&back).await.unwrap(), [Ok(())]);
    let again = queue.receive(10, Duration::ZERO, None).await.unwrap();
    let again: Vec<_> = again.iter().map(|m| m.body.as_str()).collect();
    assert_eq!(again, ["1", "2"]);
}

async fn a_repeated_deduplication_id_is_accepted_and_not_sent(queue: &Subject) {
    let first = send(queue, &[message("a", "1")]).await;
    let again = send(queue, &[message("a", "1")]).await;
    assert_eq!(first, again);
    assert_eq!(queue.receive(10, Duration::ZERO, None).await.unwrap().len(), 1);
}
