//! What operators do: each move in each state, against runs and sweeps, and crashes between the steps; and
//! what they ask of a run.

use std::sync::Arc;
use std::time::Duration;

use redrive::domain::id::{EnvelopeKey, RecordId};
use redrive::domain::record::{Blocked, State};
use redrive::domain::run::State as RunState;
use redrive::domain::selection::Selection;
use redrive::port::clock::Clock as _;
use redrive::service::audit::By;
use redrive::service::operate::{Move, MoveError, Moved, Mover};
use redrive::service::redrive::Wish;
use redrive::service::scope::Scope;
use redrive::sim::fault::{Fault, FaultLedger, FaultQueue, FaultRuns, FaultVault, Faults};
use tokio_util::sync::CancellationToken;

use crate::executor::{LEASE, patient, policy};
use crate::world::World;

fn by() -> By {
    By { operator: "operator".into(), note: Some("because".into()) }
}

fn named(ids: &[RecordId]) -> Scope {
    let selection = Selection { records: ids.to_vec(), ..Selection::default() };
    Scope { selection, ..Scope::default() }
}

impl World {
    fn mover(&self, faults: &Faults) -> Mover {
        Mover {
            source: redrive::port::queue::Queue::name(&self.source).clone(),
            dlq: Arc::new(FaultQueue::new(Arc::new(self.dlq.clone()), faults.clone())),
            dlq_max_bytes: 1_048_576,
            vault: Arc::new(FaultVault::new(self.vault.clone(), faults.clone())),
            ledger: Arc::new(FaultLedger::new(self.ledger.clone(), faults.clone())),
            runs: Arc::new(FaultRuns::new(self.ledger.clone(), faults.clone())),
            clock: self.hosts.clone(),
            prefix: self.settings.prefix.clone(),
            remember: self.settings.remember,
        }
    }

    async fn operate(&self, act: Move, scope: Scope) -> Moved {
        let mover = self.mover(&Faults::new());
        let selected = mover.select(act, scope).await.unwrap();
        let stop = CancellationToken::new();
        mover.carry_out(&selected, &by(), &mut self.rng(), &stop).await.unwrap()
    }

    /// The acts written down, in the order of their keys.
    fn audited(&self, act: &str) -> Vec<serde_json::Value> {
        let objects = self.vault.objects();
        let is_one = |key: &EnvelopeKey| {
            key.as_str().starts_with("audit/") && key.as_str().ends_with(&format!("-{act}.json"))
        };
        let acts = objects.iter().filter(|(key, _)| is_one(key));
        acts.map(|(_, bytes)| serde_json::from_slice(bytes).unwrap()).collect()
    }

    /// A record that is redriven, its copy lost, its run aborted.
    async fn lost_in_flight(&self) -> RecordId {
        let ids = self.park_many(1).await;
        let redriver = self.redriver(&Faults::new(), "executor");
        let executor = self.start(&redriver, policy()).await;
        self.wait_until("a redriven record", || self.states(&ids) == [State::Redriven]).await;
        self.engine
            .with(|e, now| e.purge_queue(now, redrive::port::queue::Queue::name(&self.source)))
            .unwrap();
        let run = redriver.find(None).await.unwrap().unwrap().into_inner();
        redriver.ask(&run, Wish::Abort, &by(), &mut self.rng()).await.unwrap();
        assert_eq!(executor.end().await.unwrap().state, RunState::Aborted);
        ids[0].clone()
    }
}

