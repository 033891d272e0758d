//! The item of a dead-letter record, with its place in the index by state.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::{EXPIRES_AT, GSI_PK, GSI_SK, Item, Kept, PK, RUN_ID, Reader, STATE, Undecodable};
use super::{item, number, text, time};
use crate::domain::failure::{Disposition, ErrorCode, Reason};
use crate::domain::id::{QueueName, RecordId};
use crate::domain::record::{Blocked, Record, State};
use crate::domain::time::Wall;
use crate::port::index::{shard_of, sort_key};
use crate::port::ledger::Shard;

const REDRIVE_COUNT: &str = "redrive_count";
const PARK_TOKEN: &str = "park_token";
const TOKEN_SENT: &str = "token_sent_ms";
const REASON: &str = "reason";
const DISPOSITION: &str = "disposition";
const LABELS: &str = "labels";
const BLOCKED: &str = "blocked";

/// The partition of the index that holds one shard of one state.
pub(in crate::aws) fn index_partition(queue: &QueueName, state: State, shard: Shard) -> String {
    format!("{queue}#{}#{shard}", state.name())
}

impl Kept for Record {
    type Id = RecordId;

    fn pk(queue: &QueueName, id: &RecordId) -> String {
        format!("rec#{queue}#{id}")
    }

    fn to_item(&self, queue: &QueueName, id: &RecordId) -> Item {
        let labels = self.labels.iter().map(|(k, v)| (k.clone(), text(v.clone()))).collect();
        item([
            (PK, Some(text(Self::pk(queue, id)))),
            (GSI_PK, Some(text(index_partition(queue, self.state, shard_of(id))))),
            (GSI_SK, Some(text(sort_key(id, self)))),
            (STATE, Some(text(self.state.name()))),
            ("key", Some(text(self.key.clone()))),
            ("payload_sha256", Some(text(self.payload_sha256.clone()))),
            (REDRIVE_COUNT, Some(number(self.redrive_count))),
            (RUN_ID, self.run_id.clone().map(text)),
            (PARK_TOKEN, Some(text(self.park_token.clone()))),
            (TOKEN_SENT, self.token_sent.map(time)),
            ("envelope", Some(text(self.envelope.clone()))),
            (REASON, Some(text(self.reason.as_str()))),
            (DISPOSITION, Some(text(self.disposition.as_str()))),
            ("error_code", Some(text(self.error_code.clone()))),
            ("error_message", Some(text(self.error_message.clone()))),
            ("attempts_total", Some(number(self.attempts_total))),
            (LABELS, Some(AttributeValue::M(labels))),
            ("group_id", self.group_id.clone().map(text)),
            ("sequence", self.sequence.clone().map(text)),
            ("sent_ms", Some(time(self.sent))),
            ("first_seen_ms", Some(time(self.first_seen))),
            ("parked_at_ms", Some(time(self.parked_at))),
            ("redriven_at_ms", self.redriven_at.map(time)),
            ("resolved_at_ms", self.resolved_at.map(time)),
            ("duplicate_of", self.duplicate_of.clone().map(text)),
            (BLOCKED, self.blocked.map(|blocked| text(blocked.name()))),
            (EXPIRES_AT, self.expires_at_secs.map(number)),
        ])
    }

    fn from_item(item: &Item) -> Result<Self, Undecodable> {
        let reader = Reader::of_item(item);
        Ok(Self {
            state: reader.needed_named(STATE, State::from_name)?,
            key: reader.needed("key")?,
            payload_sha256: reader.needed("payload_sha256")?,
            redrive_count: reader.needed_number(REDRIVE_COUNT)?,
            run_id: reader.parsed(RUN_ID)?,
            park_token: reader.needed(PARK_TOKEN)?,
            token_sent: reader.time(TOKEN_SENT)?,
            envelope: reader.needed("envelope")?,
            reason: reader.needed_named(REASON, reason)?,
            disposition: reader.needed_named(DISPOSITION, disposition)?,
            error_code: ErrorCode::normalize(reader.needed_text("error_code")?),
            error_message: reader.needed_text("error_message")?.to_owned(),
            attempts_total: reader.needed_number("attempts_total")?,
            labels: labels(reader)?,
            group_id: reader.text("group_id")?.map(str::to_owned),
            sequence: reader.text("sequence")?.map(str::to_owned),
            sent: reader.needed_time("sent_ms")?,
            first_seen: reader.needed_time("first_seen_ms")?,
            parked_at: reader.needed_time("parked_at_ms")?,
            redriven_at: reader.time("redriven_at_ms")?,
            resolved_at: reader.time("resolved_at_ms")?,
            duplicate_of: reader.parsed("duplicate_of")?,
            blocked: reader.named(BLOCKED, Blocked::from_name)?,
            expires_at_secs: reader.number(EXPIRES_AT)?,
        })
    }

