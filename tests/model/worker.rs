//! A worker, step by step as `service::{process, claim, held, park, commit}` order their side effects.
//!
//! A step is one call to a dependency with what is decided from its answer. Reads that the shell makes
//! right after each other are one step. Any write may be made and its answer lost: the worker then makes
//! it again, or gives up and releases its claim.

use redrive::domain::delivery::Then;

use crate::core::{Core, EntryEvent, EntryStep, Met, RecordEvent, RecordStep};
use crate::park::{accept, mark_own, park, park_read};
use crate::step::{Kind, Mutation, Rules, Steps};
use crate::world::{At, Breach, Budget, Worker, World};
use crate::write::{Put, put_both, put_entry, put_record, write_entry};

pub(crate) fn steps(world: &World, i: usize, rules: Rules, core: &mut Core, out: &mut Steps) {
    let worker = world.workers[i];
    let of = worker.message.id;
    if worker.at == At::Idle {
        receive(world, i, rules, core, out);
        return;
    }
    if worker.at == At::Run {
        run(world, i, out);
        return;
    }
    let next = act(world, i, rules, core);
    out.push(Kind::Own, worker.at.name(), of, next);
    if world.budget.lost > 0 && worker.at.is_call() {
        lose(world, i, next, out);
    }
}

/// The worker whose step is made at once, with no other looked at before. An envelope concerns nobody else. A
/// delete that nothing can prevent any more, and whose evidence will last, changes nothing for anybody else
/// either; and a message that is there excuses more than one that is gone.
pub(crate) fn surely(world: &World, rules: Rules, core: &mut Core) -> Option<usize> {
    let Budget { crashes, lost, stalls, .. } = world.budget;
    let calm = crashes + lost + stalls == 0 && rules.mutation == Mutation::None;
    (0..2).find(|i| {
        let Worker { at, message, .. } = world.workers[*i];
        let mut source = world.source.iter().flatten();
        at == At::Vault
            || at == At::Delete
                && calm
                && source.any(|m| m.id == message.id && m.in_flight)
                && world.evidence_lasts(message, core)
    })
}

/// The call was made, or not, and no answer came.
fn lose(world: &World, i: usize, made: World, out: &mut Steps) {
    let worker = world.workers[i];
    let of = worker.message.id;
    let mut lost = made;
    lost.workers[i] = worker;
    lost.budget.lost -= 1;
    if worker.at == At::Claim {
        lost.workers[i].at = At::GiveBack;
        lost.workers[i].entry = lost.entry;
        if lost.entry.is_some_and(|entry| entry.token == worker.token) {
            out.push(Kind::Fault, "claims, its answer lost", of, lost);
        }
        return;
    }
    let mut gave_up = lost;
    if worker.at == At::Delete {
        gave_up = World { budget: lost.budget, ..*world };
        leave(&mut gave_up, i);
        out.push(Kind::Fault, "fails to delete the message", of, gave_up);
        return;
    }
    out.push(Kind::Fault, "makes a call whose answer is lost", of, lost);
    give_up(&mut gave_up, i);
    out.push(Kind::Fault, "makes a call whose answer is lost, and gives up", of, gave_up);
    if worker.at == At::Mark {
        let mut unmarked = World { budget: lost.budget, ..*world };
        give_up(&mut unmarked, i);
        out.push(Kind::Fault, "fails to mark the token of message", of, unmarked);
    }
}

/// A dependency's fault: a claim is released, the message goes back.
fn give_up(world: &mut World, i: usize) {
    if world.workers[i].owns {
        world.workers[i].at = At::Release;
    } else {
        leave(world, i);
    }
}

/// The message goes back to the source, or stays in flight until its visibility ends: see `canon`.
pub(crate) fn leave(world: &mut World, i: usize) {
    world.workers[i] = Worker::default();
}

