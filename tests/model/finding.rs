//! What the search found in the protocol, kept as mutations that it must find again.
//!
//! Each leaves a quarantined record whose message is gone and whose token is not in the DLQ. Nothing is lost,
//! but the DLQ's depth does not show it. A worker dies between the ledger and the token; then
//!
//! * a run takes the record, so that the message is a leftover, and its copy is refused. Since then the
//!   leftover sends that token before it goes;
//! * the message is done as a repeat. Since then its record is resolved, as a copy's is;
//! * the token it renewed was in the DLQ, and who had sent that one had stalled and deletes the message. Since
//!   then the delete needs the mark, and what is marked is not renewed.

use crate::core::Second;
use crate::protocol::{CALM, one, scenario, show};
use crate::search::{Scenario, search};
use crate::step::{Mutation, Rules};
use crate::world::{Breach, Budget, Start};

fn mutated(mutation: Mutation, scenario: Scenario) -> Scenario {
    Scenario { rules: Rules { mutation, max_redrives: 1 }, ..scenario }
}

fn refused(budget: Budget) -> Scenario {
    one(Budget { refusals: 1, ..budget })
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
    assert!(finds("a refused send, a crash", refused(CRASH), None) >= 17_000);
    let lost = refused(Budget { lost: 1, ..CALM });
    assert!(finds("a refused send, a lost answer", lost, None) >= 16_000);
    let stall = refused(Budget { stalls: 1, ..CALM });
    assert!(finds("a refused send, a stall", stall, None) >= 34_000);
}

#[test]
fn a_superseded_message_that_is_deleted_without_its_token_is_found() {
    let mutated = mutated(Mutation::SupersededWithoutToken, refused(CRASH));
    finds("no token", mutated, Some(Breach::DeletedWithoutEvidence));
}

#[test]
fn an_outcome_that_a_mark_makes_the_executor_forget_is_found() {
    let mutated = mutated(Mutation::SettledOnce, refused(CRASH));
    finds("settled once", mutated, Some(Breach::Stuck));
}

#[test]
fn a_repeat_that_is_deleted_with_its_record_unresolved_is_found() {
    let crash = scenario(Second::RepeatedSoon, Budget { runs: 0, ..CRASH });
    finds("a repeat and a crash", crash, None);
    let mutated = mutated(Mutation::RepeatUnresolved, crash);
    finds("unresolved", mutated, Some(Breach::Hidden));
}

/// A token is renewed only while it is not marked, hence while the message is there: whoever renews it may die
/// before the new one is sent.
#[test]
fn whoever_renews_a_token_may_die_before_it_is_sent() {
    let lost = one(Budget { lost: 1, runs: 0, ..CRASH });
    assert!(finds("a full sweep dies", lost, None) >= 330);
    let stall = one(Budget { stalls: 1, runs: 0, ..CRASH });
    assert!(finds("finished twice", stall, None) >= 870);
    let early = Budget { stalls: 1, lost: 1, early: 1, runs: 0, ..CRASH };
    assert!(finds("both", one(early), None) >= 12_300);
}

#[test]
fn a_parking_that_is_finished_and_renewed_is_found() {
    let stall = one(Budget { stalls: 1, runs: 0, ..CRASH });
    finds("renewed", mutated(Mutation::RenewsMarked, stall), Some(Breach::Hidden));
}

#[test]
fn a_message_that_is_deleted_though_its_mark_was_refused_is_found() {
    let stall = one(Budget { stalls: 1, runs: 0, ..CRASH });
    finds("unmarked", mutated(Mutation::DeletesUnmarked, stall), Some(Breach::Hidden));
}

/// A message whose payload another one contradicts is parked once, whoever receives it, and so is its copy:
/// parked anew by each delivery, one that dies before its token is sent would leave the record hidden if an
/// earlier one, which had stalled, then deletes the copy.
#[test]
fn a_copy_of_a_mismatch_is_parked_once() {
    let budget = Budget { stalls: 1, runs: 0, ..CRASH };
    let copy = Scenario { start: Start::Copy, ..scenario(Second::Other, budget) };
    finds("a copy's mismatch", copy, None);
    for fault in [Budget { crashes: 0, ..budget }, Budget { stalls: 0, ..budget }] {
        finds("a copy's mismatch, one fault", Scenario { budget: fault, ..copy }, None);
    }
    let late = Scenario { start: Start::Copy, ..scenario(Second::RepeatedLate, budget) };
    finds("a late repeat's copy", late, None);
}