fn whys(moved: &Moved) -> Vec<&str> {
    moved.refused.iter().map(|one| one.why.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_move_goes_its_way_and_leaves_an_object_with_who_why_and_how_many() {
    let world = World::new();
    let ids = world.park_many(3).await;
    let moved = world.operate(Move::Discard, Scope::default()).await;
    assert_eq!((moved.moved, moved.refused.len()), (3, 0));
    assert_eq!(world.states(&ids), [State::Discarded; 3]);
    world.sweep().await;
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0, "out of the DLQ");

    assert_eq!(world.operate(Move::Restore, named(&ids[..2])).await.moved, 2);
    assert_eq!(world.operate(Move::Resolve, named(&ids[1..])).await.moved, 2);
    assert_eq!(world.states(&ids), [State::Quarantined, State::Resolved, State::Resolved]);
    world.sweep().await;
    world.assert_none_lost(&ids).await;

    let [discard] = world.audited("discard").try_into().unwrap();
    assert_eq!((&discard["operator"], &discard["note"]), (&"operator".into(), &"because".into()));
    assert_eq!((&discard["act"], &discard["queue"]), (&"discard".into(), &"orders".into()));
    assert_eq!((&discard["counts"]["matched"], &discard["run_id"]), (&3.into(), &().into()));
    assert!(discard["plan_hash"].is_string() && discard["at"].is_string());
    assert_eq!(world.audited("restore")[0]["selection"]["records"][1], ids[1].as_str());
}

#[tokio::test(start_paused = true)]
async fn a_move_from_another_state_is_refused_with_the_reason() {
    let world = World::new();
    let ids = world.park_many(1).await;
    for (act, why) in [(Move::Restore, "it is quarantined"), (Move::Rescue, "it is quarantined")] {
        assert_eq!(whys(&world.operate(act, named(&ids)).await), [why]);
    }
    world.operate(Move::Discard, named(&ids)).await;
    assert_eq!(whys(&world.operate(Move::Discard, named(&ids)).await), ["it is discarded"]);
    world.operate(Move::Resolve, named(&ids)).await;
    for act in [Move::Discard, Move::Restore, Move::Resolve, Move::Rescue] {
        assert_eq!(whys(&world.operate(act, named(&ids)).await), ["it is resolved"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_run_has_is_refused_naming_the_run_and_what_is_on_its_way_waits_for_a_rescue() {
    let world = World::new();
    let ids = world.park_many(1).await;
    let faults = Faults::new();
    faults.at_call_of("queue.send orders", 1, Fault::HangBefore);
    let executor = world.start(&world.redriver(&faults, "executor"), patient()).await;
    world.wait_until("a taken record", || world.states(&ids) == [State::Redriving]).await;
    let run = world.ledger.all_runs().into_keys().next().unwrap();
    for act in [Move::Discard, Move::Restore, Move::Resolve] {
        let moved = world.operate(act, named(&ids)).await;
        assert_eq!(moved.refused[0].run, Some(run.clone()), "{act:?}");
        assert_eq!(whys(&moved), [format!("run {run} has it")], "{act:?}");
    }
    executor.crash().await;
    world.resume(&world.redriver(&Faults::new(), "heir")).await;
    world.wait_until("a redriven record", || world.states(&ids) == [State::Redriven]).await;
    let moved = world.operate(Move::Discard, named(&ids)).await;
    assert_eq!((moved.moved, moved.refused[0].run.is_none()), (0, true));
    assert!(moved.refused[0].why.contains("rescue it first"));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_a_run_takes_before_the_write_is_refused() {
    let world = World::new();
    let ids = world.park_many(1).await;
    let faults = Faults::new();
    let late = Duration::from_secs(5);
    faults.at_call_of("ledger.put_record", 1, Fault::Late(late));
    let mover = world.mover(&faults);
    let selected = mover.select(Move::Discard, named(&ids)).await.unwrap();
    let mut rng = world.rng();
    let stop = CancellationToken::new();
    let by = by();
    let discard = mover.carry_out(&selected, &by, &mut rng, &stop);
    let run = async {
        let redriver = world.redriver(&Faults::new(), "executor");
        world.start(&redriver, patient()).await
    };
    let (moved, _executor) = tokio::join!(discard, run);
    let moved = moved.unwrap();
    assert_eq!((moved.moved, moved.refused.len()), (0, 1), "{moved:?}");
    assert_ne!(world.states(&ids), [State::Discarded]);
}

#[tokio::test(start_paused = true)]
async fn trap_14_a_leftover_of_a_discarded_record_is_deleted_unrun() {
    for is_taken_since in [false, true] {
        let world = World::new();
        let sent = world.send("bad one").await;
        let faults = Faults::new();
        // The parking is whole but for its delete.
        faults.at_call_of("queue.delete", 1, Fault::HangBefore);
        let worker = world.worker(&faults).await;
        let deletes = || faults.log().iter().any(|call| call.starts_with("queue.delete"));
        world.wait_until("the delete", deletes).await;
        worker.crash().await;
        let id = RecordId::from(&sent);
        assert_eq!(world.operate(Move::Discard, named(std::slice::from_ref(&id))).await.moved, 1);
        if is_taken_since {
            world.send("bad one").await;
        }
        let runs = world.runs_of(&id);
        world.work(&Faults::new()).await;
        assert_eq!(
            world.states(std::slice::from_ref(&id)),
            [State::Discarded],
            "taken: {is_taken_since}"
        );
        assert_eq!(world.runs_of(&id), runs, "taken: {is_taken_since}");
    }
}

#[tokio::test(start_paused = true)]
async fn trap_15_a_restore_that_dies_before_its_token_leaves_what_the_full_sweep_takes() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let world = World::new();
        let ids = world.park_many(1).await;
        world.operate(Move::Discard, named(&ids)).await;
        let faults = Faults::new();
        faults.at_call_of("queue.send", 1, fault);
        let mover = world.mover(&faults);
        let selected = mover.select(Move::Restore, named(&ids)).await.unwrap();
        let mut rng = world.rng();
        let restore = tokio::spawn(async move {
            let stop = CancellationToken::new();
            mover.carry_out(&selected, &by(), &mut rng, &stop).await
        });
        let is_sending = || faults.log().iter().any(|call| call.starts_with("queue.send"));
        world.wait_until("the token", is_sending).await;
        restore.abort();
        world.sweep().await;
        let record = world.ledger.records()[&ids[0]].clone();
        assert_eq!((record.state, record.token_sent), (State::Quarantined, None), "{fault:?}");
        assert_eq!(world.audited("restore").len(), 1, "the act is known all the same");
        tokio::time::advance(Duration::from_secs(61)).await;
        let counts = world.tokens().iter().filter(|t| t.park == record.park_token).count();
        assert_eq!(counts, usize::from(fault == Fault::HangAfter), "no outdated one is left");
    }
}

#[tokio::test(start_paused = true)]
async fn trap_24_a_copy_that_was_purged_is_rescued_with_a_token_that_counts() {
    let world = World::new();
    let id = world.lost_in_flight().await;
    let six_hours = Some(Duration::from_secs(6 * 3_600));
    let older = Scope { silent: six_hours, ..Scope::default() };
    assert_eq!(world.operate(Move::Rescue, older.clone()).await, Moved::default(), "not yet");
    tokio::time::advance(Duration::from_secs(6 * 3_600)).await;
    assert_eq!(world.operate(Move::Rescue, older).await.moved, 1);
    let record = world.ledger.records()[&id].clone();
    assert_eq!((record.state, record.blocked), (State::Quarantined, Some(Blocked::Rescued)));
    assert!(record.token_sent.is_some());
    world.sweep().await;
    world.assert_none_lost(std::slice::from_ref(&id)).await;
    world.handler.set_fixed(true);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(world.redrive(policy()).await.counts.resolved, 1);
    assert_eq!(world.runs_of(&id), 2);
}

#[tokio::test(start_paused = true)]
async fn an_act_that_cannot_be_written_down_is_not_done() {
    let world = World::new();
    let ids = world.park_many(2).await;
    let faults = Faults::new();
    for k in 1..=4 {
        faults.at_call_of("vault.put_new", k, Fault::FailBefore);
    }
    let mover = world.mover(&faults);
    let selected = mover.select(Move::Discard, named(&ids)).await.unwrap();
    let stop = CancellationToken::new();
    let refused = mover.carry_out(&selected, &by(), &mut world.rng(), &stop).await;
    assert!(matches!(refused, Err(MoveError::Port(_))));
    assert_eq!(world.states(&ids), [State::Quarantined; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_restore_without_a_readable_envelope_moves_nothing() {
    let world = World::new();
    let ids = world.park_many(1).await;
    world.operate(Move::Discard, named(&ids)).await;
    assert!(world.vault.rot(&world.ledger.records()[&ids[0]].envelope, None));
    let moved = world.operate(Move::Restore, named(&ids)).await;
    assert_eq!((moved.moved, moved.refused.len()), (0, 1));
    assert_eq!(world.states(&ids), [State::Discarded]);
}

#[tokio::test(start_paused = true)]
async fn a_live_executor_obeys_pause_rate_and_abort_within_two_seconds() {
    let world = World::new();
    world.park_many(60).await;
    world.handler.set_fixed(true);
    let worker = world.worker(&Faults::new()).await;
    let executor = world.start(&world.redriver(&Faults::new(), "executor"), patient()).await;
    world.wait_until("some sends", || world.spy.copies().len() >= 8).await;
    let operator = world.redriver(&Faults::new(), "operator");
    let run = operator.find(None).await.unwrap().unwrap().into_inner();
    let asked = world.clock.mono();
    let slower = operator.ask(&run, Wish::Rate(0.5), &by(), &mut world.rng()).await.unwrap();
    assert_eq!(slower.policy.max_rate.to_string(), "0.5");
    let is_slow = || executor.progress().last().is_some_and(|(_, p)| p.rate <= 0.5);
    world.wait_until("a lower rate", is_slow).await;
    assert!(world.clock.mono().since(asked) <= Duration::from_secs(2));

    let asked = world.clock.mono();
    let paused = operator.ask(&run, Wish::Pause, &by(), &mut world.rng()).await.unwrap();
    assert!(world.clock.mono().since(asked) <= Duration::from_secs(2));
    assert_eq!(
        (paused.state, paused.desired, paused.lease.is_none()),
        (RunState::Paused, None, true)
    );
    assert_eq!(executor.end().await.unwrap().state, RunState::Paused);

    let run = operator.resume(&paused, &by(), &mut world.rng()).await.unwrap();
    let executor = crate::executor::execute(operator.clone(), run);
    let other = world.redriver(&Faults::new(), "another");
    let asked = world.clock.mono();
    let aborted = other.ask(&paused, Wish::Abort, &by(), &mut world.rng()).await.unwrap();
    assert!(world.clock.mono().since(asked) <= Duration::from_secs(2));
    assert_eq!(aborted.state, RunState::Aborted);
    assert_eq!(executor.end().await.unwrap().state, RunState::Aborted);
    assert!(world.report(&aborted.id).await.is_balanced());
    worker.stop().await;
    for act in ["start", "set-rate", "pause", "resume", "abort"] {
        let [object] = world.audited(act).try_into().unwrap();
        assert_eq!(object["run_id"], aborted.id.as_str(), "{act}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_live_executor_a_pause_keeps_the_batch_in_hand_for_who_resumes() {
    let world = World::new();
    let ids = world.park_many(4).await;
    let faults = Faults::new();
    faults.at_call_of("queue.send orders", 1, Fault::HangBefore);
    let executor = world.start(&world.redriver(&faults, "first"), patient()).await;
    world.wait_until("a taken batch", || world.states(&ids).contains(&State::Redriving)).await;
    executor.crash().await;
    let operator = world.redriver(&Faults::new(), "operator");
    let run = operator.find(None).await.unwrap().unwrap().into_inner();
    let asked = world.clock.mono();
    let paused = operator.ask(&run, Wish::Pause, &by(), &mut world.rng()).await.unwrap();
    assert!(world.clock.mono().since(asked) <= LEASE + Duration::from_secs(1));
    assert_eq!((paused.state, paused.batch.is_empty()), (RunState::Paused, false));
    // A second pause of the same run is an act of its own.
    operator.ask(&run, Wish::Pause, &by(), &mut world.rng()).await.unwrap();
    assert_eq!(world.audited("pause").len(), 2);
    world.handler.set_fixed(true);
    let worker = world.worker(&Faults::new()).await;
    let run = world.resume(&operator).await.end().await.unwrap();
    worker.stop().await;
    assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 4));
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_between_a_lost_answer_of_a_take_and_its_retry_costs_no_copy() {
    let world = World::new();
    let ids = world.park_many(4).await;
    world.handler.set_fixed(true);
    let worker = world.worker(&Faults::new()).await;
    let faults = Faults::new();
    faults.at_call_of("runs.take", 1, Fault::LostAnswer);
    faults.at_call_of("runs.take", 2, Fault::Late(Duration::from_secs(1)));
    let executor = world.start(&world.redriver(&faults, "executor"), patient()).await;
    let takes = || faults.log().iter().filter(|call| call.starts_with("runs.take")).count() == 2;
    world.wait_until("the retry", takes).await;
    let operator = world.redriver(&Faults::new(), "operator");
    let run = operator.find(None).await.unwrap().unwrap().into_inner();
    assert!(!run.batch.is_empty(), "the first try got through");
    operator.ask(&run, Wish::Rate(40.0), &by(), &mut world.rng()).await.unwrap();
    let run = executor.end().await.unwrap();
    worker.stop().await;
    assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 4));
    assert_eq!(world.spy.copies().len(), 4);
    world.assert_none_lost(&ids).await;
}
