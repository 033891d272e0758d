//! Traps 5, 35 and 37: what is parked as a mismatch runs only when it is forced, and once; and what cannot
//! be sent stays where it is.

use std::time::Duration;

use redrive::domain::dispatch::{Dispatch, Feedback};
use redrive::domain::id::RecordId;
use redrive::domain::message::{Attribute, Attributes};
use redrive::domain::record::{Blocked, State};
use redrive::domain::run::{Counts, State as RunState};
use redrive::service::redrive::Report;
use redrive::sim::fault::{Fault, Faults};

use crate::executor::{patient, policy};
use crate::world::World;

const DAY: Duration = Duration::from_secs(86_400);

fn forced() -> Dispatch {
    Dispatch { force: true, ..Dispatch::default() }
}

/// A world keyed by `/id` in which 6 was committed, and 5 under the same key is parked as a mismatch.
async fn mismatched() -> (World, RecordId) {
    let mut world = World::new();
    world.settings.strategy = "json:/id".parse().unwrap();
    world.handler.set_fixed(true);
    world.send(r#"{"id":1,"amount":6}"#).await;
    world.work(&Faults::new()).await;
    tokio::time::advance(DAY).await;
    let ids = world.park(&[r#"{"id":1,"amount":5}"#]).await;
    let record = world.ledger.records()[&ids[0]].clone();
    assert_eq!(record.error_code.as_str(), "PAYLOAD_MISMATCH");
    (world, ids[0].clone())
}

/// Runs a whole run with a worker beside it, its copies sent so.
async fn redrive_as(world: &World, dispatch: Dispatch) -> Report {
    let redriver = world.redriver(&Faults::new(), "executor");
    let worker = world.worker(&Faults::new()).await;
    let run = world.start_as(&redriver, policy(), dispatch).await.end().await.unwrap();
    worker.stop().await;
    redriver.report(&run).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn trap_05_a_mismatch_runs_only_when_it_is_forced_and_un_commits_nothing() {
    let (world, id) = mismatched().await;
    let before = world.entries();
    assert_eq!(world.commits(), 1, "the parking left the commit alone");
    let report = redrive_as(&world, Dispatch::default()).await;
    assert_eq!((report.counts.failed_again, world.runs_of(&id)), (1, 0));
    assert_eq!(world.entries(), before);
    let report = redrive_as(&world, forced()).await;
    assert_eq!((report.counts.resolved, report.counts.duplicates), (1, 0));
    assert_eq!((world.runs_of(&id), world.commits()), (1, 2));
    let forces: Vec<bool> = world.spy.copies().iter().map(|copy| copy.force).collect();
    assert_eq!(forces, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn trap_35_two_forced_redrives_with_a_lost_answer_between_commit_once() {
    let (world, id) = mismatched().await;
    // The first copy gets through unanswered, and SQS refuses it when it is sent again.
    let faults = Faults::new();
    faults.at_call_of("queue.send", 1, Fault::LostAnswer);
    world.spy.refuse(&id, 2);
    let first = world.start_as(&world.redriver(&faults, "one"), policy(), forced()).await;
    assert_eq!(first.end().await.unwrap().counts.errored, 1);
    let second = world.start_as(&world.redriver(&Faults::new(), "two"), policy(), forced()).await;
    world.wait_until("the second copy", || world.spy.sends_of(&id) == 3).await;
    assert_eq!(world.depth(&world.source).visible, 2);
    let worker = world.worker(&Faults::new()).await;
    let run = second.end().await.unwrap();
    world.wait_until("an empty source", || world.depth(&world.source).visible == 0).await;
    worker.stop().await;
    assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 1));
    assert_eq!((world.runs_of(&id), world.commits()), (1, 2), "its own and the other payload's");
    assert_eq!(world.states(&[id]), [State::Resolved]);
}

#[tokio::test(start_paused = true)]
async fn trap_37_what_is_found_unsendable_stays_quarantined_named_and_untaken() {
    let world = World::new();
    let ten: Attributes = (0..10).map(|i| (format!("a{i}"), Attribute::string("x"))).collect();
    let full = RecordId::from(&world.send_with("bad full", ten).await);
    let ids = world.park(&["bad rotten", "bad fine"]).await;
    let key = world.ledger.records()[&ids[0]].envelope.clone();
    assert!(world.vault.rot(&key, None));
    // The consumer is another's: it cannot read pointers, and says nothing.
    let dispatch = Dispatch { feedback: Feedback::Queue, ..Dispatch::default() };
    world.handler.set_fixed(true);
    let report = redrive_as(&world, dispatch).await;
    assert_eq!(report.run.state, RunState::Completed);
    let expected = Counts { planned: 3, sent: 1, resolved: 1, errored: 2, ..Counts::NONE };
    assert_eq!(report.counts, expected);
    for (id, why) in [(&full, Blocked::Refused), (&ids[0], Blocked::Unreadable)] {
        let record = world.ledger.records()[id].clone();
        assert_eq!((record.state, record.redrive_count), (State::Quarantined, 0));
        assert_eq!((record.blocked, world.spy.sends_of(id)), (Some(why), 0));
        let named = report.troubles.iter().find(|trouble| trouble.record_id == *id);
        assert_eq!(named.map(|trouble| trouble.kind), Some(why.name()));
    }
    // Our own workers read pointers.
    assert_eq!(world.redrive_of(&full, patient()).await.counts.resolved, 1);
}
