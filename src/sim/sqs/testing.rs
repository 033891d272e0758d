//! Short words for the engine's tests: an engine, queues, messages, times in milliseconds.

use super::{Engine, ReceiveMessage, SendMessage};
use crate::domain::id::QueueName;
use crate::domain::message::{Outgoing, Received};
use crate::domain::time::Wall;

pub(super) const fn at(ms: u64) -> Wall {
    Wall::from_ms(ms)
}

pub(super) fn engine() -> Engine {
    Engine::new(7)
}

/// A new queue.
pub(super) fn name(engine: &mut Engine, name: &str, attributes: &[(&str, &str)]) -> QueueName {
    let attributes = attributes.iter().map(|&(n, t)| (n.to_owned(), t.to_owned())).collect();
    engine.create_queue(at(0), name, &attributes, Default::default()).unwrap()
}

/// A new queue with a new dead-letter queue.
pub(super) fn pair(
    engine: &mut Engine,
    source: &str,
    dead: &str,
    max_receive_count: u32,
) -> (QueueName, QueueName) {
    let fifo: &[(&str, &str)] =
        if source.ends_with(".fifo") { &[("FifoQueue", "true")] } else { &[] };
    let dead = name(engine, dead, fifo);
    let arn = engine.facts(at(0), &dead).unwrap().arn;
    let policy =
        format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{max_receive_count}}}"#);
    let attributes: Vec<_> = fifo.iter().copied().chain([("RedrivePolicy", &*policy)]).collect();
    (name(engine, source, &attributes), dead)
}

pub(super) fn text(body: &str) -> SendMessage {
    Outgoing { body: body.to_owned(), ..Outgoing::default() }.into()
}

pub(super) fn fifo(body: &str, group: &str, deduplication_id: &str) -> SendMessage {
    Outgoing {
        body: body.to_owned(),
        group_id: Some(group.to_owned()),
        deduplication_id: Some(deduplication_id.to_owned()),
        ..Outgoing::default()
    }
    .into()
}

/// Up to ten messages.
pub(super) fn receive(engine: &mut Engine, ms: u64, queue: &QueueName) -> Vec<Received> {
    engine.receive(at(ms), queue, &ReceiveMessage { max: 10, ..Default::default() }).unwrap()
}

pub(super) fn bodies(received: &[Received]) -> Vec<&str> {
    received.iter().map(|message| message.body.as_str()).collect()
}
