//! The DynamoDB table of one source queue: entries, records and the identity in force.
//!
//! Every write is conditional on the item as it was read. A condition that does not hold is the only
//! verdict, and comes with the item as it is now; everything else is unknown. A write whose answer was
//! lost is recognised as our own ([`write_entry`], [`write_record`], [`write_both`]).

use async_trait::async_trait;

use super::error::PortError;
use super::evidence::Stored;
use crate::domain::entry::Entry;
use crate::domain::id::{EntryKey, RecordId};
use crate::domain::record::{Record, State};
use crate::domain::time::Wall;

/// What a write demands of the item before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect<T> {
    /// There is none, or it is past its expiry.
    Absent,
    /// It is this version (see `is_version_of`), and not past its expiry.
    Is(Box<T>),
}

/// A conditional write of one whole entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryWrite {
    /// The entry's key.
    pub key: EntryKey,
    /// What must be there.
    pub expect: Expect<Entry>,
    /// What will be there.
    pub next: Entry,
}

/// A conditional write of one whole record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordWrite {
    /// The record's id.
    pub id: RecordId,
    /// What must be there.
    pub expect: Expect<Record>,
    /// What will be there.
    pub next: Record,
}

/// A write of one item that was not carried out, or whose fate is unknown.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<T: std::fmt::Debug> {
    /// The condition did not hold. This is the item as it is, if there is one.
    #[error("the item has changed")]
    Lost(Option<Box<Stored<T>>>),
    /// Unknown: no verdict.
    #[error(transparent)]
    Unknown(#[from] PortError),
}

/// How one item's condition fared in a transaction that was not carried out.
#[derive(Debug)]
pub enum Condition<T> {
    /// It held.
    Held,
    /// It did not. This is the item as it is, if there is one.
    Lost(Option<Box<Stored<T>>>),
}

/// A transaction that was not carried out, or whose fate is unknown.
#[derive(Debug, thiserror::Error)]
pub enum TransactError {
    /// At least one condition did not hold.
    #[error("an item has changed")]
    Lost {
        /// The entry's.
        entry: Condition<Entry>,
        /// The record's.
        record: Condition<Record>,
    },
    /// Unknown: no verdict. A conflict with another transaction is this too.
    #[error(transparent)]
    Unknown(#[from] PortError),
}

/// One shard of the index by state; there are [`SHARDS`].
pub type Shard = u8;

/// How many shards each state's index has.
pub const SHARDS: Shard = 4;

/// Which records to read from the index: of one state, parked at or after `from` and before `until`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Their state.
    pub state: State,
    /// Earliest parking.
    pub from: Option<Wall>,
    /// End of the range.
    pub until: Option<Wall>,
}

/// Where a page ended, for the next call. Opaque: the index key of the last record read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The last record.
    pub id: RecordId,
    /// Its sort key in the index.
    pub sort_key: String,
}

/// A page of records of one shard, in parked order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The records.
    pub records: Vec<(RecordId, Record)>,
    /// Where to go on; none at the end.
    pub next: Option<Cursor>,
}

/// The ledger of one source. `now` decides what is past its expiry.
#[async_trait]
pub trait Ledger: Send + Sync + std::fmt::Debug {
    /// Reads an entry, consistently.
    ///
    /// # Errors
    /// The call failed.
    async fn entry(&self, key: &EntryKey, now: Wall) -> Result<Option<Stored<Entry>>, PortError>;

    /// Reads a record, consistently.
    ///
    /// # Errors
    /// The call failed.
    async fn record(&self, id: &RecordId, now: Wall) -> Result<Option<Stored<Record>>, PortError>;

    /// Puts one entry if its condition holds. Use [`write_entry`].
    ///
    /// # Errors
    /// See [`WriteError`].
    async fn put_entry(
        &self,
        write: &EntryWrite,
        now: Wall,
    ) -> Result<Stored<Entry>, WriteError<Entry>>;

    /// Puts one record if its condition holds. Use [`write_record`].
    ///
    /// # Errors
    /// See [`WriteError`].
    async fn put_record(
        &self,
        write: &RecordWrite,
        now: Wall,
    ) -> Result<Stored<Record>, WriteError<Record>>;

    /// Puts both in one transaction if both conditions hold. Use [`write_both`].
    ///
    /// # Errors
    /// See [`TransactError`].
    async fn put_both(
        &self,
        entry: &EntryWrite,
        record: &RecordWrite,
        now: Wall,
    ) -> Result<(Stored<Entry>, Stored<Record>), TransactError>;

    /// Reads one page of one shard of the index, which may lag behind the records.
    ///
    /// # Errors
    /// The call failed.
    async fn page(
        &self,
        range: &Range,
        shard: Shard,
        after: Option<&Cursor>,
    ) -> Result<Page, PortError>;

    /// Which attribute DynamoDB's TTL goes by.
    ///
    /// # Errors
    /// The call failed.
    async fn expiry(&self) -> Result<Expiry, PortError>;

    /// The fingerprint of the identity strategy in force for this source.
    ///
    /// # Errors
    /// The call failed.
    async fn identity(&self) -> Result<Option<String>, PortError>;

    /// Puts the fingerprint: only if there is none, or replacing `replaces`. Says what is in force after.
    ///
    /// # Errors
    /// The call failed.
    async fn put_identity(
        &self,
        fingerprint: &str,
        replaces: Option<&str>,
    ) -> Result<String, PortError>;
}

/// What makes the ledger forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expiry {
    /// The attribute that every entry and record carries for it.
    Ours,
    /// Another one: what is ours is kept for ever, or lost too early.
    Other(String),
    /// Nothing: the ledger grows.
    Off,
}

/// Puts one entry; our own earlier try counts as success.
///
/// # Errors
/// See [`WriteError`].
pub async fn write_entry(
    ledger: &dyn Ledger,
    write: &EntryWrite,
    now: Wall,
) -> Result<Stored<Entry>, WriteError<Entry>> {
    match ledger.put_entry(write, now).await {
        Err(WriteError::Lost(Some(current))) if current.get().is_own_write_of(&write.next) => {
            Ok(*current)
        }
        other => other,
    }
}

/// Puts one record; our own earlier try counts as success.
///
/// # Errors
/// See [`WriteError`].
pub async fn write_record(
    ledger: &dyn Ledger,
    write: &RecordWrite,
    now: Wall,
) -> Result<Stored<Record>, WriteError<Record>> {
    match ledger.put_record(write, now).await {
        Err(WriteError::Lost(Some(current))) if current.get().is_version_of(&write.next) => {
            Ok(*current)
        }
        other => other,
    }
}

/// Puts both in one transaction; our own earlier try counts as success.
///
/// # Errors
/// See [`TransactError`].
pub async fn write_both(
    ledger: &dyn Ledger,
    entry: &EntryWrite,
    record: &RecordWrite,
    now: Wall,
) -> Result<(Stored<Entry>, Stored<Record>), TransactError> {
    match ledger.put_both(entry, record, now).await {
        Err(TransactError::Lost {
            entry: Condition::Lost(Some(e)),
            record: Condition::Lost(Some(r)),
        }) if e.get().is_own_write_of(&entry.next) && r.get().is_version_of(&record.next) => {
            Ok((*e, *r))
        }
        other => other,
    }
}
