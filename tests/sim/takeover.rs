//! Faults at every call of an executor's life: what another executor finds and brings to its end.

use std::time::Duration;

use redrive::domain::id::{ParkToken, RecordId};
use redrive::domain::record::{Event, State};
use redrive::domain::run::{Counts, RunError, State as RunState};
use redrive::port::clock::Clock as _;
use redrive::port::queue::Depth;
use redrive::service::redrive::RedriveError;
use redrive::sim::fault::{Fault, Faults};

use crate::bound::assert_doubt;
use crate::executor::{LEASE, live, patient};
use crate::world::World;

/// Records of one life: a canary and a batch after it.
const RECORDS: usize = 7;

/// Whether the fix works.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fix {
    Works,
    DoesNotHelp,
}

/// Brings what a dead executor left to its end: its run, or a new one if it opened none.
async fn recover(world: &World) {
    let redriver = world.redriver(&Faults::new(), "heir");
    let runs = world.ledger.all_runs();
    if runs.values().any(|run| run.state.is_open()) {
        world.resume(&redriver).await.end().await.unwrap();
    } else if runs.is_empty() {
        world.start(&redriver, patient()).await.end().await.unwrap();
    }
}

/// One life with a fault at its `k`-th call. Says whether there was such a call.
async fn survives(fault: Fault, k: usize, fix: Fix) -> bool {
    let world = World::new();
    let ids = world.park_many(RECORDS).await;
    world.handler.set_fixed(fix == Fix::Works);
    let worker = world.worker(&Faults::new()).await;
    let faults = Faults::new();
    faults.at(k, fault);
    let life = live(world.redriver(&faults, "first"), patient(), world.rng());
    let hangs = matches!(fault, Fault::HangBefore | Fault::HangAfter);
    let reached = || hangs && faults.log().len() >= k;
    world.wait_until("the end of its life", || reached() || life.is_over()).await;
    let met = faults.log().len() >= k;
    if met && hangs {
        life.crash().await;
        recover(&world).await;
    } else if life.end().await.is_err() {
        recover(&world).await;
    }
    world.wait_until("an empty source", || world.depth(&world.source) == Depth::default()).await;
    worker.stop().await;
    let call = faults.log().get(k - 1).cloned().unwrap_or_default();
    let at = format!("{fault:?} at {k}, {call}, {fix:?}");
    assert_brought_to_its_end(&world, &ids, fix, &at).await;
    met
}

async fn assert_brought_to_its_end(world: &World, ids: &[RecordId], fix: Fix, at: &str) {
    let sent = world.spy.copies().len();
    assert!(world.spy.copies().iter().all(|copy| copy.n == 1), "{at}");
    assert!(ids.iter().all(|id| world.spy.sends_of(id) <= 2), "{at}");
    assert!(sent - RECORDS <= 5, "{at}: more than a batch was sent again");
    assert_doubt(&world.spy.batches(), 5);
    let (state, tokens) = match fix {
        Fix::Works => (State::Resolved, 0),
        Fix::DoesNotHelp => (State::Quarantined, RECORDS),
    };
    assert_eq!(world.states(ids), [state; RECORDS], "{at}");
    assert!(world.ledger.records().values().all(|record| record.redrive_count == 1), "{at}");
    if fix == Fix::Works {
        assert_eq!(world.commits(), RECORDS, "{at}");
        assert!(ids.iter().all(|id| world.runs_of(id) == 2), "{at}: parked once, committed once");
    }
    let runs = world.ledger.all_runs();
    assert_eq!(runs.len(), 1, "{at}");
    for run in runs.into_values() {
        let all = RECORDS as u64;
        let expected = match fix {
            Fix::Works => Counts { resolved: all, ..Counts::NONE },
            Fix::DoesNotHelp => Counts { failed_again: all, ..Counts::NONE },
        };
        let expected = Counts { planned: all, sent: all, ..expected };
        assert_eq!(run.state, RunState::Completed, "{at}");
        assert_eq!((run.counts, world.report(&run.id).await.counts), (expected, expected), "{at}");
    }
    world.sweep().await;
    assert_eq!(world.dead_letters_after_a_second().await.len(), tokens, "{at}");
    world.assert_none_lost(ids).await;
}

