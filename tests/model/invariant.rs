//! What must hold in every world, and in one where nothing more happens by itself.

use redrive::domain::record::State;

use crate::core::{Core, Second};
use crate::ramp::CANARY;
use crate::search::Scenario;
use crate::world::{At, Breach, Fate, Record, RunState, Sweep, World};

/// The first breach of a guarantee in this world.
pub(crate) fn breach(world: &World, scenario: &Scenario, core: &mut Core) -> Option<Breach> {
    if world.breach.is_some() {
        return world.breach;
    }
    for of in 0..2 {
        if let Some(breach) = message(world, of, core) {
            return Some(breach);
        }
    }
    if scenario.second != Second::RepeatedLate && world.generations.count_ones() > 1 {
        return Some(Breach::WorkTwice);
    }
    (1..=2).find_map(|run| doubt(world, run, core))
}

fn message(world: &World, of: u8, core: &mut Core) -> Option<Breach> {
    let record = world.record(of);
    let in_source = world.source.iter().flatten().any(|m| m.origin == of);
    let committed = world.origins & (1 << of) != 0;
    let done = committed || core.is_done(world.entry, of, 0);
    if !in_source && !done && !record.is_some_and(|r| r.enveloped) {
        return Some(Breach::Lost);
    }
    let record = record?;
    let waits = matches!(record.state, State::Quarantined | State::Redriving);
    if waits && record.sent && !world.has_token(of) {
        return Some(Breach::TokenGone);
    }
    let hidden = record.state == State::Quarantined && !in_source && !world.has_token(of);
    if hidden && !is_to_be_sent(world, of, record) {
        return Some(Breach::Hidden);
    }
    let proven = committed || (record.duplicate && core.is_done(world.entry, of, 1));
    (record.state == State::Resolved && !proven).then_some(Breach::ResolvedWithoutCommit)
}

/// Somebody is about to send this token.
fn is_to_be_sent(world: &World, of: u8, record: Record) -> bool {
    let sends = world.workers.iter().any(|worker| {
        let park = worker.record.map(|record| record.park);
        worker.at == At::Token && worker.message.origin == of && park == Some(record.park)
    });
    let sweeps = |wrote: Record| wrote.park == record.park;
    sends || matches!(world.sweep, Sweep::Send { record, wrote } if record == of && sweeps(wrote))
}

/// G5. Copies of a run that is closed are still in doubt, but nothing is added to them.
fn doubt(world: &World, run: u8, core: &mut Core) -> Option<Breach> {
    world.runs[usize::from(run) - 1]?;
    let fates =
        [0, 1].map(|of| world.record(of).map(|record| (record, core_fate(core, record, run))));
    let count = |fate| fates.iter().flatten().filter(|(r, f)| *f == fate && r.run == run).count();
    let proven = count(Fate::Resolved).max(usize::from(CANARY));
    (count(Fate::InDoubt) > proven).then_some(Breach::Doubt)
}

fn core_fate(core: &mut Core, record: Record, run: u8) -> Fate {
    core.standing(Some(record), run)
}

/// Whether a world in which nothing more happens by itself is one in which nothing more needs to.
pub(crate) fn is_settled(world: &World, core: &mut Core) -> bool {
    let runs_rest = world.runs.iter().flatten().all(|run| run.state != RunState::Running);
    let messages_rest = (0..2).all(|of| match world.record(of) {
        None => world.origins & (1 << of) != 0 || core.is_done(world.entry, of, 0),
        Some(record) => match record.state {
            State::Quarantined => {
                world.has_token(of) && world.dlq[usize::from(of)].count_ones() == 1
            }
            State::Redriving | State::Redriven => false,
            State::Resolved | State::Discarded => world.dlq[usize::from(of)] == 0,
        },
    });
    runs_rest && messages_rest && world.source.iter().all(Option::is_none)
}
