//! The rules of runs and locks: one open run a source, versions, pages, the sweep's lock.

use std::sync::Arc;
use std::time::Duration;

use redrive::domain::id::RunId;
use redrive::domain::ramp::{RampPolicy, Trip};
use redrive::domain::run::{Counts, Desired, ExecutorLease, Run, State};
use redrive::domain::time::Wall;
use redrive::port::evidence::Stored;
use redrive::port::ledger::{Ledger, WriteError};
use redrive::port::runs::{OpenError, PAGE_RUNS, Runs, SweepLock};
use redrive::sim::ledger::SimLedger;

use crate::embedded::Embedded;
use crate::item::{NOW, id, started, written};
use crate::on_both;

/// Runs, and the ledger that is in the same table.
pub(crate) struct Subject {
    pub(crate) runs: Arc<dyn Runs>,
    pub(crate) ledger: Arc<dyn Ledger>,
}

pub(crate) async fn sim() -> Subject {
    let both = Arc::new(SimLedger::new());
    Subject { runs: both.clone(), ledger: both }
}

pub(crate) async fn aws() -> (Embedded, Subject) {
    let embedded = Embedded::start().await;
    let both = Arc::new(embedded.ledger());
    (embedded, Subject { runs: both.clone(), ledger: both })
}

on_both!(
    whatever_is_written_comes_back,
    one_run_is_open_and_closing_it_frees_the_lock,
    an_open_whose_answer_was_lost_is_recognised,
    each_part_of_a_version_is_compared,
    a_write_whose_answer_was_lost_is_recognised,
    another_writer_of_the_same_rev_is_not_taken_for_us,
    a_close_whose_answer_was_lost_is_recognised,
    a_closed_run_is_written_while_another_is_open,
    runs_come_newest_first_and_page_by_page,
    the_sweeps_lock_is_held_until_it_is_over,
    only_its_owner_gives_the_sweeps_lock_back,
);

async fn open(s: &Subject, run: &Run) {
    assert_eq!(s.runs.open(run).await.unwrap().get(), run);
}

async fn put(s: &Subject, read: &Run, next: &Run) {
    assert_eq!(s.runs.put_run(read, next).await.unwrap().get(), next);
}

async fn read(s: &Subject, name: &str) -> Option<Run> {
    s.runs.run(&RunId::new(name).unwrap()).await.unwrap().map(Stored::into_inner)
}

fn ended(run: &Run, state: State) -> Run {
    Run { state, lease: None, ended_at: Some(NOW), ..written(run) }
}

fn lost(answer: Result<Stored<Run>, WriteError<Run>>) -> Option<Run> {
    match answer {
        Err(WriteError::Lost(current)) => current.map(|stored| stored.into_inner()),
        other => panic!("{other:?}"),
    }
}

fn held(answer: Result<Stored<Run>, OpenError>) -> RunId {
    match answer {
        Err(OpenError::Held(run)) => run,
        other => panic!("{other:?}"),
    }
}

async fn whatever_is_written_comes_back(s: &Subject) {
    let bare = Run { lease: None, ..started("run-1") };
    open(s, &bare).await;
    assert_eq!(read(s, "run-1").await.as_ref(), Some(&bare));
    let full = Run {
        note: Some("fixed \"isrc\" naïve ✓".to_owned()),
        state: State::Tripped,
        tripped: Some(Trip::NoOutcome),
        policy: RampPolicy {
            start_rate: 0.1,
            growth: 1.000_000_000_000_000_2,
            step: Duration::from_millis(1),
            max_rate: 1e-3,
            max_failure_ratio: 0.1 + 0.2,
            max_backlog: u64::MAX,
            ..bare.policy
        },
        rate: 123_456.789_012_345_67,
        place: u64::MAX,
        batch: vec![id("m-2"), id("m-1")],
        outcome_objects: 7,
        counts: Counts {
            planned: 1,
            not_sent: 2,
            sent: 3,
            in_doubt: 4,
            resolved: 5,
            duplicates: 6,
            assumed: 11,
            failed_again: 7,
            discarded: 8,
            skipped: 9,
            errored: 10,
        },
        lease: Some(ExecutorLease { owner: "worker-1".to_owned(), until: NOW }),
        desired: Some(Desired::Abort),
        ended_at: Some(NOW),
        ..written(&bare)
    };
    put(s, &bare, &full).await;
    assert_eq!(read(s, "run-1").await.as_ref(), Some(&full));
    let other = Run {
        tripped: Some(Trip::FailureRatio),
        desired: Some(Desired::Pause),
        rate: 1e-9,
        ..written(&full)
    };
    put(s, &full, &other).await;
    assert_eq!(read(s, "run-1").await.as_ref(), Some(&other));
    assert_eq!(s.runs.runs(None).await.unwrap().runs, [other]);
    assert_eq!(read(s, "run-2").await, None);
}

