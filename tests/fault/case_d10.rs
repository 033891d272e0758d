//! Case D10: a second failure leaves the story of the first as it was.

use std::collections::BTreeSet;

use redrive::domain::id::{EnvelopeKey, MessageId, RecordId};
use redrive::domain::message::{Attribute, Attributes, Outgoing};
use redrive::domain::record::{Record, State};
use redrive::port::queue::Queue as _;

use crate::redriving::{patient, start};
use crate::world::World;

fn attributes() -> Attributes {
    let typed = |kind: &str, text: &str| Attribute {
        data_type: kind.into(),
        value: redrive::domain::message::Value::Text(text.into()),
    };
    Attributes::from([
        ("trace".to_owned(), typed("String.custom", "naïve ✓")),
        ("n".to_owned(), typed("Number.int", "007.50")),
    ])
}

/// The message of this record that is in the source or in the DLQ, as its envelope tells it.
async fn told(world: &World, record: &Record, n: u32) {
    let envelope = world.envelope(record).await;
    assert_eq!((envelope.redrive_count, record.redrive_count), (n, n));
    assert!(envelope.queue_arn.to_string().ends_with(":orders"), "{}", envelope.queue_arn);
    assert_eq!(envelope.attributes, attributes(), "none is invented");
    assert_eq!((envelope.attempts, envelope.error_code.as_str()), (1, "BAD"));
    assert!(envelope.error_message.contains("text with"));
    assert_eq!(envelope.history.len(), usize::try_from(n).unwrap() + 1, "all failures so far");
    assert!(envelope.history.windows(2).all(|two| two[0].at < two[1].at));
    let parked = envelope.history.last().unwrap();
    assert_eq!((parked.attempt, parked.outcome.as_str()), (1, "permanent"));
}

#[tokio::test(start_paused = true)]
async fn case_d10_a_second_failure_leaves_the_story_of_the_first_as_it_was() {
    let world = World::new().await;
    let sent = Outgoing { attributes: attributes(), ..crate::redriving::message("bad body") };
    let ids = world.park(vec![sent]).await;
    let id = &ids[0];
    let message = MessageId::new(id.as_str()).unwrap();
    let mut envelopes: BTreeSet<EnvelopeKey> = BTreeSet::new();
    let first = world.record(&message).await;
    told(&world, &first, 0).await;
    envelopes.insert(first.envelope.clone());
    // It fails again: the handler is as it was.
    let redriver = world.redriver().await;
    let worker = world.worker().await;
    let run = start(&redriver, patient()).await.end().await.unwrap();
    worker.stop().await;
    assert_eq!(run.counts.failed_again, 1);
    let second = world.record(&message).await;
    told(&world, &second, 1).await;
    envelopes.insert(second.envelope.clone());
    assert_eq!((second.sent, second.first_seen), (first.sent, first.first_seen));
    assert_eq!(second.attempts_total, 2);
    assert_eq!(envelopes.len(), 2, "evidence is never replaced");
    world.envelope(&first).await;
    let (report, handler) = world.redrive(patient()).await;
    assert_eq!(report.counts.resolved, 1);
    let [attempt] = handler.attempts().try_into().unwrap();
    assert_eq!((attempt.record_id.as_str(), &attempt.attributes), (id.as_str(), &attributes()));
    let last = world.record(&message).await;
    assert_eq!((last.state, last.redrive_count, last.sent), (State::Resolved, 2, first.sent));
    assert_eq!(world.clean.source.facts().await.unwrap().depth, Default::default());
    world.assert_committed_once(&[message]).await;
    assert_eq!(
        world.records().await.keys().collect::<Vec<_>>(),
        [&RecordId::new(id.as_str()).unwrap()]
    );
}
