//! Runs and locks of one source, in the same table as its ledger.
//!
//! Every write of a run is conditional on its `rev` as read; a batch is taken in one transaction with the
//! run, so a fenced executor takes nothing. The lock of a source names its open run and is there exactly
//! while that run is open: it is put with the run and removed by the write that closes it.
//!
//! Our own earlier try is known by the whole run being as we would have put it. `rev`, fence and owner are
//! not enough: an operator who asks for a pause writes the next `rev` under the executor's fence and owner.

use std::time::Duration;

use async_trait::async_trait;

use super::error::PortError;
use super::evidence::Stored;
use super::ledger::{Condition, RecordWrite, WriteError};
use crate::domain::id::{RecordId, RunId};
use crate::domain::record::Record;
use crate::domain::run::Run;
use crate::domain::time::Wall;

/// The most records that one [`Runs::records`] reads.
pub const MAX_READ: usize = 100;

/// The most runs in one page.
pub const PAGE_RUNS: u16 = 100;

/// A run that could not be opened, or whose fate is unknown.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another run of this source is open.
    #[error("run {0} is open")]
    Held(RunId),
    /// Unknown: no verdict.
    #[error(transparent)]
    Unknown(#[from] PortError),
}

/// A batch that was not taken, or whose fate is unknown.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// At least one condition did not hold.
    #[error("an item has changed")]
    Lost {
        /// The run's.
        run: Condition<Run>,
        /// The records', in the order asked.
        records: Vec<Condition<Record>>,
    },
    /// Unknown: no verdict.
    #[error(transparent)]
    Unknown(#[from] PortError),
}

/// A page of runs, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<Run>,
    /// The last one, for the next call; none at the end.
    pub next: Option<RunId>,
}

/// Runs and locks.
#[async_trait]
pub trait Runs: Send + Sync + std::fmt::Debug {
    /// Reads a run, consistently.
    ///
    /// # Errors
    /// The call failed.
    async fn run(&self, id: &RunId) -> Result<Option<Stored<Run>>, PortError>;

    /// The open run of this source, read consistently from its lock.
    ///
    /// # Errors
    /// The call failed.
    async fn open_run(&self) -> Result<Option<RunId>, PortError>;

    /// Reads one page of runs, newest first.
    ///
    /// # Errors
    /// The call failed.
    async fn runs(&self, after: Option<&RunId>) -> Result<RunPage, PortError>;

    /// Puts a new run and the lock, in one transaction. Our own earlier try (the lock names this run)
    /// counts as success, and gives the run as it is now.
    ///
    /// # Errors
    /// See [`OpenError`].
    async fn open(&self, run: &Run) -> Result<Stored<Run>, OpenError>;

    /// Puts a run that is still as `read` (by its `rev`). A run that is closed by this loses the lock in
    /// the same transaction. Our own earlier try (the run is as `next`) counts as success.
    ///
    /// # Errors
    /// See [`WriteError`].
    async fn put_run(&self, read: &Run, next: &Run) -> Result<Stored<Run>, WriteError<Run>>;

    /// Takes a batch: the run and its records (at most ten), in one transaction. Our own earlier try (the
    /// run is as `next`) counts as success, and gives the records as they are now.
    ///
    /// # Errors
    /// See [`TakeError`].
    async fn take(
        &self,
        read: &Run,
        next: &Run,
        records: &[RecordWrite],
        now: Wall,
    ) -> Result<(Stored<Run>, Vec<Stored<Record>>), TakeError>;

    /// Reads up to [`MAX_READ`] records, consistently, in the order asked.
    ///
    /// # Errors
    /// The call failed, or stayed incomplete.
    async fn records(
        &self,
        ids: &[RecordId],
        now: Wall,
    ) -> Result<Vec<Option<Stored<Record>>>, PortError>;

    /// Takes or extends the sweep's lock for `lease`, unless another owner's lease is not over.
    ///
    /// # Errors
    /// The call failed.
    async fn lock_sweep(
        &self,
        owner: &str,
        lease: Duration,
        now: Wall,
    ) -> Result<SweepLock, PortError>;

    /// Gives the sweep's lock back, if it is still this owner's.
    ///
    /// # Errors
    /// The call failed.
    async fn unlock_sweep(&self, owner: &str) -> Result<(), PortError>;
}

/// Whether the sweep's lock is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SweepLock {
    /// It is.
    Ours,
    /// Another sweep has it.
    Held {
        /// Whose it is.
        owner: String,
        /// Until when.
        until: Wall,
    },
}
