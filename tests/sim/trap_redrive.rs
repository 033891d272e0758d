//! Traps 12, 16, 22, 23 and 33: records that come back, that are nobody's any more, that cannot be sent, and
//! that were done already.

use std::time::Duration;

use bytes::Bytes;
use redrive::domain::id::{ParkToken, RecordId};
use redrive::domain::message::Outgoing;
use redrive::domain::record::{Blocked, Event, State};
use redrive::domain::run::{Counts, State as RunState};
use redrive::port::clock::Clock as _;
use redrive::port::ledger::Ledger as _;
use redrive::port::queue::Depth;
use redrive::port::vault::Vault as _;
use redrive::sim::fault::{Fault, Faults};

use crate::bound::assert_doubt;
use crate::executor::{patient, policy};
use crate::world::World;

fn counting_tokens(world: &World) -> usize {
    let records = world.ledger.records();
    let counts =
        |token: &redrive::domain::token::Token| records[&token.record].park_token == token.park;
    world.tokens().iter().filter(|token| counts(token)).count()
}

#[tokio::test(start_paused = true)]
async fn trap_12_a_second_parking_while_the_first_token_is_there_leaves_one_that_counts() {
    let world = World::new();
    let ids = world.park_many(3).await;
    let worker = world.worker(&Faults::new()).await;
    // The executor dies before it sweeps: both tokens of each record are in the DLQ.
    let faults = Faults::new();
    let sweeps = || faults.log().iter().filter(|call| *call == "runs.unlock_sweep").count();
    let executor = world.start(&world.redriver(&faults, "executor"), policy()).await;
    world.wait_until("the first sweep", || sweeps() == 1).await;
    let again = |id: &RecordId| {
        let record = &world.ledger.records()[id];
        record.state == State::Quarantined && record.redrive_count == 1
    };
    world.wait_until("the second parking", || ids.iter().all(again)).await;
    executor.crash().await;
    assert_eq!((world.dead_letters_after_a_second().await.len(), sweeps()), (6, 1));
    world.dead_letters_after_a_second().await;
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(counting_tokens(&world), 3);
    let swept = world.sweep().await;
    assert_eq!((swept.removed, swept.kept), (3, 3));
    assert_eq!(counting_tokens(&world), 3);
    worker.stop().await;
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn trap_12_a_sweep_between_the_second_parking_and_its_token_loses_nothing() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let world = World::new();
        let ids = world.park_many(1).await;
        let faults = Faults::new();
        faults.at_call_of("queue.send", 1, fault);
        let worker = world.worker(&faults).await;
        let redriver = world.redriver(&Faults::new(), "executor");
        let executor = world.start(&redriver, patient()).await;
        let is_sending = || faults.log().iter().any(|call| call == "queue.send orders-dlq");
        world.wait_until("the second token", is_sending).await;
        worker.crash().await;
        executor.end().await.unwrap();
        world.sweep().await;
        // The copy is still in the source: its next delivery finishes the parking.
        world.work(&Faults::new()).await;
        world.assert_none_lost(&ids).await;
        let runs = world.runs_of(&ids[0]);
        assert_eq!(runs, 2, "{fault:?}: parked, failed again, and then only finished");
        world.sweep().await;
        assert_eq!((world.tokens().len(), counting_tokens(&world)), (1, 0), "hidden by the look");
    }
}

