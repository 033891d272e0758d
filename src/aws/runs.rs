//! Runs and locks of one source, in the ledger's table.
//!
//! What the ledger's file does for entries and records: [`Runs`]'s calls in the table's words. Many records
//! are read by BatchGetItem, which may leave keys out: they are asked for again, a bounded number of times.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::types::{KeysAndAttributes, TransactWriteItem};

use super::condition;
use super::dynamodb::{AwsLedger, BY_STATE};
use super::item::lock::{locked_by, run_lock, run_lock_pk, sweep_lock, sweep_lock_pk, swept_by};
use super::item::{GSI_PK, GSI_SK, Item, Kept, OWNER, PK, RUN_ID, run_partition, text};
use super::table::{Cancelled, Conditional, is_lost, told_by};
use crate::domain::id::{RecordId, RunId};
use crate::domain::record::Record;
use crate::domain::run::Run;
use crate::domain::time::Wall;
use crate::port::error::PortError;
use crate::port::evidence::Stored;
use crate::port::ledger::{Condition, RecordWrite, WriteError};
use crate::port::runs::{MAX_READ, OpenError, PAGE_RUNS, RunPage, Runs, SweepLock, TakeError};

/// How often keys that an answer left out are asked for again.
const READ_AGAIN: u32 = 5;
/// The pause before the first time; each is twice the last.
const READ_PAUSE: Duration = Duration::from_millis(25);
/// Runs have no expiry, so any time reads them.
const ANY_TIME: Wall = Wall::from_ms(0);

#[async_trait]
impl Runs for AwsLedger {
    async fn run(&self, id: &RunId) -> Result<Option<Stored<Run>>, PortError> {
        let run = self.table.kept::<Run>(id, ANY_TIME).await?;
        // A run's key does not say its source.
        Ok(run.filter(|run| run.get().queue == self.table.queue))
    }

    async fn open_run(&self) -> Result<Option<RunId>, PortError> {
        let lock = self.table.read(run_lock_pk(&self.table.queue)).await?;
        let run = lock.map(|lock| locked_by(&lock)).transpose();
        run.map_err(|e| self.table.unreadable(&e))
    }

