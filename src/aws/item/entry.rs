//! The item of an idempotency entry.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::{EXPIRES_AT, Item, Kept, LEASE_UNTIL, OWNER, PK, Reader, STATE, Undecodable};
use super::{item, number, text, time};
use crate::domain::entry::{Attempt, Commit, Entry, State};
use crate::domain::failure::ErrorCode;
use crate::domain::id::{EntryKey, QueueName, RecordId};
use crate::domain::time::Wall;

const LEASE_TOKEN: &str = "lease_token";
const COMMITTED_AT: &str = "committed_at_ms";
const COMMITS: &str = "commits";
const HISTORY: &str = "history";

impl Kept for Entry {
    type Id = EntryKey;

    fn pk(queue: &QueueName, key: &EntryKey) -> String {
        format!("idem#{queue}#{key}")
    }

    fn to_item(&self, queue: &QueueName, key: &EntryKey) -> Item {
        let commits = self.commits.iter().map(|(o, c)| (o.to_string(), commit_value(c))).collect();
        let history = self.history.iter().map(attempt_value).collect();
        item([
            (PK, Some(text(Self::pk(queue, key)))),
            (STATE, Some(text(self.state.name()))),
            (LEASE_TOKEN, Some(text(self.lease_token.clone()))),
            (LEASE_UNTIL, self.lease_until().map(time)),
            (COMMITTED_AT, committed_at(self.state).map(time)),
            (OWNER, Some(text(self.owner.clone()))),
            ("message_id", Some(text(self.holder.clone()))),
            ("generation", Some(number(self.generation))),
            ("attempts", Some(number(self.attempts))),
            ("crashes", Some(number(self.crashes))),
            ("payload_sha256", Some(text(self.payload_sha256.clone()))),
            (COMMITS, Some(AttributeValue::M(commits))),
            (HISTORY, Some(AttributeValue::L(history))),
            (EXPIRES_AT, Some(number(self.expires_at_secs))),
        ])
    }

    fn from_item(item: &Item) -> Result<Self, Undecodable> {
        let reader = Reader::of_item(item);
        Ok(Self {
            state: state(reader)?,
            lease_token: reader.needed(LEASE_TOKEN)?,
            owner: reader.needed_text(OWNER)?.to_owned(),
            holder: reader.needed("message_id")?,
            generation: reader.needed_number("generation")?,
            attempts: reader.needed_number("attempts")?,
            crashes: reader.needed_number("crashes")?,
            payload_sha256: reader.needed("payload_sha256")?,
            commits: commits(reader)?,
            history: history(reader)?,
            expires_at_secs: reader.needed_number(EXPIRES_AT)?,
        })
    }

    fn version(&self) -> Vec<(&'static str, Option<AttributeValue>)> {
        vec![
            (LEASE_TOKEN, Some(text(self.lease_token.clone()))),
            (STATE, Some(text(self.state.name()))),
            (LEASE_UNTIL, self.lease_until().map(time)),
        ]
    }

    fn is_expired(&self, now: Wall) -> bool {
        Self::is_expired(self, now)
    }
}

const fn committed_at(state: State) -> Option<Wall> {
    match state {
        State::Committed { at } => Some(at),
        State::InProgress { .. } | State::Open | State::Parked => None,
    }
}

fn state(reader: Reader<'_>) -> Result<State, Undecodable> {
    Ok(match reader.needed_text(STATE)? {
        "in_progress" => State::InProgress { lease_until: reader.needed_time(LEASE_UNTIL)? },
        "open" => State::Open,
        "parked" => State::Parked,
        "committed" => State::Committed { at: reader.needed_time(COMMITTED_AT)? },
        _ => return Err(reader.bad(STATE)),
    })
}

fn commit_value(commit: &Commit) -> AttributeValue {
    AttributeValue::M(item([
        ("sent_ms", Some(time(commit.sent))),
        ("hash", Some(text(commit.hash.clone()))),
        ("payload", Some(text(commit.payload.clone()))),
        ("at_ms", Some(time(commit.at))),
    ]))
}

