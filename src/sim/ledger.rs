//! A ledger in memory: every condition and the order of the index are DynamoDB's.
//!
//! An item past its expiry is kept until it is replaced, as TTL is late. The index never lags here.
//! Runs and locks are among the same items, so that a batch is taken at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::domain::entry::Entry;
use crate::domain::id::{EntryKey, RecordId, RunId};
use crate::domain::record::Record;
use crate::domain::run::Run;
use crate::domain::time::Wall;
use crate::port::error::PortError;
use crate::port::evidence::Stored;
use crate::port::index::{PAGE_RECORDS, bounds, shard_of, sort_key};
use crate::port::ledger::{
    Condition, Cursor, EntryWrite, Expect, Expiry, Ledger, Page, Range, RecordWrite, Shard,
    TransactError, WriteError,
};

/// The ledger of one source, in memory.
#[derive(Debug, Default)]
pub struct SimLedger {
    items: Mutex<Items>,
}

#[derive(Debug, Default)]
pub(super) struct Items {
    entries: BTreeMap<EntryKey, Entry>,
    pub(super) records: BTreeMap<RecordId, Record>,
    fingerprint: Option<String>,
    pub(super) runs: BTreeMap<RunId, Run>,
    /// The open run.
    pub(super) lock: Option<RunId>,
    /// Who has the sweep's lock, and until when.
    pub(super) sweep: Option<(String, Wall)>,
}

/// What conditions compare.
pub(super) trait Versioned: Clone {
    fn is_version_of(&self, other: &Self) -> bool;
    fn is_expired(&self, now: Wall) -> bool;
}

impl Versioned for Entry {
    fn is_version_of(&self, other: &Self) -> bool {
        Self::is_version_of(self, other)
    }
    fn is_expired(&self, now: Wall) -> bool {
        Self::is_expired(self, now)
    }
}

impl Versioned for Record {
    fn is_version_of(&self, other: &Self) -> bool {
        Self::is_version_of(self, other)
    }
    fn is_expired(&self, now: Wall) -> bool {
        Self::is_expired(self, now)
    }
}

impl SimLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All entries as they are now, those past their expiry too.
    #[must_use]
    pub fn entries(&self) -> BTreeMap<EntryKey, Entry> {
        self.lock().entries.clone()
    }

    /// All records as they are now, those past their expiry too.
    #[must_use]
    pub fn records(&self) -> BTreeMap<RecordId, Record> {
        self.lock().records.clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Items> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn living<T: Versioned>(item: Option<&T>, now: Wall) -> Option<Stored<T>> {
    item.filter(|item| !item.is_expired(now)).cloned().map(Stored::witnessed)
}

pub(super) fn judge<T: Versioned>(item: Option<&T>, expect: &Expect<T>, now: Wall) -> Condition<T> {
    let current = living(item, now);
    let held = match (&current, expect) {
        (None, Expect::Absent) => true,
        (Some(current), Expect::Is(version)) => current.get().is_version_of(version),
        (Some(_), Expect::Absent) | (None, Expect::Is(_)) => false,
    };
    if held { Condition::Held } else { Condition::Lost(current.map(Box::new)) }
}

#[async_trait]
impl Ledger for SimLedger {
    async fn entry(&self, key: &EntryKey, now: Wall) -> Result<Option<Stored<Entry>>, PortError> {
        Ok(living(self.lock().entries.get(key), now))
    }

    async fn record(&self, id: &RecordId, now: Wall) -> Result<Option<Stored<Record>>, PortError> {
        Ok(living(self.lock().records.get(id), now))
    }

    async fn put_entry(
        &self,
        write: &EntryWrite,
        now: Wall,
    ) -> Result<Stored<Entry>, WriteError<Entry>> {
        let mut items = self.lock();
        match judge(items.entries.get(&write.key), &write.expect, now) {
            Condition::Lost(current) => Err(WriteError::Lost(current)),
            Condition::Held => {
                items.entries.insert(write.key.clone(), write.next.clone());
                Ok(Stored::witnessed(write.next.clone()))
            }
        }
    }

    async fn put_record(
        &self,
        write: &RecordWrite,
        now: Wall,
    ) -> Result<Stored<Record>, WriteError<Record>> {
        let mut items = self.lock();
        match judge(items.records.get(&write.id), &write.expect, now) {
            Condition::Lost(current) => Err(WriteError::Lost(current)),
            Condition::Held => {
                items.records.insert(write.id.clone(), write.next.clone());
                Ok(Stored::witnessed(write.next.clone()))
            }
        }
    }

    async fn put_both(
        &self,
        entry: &EntryWrite,
        record: &RecordWrite,
        now: Wall,
    ) -> Result<(Stored<Entry>, Stored<Record>), TransactError> {
        let mut items = self.lock();
        let of_entry = judge(items.entries.get(&entry.key), &entry.expect, now);
        let of_record = judge(items.records.get(&record.id), &record.expect, now);
        let (Condition::Held, Condition::Held) = (&of_entry, &of_record) else {
            return Err(TransactError::Lost { entry: of_entry, record: of_record });
        };
        items.entries.insert(entry.key.clone(), entry.next.clone());
        items.records.insert(record.id.clone(), record.next.clone());
        let stored = Stored::witnessed(entry.next.clone());
        Ok((stored, Stored::witnessed(record.next.clone())))
    }

    async fn page(
        &self,
        range: &Range,
        shard: Shard,
        after: Option<&Cursor>,
    ) -> Result<Page, PortError> {
        let (from, until) = bounds(range);
        let items = self.lock();
        let mut rows: Vec<(String, &RecordId, &Record)> = items
            .records
            .iter()
            .filter(|(id, record)| record.state == range.state && shard_of(id) == shard)
            .map(|(id, record)| (sort_key(id, record), id, record))
            .filter(|(key, ..)| *key >= from && *key < until)
            .filter(|(key, ..)| after.is_none_or(|after| *key > after.sort_key))
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        let more = rows.len() > usize::from(PAGE_RECORDS);
        rows.truncate(usize::from(PAGE_RECORDS));
        let last = rows.last().filter(|_| more);
        let next = last.map(|(key, id, _)| Cursor { id: (*id).clone(), sort_key: key.clone() });
        let records = rows.into_iter().map(|(_, id, record)| (id.clone(), record.clone()));
        Ok(Page { records: records.collect(), next })
    }

    async fn expiry(&self) -> Result<Expiry, PortError> {
        Ok(Expiry::Ours)
    }

    async fn identity(&self) -> Result<Option<String>, PortError> {
        Ok(self.lock().fingerprint.clone())
    }

    async fn put_identity(
        &self,
        fingerprint: &str,
        replaces: Option<&str>,
    ) -> Result<String, PortError> {
        let mut items = self.lock();
        match &items.fingerprint {
            Some(in_force) if Some(in_force.as_str()) != replaces => Ok(in_force.clone()),
            Some(_) | None => {
                items.fingerprint = Some(fingerprint.to_owned());
                Ok(fingerprint.to_owned())
            }
        }
    }
}
