//! What the search found in the protocol: what it finds no more, and what is left to the full sweep.
//!
//! A worker dies between the ledger and the token; then its message is deleted, though the record comes back
//! to quarantine with the token that was never sent. Nothing is lost, but the DLQ's depth does not show it.
//!
//! * A run takes the record, so that the message is a leftover, and its copy is refused. Since then the
//!   leftover sends that token before it goes.
//! * The message is done as a repeat. Since then its record is resolved, as a copy's is.

use crate::core::Second;
use crate::protocol::{CALM, one, scenario, show};
use crate::search::{Scenario, search};
use crate::step::{Mutation, Rules};
use crate::world::{Breach, Budget};

fn mutated(mutation: Mutation, scenario: Scenario) -> Scenario {
    Scenario { rules: Rules { mutation, max_redrives: 1 }, ..scenario }
}

fn refused(budget: Budget) -> Scenario {
    Scenario { forgives: false, ..one(Budget { refusals: 1, ..budget }) }
}

fn finds(name: &str, scenario: Scenario, expected: Option<Breach>) -> usize {
    let report = search(scenario);
    let text = show(name, &report);
    eprintln!("{text}");
    assert_eq!(report.found.map(|found| found.breach), expected, "{text}");
    report.worlds
}

const CRASH: Budget = Budget { crashes: 1, ..CALM };

#[test]
fn a_record_that_comes_back_has_its_token_whenever_its_message_is_gone() {
    let crash = Scenario { forgives: true, ..refused(CRASH) };
    assert!(finds("a refused send, a crash", crash, None) >= 5_000);
    let lost = refused(Budget { lost: 1, ..CALM });
    assert!(finds("a refused send, a lost answer", lost, None) >= 5_000);
    let stall = refused(Budget { stalls: 1, ..CALM });
    assert!(finds("a refused send, a stall", stall, None) >= 5_000);
}

#[test]
fn a_superseded_message_that_is_deleted_without_its_token_is_found() {
    let mutated = mutated(Mutation::SupersededWithoutToken, refused(CRASH));
    finds("no token", mutated, Some(Breach::DeletedWithoutEvidence));
}

#[test]
fn an_outcome_that_a_mark_makes_the_executor_forget_is_found() {
    let mutated = mutated(Mutation::SettledOnce, Scenario { forgives: true, ..refused(CRASH) });
    finds("settled once", mutated, Some(Breach::Stuck));
}

#[test]
fn a_repeat_that_is_deleted_with_its_record_unresolved_is_found() {
    let crash = scenario(Second::RepeatedSoon, Budget { runs: 0, ..CRASH });
    finds("a repeat and a crash", crash, None);
    let mutated = mutated(Mutation::RepeatUnresolved, crash);
    finds("unresolved", mutated, Some(Breach::Hidden));
}

/// Not mended but by the next full sweep, which finds the record by its unsent token. The full sweep dies
/// between a new token in the ledger and in the DLQ, where one was that it has made outdated.
#[test]
fn a_full_sweep_that_dies_leaves_a_record_to_the_next_one() {
    let lost = one(Budget { lost: 1, runs: 0, ..CRASH });
    assert!(finds("forgiven", lost, None) >= 400);
    let strict = Scenario { forgives: false, ..lost };
    finds("a full sweep dies", strict, Some(Breach::Hidden));
}

/// The same of a worker that dies while it finishes a parking anew: another one, whose token was in the DLQ,
/// had stalled and deletes the message all the same.
#[test]
fn a_worker_that_finishes_what_another_had_finished_may_leave_it_to_the_full_sweep() {
    let stall = one(Budget { stalls: 1, runs: 0, ..CRASH });
    assert!(finds("forgiven", stall, None) >= 500);
    let strict = Scenario { forgives: false, ..stall };
    finds("finished twice", strict, Some(Breach::Hidden));
}