fn commits(reader: Reader<'_>) -> Result<BTreeMap<RecordId, Commit>, Undecodable> {
    let commit = |(origin, value): (&String, _)| {
        let origin = RecordId::new(origin).map_err(|_| reader.bad(COMMITS))?;
        let reader = reader.within(value, COMMITS)?;
        let commit = Commit {
            sent: reader.needed_time("sent_ms")?,
            hash: reader.needed("hash")?,
            payload: reader.needed("payload")?,
            at: reader.needed_time("at_ms")?,
        };
        Ok((origin, commit))
    };
    reader.map(COMMITS)?.map(commit).collect()
}

fn attempt_value(attempt: &Attempt) -> AttributeValue {
    AttributeValue::M(item([
        ("at_ms", Some(time(attempt.at))),
        ("attempt", Some(number(attempt.attempt))),
        ("outcome", Some(text(attempt.outcome.clone()))),
        ("error_code", Some(text(attempt.error_code.clone()))),
        ("error_message", Some(text(attempt.error_message.clone()))),
        ("origin", Some(text(attempt.origin.clone()))),
    ]))
}

fn history(reader: Reader<'_>) -> Result<Vec<Attempt>, Undecodable> {
    let attempt = |value| {
        let reader = reader.within(value, HISTORY)?;
        Ok(Attempt {
            at: reader.needed_time("at_ms")?,
            attempt: reader.needed_number("attempt")?,
            outcome: reader.needed_text("outcome")?.to_owned(),
            error_code: ErrorCode::normalize(reader.needed_text("error_code")?),
            error_message: reader.needed_text("error_message")?.to_owned(),
            origin: reader.needed("origin")?,
        })
    };
    reader.list(HISTORY)?.iter().map(attempt).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::id::{LeaseToken, MessageId, Sha256Hex};

    fn states() -> impl Strategy<Value = State> {
        prop_oneof![
            any::<u64>().prop_map(|ms| State::InProgress { lease_until: Wall::from_ms(ms) }),
            Just(State::Open),
            Just(State::Parked),
            any::<u64>().prop_map(|ms| State::Committed { at: Wall::from_ms(ms) }),
        ]
    }

    prop_compose! {
        fn entries()(
            state in states(),
            numbers in any::<(u64, u32, u32, u64)>(),
            texts in any::<(String, String)>(),
            origins in proptest::collection::btree_set("[a-z0-9-]{1,40}", 0..4),
        ) -> Entry {
            let hash = Sha256Hex::of(texts.0.as_bytes());
            let at = Wall::from_ms(numbers.0);
            let ids: Vec<_> = origins.into_iter().map(|o| RecordId::new(o).unwrap()).collect();
            let commit = Commit { sent: at, hash: hash.clone(), payload: hash.clone(), at };
            let attempt = |origin: &RecordId| Attempt {
                at,
                attempt: numbers.1,
                outcome: texts.1.clone(),
                error_code: ErrorCode::normalize(&texts.0),
                error_message: texts.0.clone(),
                origin: origin.clone(),
            };
            Entry {
                state,
                lease_token: LeaseToken::new("t-1").unwrap(),
                owner: texts.1.clone(),
                holder: MessageId::new("m-1").unwrap(),
                generation: numbers.0,
                attempts: numbers.1,
                crashes: numbers.2,
                payload_sha256: hash,
                history: ids.iter().map(attempt).collect(),
                commits: ids.into_iter().map(|o| (o, commit.clone())).collect(),
                expires_at_secs: numbers.3,
            }
        }
    }

    proptest! {
        #[test]
        fn every_entry_comes_back_and_unknown_attributes_do_not_matter(entry in entries()) {
            let queue = QueueName::new("orders").unwrap();
            let key = EntryKey::new("a".repeat(64)).unwrap();
            let mut item = entry.to_item(&queue, &key);
            item.insert("from_a_newer_version".into(), AttributeValue::Bool(true));
            prop_assert_eq!(Entry::from_item(&item), Ok(entry.clone()));
            for (name, value) in entry.version() {
                prop_assert_eq!(item.get(name), value.as_ref());
            }
        }

        #[test]
        fn a_broken_item_names_its_key_and_attribute(entry in entries()) {
            let queue = QueueName::new("orders").unwrap();
            let key = EntryKey::new("a".repeat(64)).unwrap();
            let mut item = entry.to_item(&queue, &key);
            item.insert("attempts".into(), text("secret"));
            let error = Entry::from_item(&item).unwrap_err().to_string();
            prop_assert!(error.contains("idem#orders#aaa") && error.contains("attempts"));
            prop_assert!(!error.contains("secret"));
        }
    }
}
