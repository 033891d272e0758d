//! Parking as `service::park` orders it: read → envelope → ledger → token → mark.
//!
//! A parking that is finished but for its delete renews nothing. A message whose record has moved on is
//! deleted; if the record is redriving and its token was never sent, token → mark come first. The delete
//! needs the mark, whoever made it: a parking that another one has overtaken is left to it.

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

/// `Deletable::parked`: all is done but the delete.
fn is_finished(record: Record, n: u8) -> bool {
    record.state == State::Quarantined && record.n >= n && record.sent
}

/// `Deletable::superseded`: it has moved on, and will not come back without its token.
fn is_superseded(record: Record, n: u8) -> bool {
    match record.state {
        State::Resolved | State::Discarded => true,
        State::Redriven => record.n > n,
        State::Quarantined | State::Redriving => record.n > n && record.sent,
    }
}

pub(crate) fn park_read(world: &mut World, i: usize, rules: Rules, core: &mut Core) {
    let mut worker = world.workers[i];
    let of = worker.message.origin;
    worker.record = world.record(of);
    worker.resumes &= worker.record.is_some();
    let renews = rules.mutation == Mutation::RenewsMarked;
    let finished = worker.record.is_some_and(|r| is_finished(r, worker.message.n)) && !renews;
    // One that came back unrun was not parked since.
    let unrun = worker.record.is_some_and(|record| record.blocked);
    if (worker.resumes || !worker.owns && !unrun) && finished {
        return delete_next(world, i);
    }
    worker.park = world.fresh_park(of);
    worker.at = match core.record(worker.record, park_event(&worker)) {
        RecordStep::Write(_) if !worker.resumes && !worker.put => At::Vault,
        RecordStep::Finish(_) if finished => return park_entry(world, i, true),
        RecordStep::Write(_) | RecordStep::Finish(_) => At::Park,
        RecordStep::DeleteMessage => {
            let Worker { owns, token, entry, message, record, .. } = worker;
            let calm = Worker { owns, token, entry, message, record, ..Worker::default() };
            world.workers[i] = Worker { at: At::Token, leftover: true, ..calm };
            let forgets = rules.mutation == Mutation::SupersededWithoutToken;
            if forgets || !may_come_back_unsent(record) {
                let goes = record.is_some_and(|record| is_superseded(record, message.n));
                park_entry(world, i, goes || forgets);
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

/// A claim that is still its own parks its entry; then its message goes, or is left.
fn park_entry(world: &mut World, i: usize, goes: bool) {
    let Worker { owns, token, entry, message, .. } = world.workers[i];
    if owns {
        let at = if goes { At::ParkEntry } else { At::ParkEntryAlone };
        world.workers[i] = Worker { at, owns, token, entry, message, ..Worker::default() };
    } else if goes {
        delete_next(world, i);
    } else {
        leave(world, i);
    }
}

/// Marks the token of this worker as sent, or finds why it cannot: the record as it is then decides.
///
/// A mark whose condition fails under the same token is made again upon what the record is then. The failed
/// ones leave no trace, so all are one step: the last.
pub(crate) fn mark_own(world: &mut World, i: usize, rules: Rules, core: &mut Core) {
    let worker = world.workers[i];
    let (of, n) = (worker.message.origin, worker.message.n);
    if let RecordStep::Write(next) =
        core.record(world.record(of), RecordEvent::TokenSent { park: worker.park })
    {
        world.put_record(of, next);
    }
    let goes = world.record(of).is_some_and(|record| {
        is_superseded(record, n) || (!worker.leftover && is_finished(record, n))
    });
    park_entry(world, i, goes || rules.mutation == Mutation::DeletesUnmarked);
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

/// The sweep marks a token as sent, if the record is still as it was written.
pub(crate) fn mark(world: &mut World, of: u8, wrote: Record, core: &mut Core) {
    let event = RecordEvent::TokenSent { park: wrote.park };
    if let RecordStep::Write(next) = core.record(Some(wrote), event)
        && core.same_record(world.record(of), Some(wrote))
    {
        world.put_record(of, next);
    }
}
