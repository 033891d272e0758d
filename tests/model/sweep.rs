//! The sweep, and what happens to the actors: crashes and stalls.
//!
//! A kept token changes nothing, so only deletions and the full sweep's reissues are steps. The full sweep
//! mends a record whose token was not marked as sent; while workers work that is bounded.

use redrive::domain::record::State;
use redrive::domain::sweep::TokenVerdict;

use crate::core::{Core, RecordEvent, RecordStep};
use crate::park::{accept, mark};
use crate::step::{Kind, Mutation, Rules, Steps};
use crate::world::{At, Budget, Exec, Executor, RunState, Stage, Sweep, Worker, World};

pub(crate) fn steps(world: &World, core: &mut Core, out: &mut Steps) {
    let mut next = *world;
    next.sweep = Sweep::Idle;
    match world.sweep {
        Sweep::Idle => look(world, out),
        Sweep::Reissue { record, park, read } => {
            let step = core.record(Some(read), RecordEvent::Reissue { park });
            if let RecordStep::Finish(wrote) = step
                && core.same_record(world.record(record), Some(read))
            {
                next.put_record(record, wrote);
                next.sweep = Sweep::Send { record, wrote };
            }
            out.push(Kind::Own, "sweep sets a new token of record", record, next);
        }
        Sweep::Send { record, wrote } => {
            accept(&mut next, record, wrote);
            next.sweep = Sweep::Mark { record, wrote };
            out.push(Kind::Own, "sweep sends the token of record", record, next);
        }
        Sweep::Mark { record, wrote } => {
            mark(&mut next, record, wrote, core);
            out.push(Kind::Own, "sweep marks the token of record", record, next);
        }
    }
    if world.sweep != Sweep::Idle && world.budget.crashes > 0 {
        let mut crashed = World { sweep: Sweep::Idle, ..*world };
        crashed.budget.crashes -= 1;
        out.push(Kind::Fault, "sweep crashes", 0, crashed);
    }
}

/// The deletion of an outdated token, if there is one. What is outdated stays so, and nobody else reads
/// the DLQ: it is deleted at once, and no other step is looked at before.
pub(crate) fn outdated(world: &World, rules: Rules, core: &mut Core) -> Option<(u8, World)> {
    for record in 0..2_u8 {
        let read = world.record(record);
        if world.dlq[usize::from(record)] == 0 {
            continue;
        }
        for park in (0..16_u8).filter(|park| world.dlq[usize::from(record)] & (1 << park) != 0) {
            let redriving = read.is_some_and(|read| read.state == State::Redriving);
            let mutated = redriving && rules.mutation == Mutation::SweepTakesRedriving;
            if mutated || core.verdict(park, read) == TokenVerdict::Delete {
                let mut next = *world;
                next.dlq[usize::from(record)] &= !(1 << park);
                return Some((record, next));
            }
        }
    }
    None
}

fn look(world: &World, out: &mut Steps) {
    for record in 0..2_u8 {
        let read = world.record(record);
        let Some(read) = read.filter(|r| r.state == State::Quarantined && !r.sent) else {
            continue;
        };
        let early = world.workers.iter().any(|worker| worker.at != At::Idle);
        if early && world.budget.early == 0 {
            continue;
        }
        let mut next = *world;
        next.budget.early -= u8::from(early);
        next.sweep = Sweep::Reissue { record, park: world.fresh_park(record), read };
        out.push(Kind::Own, "sweep finds an unsent token of record", record, next);
    }
}

/// Crashes and stalls. What runs out because its actor is dead is passed in `canon`.
pub(crate) fn fate(world: &World, out: &mut Steps) {
    if world.budget.crashes > 0 {
        crash(world, out);
    }
    if world.budget.stalls > 0 {
        stall(world, out);
    }
}

/// An actor is gone. What it had only read or decided leaves no trace, so that a crash then is the one
/// before it.
fn crash(world: &World, out: &mut Steps) {
    let budget = Budget { crashes: world.budget.crashes - 1, ..world.budget };
    for (i, worker) in world.workers.iter().enumerate() {
        if matches!(
            worker.at,
            At::Claim
                | At::GiveBack
                | At::Run
                | At::Token
                | At::Mark
                | At::ParkEntry
                | At::ParkEntryAlone
                | At::Delete
        ) {
            let mut next = World { budget, ..*world };
            next.workers[i] = Worker::default();
            out.push(Kind::Fault, "worker crashes with message", worker.message.id, next);
        }
    }
    for (e, executor) in world.executors.iter().enumerate() {
        if matches!(executor.at, Exec::Tick | Exec::Send | Exec::Confirm) {
            let mut next = World { budget, ..*world };
            next.executors[e] = Executor::default();
            out.push(Kind::Fault, "executor crashes with run", executor.run, next);
        }
    }
}

/// A lease or a visibility runs out while its owner lives, who will go on later.
fn stall(world: &World, out: &mut Steps) {
    let budget = Budget { stalls: world.budget.stalls - 1, ..world.budget };
    let late = World { budget, ..*world };
    for (slot, run) in world.runs.iter().enumerate() {
        if run.is_some_and(|run| run.state == RunState::Running && !run.over) {
            let mut next = late;
            next.runs[slot].iter_mut().for_each(|run| run.over = true);
            out.push(
                Kind::Fault,
                "executor stalls with run",
                u8::try_from(slot).unwrap() + 1,
                next,
            );
        }
    }
    for (slot, message) in world.source.iter().enumerate() {
        let Some(message) = message.filter(|m| m.in_flight) else { continue };
        let entry = world.entry.filter(|e| e.stage == Stage::InProgress && e.holder == message.id);
        let mut next = World { lease_over: late.lease_over || entry.is_some(), ..late };
        next.source[slot].iter_mut().for_each(|m| m.in_flight = false);
        out.push(Kind::Fault, "worker stalls past its visibility with message", message.id, next);
    }
}
