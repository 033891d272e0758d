//! The whole table of the entry, printed: every state with every event.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use redrive::domain::entry::{Attempt, Claim, Claimed, Commit, Entry, Event, State, Step};
use redrive::domain::failure::ErrorCode;
use redrive::domain::id::{LeaseToken, MessageId, RecordId, Sha256Hex};
use redrive::domain::time::Wall;

const NOW: Wall = Wall::from_ms(1_000_000);
const LEASE: Duration = Duration::from_secs(60);
const REMEMBER: Duration = Duration::from_secs(3_600);

fn claim(holder: &str, token: &str) -> Claim {
    Claim {
        token: LeaseToken::new(token).unwrap(),
        holder: MessageId::new(holder).unwrap(),
        owner: "worker".into(),
        payload_sha256: Sha256Hex::of(b"payload"),
        lease: LEASE,
        remember: REMEMBER,
    }
}

fn commit() -> Commit {
    Commit {
        sent: Wall::from_ms(1),
        hash: Sha256Hex::of(b"h"),
        payload: Sha256Hex::of(b"p"),
        at: NOW,
    }
}

fn attempt() -> Attempt {
    Attempt {
        at: NOW,
        attempt: 1,
        outcome: "transient".into(),
        error_code: ErrorCode::normalize("HTTP_503"),
        error_message: "text".into(),
        origin: RecordId::new("m0").unwrap(),
    }
}

fn entry(state: State) -> Entry {
    Entry {
        state,
        lease_token: LeaseToken::new("t0").unwrap(),
        owner: "worker".into(),
        holder: MessageId::new("m0").unwrap(),
        generation: 7,
        attempts: 2,
        crashes: 1,
        payload_sha256: Sha256Hex::of(b"payload"),
        commits: BTreeMap::new(),
        history: vec![],
        expires_at_secs: NOW.plus(REMEMBER).as_secs(),
    }
}

fn states() -> Vec<(&'static str, Option<Entry>)> {
    let lease_live = State::InProgress { lease_until: NOW.plus(Duration::from_millis(1)) };
    let expired = Entry { expires_at_secs: NOW.as_secs(), ..entry(State::Parked) };
    vec![
        ("absent", None),
        ("expired", Some(expired)),
        ("in_progress, lease live", Some(entry(lease_live))),
        ("in_progress, lease over", Some(entry(State::InProgress { lease_until: NOW }))),
        ("open", Some(entry(State::Open))),
        ("parked", Some(entry(State::Parked))),
        ("committed", Some(entry(State::Committed { at: NOW }))),
    ]
}

fn show(entry: &Entry) -> String {
    let Entry { state, generation, attempts, crashes, .. } = entry;
    let (commits, failures) = (entry.commits.len(), entry.history.len());
    format!(
        "{} g={generation} attempts={attempts} crashes={crashes} commits={commits} failures={failures}",
        state.name()
    )
}

#[test]
fn the_entry_table_is_as_documented() {
    let mut table = String::new();
    for (name, existing) in states() {
        for (who, holder) in [("same holder", "m0"), ("new holder", "m1")] {
            let cell = match Entry::claim(existing.as_ref(), &claim(holder, "t1"), NOW) {
                Claimed::Take(next) => show(&next),
                Claimed::Refused { .. } => "refused until the lease ends".into(),
                Claimed::FinishParking(_) => "finish the parking".into(),
            };
            writeln!(table, "{name:24} | claim, {who:11} | {cell}").unwrap();
        }
        let Some(existing) = existing.filter(|e| !e.is_expired(NOW)) else { continue };
        let events = [
            Event::Success { origin: RecordId::new("m0").unwrap(), commit: commit() },
            Event::Transient(attempt()),
            Event::Release,
            Event::Park(Some(attempt())),
            Event::Extend { lease_until: NOW.plus(LEASE) },
        ];
        for event in events {
            for (whose, token) in [("its token", "t0"), ("a stale token", "t9")] {
                let token = LeaseToken::new(token).unwrap();
                let cell = match existing.apply(&token, &event, REMEMBER, NOW) {
                    Ok(Step::Write(next)) => show(&next),
                    Ok(Step::OwnRetry) => "own retry: fine".into(),
                    Ok(Step::LostLease) => "lost lease".into(),
                    Err(illegal) => format!("illegal: {illegal}"),
                };
                writeln!(table, "{name:24} | {:?}, {whose} | {cell}", event.kind()).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_generation_never_repeats_even_if_the_clock_goes_back() {
    let committed = Entry { generation: 2_000_000, ..entry(State::Committed { at: NOW }) };
    let Claimed::Take(next) = Entry::claim(Some(&committed), &claim("m1", "t1"), NOW) else {
        panic!("a committed entry can be claimed");
    };
    assert_eq!(next.generation, 2_000_001);
}

#[test]
fn twenty_commits_and_twenty_failures_are_remembered() {
    let mut entry = entry(State::InProgress { lease_until: NOW });
    for i in 0..30_u64 {
        let origin = RecordId::new(format!("o{i}")).unwrap();
        let at = Wall::from_ms(i);
        let success = Event::Success { origin, commit: Commit { at, ..commit() } };
        for event in [Event::Transient(Attempt { at, ..attempt() }), success] {
            entry.state = State::InProgress { lease_until: NOW };
            let token = entry.lease_token.clone();
            let Ok(Step::Write(next)) = entry.apply(&token, &event, REMEMBER, NOW) else {
                panic!("an entry in progress takes both");
            };
            entry = *next;
        }
    }
    assert_eq!((entry.commits.len(), entry.history.len()), (20, 20));
    assert!(entry.commits.values().all(|c| c.at >= Wall::from_ms(10)));
    assert!(entry.history.iter().all(|a| a.at >= Wall::from_ms(10)));
}