fn receive(world: &World, i: usize, rules: Rules, core: &mut Core, out: &mut Steps) {
    if i == 1 && world.workers[0].at == At::Idle {
        return;
    }
    for slot in 0..world.source.len() {
        let Some(message) = world.source[slot].filter(|m| !m.in_flight) else { continue };
        let mut next = *world;
        let plain = message.n == 0;
        next.source[slot].iter_mut().for_each(|m| (m.seen, m.in_flight) = (plain, true));
        let token = next.fresh_lease();
        next.workers[i] = Worker { message, token, ..Worker::default() };
        meet(&mut next, i, rules, core);
        if next.workers[i].at != At::Idle {
            out.push(Kind::Own, "is received", message.id, next);
        }
    }
}

/// `decide_claim` and what follows from it.
fn meet(world: &mut World, i: usize, rules: Rules, core: &mut Core) {
    let worker = world.workers[i];
    let met = core.meet(world.entry, worker.message, worker.token, world.lease_over);
    let calm = Worker { token: 0, entry: None, ..worker };
    let plain = worker.message.n == 0;
    let origin = worker.message.origin;
    let forgets = rules.mutation == Mutation::RepeatUnresolved;
    world.workers[i] = match met {
        Met::Done { by } if plain && (by == origin || forgets) => Worker { at: At::Delete, ..calm },
        Met::Done { by } => Worker { at: At::DoneRead, duplicate: by != origin, ..calm },
        Met::Mismatch => Worker { at: At::ParkRead, ..calm },
        Met::Finish => Worker { at: At::ParkRead, resumes: true, ..calm },
        Met::Take(..) => Worker { at: At::Claim, entry: world.entry, ..worker },
        Met::Refused => {
            // Received and given back: it only waits.
            return leave(world, i);
        }
    };
}

fn run(world: &World, i: usize, out: &mut Steps) {
    let worker = world.workers[i];
    let of = worker.message.id;
    let go = |at| {
        let mut next = *world;
        next.workers[i].at = at;
        next
    };
    // When the fix comes matters to a handler's run alone: it comes just before the first that runs well.
    let at = if worker.message.n == 0 { At::Commit } else { At::CommitRead };
    let well = World { fixed: true, ..go(at) };
    if world.fixed {
        out.push(Kind::Own, "runs well", of, well);
    } else {
        out.push(Kind::Own, "fails", of, go(At::ParkRead));
        out.push(Kind::Outside, "runs well after the fix", of, well);
    }
    if world.budget.transients > 0 {
        for (what, at) in
            [("fails for now", At::Transient), ("meets a dependency's fault", At::Release)]
        {
            let mut next = go(at);
            next.budget.transients -= 1;
            out.push(Kind::Fault, what, of, next);
        }
    }
}

pub(crate) fn act(world: &World, i: usize, rules: Rules, core: &mut Core) -> World {
    let mut next = *world;
    let worker = world.workers[i];
    match worker.at {
        At::Idle | At::Run => {}
        At::Claim => claim(&mut next, i, rules, core),
        At::GiveBack | At::Release => {
            put_entry(&mut next, i, EntryEvent::Release, core);
            leave(&mut next, i);
        }
        At::Transient => {
            let put = put_entry(&mut next, i, EntryEvent::Transient, core);
            settle(&mut next, i, put, At::Idle);
        }
        At::ReadRecord => {
            let known = next.record(worker.message.origin).is_some();
            next.workers[i].at = if known { At::ParkRead } else { At::Run };
        }
        At::CommitRead | At::DoneRead => resolve(&mut next, i, core),
        At::Commit => commit(&mut next, i, rules, core),
        At::ParkRead => park_read(&mut next, i, rules, core),
        At::Vault => {
            next.workers[i].put = true;
            next.workers[i].at = At::Park;
        }
        At::Park => park(&mut next, i, rules, core),
        At::ParkEntry | At::ParkEntryAlone => {
            let put = put_entry(&mut next, i, EntryEvent::Park, core);
            let goes = worker.at == At::ParkEntry;
            settle(&mut next, i, put, if goes { At::Delete } else { At::Idle });
        }
        At::Token => {
            if let Some(record) = worker.record {
                accept(&mut next, worker.message.origin, record);
                next.workers[i] =
                    Worker { at: At::Mark, park: record.park, record: None, ..worker };
            }
        }
        At::Mark => mark_own(&mut next, i, rules, core),
        At::Done => {
            let event = RecordEvent::Committed { duplicate: worker.duplicate };
            match core.record(worker.record, event) {
                RecordStep::Write(to) if put_record(&mut next, i, to, core) => {
                    delete_next(&mut next, i);
                }
                _ => next.workers[i].at = At::DoneRead,
            }
        }
        At::Delete => {
            if !next.may_delete(worker.message, core) {
                next.breach = Some(Breach::DeletedWithoutEvidence);
            }
            let slots = next.source.iter_mut();
            slots.filter(|s| s.is_some_and(|m| m.id == worker.message.id)).for_each(|s| *s = None);
            leave(&mut next, i);
        }
    }
    next
}

