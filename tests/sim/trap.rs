//! Traps of the protocol, by their numbers.

use std::time::Duration;

use redrive::domain::failure::ErrorCode;
use redrive::domain::failure::Reason;
use redrive::domain::id::{EnvelopeKey, ParkToken, QueueName, RecordId, Sha256Hex};
use redrive::domain::message::{Attribute, Attributes, Value};
use redrive::domain::record::State;
use redrive::domain::time::Wall;
use redrive::domain::token::{ATTRIBUTE, Marker, Token};
use redrive::port::clock::Clock as _;
use redrive::sim::fault::{Fault, Faults};

use crate::world::World;

/// All deletes of one worker fail.
fn no_deletes() -> Faults {
    let faults = Faults::new();
    for k in 1..20 {
        faults.at_call_of("queue.delete", k, Fault::FailBefore);
    }
    faults
}

/// Runs a worker whose deletes fail until `done`, then ends it.
async fn work_without_deletes(world: &World, done: impl Fn() -> bool) {
    let worker = world.worker(&no_deletes()).await;
    world.wait_until("work", done).await;
    worker.crash().await;
}

#[tokio::test(start_paused = true)]
async fn trap_08_a_committed_leftover_is_known_after_a_repeat_has_taken_the_entry() {
    for repeat in ["is parked", "is committed"] {
        let world = World::with_limits(100, 1_048_576);
        world.handler.set_fixed(true);
        let leftover = world.send("bad").await;
        work_without_deletes(&world, || world.entries().iter().any(|e| !e.commits.is_empty()))
            .await;
        tokio::time::advance(Duration::from_secs(400)).await;
        world.handler.set_fixed(repeat == "is committed");
        let honest = world.send("bad").await;
        world.work(&Faults::new()).await;
        world.assert_nothing_lost(&[leftover.clone(), honest.clone()]);
        let entries = world.entries();
        assert!(entries.iter().all(|e| e.commits.contains_key(&RecordId::from(&leftover))));
        let of = |id: &str| world.handler.runs().iter().filter(|r| r.record_id == id).count();
        assert_eq!(of(leftover.as_str()), 1, "the leftover ran once, though the repeat {repeat}");
        assert_eq!(of(honest.as_str()), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn trap_11_the_last_token_issued_is_the_one_that_counts() {
    // A slow parker: its token waits for an answer while its lease runs out and another finishes.
    for operation in ["queue.send", "ledger.put_both", "ledger.put_record", "vault.put"] {
        for fault in [Fault::HangBefore, Fault::HangAfter] {
            let world = World::new();
            let id = world.send("bad").await;
            let faults = Faults::new();
            faults.at_call_of(operation, 1, fault);
            let slow = world.worker(&faults).await;
            world
                .wait_until("the slow call", || {
                    faults.log().iter().any(|call| call.starts_with(operation))
                })
                .await;
            world.work(&Faults::new()).await;
            slow.crash().await;
            world.assert_nothing_lost(std::slice::from_ref(&id));
            let record = world.record(&id);
            assert!(record.token_sent.is_some(), "{operation} {fault:?}");
            tokio::time::advance(Duration::from_secs(2)).await;
            let counting = world.tokens().iter().filter(|t| t.park == record.park_token).count();
            assert_eq!(counting, 1, "{operation} {fault:?}");
        }
    }
}

fn ten_attributes() -> Attributes {
    let mut attributes: Attributes =
        (0..8).map(|i| (format!("a-{i}.x"), Attribute::string(format!("é✓ {i}")))).collect();
    let number = Value::Text("12345678901234567890.000001".into());
    attributes
        .insert("n".into(), Attribute { data_type: "Number.java.lang.Long".into(), value: number });
    let bytes = Value::Binary(vec![0x00, 0xff, 0x1e, 0x7f, 0x80]);
    attributes.insert("b".into(), Attribute { data_type: "Binary.gzip".into(), value: bytes });
    attributes
}

#[tokio::test(start_paused = true)]
async fn trap_25_an_original_without_room_travels_as_a_pointer_and_keeps_its_evidence() {
    let world = World::with_limits(5, 2_048);
    let ten = world.send_with("bad ten", ten_attributes()).await;
    let long = format!("bad {}", "é".repeat(500_000));
    let large = world.send(&long).await;
    let small = world.send("bad small").await;
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&[ten.clone(), large.clone(), small.clone()]);
    let dead = world.dead_letters_after_a_second().await;
    let pointers = dead.iter().filter(|m| m.body.starts_with("{\"redrive\":")).count();
    assert_eq!((dead.len(), pointers), (3, 2));
    let envelope = world.envelope(&world.record(&ten));
    assert_eq!(envelope.attributes, ten_attributes());
    assert_eq!(world.envelope(&world.record(&large)).payload.body, long);
}

fn forged(record: &str, queue: &str, body: &str, now: Wall) -> String {
    Marker::Token(Token {
        queue: QueueName::new(queue).unwrap(),
        record: RecordId::new(record).unwrap(),
        n: 0,
        sent_ms: now,
        sha256: Sha256Hex::of(body.as_bytes()),
        park: ParkToken::new("p").unwrap(),
        envelope: EnvelopeKey::new("envelopes/v1/other/x/y.json").unwrap(),
        code: ErrorCode::normalize("BAD"),
        reason: Reason::Validation,
        parked_at_ms: now,
    })
    .encode()
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn trap_26_an_attribute_of_our_name_that_is_not_believed_is_the_users() {
    let world = World::new();
    let now = world.clock.wall();
    let texts = [
        "a user's own".to_owned(),
        forged("victim", "other-queue", "bad 1", now),
        forged("victim", "orders", "another body", now),
    ];
    let mut sent = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let attributes =
            Attributes::from([(ATTRIBUTE.to_owned(), Attribute::string(text.clone()))]);
        sent.push(world.send_with(&format!("bad {i}"), attributes).await);
    }
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&sent);
    for (id, text) in sent.iter().zip(&texts) {
        let record = world.record(id);
        assert_eq!(record.state, State::Quarantined, "under its own id, not the one it names");
        let attributes = world.envelope(&record).attributes;
        assert_eq!(attributes.get(ATTRIBUTE), Some(&Attribute::string(text.clone())));
    }
}

#[tokio::test(start_paused = true)]
async fn trap_31_an_entry_past_its_expiry_is_replaced_whole_and_its_generation_never_repeats() {
    let world = World::new();
    world.send("fine").await;
    world.work(&Faults::new()).await;
    // The table still holds the entry: deletion by TTL is lazy.
    tokio::time::advance(Duration::from_secs(31 * 86_400)).await;
    world.send("fine").await;
    world.work(&Faults::new()).await;
    let runs = world.handler.runs();
    let keys: Vec<_> = runs.iter().map(|run| run.idempotency_key.clone()).collect();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys.first(), keys.last());
    assert_eq!(world.entries().iter().map(|e| e.commits.len()).sum::<usize>(), 1);
}
