//! From the small copies to the domain's types and back.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::domain::entry::{self, Attempt, Commit};
use redrive::domain::failure::{Disposition, ErrorCode, Reason};
use redrive::domain::id::{
    EnvelopeKey, LeaseToken, MessageId, ParkToken, QueueName, RecordId, RunId, Sha256Hex,
};
use redrive::domain::ramp::Trip;
use redrive::domain::record::{self, Blocked, EarlierSend, Parking};
use redrive::domain::run::{self, ExecutorLease};
use redrive::domain::time::Wall;

use crate::core::{DAY, EntryEvent, FIRST_SENT, RecordEvent, RunEvent, Second};
use crate::ramp;
use crate::world::{Entry, Record, Run, Stage};

pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const REMEMBER: Duration = Duration::from_secs(30 * 86_400);
pub(crate) const WINDOW: Duration = Duration::from_secs(300);
const NOW: Wall = Wall::from_ms(10_000_000_000);

/// The present: before or after the end of the lease in question.
pub(crate) fn now(over: bool) -> Wall {
    if over { NOW.plus(LEASE) } else { NOW }
}

/// The number at the end of an id.
pub(crate) fn number(id: &str) -> u8 {
    id[1..].parse().unwrap()
}

pub(crate) fn lease_token(token: u8) -> LeaseToken {
    LeaseToken::new(format!("t{token}")).unwrap()
}

pub(crate) fn park_token(park: u8) -> ParkToken {
    ParkToken::new(format!("p{park}")).unwrap()
}

pub(crate) fn run_id(run: u8) -> RunId {
    RunId::new(format!("r{run}")).unwrap()
}

pub(crate) fn sent(second: Second, origin: u8) -> Wall {
    match (origin, second) {
        (0, _) => FIRST_SENT,
        (_, Second::RepeatedSoon) => FIRST_SENT.plus(Duration::from_secs(2)),
        (_, Second::RepeatedLate | Second::Other) => FIRST_SENT.plus(DAY),
    }
}

pub(crate) fn payload(second: Second, origin: u8) -> Sha256Hex {
    let other = origin == 1 && second == Second::Other;
    Sha256Hex::of(if other { b"other" } else { b"same" })
}

fn commit(second: Second, origin: u8, at: u8) -> Commit {
    Commit {
        sent: sent(second, origin),
        hash: payload(second, origin),
        payload: payload(second, origin),
        at: NOW.plus(Duration::from_millis(u64::from(at))),
    }
}

pub(crate) fn entry(second: Second, entry: &Entry) -> entry::Entry {
    let commits = (0_u8..).zip(entry.commits).filter(|(_, at)| *at > 0);
    entry::Entry {
        state: match entry.stage {
            Stage::InProgress => entry::State::InProgress { lease_until: NOW.plus(LEASE) },
            Stage::Open => entry::State::Open,
            Stage::Parked => entry::State::Parked,
            Stage::Committed => entry::State::Committed { at: NOW },
        },
        lease_token: lease_token(entry.token),
        owner: "worker".into(),
        holder: MessageId::new(format!("m{}", entry.holder)).unwrap(),
        generation: NOW.as_ms() + u64::from(entry.generation),
        attempts: u32::from(entry.attempts),
        crashes: u32::from(entry.crashes),
        payload_sha256: Sha256Hex::of(b"the holder's"),
        commits: commits
            .map(|(o, at)| (RecordId::new(format!("m{o}")).unwrap(), commit(second, o, at)))
            .collect(),
        history: Vec::new(),
        expires_at_secs: NOW.plus(REMEMBER).as_secs(),
    }
}

/// Counters stop where nothing in the model asks for more: attempts only tell one write from another.
pub(crate) fn lower_entry(entry: &entry::Entry) -> Entry {
    let small = |n: u32, most| u8::try_from(n.min(most)).unwrap();
    let mut commits = [0; 2];
    for (origin, commit) in &entry.commits {
        commits[usize::from(number(origin.as_str()))] =
            u8::try_from(commit.at.since(NOW).as_millis()).unwrap();
    }
    Entry {
        stage: match entry.state {
            entry::State::InProgress { .. } => Stage::InProgress,
            entry::State::Open => Stage::Open,
            entry::State::Parked => Stage::Parked,
            entry::State::Committed { .. } => Stage::Committed,
        },
        token: number(entry.lease_token.as_str()),
        holder: number(entry.holder.as_str()),
        generation: u8::try_from(entry.generation - NOW.as_ms()).unwrap(),
        attempts: small(entry.attempts, 1),
        crashes: small(entry.crashes, 2),
        commits,
    }
}

pub(crate) fn entry_event(second: Second, entry: &Entry, event: EntryEvent) -> entry::Event {
    match event {
        EntryEvent::Success { origin } => entry::Event::Success {
            origin: RecordId::new(format!("m{origin}")).unwrap(),
            commit: commit(second, origin, entry.commits[0].max(entry.commits[1]) + 1),
        },
        EntryEvent::Transient => entry::Event::Transient(Attempt {
            at: NOW,
            attempt: 1,
            outcome: "transient".into(),
            error_code: ErrorCode::normalize("HTTP_503"),
            error_message: String::new(),
            origin: RecordId::new("m0").unwrap(),
        }),
        EntryEvent::Release => entry::Event::Release,
        EntryEvent::Park => entry::Event::Park(None),
    }
}