#[tokio::test(start_paused = true)]
async fn trap_16_on_fifo_queues_tokens_are_new_each_time_and_a_copy_sent_again_is_one() {
    let world = World::fifo();
    let mut ids = Vec::new();
    for i in 0..3 {
        let message = Outgoing {
            body: format!("bad {i}"),
            group_id: Some(format!("group-{i}")),
            deduplication_id: Some(format!("{i}")),
            ..Outgoing::default()
        };
        ids.push(RecordId::from(&world.send_message(message).await));
    }
    // All within five minutes: a token, and the same parking finished again after a crash.
    let faults = Faults::new();
    faults.at_call_of("queue.send orders-dlq.fifo", 1, Fault::HangAfter);
    let worker = world.worker(&faults).await;
    world.wait_until("the tokens", || world.depth(&world.dlq).visible == 3).await;
    worker.crash().await;
    world.work(&Faults::new()).await;
    assert!(world.depth(&world.dlq).visible > 3, "tokens of parkings that were finished again");
    // Copies whose answer is lost, failures, and second tokens.
    for n in 1..=2 {
        let faults = Faults::new();
        faults.at_call_of("queue.send", 1, Fault::LostAnswer);
        let redriver = world.redriver(&faults, "executor");
        let executor = world.start(&redriver, patient()).await;
        world.wait_until("the resend", || world.spy.copies().len() == n * 6).await;
        let waiting = world.depth(&world.source);
        assert_eq!(waiting.visible + waiting.in_flight, 3, "SQS takes each copy once");
        let worker = world.worker(&Faults::new()).await;
        assert_eq!(executor.end().await.unwrap().counts.failed_again, 3);
        worker.stop().await;
        let swept = world.sweep().await;
        assert_eq!(swept.kept, 3, "the last token of each record is there, and no other");
        world.assert_none_lost(&ids).await;
    }
    world.handler.set_fixed(true);
    assert_eq!(world.redrive(patient()).await.counts.resolved, 3);
    assert_eq!(world.commits(), 3);
}

/// Two copies of one record in the source, and the record is not the run's any more: an operator has
/// resolved it, and, if `is_gone`, it has expired since.
async fn orphaned_copies(is_gone: bool) -> (World, RecordId) {
    let world = World::new();
    let ids = world.park_many(1).await;
    let faults = Faults::new();
    faults.at_call_of("queue.send", 1, Fault::LostAnswer);
    let executor = world.start(&world.redriver(&faults, "executor"), policy()).await;
    world.wait_until("a redriven record", || world.states(&ids) == [State::Redriven]).await;
    let token = ParkToken::new("rescued").unwrap();
    world.act(&ids[0], Event::Rescue(token), Duration::ZERO).await;
    let half_a_minute = Duration::from_secs(30);
    let remember = if is_gone { half_a_minute } else { world.settings.remember };
    world.act(&ids[0], Event::Resolve, remember).await;
    let run = executor.end().await.unwrap();
    assert_eq!(run.state, RunState::Completed);
    // Its token went with the run's last sweep, so that no sweep rebuilds the record.
    assert_eq!(world.depth(&world.dlq), Depth::default());
    tokio::time::advance(2 * half_a_minute).await;
    let record = world.ledger.record(&ids[0], world.hosts.wall()).await.unwrap();
    assert_eq!((record.is_none(), world.depth(&world.source).visible), (is_gone, 2));
    (world, ids[0].clone())
}

