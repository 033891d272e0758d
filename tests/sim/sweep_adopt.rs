//! Bare messages: deliveries whose worker died, moved to the DLQ by SQS's own policy, and adopted.

use std::time::Duration;

use redrive::domain::failure::{Disposition, Reason};
use redrive::domain::id::{MessageId, ParkToken, RecordId};
use redrive::domain::identity::KeyStrategy;
use redrive::domain::message::{Attribute, Attributes, Outgoing, Received, Value};
use redrive::domain::record::{Blocked, Event, State};
use redrive::domain::token::ATTRIBUTE;
use redrive::port::clock::Clock as _;
use redrive::port::queue::{Depth, Queue as _};
use redrive::service::sweeper::Swept;
use redrive::sim::fault::{Fault, Faults};
use redrive::sim::queue::SimQueue;
use redrive::sim::sqs::ReceiveMessage;

use crate::executor::patient;
use crate::world::World;

impl World {
    /// Receives all that is in the source until SQS's own policy has moved it.
    pub(crate) async fn bury(&self) {
        self.bury_from(&self.source).await;
    }

    async fn bury_from(&self, source: &SimQueue) {
        for _ in 0..1_000 {
            if self.depth(source) == Depth::default() {
                return;
            }
            if source.receive(10, Duration::ZERO, Some(Duration::ZERO)).await.unwrap().is_empty() {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
        }
        panic!("the policy has not moved it");
    }

    /// Sends this record's copy and leaves the run to itself.
    pub(crate) async fn send_copy(&self) {
        let executor = self.start(&self.redriver(&Faults::new(), "dying"), patient()).await;
        self.wait_until("a copy", || self.depth(&self.source).visible > 0).await;
        executor.crash().await;
    }

    /// Every message in the DLQ is a token that counts, one a record.
    pub(crate) async fn assert_one_token_each(&self, ids: &[RecordId]) {
        tokio::time::advance(Duration::from_secs(301)).await;
        let records = self.ledger.records();
        let mut parks: Vec<_> = self.tokens().into_iter().map(|token| token.park).collect();
        parks.sort();
        let mut counting: Vec<_> = ids.iter().map(|id| records[id].park_token.clone()).collect();
        counting.sort();
        assert_eq!(parks, counting);
        assert_eq!(self.dead_letters_after_a_second().await.len(), ids.len());
    }
}

fn counts(swept: &Swept) -> (u64, u64, u64, u64) {
    (swept.received, swept.adopted, swept.removed, swept.kept)
}

fn typed() -> Attributes {
    let number = Value::Text("12345678901234567890.000001".into());
    let bytes = Value::Binary(vec![0x00, 0xff, 0x1e, 0x80]);
    Attributes::from([
        ("n".into(), Attribute { data_type: "Number.java.lang.Long".into(), value: number }),
        ("b".into(), Attribute { data_type: "Binary.gzip".into(), value: bytes }),
    ])
}

#[tokio::test(start_paused = true)]
async fn case_c9_what_sqs_moved_itself_is_adopted_whole_and_resolved_once() {
    let world = World::new();
    let id = world.send_with("fine \u{e9}", typed()).await;
    world.bury().await;
    let swept = world.sweep().await;
    // Its token is received in its turn, and kept.
    assert_eq!((counts(&swept), swept.errors), ((2, 1, 0, 1), vec![]));
    let record = world.record(&id);
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 0));
    assert_eq!(record.reason, Reason::ReceivesExhausted);
    assert_eq!(record.disposition, Disposition::Exhausted);
    assert_eq!((record.error_code.as_str(), record.attempts_total), ("RECEIVES_EXHAUSTED", 0));
    let envelope = world.envelope(&record);
    assert_eq!((envelope.payload.body.as_str(), &envelope.attributes), ("fine \u{e9}", &typed()));
    assert_eq!(envelope.message.message_id, id.as_str());
    let ids = [RecordId::from(&id)];
    world.assert_one_token_each(&ids).await;
    let token = world.dead_letters_after_a_second().await.remove(0);
    assert_eq!(token.dead_letter_source, None);
    assert_eq!(token.body, "fine \u{e9}");
    let rest: Attributes = token.attributes.into_iter().filter(|(n, _)| n != ATTRIBUTE).collect();
    assert_eq!(rest, typed());
    assert_eq!(world.redrive(patient()).await.counts.resolved, 1);
    assert_eq!((world.runs_of(&ids[0]), world.commits()), (1, 1));
    world.sweep().await;
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_bare_message_keeps_the_failures_that_its_entry_remembers() {
    let world = World::new();
    let id = world.send("never").await;
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("an attempt", || world.entries().iter().any(|e| !e.history.is_empty())).await;
    worker.crash().await;
    world.bury().await;
    assert_eq!(world.sweep().await.adopted, 1);
    let record = world.record(&id);
    assert_eq!(record.reason, Reason::ReceivesExhausted);
    assert_eq!(record.error_code.as_str(), "NEVER");
    assert_eq!(record.error_message, "try later");
    let attempts = world.entries()[0].attempts;
    assert_eq!(record.attempts_total, attempts);
    let history = world.envelope(&record).history;
    assert_eq!(history.last().map(|item| item.error_code.as_str()), Some("NEVER"));
}

