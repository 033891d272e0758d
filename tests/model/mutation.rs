//! Rules of the shell broken on purpose: the search must find what follows, or it proves nothing.

use crate::core::Second;
use crate::protocol::{CALM, scenario, show};
use crate::search::{Scenario, search};
use crate::step::{Mutation, Rules};
use crate::world::{Breach, Budget};

fn finds(mutation: Mutation, expected: Breach, second: Second, budget: Budget) {
    let rules = Rules { mutation, max_redrives: 1 };
    let report = search(Scenario { rules, ..scenario(second, budget) });
    let text = show(&format!("{mutation:?}"), &report);
    eprintln!("{text}");
    assert_eq!(report.found.map(|found| found.breach), Some(expected), "{text}");
}

#[test]
fn a_commit_that_ignores_the_lease_token_is_found() {
    let budget = Budget { stalls: 1, runs: 0, ..CALM };
    let mutation = Mutation::UnconditionalCommit;
    finds(mutation, Breach::GenerationTwice, Second::RepeatedLate, budget);
}

#[test]
fn a_delete_before_the_token_is_found() {
    let mutation = Mutation::DeleteBeforeToken;
    finds(mutation, Breach::DeletedWithoutEvidence, Second::Other, CALM);
}

#[test]
fn a_sweep_that_takes_a_redriving_record_for_gone_is_found() {
    finds(Mutation::SweepTakesRedriving, Breach::TokenGone, Second::Other, CALM);
}

#[test]
fn a_take_that_is_not_fenced_is_found() {
    let budget = Budget { stalls: 1, ..CALM };
    finds(Mutation::UnfencedTake, Breach::StaleTake, Second::RepeatedSoon, budget);
}

#[test]
fn a_run_that_ignores_what_is_in_doubt_is_found() {
    finds(Mutation::IgnoredDoubt, Breach::Doubt, Second::RepeatedLate, CALM);
}