async fn one_run_is_open_and_closing_it_frees_the_lock(s: &Subject) {
    assert_eq!(s.runs.open_run().await.unwrap(), None);
    let mut names = (1..).map(|n| format!("run-{n}"));
    for end in [State::Completed, State::Aborted] {
        let first = started(&names.next().unwrap());
        open(s, &first).await;
        let second = started(&names.next().unwrap());
        let mut last = first.clone();
        for state in [State::Paused, State::Tripped, State::Running] {
            let next = Run { state, ..written(&last) };
            put(s, &last, &next).await;
            assert_eq!(held(s.runs.open(&second).await), first.id);
            last = next;
        }
        assert_eq!(s.runs.open_run().await.unwrap(), Some(first.id.clone()));
        assert_eq!(s.runs.run(&second.id).await.unwrap(), None);
        put(s, &last, &ended(&last, end)).await;
        assert_eq!(s.runs.open_run().await.unwrap(), None);
    }
}

async fn an_open_whose_answer_was_lost_is_recognised(s: &Subject) {
    let run = started("run-1");
    open(s, &run).await;
    open(s, &run).await;
    let paused = Run { desired: Some(Desired::Pause), ..written(&run) };
    put(s, &run, &paused).await;
    assert_eq!(s.runs.open(&run).await.unwrap().get(), &paused);
    put(s, &paused, &ended(&paused, State::Aborted)).await;
    assert!(matches!(s.runs.open(&run).await, Err(OpenError::Unknown(_))));
    let next = started("run-2");
    open(s, &next).await;
    assert_eq!(held(s.runs.open(&run).await), next.id);
}

async fn each_part_of_a_version_is_compared(s: &Subject) {
    let run = started("run-1");
    assert_eq!(lost(s.runs.put_run(&run, &written(&run)).await), None);
    open(s, &run).await;
    for other in [Run { rev: 2, ..run.clone() }, Run { fence: 2, ..run.clone() }] {
        for next in [written(&other), ended(&other, State::Aborted)] {
            assert_eq!(lost(s.runs.put_run(&other, &next).await), Some(run.clone()));
        }
    }
    assert_eq!(s.runs.open_run().await.unwrap(), Some(run.id.clone()));
    let same = Run { rate: 9.0, ..run.clone() };
    put(s, &same, &written(&run)).await;
}

async fn a_write_whose_answer_was_lost_is_recognised(s: &Subject) {
    let run = started("run-1");
    open(s, &run).await;
    let next = Run { place: 10, rate: 0.1, ..written(&run) };
    put(s, &run, &next).await;
    put(s, &run, &next).await;
    let later = written(&next);
    put(s, &next, &later).await;
    assert_eq!(lost(s.runs.put_run(&run, &next).await), Some(later));
}

async fn another_writer_of_the_same_rev_is_not_taken_for_us(s: &Subject) {
    let run = started("run-1");
    open(s, &run).await;
    let pause = Run { desired: Some(Desired::Pause), ..written(&run) };
    put(s, &run, &pause).await;
    let tick = Run { place: 10, ..written(&run) };
    assert_eq!(lost(s.runs.put_run(&run, &tick).await), Some(pause));
}

