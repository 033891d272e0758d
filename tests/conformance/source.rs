//! Which sources a DLQ has: whose a bare message is may rest on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive::domain::id::QueueName;
use redrive::port::queue::Queue;
use redrive::sim::clock::SimClock;
use redrive::sim::queue::SimQueue;
use redrive::sim::shared::SharedEngine;
use redrive::sim::sqs::Engine;

use crate::embedded::Embedded;
use crate::item::NOW;
use crate::on_both;

/// The source and its DLQ.
type Subject = [Arc<dyn Queue>; 2];

async fn sim() -> Subject {
    let clock = Arc::new(SimClock::starting_at(NOW));
    let engine = Arc::new(SharedEngine::new(Engine::new(1), clock));
    let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:orders-dlq",
        "maxReceiveCount":3}"#;
    let attributes = BTreeMap::from([("RedrivePolicy".to_owned(), policy.to_owned())]);
    engine.with(|engine, now| {
        for (name, attributes) in [("orders-dlq", BTreeMap::new()), ("orders", attributes)] {
            engine.create_queue(now, name, &attributes, BTreeMap::new()).unwrap();
        }
    });
    let queue = |name| Arc::new(SimQueue::new(engine.clone(), QueueName::new(name).unwrap()));
    [queue("orders"), queue("orders-dlq")]
}

async fn aws() -> (Embedded, Subject) {
    let embedded = Embedded::start().await;
    let queues: Subject = [Arc::new(embedded.queue().await), Arc::new(embedded.dlq().await)];
    (embedded, queues)
}

on_both!(a_dlq_knows_its_sources);

async fn a_dlq_knows_its_sources([source, dlq]: &Subject) {
    assert_eq!(dlq.sources().await.unwrap(), [source.name().clone()]);
    assert_eq!(source.sources().await.unwrap(), []);
}
