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
