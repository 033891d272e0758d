//! The story of a run: parked, fixed, sent back, resolved; and the fix that does not help.

use redrive::domain::dispatch::Dispatch;
use redrive::domain::ramp::Trip;
use redrive::domain::record::State;
use redrive::domain::run::{Counts, State as RunState};
use redrive::domain::time::Mono;
use redrive::domain::token::Copy;
use redrive::service::redrive::{Opening, RedriveError};
use redrive::sim::fault::{Fault, Faults};

use crate::executor::{patient, policy};
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn after_the_fix_every_record_is_resolved_once_and_the_dlq_is_empty() {
    let world = World::new();
    let mut bodies: Vec<String> = (0..45).map(|i| format!("bad {i}")).collect();
    bodies.extend((0..4).map(|i| format!("never {i}")));
    let ids = world.park(&bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let before = world.handler.runs().len();
    world.handler.set_fixed(true);
    let report = world.redrive(policy()).await;
    assert!(report.is_well());
    let all = Counts { planned: 49, sent: 49, resolved: 49, ..Counts::NONE };
    assert_eq!((report.counts, report.run.counts), (all, all));
    let by_code: Vec<_> =
        report.by_code.iter().map(|(code, c)| (code.as_str(), c.planned, c.resolved)).collect();
    assert_eq!(by_code, [("BAD", 45, 45), ("NEVER", 4, 4)]);
    assert_eq!((report.troubles.len(), report.resolved.len()), (0, 49));
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0);
    assert_eq!(world.handler.runs().len(), before + 49, "each ran once");
    assert_eq!((world.commits(), world.spy.copies().len()), (49, 49));
    assert!(world.spy.copies().iter().all(|copy| copy.n == 1));
    world.assert_none_lost(&ids).await;
    let draft = world.plan_all(&world.redriver(&Faults::new(), "second")).await.unwrap();
    assert!(draft.plan.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_fix_that_does_not_help_costs_the_canary_and_resume_keeps_its_failures_out() {
    let world = World::new();
    let ids = world.park_many(20).await;
    let report = world.redrive(policy()).await;
    assert_eq!(report.run.state, RunState::Tripped);
    assert_eq!(report.run.tripped, Some(Trip::FailureRatio));
    assert_eq!(
        report.counts,
        Counts { planned: 20, sent: 5, failed_again: 5, not_sent: 15, ..Counts::NONE }
    );
    assert_eq!(report.troubles.len(), 5);
    assert!(report.is_balanced() && !report.is_well());
    world.assert_none_lost(&ids).await;
    let redriver = world.redriver(&Faults::new(), "other");
    let refused = world.open(&redriver, policy()).await.unwrap_err();
    assert!(matches!(refused, RedriveError::Open(open) if open == report.run.id));

    world.handler.set_fixed(true);
    let worker = world.worker(&Faults::new()).await;
    let run = world.resume(&redriver).await.end().await.unwrap();
    assert_eq!((run.state, run.tripped), (RunState::Completed, None));
    let report = world.report(&run.id).await;
    assert_eq!(
        report.counts,
        Counts { planned: 20, sent: 20, failed_again: 5, resolved: 15, ..Counts::NONE }
    );
    assert!(ids.iter().all(|id| world.spy.sends_of(id) == 1), "what failed again stays out");

    let run = world.start(&redriver, policy()).await.end().await.unwrap();
    worker.stop().await;
    let report = world.report(&run.id).await;
    assert_eq!(report.counts, Counts { planned: 5, sent: 5, resolved: 5, ..Counts::NONE });
    assert_eq!(world.commits(), 20);
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0);
}

/// Every `nth` copy fails again; returns the run's state and counts.
async fn run_with_failures(nth: usize) -> (RunState, Counts) {
    let world = World::new();
    let ids = world.park_many(60).await;
    let redriver = world.redriver(&Faults::new(), "reader");
    let draft = world.plan_all(&redriver).await.unwrap();
    let hard = draft.plan.records().iter().skip(nth - 1).step_by(nth);
    world.handler.set_hard(hard.map(|planned| planned.record_id.clone()));
    world.handler.set_fixed(true);
    let report = world.redrive(policy()).await;
    assert!(report.is_balanced());
    world.assert_none_lost(&ids).await;
    (report.run.state, report.counts)
}

#[tokio::test(start_paused = true)]
async fn a_share_of_failures_up_to_the_limit_is_borne_and_one_above_it_trips() {
    let (state, counts) = run_with_failures(5).await;
    assert_eq!((state, counts.failed_again, counts.resolved), (RunState::Completed, 12, 48));
    let (state, counts) = run_with_failures(4).await;
    assert_eq!(state, RunState::Tripped);
    assert!(counts.not_sent > 30 && counts.in_doubt + counts.failed_again < 10, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn silence_of_the_workers_trips_and_loses_nothing() {
    let world = World::new();
    let ids = world.park_many(7).await;
    let redriver = world.redriver(&Faults::new(), "executor");
    let run = world.start(&redriver, policy()).await.end().await.unwrap();
    assert_eq!((run.state, run.tripped), (RunState::Tripped, Some(Trip::NoOutcome)));
    let report = world.report(&run.id).await;
    assert_eq!((report.counts.in_doubt, report.counts.not_sent), (5, 2));
    world.handler.set_fixed(true);
    let worker = world.worker(&Faults::new()).await;
    let run = world.resume(&redriver).await.end().await.unwrap();
    worker.stop().await;
    assert_eq!(world.report(&run.id).await.counts.resolved, 7);
    assert_eq!((world.commits(), world.spy.copies().len()), (7, 7));
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_executor_pauses_its_run_at_once_and_another_goes_on() {
    let world = World::new();
    let ids = world.park_many(30).await;
    world.handler.set_fixed(true);
    let worker = world.worker(&Faults::new()).await;
    let one = world.start(&world.redriver(&Faults::new(), "one"), policy()).await;
    world.wait_until("some sends", || world.spy.copies().len() >= 8).await;
    let run = one.stop().await;
    assert_eq!((run.state, run.lease), (RunState::Paused, None));
    assert!(run.batch.is_empty(), "the batch in hand was brought to its end");
    let sent = world.spy.copies().len();
    let redriver = world.redriver(&Faults::new(), "two");
    let run = world.resume(&redriver).await.end().await.unwrap();
    worker.stop().await;
    assert!(sent < 30 && world.spy.copies().len() == 30);
    assert_eq!(world.report(&run.id).await.counts.resolved, 30);
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_at_its_cap_is_discarded_and_leaves_the_dlq() {
    let world = World::new();
    let ids = world.park_many(2).await;
    for n in 1..=3 {
        let report = world.redrive(patient()).await;
        assert_eq!(report.counts.failed_again, 2);
        assert!(world.ledger.records().values().all(|record| record.redrive_count == n));
    }
    let report = world.redrive(patient()).await;
    assert_eq!(report.counts, Counts { planned: 2, discarded: 2, ..Counts::NONE });
    assert_eq!(report.run.state, RunState::Completed);
    assert_eq!(world.states(&ids), [State::Discarded; 2]);
    assert_eq!(world.spy.copies().len(), 6);
    assert_eq!(world.dead_letters_after_a_second().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_has_changed_since_it_was_agreed_to_is_refused() {
    let world = World::new();
    world.park_many(2).await;
    let redriver = world.redriver(&Faults::new(), "executor");
    let agreed = world.plan_all(&redriver).await.unwrap().plan.hash();
    world.park(&["bad another"]).await;
    let draft = world.plan_all(&redriver).await.unwrap();
    let opening = Opening {
        note: None,
        operator: "operator".into(),
        policy: policy(),
        dispatch: Dispatch::default(),
        max_redrives: 3,
        plan_hash: Some(agreed),
    };
    let refused = redriver.open(&draft, opening, &mut world.rng()).await.unwrap_err();
    assert!(matches!(refused, RedriveError::PlanHash { .. }));
    assert!(world.ledger.all_runs().is_empty());
}

/// The trace of a run with failures and a lost answer: all calls, and when each copy was sent.
async fn trace() -> (Vec<String>, Vec<(Mono, Vec<Copy>)>) {
    let world = World::new();
    world.park_many(15).await;
    world.handler.set_fixed(true);
    let faults = Faults::new();
    faults.at_call_of("queue.send", 2, Fault::LostAnswer);
    let worker = world.worker(&faults).await;
    let executor = world.start(&world.redriver(&faults, "executor"), policy()).await;
    executor.end().await.unwrap();
    worker.stop().await;
    let batches = world.spy.batches();
    (faults.log(), batches.into_iter().map(|batch| (batch.at, batch.copies)).collect())
}

#[tokio::test(start_paused = true)]
async fn the_same_seeds_give_the_same_trace() {
    let (one, other) = (trace().await, trace().await);
    assert!(one.0.len() > 100 && one.1.len() > 5);
    assert_eq!(one, other);
}

#[tokio::test(start_paused = true)]
async fn case_f10_failed_work_does_not_block_its_redrive_and_finished_work_is_not_done_again() {
    let world = World::new();
    let ids = world.park(&["bad"]).await;
    world.handler.set_fixed(true);
    // The same content, done while its first message waits in quarantine.
    world.send("bad").await;
    world.work(&Faults::new()).await;
    let before = world.handler.runs().len();
    let report = world.redrive(policy()).await;
    assert_eq!((report.counts.resolved, report.counts.duplicates), (1, 1), "already done");
    assert_eq!(world.handler.runs().len(), before);
    world.assert_none_lost(&ids).await;

    let world = World::new();
    let ids = world.park(&["bad"]).await;
    world.handler.set_fixed(true);
    let report = world.redrive(policy()).await;
    assert_eq!((report.counts.resolved, report.counts.duplicates), (1, 0));
    assert_eq!(world.handler.runs().len(), 2, "a failed entry suppresses nothing");
    world.assert_none_lost(&ids).await;
}
