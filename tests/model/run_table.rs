//! The whole table of the run, printed: every state with every event.

use std::fmt::Write as _;
use std::time::Duration;

use redrive::domain::dispatch::Dispatch;
use redrive::domain::id::{QueueName, RunId, Sha256Hex};
use redrive::domain::ramp::Trip;
use redrive::domain::run::{Counts, Desired, Event, ExecutorLease, Run, State};
use redrive::domain::time::Wall;

const NOW: Wall = Wall::from_ms(1_000_000);
const LEASE: Duration = Duration::from_secs(15);

/// A run in this state, with this wish, whose executor's lease ends `until`.
fn run(state: State, desired: Option<Desired>, until: Wall) -> Run {
    Run {
        id: RunId::new("r1").unwrap(),
        queue: QueueName::new("orders").unwrap(),
        plan_hash: Sha256Hex::of(b"plan"),
        note: None,
        operator: "operator".into(),
        state,
        tripped: (state == State::Tripped).then_some(Trip::FailureRatio),
        policy: crate::ramp::policy(1.0),
        dispatch: Dispatch::default(),
        max_redrives: 3,
        rate: 1.0,
        window: 1,
        place: 0,
        batch: Vec::new(),
        outcome_objects: 0,
        counts: Counts::default(),
        lease: (state == State::Running).then_some(ExecutorLease { owner: "before".into(), until }),
        fence: 1,
        desired,
        rev: 1,
        started_at: NOW,
        ended_at: None,
    }
}

fn events() -> [Event; 10] {
    let claim = |owner: &str| Event::Claim { owner: owner.into(), lease: LEASE };
    [
        claim("before"),
        claim("after"),
        Event::Extend { lease: LEASE },
        Event::Pause,
        Event::Trip(Trip::NoOutcome),
        Event::Complete,
        Event::Abort,
        Event::Ask(Desired::Pause),
        Event::Ask(Desired::Abort),
        Event::SetRate(0.5),
    ]
}

#[test]
fn the_run_table_is_as_documented() {
    let mut table = String::new();
    let live = NOW.plus(LEASE);
    let runs = [
        ("running", run(State::Running, None, live)),
        ("running, pause asked", run(State::Running, Some(Desired::Pause), live)),
        ("running, abort asked", run(State::Running, Some(Desired::Abort), live)),
        ("running, lease over", run(State::Running, Some(Desired::Abort), NOW)),
        ("paused", run(State::Paused, None, NOW)),
        ("tripped", run(State::Tripped, None, NOW)),
        ("completed", run(State::Completed, None, NOW)),
        ("aborted", run(State::Aborted, None, NOW)),
    ];
    for (name, run) in &runs {
        for event in events() {
            let cell = match run.apply(&event, NOW) {
                Ok(next) => format!(
                    "{} fence={} rev={} desired={} max_rate={} by={} tripped={} ended={}",
                    next.state.name(),
                    next.fence,
                    next.rev,
                    next.desired.map_or("-", Desired::name),
                    next.policy.max_rate,
                    next.lease.as_ref().map_or("-", |lease| &lease.owner),
                    next.tripped.map_or("-", Trip::name),
                    next.ended_at.is_some(),
                ),
                Err(why) => why.to_string(),
            };
            writeln!(table, "{name:20} | {:48} | {cell}", format!("{event:?}")).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
