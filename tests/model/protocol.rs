//! The protocol searched: no reachable world breaks a guarantee, and from each one all comes to rest.
//!
//! The budgets keep each search under a million worlds. Two messages with a run, whatever the content of the
//! second, bear any one fault; without a run, or with one message, several together.

use crate::core::Second;
use crate::search::{Report, Scenario, search};
use crate::step::{Mutation, Rules};
use crate::world::{Budget, Start};

/// One run and no faults.
pub(crate) const CALM: Budget = Budget {
    crashes: 0,
    lost: 0,
    stalls: 0,
    transients: 0,
    refusals: 0,
    resumes: 0,
    runs: 1,
    early: 0,
};

pub(crate) fn scenario(second: Second, budget: Budget) -> Scenario {
    let rules = Rules { mutation: Mutation::None, max_redrives: 1 };
    Scenario { start: Start::Two, second, budget, rules, crash_limit: 2, max_failure_ratio: 0.2 }
}

/// The report as text: the counts, and the path to the breach if there is one.
pub(crate) fn show(name: &str, report: &Report) -> String {
    let mut text = format!("{name}: {} worlds, {} at rest\n", report.worlds, report.ends);
    if let Some(found) = &report.found {
        text += &format!("{:?} after {} steps:\n", found.breach, found.path.len());
        for step in &found.path {
            text += &format!("  {step}\n");
        }
        text += &format!("{:?}\n", found.world);
    }
    text
}

fn holds(name: &str, scenario: Scenario, floor: usize) {
    let report = search(scenario);
    let text = show(name, &report);
    eprintln!("{text}");
    assert!(report.found.is_none(), "{text}");
    assert!(report.worlds >= floor, "the search has shrunk: {text}");
}

/// Two messages and a run, with one fault at any step: a crash, a lost answer, a stall.
fn two_and_a_run(name: &str, second: Second, [crash, lost, stall]: [usize; 3]) {
    let one = |budget: Budget| scenario(second, budget);
    holds(&format!("{name}, crash"), one(Budget { crashes: 1, ..CALM }), crash);
    holds(&format!("{name}, lost answer"), one(Budget { lost: 1, ..CALM }), lost);
    holds(&format!("{name}, stall"), one(Budget { stalls: 1, ..CALM }), stall);
}

#[test]
fn a_late_repeat_and_a_run_with_each_fault() {
    two_and_a_run("late repeat", Second::RepeatedLate, [428_000, 405_000, 619_000]);
}

#[test]
fn a_soon_repeat_and_a_run_with_each_fault() {
    two_and_a_run("soon repeat", Second::RepeatedSoon, [403_000, 381_000, 570_000]);
}

#[test]
fn other_content_and_a_run_with_each_fault() {
    two_and_a_run("other content", Second::Other, [429_000, 405_000, 636_000]);
}

#[test]
fn two_messages_without_a_run_and_faults_together() {
    let budget = Budget { crashes: 1, lost: 1, transients: 1, runs: 0, ..CALM };
    holds("late repeat, no run", scenario(Second::RepeatedLate, budget), 68_000);
    let budget = Budget { crashes: 1, stalls: 1, runs: 0, ..CALM };
    holds("other content, no run", scenario(Second::Other, budget), 47_000);
}

pub(crate) fn one(budget: Budget) -> Scenario {
    Scenario { start: Start::One, ..scenario(Second::Other, budget) }
}

#[test]
fn one_message_and_a_run_with_faults_together() {
    let early = Budget { crashes: 1, early: 1, ..CALM };
    holds("one message, crash and full sweep", one(early), 148_000);
    holds("one message, crashes", one(Budget { crashes: 2, ..CALM }), 180_000);
    let refused = Budget { refusals: 1, resumes: 1, ..CALM };
    holds("one message, lost and refused", one(Budget { lost: 1, ..refused }), 30_000);
    holds("one message, crash and refused", one(Budget { crashes: 1, ..refused }), 30_000);
    holds("one message, stall and refused", one(Budget { stalls: 1, ..refused }), 61_000);
}

#[test]
fn one_message_and_two_runs() {
    for (cap, floor) in [(1, 39_000), (2, 174_000)] {
        let rules = Rules { mutation: Mutation::None, max_redrives: cap };
        let twice = one(Budget { lost: 1, runs: 2, ..CALM });
        let twice = Scenario { max_failure_ratio: 1.0, rules, ..twice };
        holds(&format!("two runs, cap {cap}"), twice, floor);
    }
}