    fn version(&self) -> Vec<(&'static str, Option<AttributeValue>)> {
        vec![
            (STATE, Some(text(self.state.name()))),
            (REDRIVE_COUNT, Some(number(self.redrive_count))),
            (PARK_TOKEN, Some(text(self.park_token.clone()))),
            (TOKEN_SENT, self.token_sent.map(time)),
            (RUN_ID, self.run_id.clone().map(text)),
        ]
    }

    fn is_expired(&self, now: Wall) -> bool {
        Self::is_expired(self, now)
    }
}

fn reason(name: &str) -> Option<Reason> {
    use Reason as R;
    [R::Validation, R::Exception, R::LowConfidence, R::ReceivesExhausted, R::Unknown]
        .into_iter()
        .find(|reason| reason.as_str() == name)
}

fn disposition(name: &str) -> Option<Disposition> {
    [Disposition::Permanent, Disposition::Exhausted].into_iter().find(|d| d.as_str() == name)
}

fn labels(reader: Reader<'_>) -> Result<BTreeMap<String, String>, Undecodable> {
    let label = |(name, value): (&String, &AttributeValue)| {
        let value = value.as_s().map_err(|_| reader.bad(LABELS))?;
        Ok((name.clone(), value.clone()))
    };
    reader.map(LABELS)?.map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::{EntryKey, EnvelopeKey, ParkToken, RunId, Sha256Hex};

    fn fullest() -> Record {
        let at = Wall::from_ms(1_700_000_000_123);
        Record {
            state: State::Resolved,
            key: EntryKey::new("b".repeat(64)).unwrap(),
            payload_sha256: Sha256Hex::of(b"payload"),
            redrive_count: 2,
            run_id: Some(RunId::new("run-1").unwrap()),
            park_token: ParkToken::new("park-1").unwrap(),
            token_sent: Some(at),
            envelope: EnvelopeKey::new("envelopes/v1/orders/x/m-1-0-t.json").unwrap(),
            reason: Reason::LowConfidence,
            disposition: Disposition::Exhausted,
            error_code: ErrorCode::normalize("ISRC_MALFORMED"),
            error_message: "naïve ✓\nline 2".into(),
            attempts_total: 7,
            labels: [("territory_code".to_owned(), String::new())].into(),
            group_id: Some("g".into()),
            sequence: Some("18849496460467696128".into()),
            sent: at,
            first_seen: at,
            parked_at: at,
            redriven_at: Some(at),
            resolved_at: Some(at),
            duplicate_of: Some(RecordId::new("m-0").unwrap()),
            blocked: Some(Blocked::Unsettled),
            expires_at_secs: Some(1_702_592_000),
        }
    }

    fn emptiest() -> Record {
        Record {
            state: State::Quarantined,
            run_id: None,
            token_sent: None,
            error_message: String::new(),
            labels: BTreeMap::new(),
            group_id: None,
            sequence: None,
            redriven_at: None,
            resolved_at: None,
            duplicate_of: None,
            blocked: None,
            expires_at_secs: None,
            ..fullest()
        }
    }

    #[test]
    fn every_record_comes_back_and_absent_is_absent() {
        let queue = QueueName::new("orders").unwrap();
        let id = RecordId::new("m-1").unwrap();
        for record in [fullest(), emptiest()] {
            let item = record.to_item(&queue, &id);
            assert_eq!(Record::from_item(&item), Ok(record.clone()));
            for (name, value) in record.version() {
                assert_eq!(item.get(name), value.as_ref(), "{name}");
            }
        }
        let item = emptiest().to_item(&queue, &id);
        for name in [RUN_ID, TOKEN_SENT, BLOCKED, EXPIRES_AT, "group_id", "sequence"] {
            assert!(!item.contains_key(name), "{name}");
        }
    }

    #[test]
    fn names_are_the_documented_ones() {
        let queue = QueueName::new("orders").unwrap();
        let id = RecordId::new("m-1").unwrap();
        let item = fullest().to_item(&queue, &id);
        let field = |name: &str| item.get(name).cloned().unwrap();
        assert_eq!(field("pk"), text("rec#orders#m-1"));
        assert_eq!(field("gsi_sk"), text("1700000000123#ISRC_MALFORMED#m-1"));
        assert_eq!(field("expires_at"), AttributeValue::N("1702592000".into()));
        let partition = format!("orders#resolved#{}", shard_of(&id));
        assert_eq!(field("gsi_pk"), text(partition));
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        let queue = QueueName::new("orders").unwrap();
        let id = RecordId::new("m-1").unwrap();
        for attribute in [STATE, REASON, DISPOSITION, BLOCKED] {
            let mut item = fullest().to_item(&queue, &id);
            item.insert(attribute.to_owned(), text("from_the_future"));
            let error = Record::from_item(&item).unwrap_err();
            assert_eq!(error, Undecodable { pk: "rec#orders#m-1".into(), attribute });
        }
    }
}
