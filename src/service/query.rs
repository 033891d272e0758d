//! Reads records through the index by state: in parked order, page by page.
//!
//! Four shards a state are merged on their sort keys, so memory holds one page of each whatever the
//! number of records. The index lags a little behind the records: one that changes its state meanwhile
//! may be met twice or not at all. What is read by its id is read consistently.

use std::collections::VecDeque;

use crate::domain::failure::ErrorCode;
use crate::domain::id::RecordId;
use crate::domain::record::{Record, State};
use crate::domain::selection::Selection;
use crate::domain::time::Wall;
use crate::port::error::PortError;
use crate::port::ledger::{Cursor, Ledger, Range, SHARDS, Shard};

/// Records of some states in the order of their parking.
#[derive(Debug)]
pub struct Records<'a> {
    ledger: &'a dyn Ledger,
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    range: Range,
    shard: Shard,
    ahead: VecDeque<(RecordId, Record)>,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    All,
    After(Cursor),
    None,
}

/// When records were parked: at or after `from`, before `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parked {
    /// The earliest.
    pub from: Option<Wall>,
    /// The end.
    pub until: Option<Wall>,
}

impl<'a> Records<'a> {
    /// All records of `states` that were parked in a time.
    #[must_use]
    pub fn new(ledger: &'a dyn Ledger, states: &[State], parked: Parked) -> Self {
        let range = |state| Range { state, from: parked.from, until: parked.until };
        let streams = states.iter().flat_map(|state| {
            (0..SHARDS).map(|shard| Stream {
                range: range(*state),
                shard,
                ahead: VecDeque::new(),
                rest: Rest::All,
            })
        });
        Self { ledger, streams: streams.collect() }
    }

    /// The next record.
    ///
    /// # Errors
    /// A page could not be read.
    pub async fn next(&mut self) -> Result<Option<(RecordId, Record)>, PortError> {
        for stream in &mut self.streams {
            stream.fill(self.ledger).await?;
        }
        let first = self
            .streams
            .iter_mut()
            .filter(|stream| !stream.ahead.is_empty())
            .min_by(|a, b| a.head().cmp(&b.head()));
        Ok(first.and_then(|stream| stream.ahead.pop_front()))
    }

    /// The next record that is meant by `selection`.
    ///
    /// # Errors
    /// A page could not be read.
    pub async fn next_of(
        &mut self,
        selection: &Selection,
    ) -> Result<Option<(RecordId, Record)>, PortError> {
        while let Some((id, record)) = self.next().await? {
            if selection.matches(&id, &record) {
                return Ok(Some((id, record)));
            }
        }
        Ok(None)
    }
}

impl Stream {
    /// Reads on until there is a record, or no more.
    async fn fill(&mut self, ledger: &dyn Ledger) -> Result<(), PortError> {
        while self.ahead.is_empty() {
            let after = match &self.rest {
                Rest::All => None,
                Rest::After(cursor) => Some(cursor),
                Rest::None => return Ok(()),
            };
            let page = ledger.page(&self.range, self.shard, after).await?;
            self.ahead = page.records.into();
            self.rest = page.next.map_or(Rest::None, Rest::After);
        }
        Ok(())
    }

    /// The order of the sort keys, whose parts these are.
    fn head(&self) -> Option<(Wall, &ErrorCode, &RecordId)> {
        self.ahead.front().map(|(id, record)| (record.parked_at, &record.error_code, id))
    }
}

/// What a text that should name one record found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// One record.
    One(RecordId, Box<Record>),
    /// None.
    Nothing,
    /// Several; these are the first.
    Several(Vec<RecordId>),
}

/// How many of several records are named.
const NAMED: usize = 5;