#[tokio::test(start_paused = true)]
async fn trap_01_a_copy_whose_worker_died_is_adopted_as_that_copy() {
    let world = World::new();
    let ids = world.park(&["bad"]).await;
    world.send_copy().await;
    world.bury().await;
    let run = world.ledger.records()[&ids[0]].run_id.clone();
    let swept = world.sweep().await;
    assert_eq!((swept.adopted, swept.errors), (1, vec![]));
    let record = world.ledger.records()[&ids[0]].clone();
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 1));
    assert_eq!(record.run_id, run, "it failed again in its run");
    world.sweep().await;
    world.assert_one_token_each(&ids).await;
    assert_eq!(world.ledger.records().len(), 1, "under its own record");
    assert!(!world.envelope(&record).attributes.contains_key(ATTRIBUTE));
}

#[tokio::test(start_paused = true)]
async fn trap_24_a_copy_of_a_rescued_record_that_came_back_has_its_say() {
    let world = World::new();
    let ids = world.park(&["bad"]).await;
    world.send_copy().await;
    let token = ParkToken::generate(world.clock.wall(), &mut world.rng());
    let remember = world.settings.remember;
    world.act(&ids[0], Event::Rescue(token.clone()), remember).await;
    world.act(&ids[0], Event::TokenSent(token), remember).await;
    let rescued = world.ledger.records()[&ids[0]].clone();
    world.bury().await;
    assert_eq!(world.sweep().await.adopted, 1);
    let record = world.ledger.records()[&ids[0]].clone();
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 1));
    assert_eq!((rescued.blocked, record.blocked), (Some(Blocked::Rescued), None));
    assert_ne!(record.envelope, rescued.envelope);
    world.sweep().await;
    world.assert_one_token_each(&ids).await;
}

