//! The rules of a standard queue: exact messages, counts, visibility, batches entry by entry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::domain::id::{QueueName, ReceiptHandle};
use redrive::domain::message::{Attribute, Outgoing, Received, Value};
use redrive::port::evidence::Deletable;
use redrive::port::ledger::{Expect, Ledger};
use redrive::port::queue::{Depth, Queue};
use redrive::sim::clock::SimClock;
use redrive::sim::ledger::SimLedger;
use redrive::sim::queue::SimQueue;
use redrive::sim::shared::SharedEngine;
use redrive::sim::sqs::Engine;

use crate::embedded::Embedded;
use crate::item::{NOW, claimed, committed, entry_write, id};
use crate::on_both;

type Subject = Arc<dyn Queue>;

async fn sim() -> Subject {
    let clock = Arc::new(SimClock::starting_at(NOW));
    let engine = Arc::new(SharedEngine::new(Engine::new(1), clock));
    let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:orders-dlq",
        "maxReceiveCount":3}"#;
    let attributes = BTreeMap::from([
        ("RedrivePolicy".to_owned(), policy.to_owned()),
        ("VisibilityTimeout".to_owned(), "60".to_owned()),
    ]);
    engine.with(|engine, now| {
        for (name, attributes) in [("orders-dlq", BTreeMap::new()), ("orders", attributes)] {
            engine.create_queue(now, name, &attributes, BTreeMap::new()).unwrap();
        }
    });
    Arc::new(SimQueue::new(engine, QueueName::new("orders").unwrap()))
}

async fn aws() -> (Embedded, Subject) {
    let embedded = Embedded::start().await;
    let queue = embedded.queue().await;
    (embedded, Arc::new(queue))
}

on_both!(
    a_message_comes_back_byte_for_byte,
    receive_counts_and_times_are_told,
    visibility_zero_gives_a_message_back,
    batches_are_answered_entry_by_entry_in_order,
    a_forged_receipt_is_an_error_of_its_entry,
    an_empty_queue_gives_nothing,
    a_deleted_message_is_gone,
    facts_are_told,
    empty_batches_make_no_call,
);

fn body(text: &str) -> Outgoing {
    Outgoing { body: text.to_owned(), ..Outgoing::default() }
}

async fn send(queue: &Subject, messages: &[Outgoing]) {
    for answer in queue.send(messages).await.unwrap() {
        answer.unwrap().into_inner();
    }
}

async fn receive(queue: &Subject) -> Vec<Received> {
    queue.receive(10, Duration::ZERO, None).await.unwrap()
}

async fn receive_one(queue: &Subject) -> Received {
    let mut received = receive(queue).await;
    assert_eq!(received.len(), 1);
    received.remove(0)
}

fn attribute(data_type: &str, value: Value) -> Attribute {
    Attribute { data_type: data_type.to_owned(), value }
}

async fn a_message_comes_back_byte_for_byte(queue: &Subject) {
    let text = |text: &str| Value::Text(text.to_owned());
    let attributes = BTreeMap::from([
        ("plain".to_owned(), Attribute::string("naïve ✓ \t\r\n \u{10000}")),
        ("dotted.name-with_all".to_owned(), attribute("String.my.label", text("x"))),
        ("odd".to_owned(), attribute("Number.int", text("0001.2300"))),
        ("exponent".to_owned(), attribute("Number", text("1.5E+3"))),
        ("blob".to_owned(), attribute("Binary.gz", Value::Binary((0..=255).collect()))),
    ]);
    let sent = Outgoing {
        body: "{\"a\": 1 ,\r\n \"é\":\"\\u00e9 <&>\" }  ".to_owned(),
        attributes,
        trace_header: Some("Root=1-5759e988-bd862e3fe1be46a994272793".to_owned()),
        ..Outgoing::default()
    };
    let accepted = queue.send(std::slice::from_ref(&sent)).await.unwrap().remove(0).unwrap();
    let received = receive_one(queue).await;
    assert_eq!(received.message_id, accepted.get().message_id);
    assert_eq!(received.body, sent.body);
    assert_eq!(received.attributes, sent.attributes);
    assert_eq!(received.trace_header, sent.trace_header);
    assert_eq!((received.group_id, received.sequence_number), (None, None));
    assert_eq!(received.dead_letter_source, None);
}