async fn survives_everywhere(fault: Fault) {
    for fix in [Fix::Works, Fix::DoesNotHelp] {
        let mut k = 1;
        while survives(fault, k, fix).await {
            k += 1;
        }
        assert!(k > 40, "a life has more calls than {k}");
    }
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_crash_before_each_call_of_an_executor_is_brought_to_its_end() {
    survives_everywhere(Fault::HangBefore).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_crash_after_each_call_of_an_executor_is_brought_to_its_end() {
    survives_everywhere(Fault::HangAfter).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_lost_answer_of_each_call_of_an_executor_changes_nothing() {
    survives_everywhere(Fault::LostAnswer).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_a_failure_of_each_call_of_an_executor_changes_nothing() {
    survives_everywhere(Fault::FailBefore).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_sweep_costs_an_executor_neither_its_lease_nor_its_batch() {
    let world = World::new();
    world.park_many(RECORDS).await;
    world.handler.set_fixed(true);
    // A first executor dies with a batch in hand; the heir's first sweep then takes minutes.
    let faults = Faults::new();
    faults.at_call_of("queue.send", 1, Fault::HangBefore);
    let first = world.start(&world.redriver(&faults, "first"), patient()).await;
    world.wait_until("a batch", || faults.log().iter().any(|c| c == "queue.send orders")).await;
    first.crash().await;
    let faults = Faults::new();
    faults.at_call_of("queue.receive", 1, Fault::Late(8 * LEASE));
    let heir = world.resume(&world.redriver(&faults, "heir")).await;
    let is_sweeping = || faults.log().iter().any(|call| call == "queue.receive orders-dlq");
    world.wait_until("a sweep", is_sweeping).await;
    let third = world.redriver(&Faults::new(), "third");
    for _ in 0..7 {
        tokio::time::timeout(LEASE, std::future::pending::<()>()).await.unwrap_err();
        let run = third.find(None).await.unwrap().unwrap();
        let refused = third.claim(run.get()).await.unwrap_err();
        assert!(matches!(refused, RedriveError::Refused { why: RunError::Held { .. }, .. }));
    }
    let worker = world.worker(&Faults::new()).await;
    let run = heir.end().await.unwrap();
    worker.stop().await;
    assert_eq!(world.report(&run.id).await.counts.resolved, RECORDS as u64);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_long_sweep_early_with_everything_given_back() {
    let world = World::new();
    world.park_many(100).await;
    let faults = Faults::new();
    for k in 1..=20 {
        faults.at_call_of("queue.receive", k, Fault::Late(LEASE));
    }
    let executor = world.start(&world.redriver(&faults, "executor"), patient()).await;
    let began = world.clock.mono();
    tokio::time::timeout(LEASE * 2, std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(executor.stop().await.state, RunState::Paused);
    assert!(world.clock.mono().since(began) <= LEASE * 3);
    assert_eq!(world.depth(&world.dlq).visible, 100);
    assert!(world.spy.copies().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_lies_ahead_of_a_takeover_is_judged_when_its_turn_comes() {
    let world = World::new();
    let ids = world.park_many(12).await;
    world.handler.set_fixed(true);
    world.handler.set_takes(Duration::from_secs(40));
    let worker = world.worker(&Faults::new()).await;
    let first = world.start(&world.redriver(&Faults::new(), "first"), patient()).await;
    world.wait_until("the canary", || world.spy.copies().len() == 5).await;
    first.crash().await;
    let ahead = ids.iter().find(|id| world.spy.sends_of(id) == 0).unwrap();
    world.act(ahead, Event::Discard, Duration::ZERO).await;
    let heir = world.resume(&world.redriver(&Faults::new(), "heir")).await;
    // The heir has read the plan's records; its canary is still out.
    world.wait_until("a tick", || !heir.progress().is_empty()).await;
    let token = ParkToken::new("restored").unwrap();
    world.act(ahead, Event::Restore(token), Duration::ZERO).await;
    let run = heir.end().await.unwrap();
    worker.stop().await;
    assert_doubt(&world.spy.batches(), 5);
    let counts = world.report(&run.id).await.counts;
    assert_eq!(counts, Counts { planned: 12, sent: 12, resolved: 12, ..Counts::NONE });
    assert_eq!(run.counts, counts, "the executor saw the same");
}