/// Where the worker goes after a write of the entry; `Idle` gives the message back.
fn settle(world: &mut World, i: usize, put: Put, at: At) {
    match (put, at) {
        (Put::Stored | Put::Own, At::Idle) => leave(world, i),
        (Put::Stored | Put::Own, At::Delete) => delete_next(world, i),
        (Put::Stored | Put::Own, at) => world.workers[i].at = at,
        (Put::LeaseLost | Put::RecordMoved, _) => leave(world, i),
    }
}

pub(crate) fn delete_next(world: &mut World, i: usize) {
    let message = world.workers[i].message;
    world.workers[i] = Worker { at: At::Delete, message, ..Worker::default() };
}

fn claim(world: &mut World, i: usize, rules: Rules, core: &mut Core) {
    let worker = world.workers[i];
    if !core.same_entry(world.entry, worker.entry).0 {
        return meet(world, i, rules, core);
    }
    let met = core.meet(world.entry, worker.message, worker.token, world.lease_over);
    let Met::Take(entry, then) = met else { return meet(world, i, rules, core) };
    let at = match then {
        Then::Run => At::Run,
        Then::ReadRecord => At::ReadRecord,
        Then::ParkCrashed => At::ParkRead,
    };
    world.entry = Some(entry);
    // A lease is counted from the receive: a claim that comes too late is over when it is written.
    world.lease_over =
        !world.source.iter().flatten().any(|m| m.id == worker.message.id && m.in_flight);
    world.workers[i] = Worker { at, entry: Some(entry), owns: true, token: entry.token, ..worker };
}

/// Reads the record that a commit or a duplicate resolves.
fn resolve(world: &mut World, i: usize, core: &mut Core) {
    let worker = world.workers[i];
    let record = world.record(worker.message.origin);
    let commits = worker.at == At::CommitRead;
    let duplicate = worker.duplicate;
    match core.record(record, RecordEvent::Committed { duplicate }) {
        RecordStep::Write(_) => {
            let at = if commits { At::Commit } else { At::Done };
            world.workers[i] = Worker { at, record, ..worker };
        }
        RecordStep::Illegal => world.breach = Some(Breach::Illegal),
        _ if commits => world.workers[i] = Worker { at: At::Commit, record: None, ..worker },
        _ => delete_next(world, i),
    }
}

fn commit(world: &mut World, i: usize, rules: Rules, core: &mut Core) {
    let worker = world.workers[i];
    let event = EntryEvent::Success { origin: worker.message.origin };
    let resolved =
        worker.record.map(|r| core.record(Some(r), RecordEvent::Committed { duplicate: false }));
    if rules.mutation == Mutation::UnconditionalCommit && worker.record.is_none() {
        if let Some(EntryStep::Write(next)) =
            worker.entry.map(|e| core.entry(e, worker.token, event))
        {
            write_entry(world, i, next, event);
        }
        return delete_next(world, i);
    }
    let put = match resolved {
        Some(RecordStep::Write(next)) => put_both(world, i, event, next, core),
        Some(_) | None => put_entry(world, i, event, core),
    };
    match put {
        Put::RecordMoved => {
            world.workers[i] = Worker { at: At::CommitRead, record: None, ..worker }
        }
        put => settle(world, i, put, At::Delete),
    }
}