    async fn runs(&self, after: Option<&RunId>) -> Result<RunPage, PortError> {
        let call = self.table.call("Query");
        let partition = run_partition(&self.table.queue);
        let start = after.map(|after| {
            HashMap::from([
                (PK.to_owned(), text(Run::pk(&self.table.queue, after))),
                (GSI_PK.to_owned(), text(partition.clone())),
                (GSI_SK.to_owned(), text(after.clone())),
            ])
        });
        let answer = self
            .table
            .client
            .query()
            .table_name(&self.table.name)
            .index_name(BY_STATE)
            .key_condition_expression("#gsi_pk = :partition")
            .expression_attribute_names("#gsi_pk", GSI_PK)
            .expression_attribute_values(":partition", text(partition))
            .scan_index_forward(false)
            .limit(i32::from(PAGE_RUNS))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|e| call.failed(&e))?;
        let runs = answer.items().iter().map(Run::from_item).collect::<Result<_, _>>();
        let id_of = |key: &Item| {
            let id = key.get(GSI_SK).and_then(|id| id.as_s().ok());
            let id = id.and_then(|id| RunId::new(id.as_str()).ok());
            id.ok_or_else(|| call.nonsense("page end without run id"))
        };
        let next = answer.last_evaluated_key().map(id_of).transpose()?;
        Ok(RunPage { runs: runs.map_err(|e| self.table.unreadable(&e))?, next })
    }

    async fn open(&self, run: &Run) -> Result<Stored<Run>, OpenError> {
        let queue = &self.table.queue;
        let lock = Conditional {
            item: run_lock(queue, &run.id, run.started_at),
            condition: condition::absent_or(RUN_ID, Some(run.id.as_str())),
        };
        let new = Conditional {
            item: run.to_item(queue, &run.id),
            condition: condition::absent_or(RUN_ID, None),
        };
        let writes = vec![self.table.transacted(lock)?, self.table.transacted(new)?];
        let reasons = match self.table.transact(writes).await {
            Ok(()) => return Ok(Stored::witnessed(run.clone())),
            Err(Cancelled::Lost(reasons)) => reasons,
            Err(Cancelled::Unknown(error)) => return Err(error.into()),
        };
        let [of_lock, of_run] = reasons.as_slice() else {
            return Err(self.table.reasons_missing().into());
        };
        if is_lost(of_lock) {
            return Err(self.held(of_lock.item()).await);
        }
        match self.table.condition::<Run>(of_run, &run.id, ANY_TIME).await? {
            Condition::Lost(Some(current)) if current.get().state.is_open() => Ok(*current),
            // Our earlier try opened it, and it is closed by now.
            Condition::Held | Condition::Lost(_) => Err(self.closed().into()),
        }
    }

    async fn put_run(&self, read: &Run, next: &Run) -> Result<Stored<Run>, WriteError<Run>> {
        let put = self.run_put(read, next);
        let closes = read.state.is_open() && !next.state.is_open();
        let lost = if closes { self.close(put, next).await? } else { self.put(put, next).await? };
        match lost {
            Condition::Held => Ok(Stored::witnessed(next.clone())),
            Condition::Lost(Some(current)) if current.get() == next => Ok(*current),
            Condition::Lost(current) => Err(WriteError::Lost(current)),
        }
    }

    async fn take(
        &self,
        read: &Run,
        next: &Run,
        records: &[RecordWrite],
        now: Wall,
    ) -> Result<(Stored<Run>, Vec<Stored<Record>>), TakeError> {
        let record = |write: &RecordWrite| {
            self.table.transacted(self.table.conditional(
                &write.id,
                &write.expect,
                &write.next,
                now,
            ))
        };
        let run = self.table.transacted(self.run_put(read, next));
        let writes = std::iter::once(run).chain(records.iter().map(record));
        let writes = writes.collect::<Result<Vec<TransactWriteItem>, _>>()?;
        let reasons = match self.table.transact(writes).await {
            Ok(()) => {
                let taken = records.iter().map(|write| Stored::witnessed(write.next.clone()));
                return Ok((Stored::witnessed(next.clone()), taken.collect()));
            }
            Err(Cancelled::Lost(reasons)) => reasons,
            Err(Cancelled::Unknown(error)) => return Err(error.into()),
        };
        let Some((of_run, of_records)) = reasons.split_first() else {
            return Err(self.table.reasons_missing().into());
        };
        let run = match self.table.condition::<Run>(of_run, &next.id, ANY_TIME).await? {
            Condition::Lost(Some(current)) if current.get() == next => {
                return Ok((*current, self.taken(records, now).await?));
            }
            run => run,
        };
        let mut conditions = Vec::with_capacity(records.len());
        for (reason, write) in of_records.iter().zip(records) {
            conditions.push(self.table.condition(reason, &write.id, now).await?);
        }
        Err(TakeError::Lost { run, records: conditions })
    }

    async fn records(
        &self,
        ids: &[RecordId],
        now: Wall,
    ) -> Result<Vec<Option<Stored<Record>>>, PortError> {
        if ids.len() > MAX_READ {
            return Err(self.table.call("BatchGetItem").invalid("too many records at once"));
        }
        let pk = |id: &RecordId| Record::pk(&self.table.queue, id);
        let items = self.items(ids.iter().map(pk).collect()).await?;
        let record = |id: &RecordId| {
            items.get(&pk(id)).map_or(Ok(None), |item| self.table.decode(item, now))
        };
        ids.iter().map(record).collect()
    }

    async fn lock_sweep(
        &self,
        owner: &str,
        lease: Duration,
        now: Wall,
    ) -> Result<SweepLock, PortError> {
        let queue = &self.table.queue;
        let item = sweep_lock(queue, owner, now.plus(lease));
        let condition = condition::free_for(owner, now);
        let Err(error) = self.table.send(Conditional { item, condition }).await else {
            return Ok(SweepLock::Ours);
        };
        let lock = match told_by(&error) {
            Some(Some(item)) if !item.is_empty() => Some(item.clone()),
            Some(_) => self.table.read(sweep_lock_pk(queue)).await?,
            None => return Err(self.table.call("PutItem").failed(&error)),
        };
        let lock = lock.ok_or_else(|| self.moved())?;
        let (owner, until) = swept_by(&lock).map_err(|e| self.table.unreadable(&e))?;
        Ok(SweepLock::Held { owner, until })
    }

    async fn unlock_sweep(&self, owner: &str) -> Result<(), PortError> {
        let own = condition::has(OWNER, owner);
        let answer = self
            .table
            .client
            .delete_item()
            .table_name(&self.table.name)
            .key(PK, text(sweep_lock_pk(&self.table.queue)))
            .condition_expression(own.text)
            .set_expression_attribute_names(Some(own.names))
            .set_expression_attribute_values(own.values)
            .send()
            .await;
        match answer {
            Err(error) => match error.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(_)) => Ok(()),
                _ => Err(self.table.call("DeleteItem").failed(&error)),
            },
            Ok(_) => Ok(()),
        }
    }
}

