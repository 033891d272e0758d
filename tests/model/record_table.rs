//! The whole table of the record, printed: every state with every event.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use redrive::domain::failure::{Disposition, ErrorCode, Reason};
use redrive::domain::id::{EnvelopeKey, ParkToken, RecordId, RunId, Sha256Hex};
use redrive::domain::record::{Blocked, EarlierSend, Event, Parking, Record, State, Step, apply};
use redrive::domain::time::Wall;

const NOW: Wall = Wall::from_ms(1_000_000);
const REMEMBER: Duration = Duration::from_secs(3_600);

fn parking() -> Box<Parking> {
    Box::new(Parking {
        key: Sha256Hex::of(b"k").into(),
        payload_sha256: Sha256Hex::of(b"p"),
        park_token: ParkToken::new("new").unwrap(),
        envelope: EnvelopeKey::new("envelopes/new.json").unwrap(),
        reason: Reason::Validation,
        disposition: Disposition::Permanent,
        error_code: ErrorCode::normalize("NEW"),
        error_message: "new".into(),
        attempts: 2,
        labels: BTreeMap::new(),
        group_id: None,
        sequence: None,
        sent: Wall::from_ms(1),
        first_seen: Wall::from_ms(2),
    })
}

/// A record in this state: copy 1 of run `r1`, token `old`, accepted.
fn record(state: State) -> Record {
    let old = Parking {
        park_token: ParkToken::new("old").unwrap(),
        envelope: EnvelopeKey::new("envelopes/old.json").unwrap(),
        ..*parking()
    };
    Record {
        state,
        token_sent: Some(Wall::from_ms(900_000)),
        blocked: Some(Blocked::Unsettled),
        ..Record::parked(1, Some(run("r1")), &old, Wall::from_ms(900_000))
    }
}

fn run(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

fn events() -> Vec<(String, Event)> {
    let token = |t: &str| ParkToken::new(t).unwrap();
    let duplicate_of = Some(RecordId::new("m9").unwrap());
    let mut events = vec![("park plain".into(), Event::ParkPlain(parking()))];
    for n in 0..=2 {
        let event = Event::ParkCopy { n, run: Some(run("r1")), parking: parking() };
        events.push((format!("park copy n={n}"), event));
    }
    events.push(("committed".into(), Event::Committed { duplicate_of: None }));
    events.push(("done as duplicate".into(), Event::Committed { duplicate_of }));
    events.push(("token sent, its".into(), Event::TokenSent(token("old"))));
    events.push(("token sent, outdated".into(), Event::TokenSent(token("older"))));
    for (id, cap) in [("r1", 3), ("r2", 3), ("r2", 1)] {
        let event = Event::Take { run: run(id), max_redrives: cap };
        events.push((format!("take by {id}, cap {cap}"), event));
    }
    for id in ["r1", "r2"] {
        let unsendable = Event::Unsendable { run: run(id), why: Blocked::Unreadable };
        events.push((format!("unsendable for {id}"), unsendable));
        events.push((format!("settled, run {id}"), Event::Settled { run: run(id) }));
        for n in [1, 2] {
            let confirmed = Event::SendConfirmed { run: run(id), n };
            events.push((format!("send confirmed {id} n={n}"), confirmed));
        }
    }
    for earlier in [EarlierSend::None, EarlierSend::Unknown] {
        let event = Event::SendRefused { run: run("r1"), n: 1, earlier };
        events.push((format!("send refused, earlier {earlier:?}"), event));
    }
    events.push(("rescue".into(), Event::Rescue(token("new"))));
    events.push(("discard".into(), Event::Discard));
    events.push(("restore".into(), Event::Restore(token("new"))));
    events.push(("resolve".into(), Event::Resolve));
    events
}

fn show(record: &Record) -> String {
    format!(
        "{} n={} run={} token={}{} envelope={} attempts={} blocked={} duplicate_of={} expires={}",
        record.state.name(),
        record.redrive_count,
        record.run_id.as_ref().map_or("-", RunId::as_str),
        record.park_token,
        if record.token_sent.is_some() { " sent" } else { "" },
        record.envelope,
        record.attempts_total,
        record.blocked.map_or("-", Blocked::name),
        record.duplicate_of.as_ref().map_or("-", RecordId::as_str),
        record.expires_at_secs.is_some(),
    )
}

#[test]
fn the_record_table_is_as_documented() {
    let mut table = String::new();
    for state in std::iter::once(None).chain(State::ALL.map(Some)) {
        let existing = state.map(record);
        for (name, event) in events() {
            let cell = match apply(existing.as_ref(), &event, REMEMBER, NOW) {
                Ok(Step::Write(next)) => show(&next),
                Ok(Step::FinishParking(next)) => format!("finish: {}", show(&next)),
                Ok(Step::DeleteMessage) => "delete the message".into(),
                Ok(Step::EntryOnly) => "entry only".into(),
                Ok(Step::CountsAsSent) => "counts as sent".into(),
                Ok(Step::Refused(why)) => format!("refused: {why:?}"),
                Err(_) => "-".into(),
            };
            let state = state.map_or("absent", State::name);
            writeln!(table, "{state:11} | {name:28} | {cell}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn an_expired_record_counts_as_absent() {
    let expired = Record { expires_at_secs: Some(NOW.as_secs()), ..record(State::Resolved) };
    let step = apply(Some(&expired), &Event::ParkPlain(parking()), REMEMBER, NOW);
    assert!(matches!(step, Ok(Step::Write(next)) if next.redrive_count == 0));
}

#[test]
fn evidence_that_waits_for_a_decision_never_expires() {
    for state in [State::Quarantined, State::Redriving, State::Redriven, State::Discarded] {
        for (name, event) in events() {
            if let Ok(Step::Write(next) | Step::FinishParking(next)) =
                apply(Some(&record(state)), &event, REMEMBER, NOW)
            {
                assert_eq!(next.expires_at_secs.is_some(), next.state == State::Resolved, "{name}");
            }
        }
    }
}
