//! Parking as `service::park` orders it: read → envelope → ledger → token → mark.
//!
//! A message whose record has moved on is deleted; if the record is redriving and its token was never sent,
//! token → mark come first.

use redrive::domain::record::State;

use crate::core::{Core, EntryEvent, RecordEvent, RecordStep};
use crate::step::{Mutation, Rules};
use crate::worker::{delete_next, leave};
use crate::world::{At, Breach, Record, Worker, World};
use crate::write::{Put, put_both, put_record};

fn park_event(worker: &Worker) -> RecordEvent {
    RecordEvent::Park {
        n: worker.message.n,
        run: worker.message.run,
        park: worker.park,
        again: worker.resumes,
        put: worker.put,
    }
}

/// Should its copy be refused, it comes back with a token that nobody has sent.
fn may_come_back_unsent(record: Option<Record>) -> bool {
    record.is_some_and(|record| record.state == State::Redriving && !record.sent)
}

pub(crate) fn park_read(world: &mut World, i: usize, rules: Rules, core: &mut Core) {
    let mut worker = world.workers[i];
    let of = worker.message.origin;
    worker.record = world.record(of);
    worker.resumes &= worker.record.is_some();
    worker.park = world.fresh_park(of);
    worker.at = match core.record(worker.record, park_event(&worker)) {
        RecordStep::Write(_) if !worker.resumes && !worker.put => At::Vault,
        RecordStep::Write(_) | RecordStep::Finish(_) => At::Park,
        RecordStep::DeleteMessage => {
            let Worker { owns, token, entry, message, record, .. } = worker;
            let sends =
                may_come_back_unsent(record) && rules.mutation != Mutation::SupersededWithoutToken;
            let record = record.filter(|_| sends);
            world.workers[i] =
                Worker { at: At::Token, owns, token, entry, message, record, ..Worker::default() };
            if !sends {
                marked(world, i);
            }
            return;
        }
        RecordStep::Nothing | RecordStep::Refused | RecordStep::Illegal => {
            world.breach = Some(Breach::Illegal);
            return;
        }
    };
    world.workers[i] = worker;
}

/// Where a worker goes whose token is sent: a claim that is still its own parks its entry.
pub(crate) fn marked(world: &mut World, i: usize) {
    let worker = world.workers[i];
    if worker.owns {
        world.workers[i] = Worker { at: At::Superseded, record: None, ..worker };
    } else {
        delete_next(world, i);
    }
}

pub(crate) fn park(world: &mut World, i: usize, rules: Rules, core: &mut Core) {
    let worker = world.workers[i];
    let (RecordStep::Write(next) | RecordStep::Finish(next)) =
        core.record(worker.record, park_event(&worker))
    else {
        return;
    };
    let put = if worker.owns {
        put_both(world, i, EntryEvent::Park, next, core)
    } else if put_record(world, i, next, core) {
        Put::Stored
    } else {
        Put::RecordMoved
    };
    match put {
        Put::Stored if rules.mutation == Mutation::DeleteBeforeToken => delete_next(world, i),
        Put::Stored => {
            let worker = world.workers[i];
            let Worker { message, record, .. } = worker;
            world.workers[i] = Worker { at: At::Token, message, record, ..Worker::default() };
        }
        Put::RecordMoved => {
            world.workers[i] = Worker { at: At::ParkRead, park: 0, record: None, ..worker }
        }
        // The record moved under our own earlier try: contended, the message goes back.
        Put::Own => leave(world, i),
        Put::LeaseLost => leave(world, i),
    }
}

/// The DLQ accepts the token of this record as it was written.
pub(crate) fn accept(world: &mut World, of: u8, record: Record) {
    let of = usize::from(of);
    world.dlq[of] |= 1 << record.park;
    // That of a redriving record stands for what the run took, not for the copy.
    let next = record.n + u8::from(record.state == State::Quarantined);
    world.accepted[of] = world.accepted[of].max(next);
}

/// Marks a token as sent, if the record is still as it was written.
pub(crate) fn mark(world: &mut World, of: u8, wrote: Option<Record>, core: &mut Core) {
    let Some(wrote) = wrote else { return };
    let event = RecordEvent::TokenSent { park: wrote.park };
    if let RecordStep::Write(next) = core.record(Some(wrote), event)
        && core.same_record(world.record(of), Some(wrote))
    {
        world.put_record(of, next);
    }
}