impl AwsLedger {
    fn run_put(&self, read: &Run, next: &Run) -> Conditional {
        let condition = condition::same(read);
        Conditional { item: next.to_item(&self.table.queue, &next.id), condition }
    }

    async fn put(&self, put: Conditional, next: &Run) -> Result<Condition<Run>, PortError> {
        let Err(error) = self.table.send(put).await else { return Ok(Condition::Held) };
        match told_by(&error) {
            Some(told) => Ok(Condition::Lost(self.table.current(told, &next.id, ANY_TIME).await?)),
            None => Err(self.table.call("PutItem").failed(&error)),
        }
    }

    /// Puts a run that is closed by this, and removes its lock.
    async fn close(&self, put: Conditional, next: &Run) -> Result<Condition<Run>, PortError> {
        let own = condition::absent_or(RUN_ID, Some(next.id.as_str()));
        let unlock = self.table.deleted(run_lock_pk(&self.table.queue), own)?;
        let reasons = match self.table.transact(vec![self.table.transacted(put)?, unlock]).await {
            Ok(()) => return Ok(Condition::Held),
            Err(Cancelled::Lost(reasons)) => reasons,
            Err(Cancelled::Unknown(error)) => return Err(error),
        };
        let [of_run, _] = reasons.as_slice() else { return Err(self.table.reasons_missing()) };
        match self.table.condition(of_run, &next.id, ANY_TIME).await? {
            // An open run whose lock is another's: no write of ours leads there.
            Condition::Held => Err(self.closed()),
            lost @ Condition::Lost(_) => Ok(lost),
        }
    }

    /// Another run is open: which one the lock names, as the failure told it or as it is.
    async fn held(&self, told: Option<&Item>) -> OpenError {
        let named = match told.filter(|item| !item.is_empty()) {
            Some(lock) => locked_by(lock).map(Some).map_err(|e| self.table.unreadable(&e)),
            None => self.open_run().await,
        };
        match named {
            Ok(Some(run)) => OpenError::Held(run),
            Ok(None) => self.moved().into(),
            Err(error) => error.into(),
        }
    }

    /// What a condition was about has gone since: the next try may succeed.
    fn moved(&self) -> PortError {
        self.table.call("read").refused("TransactionConflict", None)
    }

    /// A condition failed that no next try will meet.
    fn closed(&self) -> PortError {
        self.table.call("TransactWriteItems").refused("ConditionalCheckFailedException", None)
    }

    /// The records of a batch that an earlier try took.
    async fn taken(
        &self,
        writes: &[RecordWrite],
        now: Wall,
    ) -> Result<Vec<Stored<Record>>, PortError> {
        let ids: Vec<_> = writes.iter().map(|write| write.id.clone()).collect();
        let records: Option<Vec<_>> = self.records(&ids, now).await?.into_iter().collect();
        records.ok_or_else(|| self.table.call("BatchGetItem").nonsense("a taken record is gone"))
    }

    /// Reads items by their keys, consistently; what is absent is left out.
    async fn items(
        &self,
        mut missing: HashSet<String>,
    ) -> Result<HashMap<String, Item>, PortError> {
        let call = self.table.call("BatchGetItem");
        let mut found = HashMap::new();
        let mut pause = READ_PAUSE;
        for round in 0..=READ_AGAIN {
            if missing.is_empty() {
                return Ok(found);
            }
            if round > 0 {
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2);
            }
            let key = |pk: String| HashMap::from([(PK.to_owned(), text(pk))]);
            let keys = KeysAndAttributes::builder()
                .set_keys(Some(missing.drain().map(key).collect()))
                .consistent_read(true)
                .build()
                .map_err(|_| call.invalid("incomplete keys"))?;
            let get = self.table.client.batch_get_item().request_items(&self.table.name, keys);
            let answer = get.send().await.map_err(|e| call.failed(&e))?;
            for item in answer.responses.into_iter().flat_map(HashMap::into_values).flatten() {
                if let Some(pk) = pk_of(&item) {
                    found.insert(pk, item);
                }
            }
            let left_out = answer.unprocessed_keys.into_iter().flat_map(HashMap::into_values);
            missing = left_out.flat_map(|left| left.keys).filter_map(|key| pk_of(&key)).collect();
        }
        Err(call.refused("ThrottlingException", None))
    }
}

fn pk_of(item: &Item) -> Option<String> {
    item.get(PK).and_then(|pk| pk.as_s().ok()).cloned()
}