fn envelope(put: bool) -> EnvelopeKey {
    EnvelopeKey::new(if put { "put" } else { "missing" }).unwrap()
}

fn parking(park: u8, put: bool) -> Parking {
    Parking {
        key: Sha256Hex::of(b"key").into(),
        payload_sha256: Sha256Hex::of(b"payload"),
        park_token: park_token(park),
        envelope: envelope(put),
        reason: Reason::Validation,
        disposition: Disposition::Permanent,
        error_code: ErrorCode::normalize("CODE"),
        error_message: String::new(),
        attempts: 1,
        labels: BTreeMap::new(),
        group_id: None,
        sequence: None,
        sent: FIRST_SENT,
        first_seen: FIRST_SENT,
    }
}

pub(crate) fn record(r: &Record) -> record::Record {
    let run = (r.run > 0).then(|| run_id(r.run));
    record::Record {
        state: r.state,
        token_sent: r.sent.then_some(NOW),
        blocked: r.blocked.then_some(Blocked::Refused),
        duplicate_of: r.duplicate.then(|| RecordId::new("another").unwrap()),
        expires_at_secs: (r.state == record::State::Resolved).then(|| NOW.plus(REMEMBER).as_secs()),
        ..record::Record::parked(u32::from(r.n), run, &parking(r.park, r.enveloped), NOW)
    }
}

pub(crate) fn lower_record(r: &record::Record) -> Record {
    Record {
        state: r.state,
        n: u8::try_from(r.redrive_count).unwrap(),
        run: r.run_id.as_ref().map_or(0, |run| number(run.as_str())),
        park: number(r.park_token.as_str()),
        sent: r.token_sent.is_some(),
        blocked: r.blocked.is_some(),
        duplicate: r.duplicate_of.is_some(),
        enveloped: r.envelope == envelope(true),
    }
}

pub(crate) fn record_event(existing: Option<&record::Record>, event: RecordEvent) -> record::Event {
    match event {
        RecordEvent::Park { n, run, park, again, put } => {
            let parking = Box::new(match existing {
                Some(record) if again => Parking::again(record, park_token(park)),
                Some(_) | None => parking(park, put),
            });
            if n == 0 {
                record::Event::ParkPlain(parking)
            } else {
                record::Event::ParkCopy { n: u32::from(n), run: Some(run_id(run)), parking }
            }
        }
        RecordEvent::Reissue { park } => {
            let record = existing.unwrap();
            record::Event::ParkPlain(Box::new(Parking::again(record, park_token(park))))
        }
        RecordEvent::Committed { duplicate } => record::Event::Committed {
            duplicate_of: duplicate.then(|| RecordId::new("another").unwrap()),
        },
        RecordEvent::TokenSent { park } => record::Event::TokenSent(park_token(park)),
        RecordEvent::Take { run, cap } => {
            record::Event::Take { run: run_id(run), max_redrives: u32::from(cap) }
        }
        RecordEvent::SendConfirmed { run, n } => {
            record::Event::SendConfirmed { run: run_id(run), n: u32::from(n) }
        }
        RecordEvent::SendRefused { run, n, earlier } => record::Event::SendRefused {
            run: run_id(run),
            n: u32::from(n),
            earlier: if earlier { EarlierSend::Unknown } else { EarlierSend::None },
        },
    }
}

/// `Run::apply`, of which the model keeps state, fence and rev.
pub(crate) fn apply_run(run: Run, event: RunEvent) -> Option<Run> {
    let lease = ExecutorLease { owner: "before".into(), until: NOW.plus(LEASE) };
    let real = run::Run {
        id: run_id(1),
        queue: QueueName::new("orders").unwrap(),
        plan_hash: Sha256Hex::of(b"plan"),
        note: None,
        operator: "operator".into(),
        state: run.state,
        tripped: None,
        policy: ramp::policy(1.0),
        dispatch: redrive::domain::dispatch::Dispatch::default(),
        max_redrives: 3,
        rate: 1.0,
        window: 1,
        place: 0,
        batch: Vec::new(),
        outcome_objects: 0,
        counts: run::Counts::default(),
        lease: (run.state == run::State::Running).then_some(lease),
        fence: u64::from(run.fence),
        desired: None,
        rev: u64::from(run.rev),
        started_at: NOW,
        ended_at: None,
    };
    let event = match event {
        RunEvent::Claim => run::Event::Claim { owner: "after".into(), lease: LEASE },
        RunEvent::Trip => run::Event::Trip(Trip::FailureRatio),
        RunEvent::Complete => run::Event::Complete,
    };
    let next = real.apply(&event, now(run.over)).ok()?;
    Some(Run {
        state: next.state,
        fence: u8::try_from(next.fence).unwrap(),
        rev: u8::try_from(next.rev).unwrap(),
        over: false,
        ..run
    })
}
