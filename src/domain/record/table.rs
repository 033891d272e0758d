//! The record's table of states and events: one total function, without a wildcard arm.

use std::time::Duration;

use super::{
    Blocked, EarlierSend, Event, IllegalTransition, Parking, Record, Refusal, State, Step,
};
use crate::domain::id::{ParkToken, RunId};
use crate::domain::time::Wall;

/// What an event does to a record. `existing` is the record as read, unless it is absent or expired.
///
/// # Errors
/// The table lists no such event in this state: nothing may be written.
pub fn apply(
    existing: Option<&Record>,
    event: &Event,
    remember: Duration,
    now: Wall,
) -> Result<Step, IllegalTransition> {
    match existing.filter(|record| !record.is_expired(now)) {
        None => apply_absent(event, now),
        Some(record) => match record.state {
            State::Quarantined => apply_quarantined(record, event, remember, now),
            State::Redriving => apply_redriving(record, event, remember, now),
            State::Redriven => apply_redriven(record, event, remember, now),
            State::Resolved => apply_resolved(record, event),
            State::Discarded => apply_discarded(record, event, remember, now),
        },
    }
}

fn write(record: Record) -> Result<Step, IllegalTransition> {
    Ok(Step::Write(Box::new(record)))
}

fn refuse(refusal: Refusal) -> Result<Step, IllegalTransition> {
    Ok(Step::Refused(refusal))
}

fn apply_absent(event: &Event, now: Wall) -> Result<Step, IllegalTransition> {
    match event {
        Event::ParkPlain(parking) => write(Record::parked(0, None, parking, now)),
        Event::ParkCopy { n, run, parking } => write(Record::parked(*n, run.clone(), parking, now)),
        Event::Committed { .. } => Ok(Step::EntryOnly),
        Event::TokenSent(_)
        | Event::Unsendable { .. }
        | Event::Take { .. }
        | Event::SendConfirmed { .. }
        | Event::SendRefused { .. }
        | Event::Settled { .. }
        | Event::Rescue(_)
        | Event::Discard
        | Event::Restore(_)
        | Event::Resolve => Err(IllegalTransition { state: None, event: event.kind() }),
    }
}

fn park_copy(
    record: &Record,
    n: u32,
    run: Option<&RunId>,
    parking: &Parking,
    now: Wall,
) -> Result<Step, IllegalTransition> {
    if n < record.redrive_count {
        return Ok(Step::DeleteMessage);
    }
    write(record.parked_again(n, run.cloned(), parking, now))
}

fn mark_sent(record: &Record, token: &ParkToken, now: Wall) -> Result<Step, IllegalTransition> {
    if record.park_token != *token {
        return refuse(Refusal::Outdated);
    }
    write(Record { token_sent: Some(now), ..record.clone() })
}

fn apply_quarantined(
    record: &Record,
    event: &Event,
    remember: Duration,
    now: Wall,
) -> Result<Step, IllegalTransition> {
    match event {
        Event::ParkPlain(parking) => {
            Ok(Step::FinishParking(Box::new(record.requarantined(&parking.park_token))))
        }
        Event::ParkCopy { n, run, parking } => park_copy(record, *n, run.as_ref(), parking, now),
        Event::Committed { duplicate_of } => {
            write(record.resolved(duplicate_of.clone(), remember, now))
        }
        Event::TokenSent(token) => mark_sent(record, token, now),
        Event::Unsendable { run, .. } | Event::Take { run, .. }
            if record.run_id.as_ref() == Some(run) =>
        {
            refuse(Refusal::HadAlready)
        }
        Event::Unsendable { run, why } => {
            write(Record { run_id: Some(run.clone()), blocked: Some(*why), ..record.clone() })
        }
        Event::Take { run, max_redrives } => {
            let at_cap = record.redrive_count >= *max_redrives;
            write(Record {
                state: if at_cap { State::Discarded } else { State::Redriving },
                redrive_count: record.redrive_count.saturating_add(u32::from(!at_cap)),
                run_id: Some(run.clone()),
                ..record.clone()
            })
        }
        Event::SendConfirmed { .. } => Ok(Step::CountsAsSent),
        Event::Discard => write(Record { state: State::Discarded, ..record.clone() }),
        Event::Resolve => write(record.resolved(None, remember, now)),
        Event::SendRefused { .. }
        | Event::Settled { .. }
        | Event::Rescue(_)
        | Event::Restore(_) => {
            Err(IllegalTransition { state: Some(record.state), event: event.kind() })
        }
    }
}