/// AWS's own button: everything in the DLQ goes to the source, under new ids.
async fn press_the_button(world: &World) {
    let name = world.dlq.name().clone();
    for message in world.dead_letters_after_a_second().await {
        let Received { body, attributes, group_id, .. } = message;
        let moved = Outgoing { body, attributes, group_id, ..Outgoing::default() };
        world.send_message(moved).await;
        world.engine.with(|engine, now| engine.delete(now, &name, &message.receipt)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn trap_02_a_redriven_token_that_came_back_is_no_token() {
    let world = World::new();
    let ids = world.park(&["bad"]).await;
    let before = world.ledger.records()[&ids[0]].park_token.clone();
    press_the_button(&world).await;
    world.bury().await;
    assert_eq!(world.sweep().await.adopted, 1);
    let record = world.ledger.records()[&ids[0]].clone();
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 1));
    assert_ne!(record.park_token, before);
    assert!(record.token_sent.is_some());
    world.assert_one_token_each(&ids).await;
    world.handler.set_fixed(true);
    assert_eq!(world.redrive(patient()).await.counts.resolved, 1);
    assert_eq!(world.runs_of(&ids[0]), 2);
}

#[tokio::test(start_paused = true)]
async fn trap_03_a_bare_message_is_left_while_its_key_is_worked_on_and_then_it_is_done() {
    let world = World::new();
    let bare = world.send("slow").await;
    world.bury().await;
    world.send("slow").await;
    let worker = world.worker(&Faults::new()).await;
    world.wait_until("a run", || !world.handler.runs().is_empty()).await;
    let swept = world.sweep_now(&Faults::new()).await;
    assert_eq!((counts(&swept), swept.bare, swept.errors), ((1, 0, 0, 1), 1, vec![]));
    world.wait_until("a commit", || world.commits() == 1).await;
    worker.stop().await;
    assert_eq!(counts(&world.sweep().await), (1, 0, 1, 0));
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0);
    assert_eq!((world.commits(), world.runs_of(&RecordId::from(&bare))), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn trap_04_a_bare_message_of_another_payload_under_a_committed_key_is_for_a_person() {
    let mut world = World::new();
    world.settings.strategy = "json:/id".parse::<KeyStrategy>().unwrap();
    let bare = world.send(r#"{"id":1,"do":"fine","v":2}"#).await;
    let nameless = world.send("no json").await;
    world.bury().await;
    world.send(r#"{"id":1,"do":"fine","v":1}"#).await;
    world.work(&Faults::new()).await;
    let before = world.entries();
    assert_eq!(world.sweep().await.adopted, 2);
    let record = world.record(&bare);
    assert_eq!(
        (record.error_code.as_str(), record.reason),
        ("PAYLOAD_MISMATCH", Reason::Validation)
    );
    let record = world.record(&nameless);
    assert_eq!(
        (record.error_code.as_str(), record.reason),
        ("IDENTITY_MISSING", Reason::Validation)
    );
    assert_eq!(world.entries(), before, "the sweep writes no entry");
}

#[tokio::test(start_paused = true)]
async fn trap_07_a_bare_leftover_whose_copy_has_committed_is_done() {
    let world = World::new();
    let id = world.send("bad").await;
    let faults = Faults::new();
    faults.at_call_of("queue.delete", 1, Fault::HangBefore);
    let worker = world.worker(&faults).await;
    world
        .wait_until("a delete", || faults.log().iter().any(|c| c.starts_with("queue.delete")))
        .await;
    worker.crash().await;
    let record = RecordId::from(&id);
    world.handler.set_fixed(true);
    // The leftover is hidden for its worker's visibility; the run is over before.
    world.redrive_of(&record, patient()).await;
    tokio::time::advance(Duration::from_secs(61)).await;
    world.bury().await;
    let swept = world.sweep().await;
    assert_eq!((swept.adopted, swept.kept), (0, 0), "{swept:?}");
    assert_eq!(world.record(&id).state, State::Resolved);
    assert_eq!(world.runs_of(&record), 2);
}

#[tokio::test(start_paused = true)]
async fn trap_12_a_leftover_of_a_finished_parking_is_deleted_and_its_token_stays() {
    let world = World::new();
    let id = world.send("bad").await;
    let faults = Faults::new();
    faults.at_call_of("queue.delete", 1, Fault::HangBefore);
    let worker = world.worker(&faults).await;
    world
        .wait_until("a delete", || faults.log().iter().any(|c| c.starts_with("queue.delete")))
        .await;
    worker.crash().await;
    let before = world.record(&id);
    tokio::time::advance(Duration::from_secs(31)).await;
    world.bury().await;
    assert_eq!(counts(&world.sweep().await), (2, 1, 0, 1));
    assert_eq!(world.record(&id), before);
    world.assert_one_token_each(&[RecordId::from(&id)]).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_an_unfinished_parking_whose_message_was_moved_is_finished() {
    let world = World::new();
    let id = world.send("bad").await;
    let faults = Faults::new();
    faults.at_call_of("queue.send orders-dlq", 1, Fault::HangAfter);
    let worker = world.worker(&faults).await;
    let is_sent = || faults.log().iter().any(|call| call == "queue.send orders-dlq");
    world.wait_until("a token", is_sent).await;
    worker.crash().await;
    let before = world.record(&id);
    tokio::time::advance(Duration::from_secs(31)).await;
    world.bury().await;
    world.sweep().await;
    let after = world.record(&id);
    assert_eq!(after.envelope, before.envelope, "no new evidence");
    assert_eq!((after.error_code.as_str(), after.state), ("BAD", State::Quarantined));
    world.sweep().await;
    world.assert_one_token_each(&[RecordId::from(&id)]).await;
}

fn ten_attributes() -> Attributes {
    (0..10).map(|i| (format!("a{i}"), Attribute::string(format!("\u{e9} {i}")))).collect()
}

#[tokio::test(start_paused = true)]
async fn trap_25_a_copy_that_came_back_as_a_pointer_is_adopted_by_its_original() {
    let world = World::new();
    let id = world.send_with("bad ten", ten_attributes()).await;
    world.work(&Faults::new()).await;
    world.send_copy().await;
    world.bury().await;
    let old = world.record(&id).envelope;
    assert_eq!(world.sweep().await.adopted, 1);
    let record = world.record(&id);
    assert_eq!((record.state, record.redrive_count), (State::Quarantined, 1));
    assert_ne!(record.envelope, old);
    let envelope = world.envelope(&record);
    assert_eq!(
        (envelope.payload.body.as_str(), envelope.attributes),
        ("bad ten", ten_attributes())
    );
    world.sweep().await;
    let left = world.dead_letters_after_a_second().await;
    assert_eq!(left.len(), 1);
    assert!(left[0].body.starts_with("{\"redrive\":"));
}

#[tokio::test(start_paused = true)]
async fn a_pointer_whose_envelope_cannot_be_read_is_left_and_reported() {
    let world = World::new();
    let id = world.send_with("bad ten", ten_attributes()).await;
    world.work(&Faults::new()).await;
    world.send_copy().await;
    world.bury().await;
    let before = world.record(&id);
    let faults = Faults::new();
    for k in 1..10 {
        faults.at_call_of("vault.get", k, Fault::FailBefore);
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    let swept = world.sweep_now(&faults).await;
    assert_eq!((swept.adopted, swept.errors.len()), (0, 1), "{swept:?}");
    assert_eq!(world.record(&id), before);
    assert_eq!(world.sweep().await.adopted, 1, "the next pass tries again");
}

#[tokio::test(start_paused = true)]
async fn trap_26_a_users_attribute_of_our_name_is_kept_by_adoption() {
    let world = World::new();
    let text = Attribute::string("a user's own");
    let attributes = Attributes::from([(ATTRIBUTE.to_owned(), text.clone())]);
    let id = world.send_with("bad", attributes).await;
    world.bury().await;
    assert_eq!(world.sweep().await.adopted, 1);
    let envelope = world.envelope(&world.record(&id));
    assert_eq!(envelope.attributes.get(ATTRIBUTE), Some(&text));
}

/// Another source of the same DLQ.
fn second_source(world: &World, name: &str) -> SimQueue {
    let dlq = world.dlq.name().clone();
    let arn = world.engine.with(|e, now| e.facts(now, &dlq)).unwrap().arn;
    let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}"#);
    let attributes = [("RedrivePolicy".to_owned(), policy)].into();
    let created = world.engine.with(|e, now| e.create_queue(now, name, &attributes, [].into()));
    SimQueue::new(world.engine.clone(), created.unwrap())
}

async fn send_to(queue: &SimQueue, body: &str, attributes: Attributes) -> MessageId {
    let message = Outgoing { body: body.into(), attributes, ..Outgoing::default() };
    queue.send(&[message]).await.unwrap().remove(0).unwrap().into_inner().message_id
}

#[tokio::test(start_paused = true)]
async fn trap_27_of_a_shared_dlq_only_our_own_is_touched_and_what_is_nobodys_is_reported() {
    let world = World::new();
    let [other, gone] = ["invoices", "gone"].map(|name| second_source(&world, name));
    let ours = world.send("bad").await;
    let theirs = send_to(&other, "theirs", Attributes::new()).await;
    let nobodys = send_to(&gone, "nobody's", Attributes::new()).await;
    for queue in [&world.source, &other, &gone] {
        world.bury_from(queue).await;
    }
    world.engine.with(|engine, _| engine.delete_queue(gone.name())).unwrap();
    let token = |queue: &str| {
        let text = format!(
            r#"{{"v":1,"t":"token","queue":"{queue}","record":"r","n":0,"sent_ms":1,"sha256":"{}",
            "park":"p","envelope":"e","code":"BAD","reason":"validation","parked_at_ms":1}}"#,
            redrive::domain::id::Sha256Hex::of(b"token"),
        );
        Attributes::from([(ATTRIBUTE.to_owned(), Attribute::string(text))])
    };
    let their_token = send_to(&world.dlq, "token", token("invoices")).await;
    let nobodys_token = send_to(&world.dlq, "token", token("gone")).await;
    let unsourced = send_to(&world.dlq, "by hand", Attributes::new()).await;
    let swept = world.sweep().await;
    assert_eq!((counts(&swept), swept.bare), ((7, 1, 0, 6), 5));
    let mut reported: Vec<_> = swept.errors.into_iter().map(|error| error.message_id).collect();
    reported.sort();
    let mut expected = vec![nobodys.clone(), nobodys_token.clone(), unsourced.clone()];
    expected.sort();
    assert_eq!(reported, expected);
    tokio::time::advance(Duration::from_secs(301)).await;
    let left = world.dead_letters();
    for id in [theirs, nobodys, their_token, nobodys_token, unsourced] {
        assert!(left.iter().any(|message| message.message_id == id), "{id} is there");
        assert!(!world.ledger.records().contains_key(&RecordId::from(&id)));
    }
    assert_eq!(world.record(&ours).state, State::Quarantined);
}

#[tokio::test(start_paused = true)]
async fn case_c11_a_message_without_a_source_is_of_the_only_source_or_left() {
    let world = World::new();
    let id = send_to(&world.dlq, "by hand", typed()).await;
    let swept = world.sweep().await;
    assert_eq!((swept.adopted, swept.errors), (1, vec![]));
    let record = world.record(&id);
    assert_eq!((record.state, record.reason), (State::Quarantined, Reason::Unknown));
    assert_eq!(world.envelope(&record).attributes, typed());
    // With a second source nobody knows whose it is.
    second_source(&world, "invoices");
    let id = send_to(&world.dlq, "by hand too", Attributes::new()).await;
    let swept = world.sweep().await;
    assert_eq!((swept.adopted, swept.errors.len()), (0, 1));
    assert!(!world.ledger.records().contains_key(&RecordId::from(&id)));
}

#[tokio::test(start_paused = true)]
async fn trap_28_a_dlq_in_which_all_is_kept_is_given_back() {
    let world = World::new();
    let ids = world.park_many(230).await;
    tokio::time::advance(Duration::from_secs(61)).await;
    let depth = world.depth(&world.dlq);
    let swept = world.sweep().await;
    assert_eq!((counts(&swept), swept.truncated), ((230, 0, 0, 230), false));
    assert_eq!(world.depth(&world.dlq), depth, "all of it, and at once");
    world.assert_one_token_each(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_long_pass_holds_stays_hidden_until_its_end() {
    let world = World::new();
    let tokens = world.park_many(5).await;
    tokio::time::advance(Duration::from_secs(61)).await;
    let mut bare = Vec::new();
    for i in 0..35 {
        bare.push(RecordId::from(&world.send(&format!("bare {i}")).await));
    }
    world.bury().await;
    let faults = Faults::new();
    for k in [1, 11, 21, 31] {
        faults.at_call_of("vault.put", k, Fault::Late(Duration::from_secs(20)));
    }
    let sweeper = world.sweeper(&faults, "sweeper");
    let started = tokio::time::Instant::now();
    let pass = tokio::spawn(async move {
        sweeper.pass(u64::MAX, &tokio_util::sync::CancellationToken::new()).await.unwrap()
    });
    world.wait_until("a full minute", || started.elapsed() > Duration::from_secs(60)).await;
    assert!(!pass.is_finished());
    let name = world.dlq.name().clone();
    let peek = ReceiveMessage { max: 10, ..ReceiveMessage::default() };
    let seen = world.engine.with(|engine, now| engine.receive(now, &name, &peek)).unwrap();
    let ours = |message: &Received| {
        tokens.iter().any(|id| {
            message
                .attributes
                .values()
                .any(|a| matches!(&a.value, Value::Text(text) if text.contains(id.as_str())))
        })
    };
    assert!(!seen.iter().any(ours), "held from the first batch on");
    let swept = pass.await.unwrap();
    assert_eq!((swept.adopted, swept.truncated), (35, false), "{swept:?}");
    let all: Vec<RecordId> = tokens.into_iter().chain(bare).collect();
    world.assert_one_token_each(&all).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lives_after_all_commits_once_and_the_redrive_finds_it_done() {
    let world = World::with_limits(1, 1_048_576);
    let id = RecordId::from(&world.send("fine").await);
    let paused = Faults::new();
    paused.at_call_of("ledger.put_entry", 2, Fault::Late(Duration::from_secs(100)));
    let worker = world.worker(&paused).await;
    let is_committing = || paused.log().iter().filter(|c| *c == "ledger.put_entry").count() == 2;
    world.wait_until("a commit", is_committing).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    world.bury().await;
    assert_eq!(world.sweep().await.adopted, 1);
    world.wait_until("a commit", || world.commits() == 1).await;
    worker.crash().await;
    world.assert_none_lost(std::slice::from_ref(&id)).await;
    assert_eq!(world.redrive(patient()).await.counts.duplicates, 0);
    assert_eq!(world.states(std::slice::from_ref(&id)), [State::Resolved]);
    assert_eq!((world.commits(), world.runs_of(&id)), (1, 1));
    world.sweep().await;
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn case_g3_a_fifo_dlq_is_adopted_with_group_and_order_whatever_sqs_did_to_its_ids() {
    let world = World::fifo();
    let mut sent = Vec::new();
    for (i, group) in ["a", "a", "b"].into_iter().enumerate() {
        let message = Outgoing {
            body: format!("bad {i}"),
            group_id: Some(group.into()),
            deduplication_id: Some(format!("producer-{i}")),
            ..Outgoing::default()
        };
        sent.push(world.send_message(message).await);
    }
    world.bury().await;
    let bare = world.dead_letters();
    tokio::time::advance(Duration::from_secs(2)).await;
    let swept = world.sweep().await;
    assert_eq!((swept.adopted, swept.errors), (3, vec![]));
    for (id, group) in sent.iter().zip(["a", "a", "b"]) {
        let record = world.record(id);
        let moved = bare.iter().find(|message| message.message_id == *id);
        assert_eq!(record.group_id.as_deref(), Some(group));
        if let Some(moved) = moved {
            assert_eq!(record.sequence, moved.sequence_number);
            assert_eq!(moved.deduplication_id.as_deref(), Some(id.as_str()));
        }
    }
    assert!(world.record(&sent[0]).sequence < world.record(&sent[1]).sequence);
    tokio::time::advance(Duration::from_secs(301)).await;
    let tokens = world.dead_letters();
    assert_eq!(tokens.len(), 3, "no token blocks another");
    for token in tokens {
        let id = sent.iter().find(|id| token.group_id.as_deref() == Some(id.as_str())).unwrap();
        let park = world.record(id).park_token;
        let hash = redrive::domain::id::Sha256Hex::of(park.as_str().as_bytes());
        assert_eq!(token.deduplication_id, Some(hash.to_string()));
    }
}
