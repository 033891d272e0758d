//! Runs and locks in memory, among the items of the ledger in memory: a batch is taken under one lock.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use async_trait::async_trait;

use super::ledger::{Items, SimLedger, judge, living};
use crate::domain::failure::ErrorClass;
use crate::domain::id::{RecordId, RunId};
use crate::domain::record::Record;
use crate::domain::run::Run;
use crate::domain::time::Wall;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::ledger::{Condition, RecordWrite, WriteError};
use crate::port::runs::{MAX_READ, OpenError, PAGE_RUNS, RunPage, Runs, SweepLock, TakeError};

impl SimLedger {
    /// All runs as they are now.
    #[must_use]
    pub fn all_runs(&self) -> BTreeMap<RunId, Run> {
        self.lock().runs.clone()
    }
}

impl Items {
    fn judge_run(&self, read: &Run) -> Condition<Run> {
        match self.runs.get(&read.id) {
            Some(current) if current.is_version_of(read) => Condition::Held,
            current => Condition::Lost(current.cloned().map(Stored::witnessed).map(Box::new)),
        }
    }
}

fn refused(class: ErrorClass, operation: &'static str, code: &str) -> PortError {
    PortError::new(class, Target::DynamoDb, operation, "the ledger in memory", code)
}

fn condition_lost() -> PortError {
    let code = "ConditionalCheckFailedException";
    refused(ErrorClass::ConditionLost, "TransactWriteItems", code)
}

#[async_trait]
impl Runs for SimLedger {
    async fn run(&self, id: &RunId) -> Result<Option<Stored<Run>>, PortError> {
        Ok(self.lock().runs.get(id).cloned().map(Stored::witnessed))
    }

    async fn open_run(&self) -> Result<Option<RunId>, PortError> {
        Ok(self.lock().lock.clone())
    }

    async fn runs(&self, after: Option<&RunId>) -> Result<RunPage, PortError> {
        let items = self.lock();
        let end = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut newest = items.runs.range((Bound::Unbounded, end)).rev();
        let runs: Vec<Run> =
            newest.by_ref().take(usize::from(PAGE_RUNS)).map(|(_, run)| run.clone()).collect();
        let next = newest.next().and(runs.last()).map(|run| run.id.clone());
        Ok(RunPage { runs, next })
    }

    async fn open(&self, run: &Run) -> Result<Stored<Run>, OpenError> {
        let mut items = self.lock();
        if let Some(other) = items.lock.as_ref().filter(|open| **open != run.id) {
            return Err(OpenError::Held(other.clone()));
        }
        match items.runs.get(&run.id) {
            Some(current) if current.state.is_open() => Ok(Stored::witnessed(current.clone())),
            Some(_) => Err(condition_lost().into()),
            None => {
                items.lock = Some(run.id.clone());
                items.runs.insert(run.id.clone(), run.clone());
                Ok(Stored::witnessed(run.clone()))
            }
        }
    }

    async fn put_run(&self, read: &Run, next: &Run) -> Result<Stored<Run>, WriteError<Run>> {
        let mut items = self.lock();
        match items.judge_run(read) {
            Condition::Lost(Some(current)) if current.get() == next => return Ok(*current),
            Condition::Lost(current) => return Err(WriteError::Lost(current)),
            Condition::Held => {}
        }
        if read.state.is_open() && !next.state.is_open() {
            if items.lock.as_ref().is_some_and(|open| *open != next.id) {
                return Err(condition_lost().into());
            }
            items.lock = None;
        }
        items.runs.insert(next.id.clone(), next.clone());
        Ok(Stored::witnessed(next.clone()))
    }

    async fn take(
        &self,
        read: &Run,
        next: &Run,
        records: &[RecordWrite],
        now: Wall,
    ) -> Result<(Stored<Run>, Vec<Stored<Record>>), TakeError> {
        let mut items = self.lock();
        let run = match items.judge_run(read) {
            Condition::Lost(Some(current)) if current.get() == next => {
                let taken = records.iter().map(|write| living(items.records.get(&write.id), now));
                let taken: Option<Vec<_>> = taken.collect();
                let gone = || refused(ErrorClass::Bug, "BatchGetItem", "a taken record is gone");
                return Ok((*current, taken.ok_or_else(gone)?));
            }
            run => run,
        };
        let conditions: Vec<_> = records
            .iter()
            .map(|write| judge(items.records.get(&write.id), &write.expect, now))
            .collect();
        let held = conditions.iter().all(|condition| matches!(condition, Condition::Held));
        if !held || matches!(run, Condition::Lost(_)) {
            return Err(TakeError::Lost { run, records: conditions });
        }
        items.runs.insert(next.id.clone(), next.clone());
        for write in records {
            items.records.insert(write.id.clone(), write.next.clone());
        }
        let taken = records.iter().map(|write| Stored::witnessed(write.next.clone()));
        Ok((Stored::witnessed(next.clone()), taken.collect()))
    }

    async fn records(
        &self,
        ids: &[RecordId],
        now: Wall,
    ) -> Result<Vec<Option<Stored<Record>>>, PortError> {
        if ids.len() > MAX_READ {
            let code = "too many records at once";
            return Err(refused(ErrorClass::Invalid, "BatchGetItem", code));
        }
        let items = self.lock();
        Ok(ids.iter().map(|id| living(items.records.get(id), now)).collect())
    }

    async fn lock_sweep(
        &self,
        owner: &str,
        lease: Duration,
        now: Wall,
    ) -> Result<SweepLock, PortError> {
        let mut items = self.lock();
        match &items.sweep {
            Some((holder, until)) if holder != owner && now < *until => {
                Ok(SweepLock::Held { owner: holder.clone(), until: *until })
            }
            Some(_) | None => {
                items.sweep = Some((owner.to_owned(), now.plus(lease)));
                Ok(SweepLock::Ours)
            }
        }
    }

    async fn unlock_sweep(&self, owner: &str) -> Result<(), PortError> {
        let mut items = self.lock();
        items.sweep.take_if(|(holder, _)| holder == owner);
        Ok(())
    }
}