fn apply_redriving(
    record: &Record,
    event: &Event,
    remember: Duration,
    now: Wall,
) -> Result<Step, IllegalTransition> {
    match event {
        Event::ParkPlain(_) => Ok(Step::DeleteMessage),
        Event::ParkCopy { n, run, parking } => park_copy(record, *n, run.as_ref(), parking, now),
        Event::Committed { duplicate_of } => {
            write(record.resolved(duplicate_of.clone(), remember, now))
        }
        Event::TokenSent(token) => mark_sent(record, token, now),
        Event::Take { .. } => refuse(Refusal::Moved),
        Event::SendConfirmed { run, n } | Event::SendRefused { run, n, .. }
            if record.run_id.as_ref() != Some(run) || record.redrive_count != *n =>
        {
            refuse(Refusal::Outdated)
        }
        Event::Settled { run } if record.run_id.as_ref() != Some(run) => refuse(Refusal::Outdated),
        Event::SendConfirmed { .. } => {
            write(Record { state: State::Redriven, redriven_at: Some(now), ..record.clone() })
        }
        Event::SendRefused { n, earlier, .. } => {
            let n = match earlier {
                EarlierSend::None => n.saturating_sub(1),
                EarlierSend::Unknown => *n,
            };
            write(record.came_back(n, Blocked::Refused))
        }
        Event::Settled { .. } => write(record.came_back(record.redrive_count, Blocked::Unsettled)),
        Event::Discard | Event::Restore(_) | Event::Resolve => {
            refuse(Refusal::InRun(record.run_id.clone()))
        }
        Event::Unsendable { .. } | Event::Rescue(_) => {
            Err(IllegalTransition { state: Some(record.state), event: event.kind() })
        }
    }
}

fn apply_redriven(
    record: &Record,
    event: &Event,
    remember: Duration,
    now: Wall,
) -> Result<Step, IllegalTransition> {
    match event {
        Event::ParkPlain(_) => Ok(Step::DeleteMessage),
        Event::ParkCopy { n, run, parking } => park_copy(record, *n, run.as_ref(), parking, now),
        Event::Committed { duplicate_of } => {
            write(record.resolved(duplicate_of.clone(), remember, now))
        }
        Event::Take { .. } => refuse(Refusal::Moved),
        Event::SendConfirmed { .. } => Ok(Step::CountsAsSent),
        Event::Rescue(token) => {
            write(Record { blocked: Some(Blocked::Rescued), ..record.requarantined(token) })
        }
        Event::Discard | Event::Restore(_) | Event::Resolve => refuse(Refusal::RescueFirst),
        Event::TokenSent(_)
        | Event::Unsendable { .. }
        | Event::SendRefused { .. }
        | Event::Settled { .. } => {
            Err(IllegalTransition { state: Some(record.state), event: event.kind() })
        }
    }
}

fn apply_resolved(record: &Record, event: &Event) -> Result<Step, IllegalTransition> {
    match event {
        Event::ParkPlain(_) | Event::ParkCopy { .. } => Ok(Step::DeleteMessage),
        Event::Committed { .. } => Ok(Step::EntryOnly),
        Event::Take { .. } => refuse(Refusal::Moved),
        Event::SendConfirmed { .. } => Ok(Step::CountsAsSent),
        Event::TokenSent(_)
        | Event::Unsendable { .. }
        | Event::SendRefused { .. }
        | Event::Settled { .. }
        | Event::Rescue(_)
        | Event::Discard
        | Event::Restore(_)
        | Event::Resolve => {
            Err(IllegalTransition { state: Some(record.state), event: event.kind() })
        }
    }
}

fn apply_discarded(
    record: &Record,
    event: &Event,
    remember: Duration,
    now: Wall,
) -> Result<Step, IllegalTransition> {
    match event {
        Event::ParkPlain(_) | Event::ParkCopy { .. } => Ok(Step::DeleteMessage),
        Event::Committed { duplicate_of } => {
            write(record.resolved(duplicate_of.clone(), remember, now))
        }
        Event::Take { .. } => refuse(Refusal::Moved),
        Event::Restore(token) => write(record.requarantined(token)),
        Event::Resolve => write(record.resolved(None, remember, now)),
        Event::TokenSent(_)
        | Event::Unsendable { .. }
        | Event::SendConfirmed { .. }
        | Event::SendRefused { .. }
        | Event::Settled { .. }
        | Event::Rescue(_)
        | Event::Discard => {
            Err(IllegalTransition { state: Some(record.state), event: event.kind() })
        }
    }
}
