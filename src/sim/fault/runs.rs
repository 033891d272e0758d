//! Runs and locks with faults.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Faults;
use crate::domain::id::{RecordId, RunId};
use crate::domain::record::Record;
use crate::domain::run::Run;
use crate::domain::time::Wall;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::ledger::{RecordWrite, WriteError};
use crate::port::runs::{OpenError, RunPage, Runs, SweepLock, TakeError};

/// Runs and locks with faults.
#[derive(Debug, Clone)]
pub struct FaultRuns {
    inner: Arc<dyn Runs>,
    faults: Faults,
}

impl FaultRuns {
    /// Wraps runs and locks.
    #[must_use]
    pub const fn new(inner: Arc<dyn Runs>, faults: Faults) -> Self {
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
impl Runs for FaultRuns {
    async fn run(&self, id: &RunId) -> Result<Option<Stored<Run>>, PortError> {
        self.around("runs.run", self.inner.run(id)).await
    }

    async fn open_run(&self) -> Result<Option<RunId>, PortError> {
        self.around("runs.open_run", self.inner.open_run()).await
    }

    async fn runs(&self, after: Option<&RunId>) -> Result<RunPage, PortError> {
        self.around("runs.runs", self.inner.runs(after)).await
    }

    async fn open(&self, run: &Run) -> Result<Stored<Run>, OpenError> {
        self.around("runs.open", self.inner.open(run)).await
    }

    async fn put_run(&self, read: &Run, next: &Run) -> Result<Stored<Run>, WriteError<Run>> {
        self.around("runs.put_run", self.inner.put_run(read, next)).await
    }

    async fn take(
        &self,
        read: &Run,
        next: &Run,
        records: &[RecordWrite],
        now: Wall,
    ) -> Result<(Stored<Run>, Vec<Stored<Record>>), TakeError> {
        self.around("runs.take", self.inner.take(read, next, records, now)).await
    }

    async fn records(
        &self,
        ids: &[RecordId],
        now: Wall,
    ) -> Result<Vec<Option<Stored<Record>>>, PortError> {
        self.around("runs.records", self.inner.records(ids, now)).await
    }

    async fn lock_sweep(
        &self,
        owner: &str,
        lease: Duration,
        now: Wall,
    ) -> Result<SweepLock, PortError> {
        self.around("runs.lock_sweep", self.inner.lock_sweep(owner, lease, now)).await
    }

    async fn unlock_sweep(&self, owner: &str) -> Result<(), PortError> {
        self.around("runs.unlock_sweep", self.inner.unlock_sweep(owner)).await
    }
}