async fn receive_counts_and_times_are_told(queue: &Subject) {
    send(queue, &[body("x")]).await;
    for count in 1..=3 {
        let received = queue.receive(10, Duration::ZERO, Some(Duration::ZERO)).await.unwrap();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].receive_count, Some(count));
        assert!(received[0].sent.is_some_and(|sent| sent >= NOW));
        assert!(received[0].first_received >= received[0].sent);
    }
}

async fn visibility_zero_gives_a_message_back(queue: &Subject) {
    send(queue, &[body("x")]).await;
    let first = receive_one(queue).await;
    assert_eq!(receive(queue).await, []);
    let change = [(first.receipt, Duration::ZERO)];
    assert_eq!(queue.change_visibility(&change).await.unwrap(), [Ok(())]);
    let second = receive_one(queue).await;
    assert_eq!((second.message_id, second.receive_count), (first.message_id, Some(2)));
}

async fn batches_are_answered_entry_by_entry_in_order(queue: &Subject) {
    let answers = queue.send(&[body("a"), body("\u{1}"), body("b")]).await.unwrap();
    let [Ok(_), Err(error), Ok(_)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((error.code.as_str(), error.sender_fault), ("InvalidMessageContents", true));
    let mut bodies: Vec<_> = receive(queue).await.into_iter().map(|m| m.body).collect();
    bodies.sort();
    assert_eq!(bodies, ["a", "b"]);
}

async fn a_forged_receipt_is_an_error_of_its_entry(queue: &Subject) {
    send(queue, &[body("x")]).await;
    let received = receive_one(queue).await;
    let second = Duration::from_secs(1);
    let changes = [(ReceiptHandle::new("forged"), second), (received.receipt, second)];
    let answers = queue.change_visibility(&changes).await.unwrap();
    let [Err(error), Ok(())] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((error.code.as_str(), error.sender_fault), ("ReceiptHandleIsInvalid", true));
}

async fn an_empty_queue_gives_nothing(queue: &Subject) {
    assert_eq!(receive(queue).await, []);
    let polled = queue.receive(1, Duration::from_secs(1), None).await.unwrap();
    assert_eq!(polled, []);
}

async fn a_deleted_message_is_gone(queue: &Subject) {
    send(queue, &[body("x"), body("y")]).await;
    let received = receive(queue).await;
    let ledger = SimLedger::new();
    let write = entry_write(Expect::Absent, &committed(&claimed("t-1", NOW), &id("m-1")));
    let entry = ledger.put_entry(&write, NOW).await.unwrap();
    assert!(Deletable::committed(&received[0], &entry, &id("m-2")).is_none());
    let of = |message| Deletable::committed(message, &entry, &id("m-1")).unwrap();
    let deletable: Vec<_> = received.iter().map(of).collect();
    assert_eq!(queue.delete(&deletable).await.unwrap(), [Ok(()), Ok(())]);
    assert_eq!(queue.facts().await.unwrap().depth, Depth::default());
    // A delete that is tried again finds nothing, and that is no error.
    assert_eq!(queue.delete(&deletable).await.unwrap(), [Ok(()), Ok(())]);
}

async fn facts_are_told(queue: &Subject) {
    send(queue, &[body("a"), body("b"), body("c")]).await;
    queue.receive(1, Duration::ZERO, None).await.unwrap();
    let facts = queue.facts().await.unwrap();
    assert_eq!(facts.arn.as_str(), "arn:aws:sqs:us-east-1:000000000000:orders");
    assert_eq!(facts.arn.name().as_ref(), Some(queue.name()));
    assert_eq!(facts.visibility_timeout, Duration::from_secs(60));
    assert_eq!(facts.retention, Duration::from_secs(345_600));
    assert_eq!(facts.max_message_bytes, 1_048_576);
    let policy = facts.redrive_policy.unwrap();
    assert_eq!(policy.max_receive_count, 3);
    assert_eq!(policy.target.as_str(), "arn:aws:sqs:us-east-1:000000000000:orders-dlq");
    assert_eq!(facts.depth, Depth { visible: 2, in_flight: 1, delayed: 0 });
}

async fn empty_batches_make_no_call(queue: &Subject) {
    assert!(queue.send(&[]).await.unwrap().is_empty());
    assert_eq!(queue.delete(&[]).await.unwrap(), []);
    assert_eq!(queue.change_visibility(&[]).await.unwrap(), []);
}