#[tokio::test(start_paused = true)]
async fn trap_22_copies_of_a_record_that_is_nobodys_commit_their_entry_once() {
    for is_gone in [false, true] {
        let (world, id) = orphaned_copies(is_gone).await;
        world.handler.set_fixed(true);
        world.work(&Faults::new()).await;
        assert_eq!((world.commits(), world.runs_of(&id)), (1, 2), "gone: {is_gone}");
        world.sweep().await;
        world.handler.set_fixed(false);
        // Nothing is blocked: the same content, a day later, is work like any other.
        tokio::time::advance(Duration::from_secs(86_400)).await;
        let another = world.park(&["bad 0"]).await;
        assert_eq!(world.runs_of(&another[0]), 1);
        world.assert_none_lost(&another).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_22_copies_of_a_record_that_is_nobodys_may_fail() {
    for is_gone in [false, true] {
        let (world, id) = orphaned_copies(is_gone).await;
        world.work(&Faults::new()).await;
        world.sweep().await;
        let record = world.ledger.records()[&id].clone();
        let expected = if is_gone { State::Quarantined } else { State::Resolved };
        assert_eq!((record.state, record.redrive_count), (expected, 1), "gone: {is_gone}");
        world.assert_none_lost(&[id]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_23_refused_copies_are_errored_untaken_again_and_do_not_trip() {
    let world = World::new();
    let ids = world.park_many(12).await;
    for id in &ids[..8] {
        world.spy.refuse(id, 1);
    }
    world.handler.set_fixed(true);
    let report = world.redrive(policy()).await;
    assert_eq!(report.run.state, RunState::Completed);
    let expected = Counts { planned: 12, sent: 4, resolved: 4, errored: 8, ..Counts::NONE };
    assert_eq!((report.counts, report.run.counts), (expected, expected));
    assert!(report.troubles.iter().all(|trouble| trouble.kind == "refused"));
    assert!(ids.iter().all(|id| world.spy.sends_of(id) == 1), "not taken again");
    for id in &ids[..8] {
        let record = &world.ledger.records()[id];
        assert_eq!((record.state, record.redrive_count), (State::Quarantined, 0));
        assert_eq!(record.blocked, Some(Blocked::Refused));
    }
    world.assert_none_lost(&ids).await;
    let next = world.redrive(policy()).await;
    assert_eq!((next.counts.planned, next.counts.resolved), (8, 8));
    let again = world.report(&report.run.id).await;
    assert_eq!(again.counts, expected, "a later run does not change what this one says");
}

#[tokio::test(start_paused = true)]
async fn trap_23_a_source_that_takes_only_small_messages_refuses_the_large_alone() {
    let world = World::new();
    let large = format!("bad {}", "x".repeat(3_000));
    let ids = world.park(&["bad small", &large]).await;
    let queue = redrive::port::queue::Queue::name(&world.source).clone();
    let limit = [("MaximumMessageSize".to_owned(), "2048".to_owned())].into();
    world.engine.with(|e, now| e.set_attributes(now, &queue, &limit)).unwrap();
    world.handler.set_fixed(true);
    let report = world.redrive(policy()).await;
    assert_eq!((report.counts.resolved, report.counts.errored), (1, 1));
    assert_eq!(world.states(&ids), [State::Resolved, State::Quarantined]);
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn trap_23_unreadable_envelopes_are_errored_untaken_again_and_do_not_trip() {
    for all in [false, true] {
        let world = World::new();
        let ids = world.park_many(6).await;
        let rotten: Vec<_> = ids.iter().take(if all { 6 } else { 2 }).collect();
        let mut whole = Vec::new();
        for (i, id) in rotten.iter().enumerate() {
            let key = world.ledger.records()[*id].envelope.clone();
            let bytes = world.vault.objects()[&key].clone();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let rot = match i % 3 {
                0 => None,
                1 => Some(Bytes::from_static(b"{\"schema_version\":1")),
                _ => Some(text.replace("\"body\":\"", "\"body\":\"not ").into()),
            };
            assert!(world.vault.rot(&key, rot));
            whole.push((key, bytes));
        }
        world.handler.set_fixed(true);
        let report = world.redrive(policy()).await;
        assert_eq!(report.run.state, RunState::Completed);
        let (bad, good) = (rotten.len() as u64, (6 - rotten.len()) as u64);
        let expected =
            Counts { planned: 6, sent: good, resolved: good, errored: bad, ..Counts::NONE };
        assert_eq!((report.counts, report.run.counts), (expected, expected));
        assert!(report.troubles.iter().all(|trouble| trouble.kind == "unreadable"));
        assert!(rotten.iter().all(|id| world.spy.sends_of(id) == 0));
        // Mended, they go in another run; what this run says stays.
        for (key, bytes) in whole {
            world.vault.rot(&key, None);
            assert!(world.vault.put(&key, bytes).await.is_ok());
        }
        let next = world.redrive(policy()).await;
        assert_eq!((next.counts.planned, next.counts.resolved), (bad, bad));
        assert_eq!(world.report(&report.run.id).await.counts, expected, "all: {all}");
        world.assert_none_lost(&ids).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_33_a_run_of_duplicates_gains_no_credit_and_ends() {
    let world = World::new();
    let ids = world.park_many(40).await;
    tokio::time::advance(Duration::from_secs(86_400)).await;
    world.handler.set_fixed(true);
    for i in 0..40 {
        world.send(&format!("bad {i}")).await;
    }
    world.work(&Faults::new()).await;
    let runs = world.handler.runs().len();
    let report = world.redrive(patient()).await;
    assert_eq!(report.run.state, RunState::Completed);
    let expected = Counts { planned: 40, sent: 40, resolved: 40, duplicates: 40, ..Counts::NONE };
    assert_eq!(report.counts, expected);
    assert_eq!(assert_doubt(&world.spy.batches(), 5), 5, "the window stays the canary's");
    assert_eq!((world.handler.runs().len(), world.commits()), (runs, 40));
    assert_eq!(world.states(&ids), [State::Resolved; 40]);
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0);
}
