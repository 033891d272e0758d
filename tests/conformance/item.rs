//! Entries, records and runs to write.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::domain::dispatch::Dispatch;
use redrive::domain::entry::{Claim, Claimed, Commit, Entry, Event, Step};
use redrive::domain::failure::{Disposition, ErrorCode, Reason};
use redrive::domain::id::{
    EntryKey, EnvelopeKey, LeaseToken, MessageId, ParkToken, QueueName, RecordId, RunId, Sha256Hex,
};
use redrive::domain::ramp::RampPolicy;
use redrive::domain::record::{Parking, Record};
use redrive::domain::run::{Counts, ExecutorLease, Run, State};
use redrive::domain::time::Wall;
use redrive::port::ledger::{EntryWrite, Expect, RecordWrite};

/// How long everything is remembered.
pub(crate) const REMEMBER: Duration = Duration::from_secs(86_400);
/// The time at which tests begin.
pub(crate) const NOW: Wall = Wall::from_ms(1_700_000_000_250);

pub(crate) fn key() -> EntryKey {
    Sha256Hex::of(b"payload").into()
}

pub(crate) fn id(text: &str) -> RecordId {
    RecordId::new(text).unwrap()
}

/// A claim's new entry.
pub(crate) fn claimed(token: &str, now: Wall) -> Entry {
    let claim = Claim {
        token: LeaseToken::new(token).unwrap(),
        holder: MessageId::new("m-1").unwrap(),
        owner: "worker-1".to_owned(),
        payload_sha256: Sha256Hex::of(b"payload"),
        lease: Duration::from_secs(60),
        remember: REMEMBER,
    };
    match Entry::claim(None, &claim, now) {
        Claimed::Take(entry) => *entry,
        other => panic!("{other:?}"),
    }
}

/// The entry after its work is committed for an origin.
pub(crate) fn committed(entry: &Entry, origin: &RecordId) -> Entry {
    let commit = Commit {
        sent: NOW,
        hash: Sha256Hex::of(b"content"),
        payload: Sha256Hex::of(b"payload"),
        at: NOW,
    };
    let event = Event::Success { origin: origin.clone(), commit };
    match entry.apply(&entry.lease_token, &event, REMEMBER, NOW) {
        Ok(Step::Write(committed)) => *committed,
        other => panic!("{other:?}"),
    }
}

/// A first parking's record.
pub(crate) fn parked(token: &str, now: Wall) -> Record {
    let parking = Parking {
        key: key(),
        payload_sha256: Sha256Hex::of(b"payload"),
        park_token: ParkToken::new(token).unwrap(),
        envelope: EnvelopeKey::new("envelopes/v1/orders/x/m-1-0-t.json").unwrap(),
        reason: Reason::Validation,
        disposition: Disposition::Permanent,
        error_code: ErrorCode::normalize("ISRC_MALFORMED"),
        error_message: "naïve ✓\nline 2".to_owned(),
        attempts: 1,
        labels: BTreeMap::from([("territory_code".to_owned(), "DE".to_owned())]),
        group_id: None,
        sequence: None,
        sent: now,
        first_seen: now,
    };
    Record::parked(0, None, &parking, now)
}

/// A run that was just started by `cli-1`.
pub(crate) fn started(name: &str) -> Run {
    Run {
        id: RunId::new(name).unwrap(),
        queue: QueueName::new("orders").unwrap(),
        plan_hash: Sha256Hex::of(b"plan"),
        note: None,
        operator: "arn:aws:iam::000000000000:user/alice".to_owned(),
        state: State::Running,
        tripped: None,
        policy: RampPolicy {
            canary: 5,
            start_rate: 1.0,
            growth: 2.0,
            step: Duration::from_secs(30),
            max_rate: 50.0,
            max_in_doubt: 1_000,
            max_failure_ratio: 0.2,
            max_backlog: 10_000,
            outcome_timeout: Duration::from_secs(900),
        },
        dispatch: Dispatch::default(),
        max_redrives: 3,
        rate: 1.0,
        window: 5,
        place: 0,
        batch: Vec::new(),
        outcome_objects: 0,
        counts: Counts::default(),
        lease: Some(ExecutorLease { owner: "cli-1".to_owned(), until: NOW }),
        fence: 1,
        desired: None,
        rev: 1,
        started_at: NOW,
        ended_at: None,
    }
}

/// The run after one more write.
pub(crate) fn written(run: &Run) -> Run {
    Run { rev: run.rev + 1, ..run.clone() }
}

pub(crate) fn entry_write(expect: Expect<Entry>, next: &Entry) -> EntryWrite {
    EntryWrite { key: key(), expect, next: next.clone() }
}

pub(crate) fn record_write(id: &RecordId, expect: Expect<Record>, next: &Record) -> RecordWrite {
    RecordWrite { id: id.clone(), expect, next: next.clone() }
}

/// What is there must be this version.
pub(crate) fn is<T: Clone>(version: &T) -> Expect<T> {
    Expect::Is(Box::new(version.clone()))
}