async fn a_close_whose_answer_was_lost_is_recognised(s: &Subject) {
    let run = started("run-1");
    open(s, &run).await;
    let completed = ended(&run, State::Completed);
    put(s, &run, &completed).await;
    put(s, &run, &completed).await;
    let next = started("run-2");
    open(s, &next).await;
    put(s, &run, &completed).await;
    assert_eq!(lost(s.runs.put_run(&run, &ended(&run, State::Aborted)).await), Some(completed));
    assert_eq!(s.runs.open_run().await.unwrap(), Some(next.id));
}

async fn a_closed_run_is_written_while_another_is_open(s: &Subject) {
    let run = started("run-1");
    open(s, &run).await;
    let aborted = ended(&run, State::Aborted);
    put(s, &run, &aborted).await;
    let next = started("run-2");
    open(s, &next).await;
    put(s, &aborted, &Run { outcome_objects: 3, ..written(&aborted) }).await;
    assert_eq!(s.runs.open_run().await.unwrap(), Some(next.id));
}

async fn runs_come_newest_first_and_page_by_page(s: &Subject) {
    let count = usize::from(PAGE_RUNS) * 2 + 5;
    for n in 0..count {
        let run = started(&format!("run-{n:03}"));
        open(s, &run).await;
        put(s, &run, &ended(&run, State::Completed)).await;
    }
    let (mut found, mut pages, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = s.runs.runs(after.as_ref()).await.unwrap();
        pages.push(page.runs.len());
        found.extend(page.runs.into_iter().map(|run| run.id.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [100, 100, 5]);
    let expected: Vec<_> = (0..count).rev().map(|n| format!("run-{n:03}")).collect();
    assert_eq!(found, expected);
}

const LEASE: Duration = Duration::from_secs(60);

async fn lock(s: &Subject, owner: &str, now: Wall) -> SweepLock {
    s.runs.lock_sweep(owner, LEASE, now).await.unwrap()
}

fn held_by(owner: &str, until: Wall) -> SweepLock {
    SweepLock::Held { owner: owner.to_owned(), until }
}

async fn the_sweeps_lock_is_held_until_it_is_over(s: &Subject) {
    let ms = |ms: u64| NOW.plus(Duration::from_millis(ms));
    assert_eq!(lock(s, "a", NOW).await, SweepLock::Ours);
    assert_eq!(lock(s, "b", ms(59_999)).await, held_by("a", ms(60_000)));
    assert_eq!(lock(s, "a", ms(30_000)).await, SweepLock::Ours);
    assert_eq!(lock(s, "b", ms(89_999)).await, held_by("a", ms(90_000)));
    assert_eq!(lock(s, "b", ms(90_000)).await, SweepLock::Ours);
    assert_eq!(lock(s, "a", ms(90_000)).await, held_by("b", ms(150_000)));
    assert_eq!(s.runs.open_run().await.unwrap(), None);
}

async fn only_its_owner_gives_the_sweeps_lock_back(s: &Subject) {
    s.runs.unlock_sweep("a").await.unwrap();
    assert_eq!(lock(s, "a", NOW).await, SweepLock::Ours);
    s.runs.unlock_sweep("b").await.unwrap();
    assert_eq!(lock(s, "b", NOW).await, held_by("a", NOW.plus(LEASE)));
    for _ in 0..2 {
        s.runs.unlock_sweep("a").await.unwrap();
    }
    assert_eq!(lock(s, "b", NOW).await, SweepLock::Ours);
}

/// A table serves many sources; memory has one.
#[tokio::test]
async fn sources_do_not_see_each_other() {
    let (embedded, orders) = aws().await;
    let sales = embedded.ledger_of("sales");
    open(&orders, &started("run-1")).await;
    assert_eq!(lock(&orders, "a", NOW).await, SweepLock::Ours);
    assert_eq!(sales.run(&RunId::new("run-1").unwrap()).await.unwrap(), None);
    assert_eq!(sales.open_run().await.unwrap(), None);
    assert_eq!(sales.runs(None).await.unwrap().runs, []);
    assert_eq!(sales.lock_sweep("b", LEASE, NOW).await.unwrap(), SweepLock::Ours);
}
