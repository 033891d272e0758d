//! A ledger with faults.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use super::Faults;
use crate::domain::entry::Entry;
use crate::domain::id::{EntryKey, RecordId};
use crate::domain::record::Record;
use crate::domain::time::Wall;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::ledger::{
    Cursor, EntryWrite, Expiry, Ledger, Page, Range, RecordWrite, Shard, TransactError, WriteError,
};

/// A ledger with faults.
#[derive(Debug, Clone)]
pub struct FaultLedger {
    inner: Arc<dyn Ledger>,
    faults: Faults,
}

impl FaultLedger {
    /// Wraps a ledger.
    #[must_use]
    pub const fn new(inner: Arc<dyn Ledger>, faults: Faults) -> Self {
        Self { inner, faults }
    }

    async fn around<T, E: From<PortError>>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.faults.around(Target::DynamoDb, operation, "", call).await
    }
}

#[async_trait]
impl Ledger for FaultLedger {
    async fn entry(&self, key: &EntryKey, now: Wall) -> Result<Option<Stored<Entry>>, PortError> {
        self.around("ledger.entry", self.inner.entry(key, now)).await
    }

    async fn record(&self, id: &RecordId, now: Wall) -> Result<Option<Stored<Record>>, PortError> {
        self.around("ledger.record", self.inner.record(id, now)).await
    }

    async fn put_entry(
        &self,
        write: &EntryWrite,
        now: Wall,
    ) -> Result<Stored<Entry>, WriteError<Entry>> {
        self.around("ledger.put_entry", self.inner.put_entry(write, now)).await
    }

    async fn put_record(
        &self,
        write: &RecordWrite,
        now: Wall,
    ) -> Result<Stored<Record>, WriteError<Record>> {
        self.around("ledger.put_record", self.inner.put_record(write, now)).await
    }

    async fn put_both(
        &self,
        entry: &EntryWrite,
        record: &RecordWrite,
        now: Wall,
    ) -> Result<(Stored<Entry>, Stored<Record>), TransactError> {
        self.around("ledger.put_both", self.inner.put_both(entry, record, now)).await
    }

    async fn page(
        &self,
        range: &Range,
        shard: Shard,
        after: Option<&Cursor>,
    ) -> Result<Page, PortError> {
        self.around("ledger.page", self.inner.page(range, shard, after)).await
    }

    async fn expiry(&self) -> Result<Expiry, PortError> {
        self.around("ledger.expiry", self.inner.expiry()).await
    }

    async fn identity(&self) -> Result<Option<String>, PortError> {
        self.around("ledger.identity", self.inner.identity()).await
    }

    async fn put_identity(
        &self,
        fingerprint: &str,
        replaces: Option<&str>,
    ) -> Result<String, PortError> {
        let call = self.inner.put_identity(fingerprint, replaces);
        self.around("ledger.put_identity", call).await
    }
}
