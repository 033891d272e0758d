//! Trap 13, between the ledger and the token: what happens to the record before its message is back.

use std::time::Duration;

use redrive::domain::id::{MessageId, RecordId};
use redrive::domain::record::{Blocked, State};
use redrive::domain::run::State as RunState;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::sim::fault::{Fault, Faults};

use crate::executor::patient;
use crate::world::World;

fn marked(world: &World, id: &MessageId) -> bool {
    let records = world.ledger.records();
    records.get(&RecordId::from(id)).is_some_and(|record| record.token_sent.is_some())
}

/// A worker that parks a message and dies at its token, which gets out or not.
async fn parked_and_dead(world: &World, fault: Fault) -> RecordId {
    let id = RecordId::from(&world.send("bad").await);
    let faults = Faults::new();
    faults.at_call_of("queue.send orders-dlq", 1, fault);
    let worker = world.worker(&faults).await;
    let is_sending = || faults.log().iter().any(|call| call == "queue.send orders-dlq");
    world.wait_until("the token", is_sending).await;
    worker.crash().await;
    let record = &world.ledger.records()[&id];
    assert_eq!((record.state, record.token_sent), (State::Quarantined, None));
    id
}

#[tokio::test(start_paused = true)]
async fn a_record_taken_before_its_token_comes_back_with_it() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let world = World::new();
        let id = parked_and_dead(&world, fault).await;
        let park = world.ledger.records()[&id].park_token.clone();
        // A run takes the record; its send takes its time, and is refused.
        let faults = Faults::new();
        faults.at_call_of("queue.send orders", 1, Fault::Late(Duration::from_secs(300)));
        world.spy.refuse(&id, 1);
        let executor = world.start(&world.redriver(&faults, "executor"), patient()).await;
        let states = || world.states(std::slice::from_ref(&id));
        world.wait_until("a taken record", || states() == [State::Redriving]).await;
        // Meanwhile the message is back, and another worker finds that its record has moved on.
        world.work(&Faults::new()).await;
        assert_eq!((states(), world.spy.sends_of(&id)), (vec![State::Redriving], 0), "{fault:?}");
        let run = executor.end().await.unwrap();
        assert_eq!((run.state, run.counts.errored), (RunState::Completed, 1), "{fault:?}");
        world.sweep().await;
        let record = world.ledger.records()[&id].clone();
        assert_eq!((record.state, record.redrive_count), (State::Quarantined, 0), "{fault:?}");
        assert_eq!((record.blocked, &record.park_token), (Some(Blocked::Refused), &park));
        world.assert_none_lost(std::slice::from_ref(&id)).await;
        assert!(record.token_sent.is_some(), "{fault:?}: marked though the record was redriving");
        assert_eq!(world.runs_of(&id), 1, "{fault:?}");
        // Another run brings it home, and all its tokens go.
        world.handler.set_fixed(true);
        assert_eq!(world.redrive(patient()).await.counts.resolved, 1, "{fault:?}");
        world.sweep().await;
        assert_eq!(world.dead_letters_after_a_second().await.len(), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_is_done_takes_the_record_of_its_unfinished_parking_along() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let world = World::new();
        let id = parked_and_dead(&world, fault).await;
        world.handler.set_fixed(true);
        let again = RecordId::from(&world.send("bad").await);
        world.work(&Faults::new()).await;
        let record = world.ledger.records()[&id].clone();
        assert_eq!((record.state, record.duplicate_of), (State::Resolved, Some(again)));
        assert_eq!((world.commits(), world.runs_of(&id)), (1, 1), "{fault:?}");
        world.sweep().await;
        assert_eq!(world.dead_letters_after_a_second().await.len(), 0, "{fault:?}");
        world.assert_none_lost(std::slice::from_ref(&id)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_parking_that_is_finished_but_for_its_delete_issues_no_second_token() {
    let world = World::new();
    let id = world.send("bad").await;
    let faults = Faults::new();
    faults.at_call_of("queue.delete", 1, Fault::HangBefore);
    let worker = world.worker(&faults).await;
    world.wait_until("a mark", || marked(&world, &id)).await;
    let before = world.record(&id).park_token;
    worker.crash().await;
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(std::slice::from_ref(&id));
    assert_eq!(world.record(&id).park_token, before);
    assert_eq!(world.dead_letters_after_a_second().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_parker_whose_token_was_replaced_leaves_the_message_to_the_other() {
    let world = World::new();
    let id = world.send("bad").await;
    // The first sends its token, and is paused before the mark until its visibility is long over.
    let paused = Faults::new();
    paused.at_call_of("queue.change_visibility", 1, Fault::Late(Duration::from_secs(45)));
    paused.at_call_of("ledger.put_record", 1, Fault::Late(Duration::from_secs(45)));
    let first = world.worker(&paused).await;
    world.wait_until("the mark", || paused.log().iter().any(|c| c == "ledger.put_record")).await;
    let before = world.record(&id).park_token;
    // The second replaces the token and dies before it sends its own.
    let dying = Faults::new();
    dying.at_call_of("queue.send", 1, Fault::HangBefore);
    let second = world.worker(&dying).await;
    world.wait_until("a new token", || world.record(&id).park_token != before).await;
    second.crash().await;
    // The first wakes. Were it to delete the message, only an outdated token would stand for the record.
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    assert_eq!(first.stop().await, Ending::Drained);
    world.assert_nothing_lost(std::slice::from_ref(&id));
    assert!(marked(&world, &id));
}
