//! The conditional writes of a worker: entry, record, or both in one transaction.
//!
//! As in `port::ledger` and `service::held`: a condition that fails shows the item, and our own earlier try
//! is recognised.

use crate::core::{Core, EntryEvent, EntryStep};
use crate::world::{Entry, Record, World};

/// How a conditional write went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    Stored,
    /// Our own token, but not this write: somebody changed the record since our own earlier try.
    Own,
    LeaseLost,
    RecordMoved,
}

/// The conditional write of the entry that is held (`Held::write`).
pub(crate) fn put_entry(world: &mut World, i: usize, event: EntryEvent, core: &mut Core) -> Put {
    let worker = world.workers[i];
    let Some(held) = worker.entry else { return Put::LeaseLost };
    match core.entry(held, worker.token, event) {
        EntryStep::Own => return Put::Own,
        EntryStep::Lost | EntryStep::Illegal => return Put::LeaseLost,
        EntryStep::Write(next) => {
            if core.same_entry(world.entry, Some(held)).0 {
                write_entry(world, i, next, event);
                return Put::Stored;
            }
            if core.same_entry(world.entry, Some(next)).1 {
                return Put::Own;
            }
        }
    }
    Put::LeaseLost
}

pub(crate) fn write_entry(world: &mut World, i: usize, next: Entry, event: EntryEvent) {
    world.entry = Some(next);
    world.lease_over = false;
    world.workers[i].entry = Some(next);
    if let EntryEvent::Success { origin } = event {
        world.note_commit(origin, next.generation);
    }
}

/// The conditional write of a record (`write_record`); our own earlier try counts.
pub(crate) fn put_record(world: &mut World, i: usize, next: Record, core: &mut Core) -> bool {
    let worker = world.workers[i];
    let of = worker.message.origin;
    let now = world.record(of);
    if core.same_record(now, worker.record) {
        world.put_record(of, next);
        world.workers[i].record = Some(next);
        return true;
    }
    if core.same_record(now, Some(next)) {
        world.workers[i].record = now;
        return true;
    }
    false
}

/// Entry and record in one transaction (`Held::write_with`).
pub(crate) fn put_both(
    world: &mut World,
    i: usize,
    event: EntryEvent,
    next: Record,
    core: &mut Core,
) -> Put {
    let worker = world.workers[i];
    let of = worker.message.origin;
    let Some(held) = worker.entry else { return Put::LeaseLost };
    let EntryStep::Write(entry) = core.entry(held, worker.token, event) else { return Put::Own };
    let entry_held = core.same_entry(world.entry, Some(held)).0;
    let record_held = core.same_record(world.record(of), worker.record);
    if entry_held && record_held {
        write_entry(world, i, entry, event);
        world.put_record(of, next);
        world.workers[i].record = Some(next);
        return Put::Stored;
    }
    if core.same_entry(world.entry, Some(entry)).1 && core.same_record(world.record(of), Some(next))
    {
        world.workers[i].record = world.record(of);
        return Put::Stored;
    }
    if entry_held {
        return Put::RecordMoved;
    }
    match world.entry {
        Some(now) if now.token == worker.token => Put::Own,
        Some(_) | None => Put::LeaseLost,
    }
}