/// Finds the record with this id, or the only one whose id begins like this or whose payload has this
/// SHA-256. Only an id in full is found at once; all else walks the index.
///
/// # Errors
/// A call failed.
pub async fn find(ledger: &dyn Ledger, text: &str, now: Wall) -> Result<Found, PortError> {
    // What cannot be an id begins no id and is no hash.
    let Ok(id) = RecordId::new(text) else { return Ok(Found::Nothing) };
    if let Some(record) = ledger.record(&id, now).await? {
        return Ok(Found::One(id, Box::new(record.into_inner())));
    }
    let mut records = Records::new(ledger, &State::ALL, Parked::default());
    let mut matching: Vec<RecordId> = Vec::new();
    while let Some((id, record)) = records.next().await? {
        let matches = id.as_str().starts_with(text) || record.payload_sha256.as_str() == text;
        if matches && !matching.contains(&id) {
            matching.push(id);
        }
        if matching.len() == NAMED {
            break;
        }
    }
    match <[RecordId; 1]>::try_from(matching) {
        Ok([id]) => Ok(match ledger.record(&id, now).await? {
            Some(record) => Found::One(id, Box::new(record.into_inner())),
            None => Found::Nothing,
        }),
        Err(none) if none.is_empty() => Ok(Found::Nothing),
        Err(several) => Ok(Found::Several(several)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::domain::failure::{Disposition, Reason};
    use crate::domain::id::{EnvelopeKey, ParkToken, Sha256Hex};
    use crate::domain::record::Parking;
    use crate::port::index::{PAGE_RECORDS, sort_key};
    use crate::port::ledger::{Expect, RecordWrite, write_record};
    use crate::sim::ledger::SimLedger;

    pub(in crate::service) const NOW: Wall = Wall::from_ms(1_800_000_000_000);

    /// A quarantined record with this body, code and time of parking.
    pub(in crate::service) fn record(body: &str, code: &str, parked_ms: u64) -> Record {
        let hash = Sha256Hex::of(body.as_bytes());
        let parking = Parking {
            key: hash.clone().into(),
            payload_sha256: hash,
            park_token: ParkToken::new("token").unwrap(),
            envelope: EnvelopeKey::new("envelope.json").unwrap(),
            reason: Reason::Validation,
            disposition: Disposition::Permanent,
            error_code: code.into(),
            error_message: String::new(),
            attempts: 1,
            labels: [("territory".to_owned(), "DE".to_owned())].into(),
            group_id: None,
            sequence: None,
            sent: Wall::from_ms(parked_ms),
            first_seen: Wall::from_ms(parked_ms),
        };
        Record::parked(0, None, &parking, Wall::from_ms(parked_ms))
    }

    pub(in crate::service) async fn put(ledger: &SimLedger, id: &str, next: Record) {
        let id = RecordId::new(id).unwrap();
        let write = RecordWrite { id, expect: Expect::Absent, next };
        drop(write_record(ledger, &write, NOW).await.unwrap());
    }

    async fn all(mut records: Records<'_>, selection: &Selection) -> Vec<(RecordId, Record)> {
        let mut found = Vec::new();
        while let Some(next) = records.next_of(selection).await.unwrap() {
            found.push(next);
        }
        found
    }

    #[tokio::test]
    async fn shards_and_pages_come_in_one_order_once_each() {
        let ledger = SimLedger::new();
        let many = u64::from(PAGE_RECORDS) * 6;
        for n in 0..many {
            // Every time is met several times, under two codes of which one begins the other.
            let code = if n % 3 == 0 { "A" } else { "A_B" };
            let mut record = record("body", code, 1_000 + (n * 7) % 100);
            if n % 5 == 0 {
                record.state = State::Discarded;
            }
            put(&ledger, &format!("m{n}"), record).await;
        }
        let every = Records::new(&ledger, &State::ALL, Parked::default());
        let found = all(every, &Selection::default()).await;
        assert_eq!(found.len(), usize::try_from(many).unwrap());
        let keys: Vec<String> = found.iter().map(|(id, record)| sort_key(id, record)).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));

        let parked = Parked { from: Some(Wall::from_ms(1_010)), until: Some(Wall::from_ms(1_020)) };
        let some = Records::new(&ledger, &[State::Quarantined], parked);
        let selection = Selection { codes: vec!["A_B".into()], ..Selection::default() };
        let found = all(some, &selection).await;
        assert!(!found.is_empty());
        for (_, record) in found {
            assert_eq!(record.state, State::Quarantined);
            assert_eq!(record.error_code.as_str(), "A_B");
            assert!((1_010..1_020).contains(&record.parked_at.as_ms()));
        }
    }

    #[tokio::test]
    async fn a_selection_is_met_in_all_it_asks() {
        let ledger = SimLedger::new();
        put(&ledger, "one", record("first", "A", 1)).await;
        put(&ledger, "two", record("second", "B", 2)).await;
        let label = |value: &str| vec![("territory".to_owned(), value.to_owned())];
        for (selection, ids) in [
            (Selection::default(), vec!["one", "two"]),
            (
                Selection { codes: vec!["A".into(), "B".into()], ..Selection::default() },
                vec!["one", "two"],
            ),
            (Selection { labels: label("DE"), ..Selection::default() }, vec!["one", "two"]),
            (Selection { labels: label("FR"), ..Selection::default() }, vec![]),
            (
                Selection { key: Some(Sha256Hex::of(b"second")), ..Selection::default() },
                vec!["two"],
            ),
            (
                Selection { records: vec![RecordId::new("one").unwrap()], ..Selection::default() },
                vec!["one"],
            ),
            (Selection { reasons: vec![Reason::Unknown], ..Selection::default() }, vec![]),
        ] {
            let records = Records::new(&ledger, &State::ALL, Parked::default());
            let found = all(records, &selection).await;
            let found: Vec<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
            assert_eq!(found, ids, "{selection:?}");
        }
    }

    #[tokio::test]
    async fn one_record_is_found_by_id_prefix_or_payload() {
        let ledger = SimLedger::new();
        put(&ledger, "abc-1", record("first", "A", 1)).await;
        put(&ledger, "abc-12", record("second", "A", 2)).await;
        put(&ledger, "xyz", record("second", "A", 3)).await;
        for (text, id) in [
            ("abc-1", "abc-1"),
            ("abc-12", "abc-12"),
            ("x", "xyz"),
            (Sha256Hex::of(b"first").as_str(), "abc-1"),
        ] {
            let found = find(&ledger, text, NOW).await.unwrap();
            assert!(matches!(found, Found::One(one, _) if one.as_str() == id), "{text}");
        }
        for text in ["abc", Sha256Hex::of(b"second").as_str()] {
            let found = find(&ledger, text, NOW).await.unwrap();
            assert!(matches!(found, Found::Several(ids) if ids.len() == 2), "{text}");
        }
        for text in ["nothing", "not an id", "", "../x"] {
            assert_eq!(find(&ledger, text, NOW).await.unwrap(), Found::Nothing, "{text}");
        }
    }
}
