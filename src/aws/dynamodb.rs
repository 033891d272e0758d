//! The ledger of one source in a DynamoDB table.
//!
//! [`Ledger`]'s calls, in the table's words: items by id, the index by state page by page, and the
//! fingerprint of the identity. How conditions and their failures are read is the table's own file.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveStatus};

use super::client::Aws;
use super::condition;
pub use super::item::EXPIRES_AT;
use super::item::{GSI_PK, GSI_SK, Item, Kept, PK, index_partition, text};
use super::table::{Cancelled, Conditional, Table, told_by};
use crate::domain::entry::Entry;
use crate::domain::id::{EntryKey, QueueName, RecordId};
use crate::domain::record::Record;
use crate::domain::time::Wall;
use crate::port::error::PortError;
use crate::port::evidence::Stored;
use crate::port::index::{PAGE_RECORDS, bounds};
use crate::port::ledger::{
    Cursor, EntryWrite, Expiry, Ledger, Page, Range, RecordWrite, Shard, TransactError, WriteError,
};

/// The index of records by state.
pub const BY_STATE: &str = "by_state";
/// The fingerprint in the item `cfg#<queue>`.
const FINGERPRINT: &str = "fingerprint";

/// A ledger in DynamoDB.
#[derive(Debug, Clone)]
pub struct AwsLedger {
    pub(super) table: Table,
}

impl AwsLedger {
    /// The ledger of `queue` in `table`. Nothing is called yet.
    #[must_use]
    pub fn new(aws: &Aws, table: impl Into<String>, queue: QueueName) -> Self {
        Self { table: Table { client: aws.dynamodb.clone(), name: table.into(), queue } }
    }
}

#[async_trait]
impl Ledger for AwsLedger {
    async fn entry(&self, key: &EntryKey, now: Wall) -> Result<Option<Stored<Entry>>, PortError> {
        self.table.kept(key, now).await
    }

    async fn record(&self, id: &RecordId, now: Wall) -> Result<Option<Stored<Record>>, PortError> {
        self.table.kept(id, now).await
    }

    async fn put_entry(
        &self,
        write: &EntryWrite,
        now: Wall,
    ) -> Result<Stored<Entry>, WriteError<Entry>> {
        self.table.put(&write.key, &write.expect, &write.next, now).await
    }

    async fn put_record(
        &self,
        write: &RecordWrite,
        now: Wall,
    ) -> Result<Stored<Record>, WriteError<Record>> {
        self.table.put(&write.id, &write.expect, &write.next, now).await
    }

    async fn put_both(
        &self,
        entry: &EntryWrite,
        record: &RecordWrite,
        now: Wall,
    ) -> Result<(Stored<Entry>, Stored<Record>), TransactError> {
        let entry_put = self.table.conditional(&entry.key, &entry.expect, &entry.next, now);
        let record_put = self.table.conditional(&record.id, &record.expect, &record.next, now);
        let puts = [self.table.transacted(entry_put)?, self.table.transacted(record_put)?];
        match self.table.transact(puts.into()).await {
            Ok(()) => {
                let stored = Stored::witnessed(entry.next.clone());
                Ok((stored, Stored::witnessed(record.next.clone())))
            }
            Err(Cancelled::Lost(reasons)) => {
                let [of_entry, of_record] = reasons.as_slice() else {
                    return Err(self.table.reasons_missing().into());
                };
                Err(TransactError::Lost {
                    entry: self.table.condition(of_entry, &entry.key, now).await?,
                    record: self.table.condition(of_record, &record.id, now).await?,
                })
            }
            Err(Cancelled::Unknown(error)) => Err(error.into()),
        }
    }

    async fn page(
        &self,
        range: &Range,
        shard: Shard,
        after: Option<&Cursor>,
    ) -> Result<Page, PortError> {
        let (from, until) = bounds(range);
        if from >= until {
            return Ok(Page::default());
        }
        let partition = index_partition(&self.table.queue, range.state, shard);
        let start = after.map(|after| {
            HashMap::from([
                (PK.to_owned(), text(Record::pk(&self.table.queue, &after.id))),
                (GSI_PK.to_owned(), text(partition.clone())),
                (GSI_SK.to_owned(), text(after.sort_key.clone())),
            ])
        });
        let answer = self
            .table
            .client
            .query()
            .table_name(&self.table.name)
            .index_name(BY_STATE)
            .key_condition_expression("#gsi_pk = :partition AND #gsi_sk BETWEEN :from AND :until")
            .expression_attribute_names("#gsi_pk", GSI_PK)
            .expression_attribute_names("#gsi_sk", GSI_SK)
            .expression_attribute_values(":partition", text(partition))
            .expression_attribute_values(":from", text(from))
            .expression_attribute_values(":until", text(until))
            .limit(i32::from(PAGE_RECORDS))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|e| self.table.call("Query").failed(&e))?;
        let records = answer.items().iter().map(|item| self.listed(item));
        let next = answer.last_evaluated_key().map(|key| self.cursor(key)).transpose()?;
        Ok(Page { records: records.collect::<Result<_, _>>()?, next })
    }

    async fn expiry(&self) -> Result<Expiry, PortError> {
        let described = self.table.client.describe_time_to_live().table_name(&self.table.name);
        let described = described.send().await;
        let described = described.map_err(|e| self.table.call("DescribeTimeToLive").failed(&e))?;
        let Some(ttl) = described.time_to_live_description else { return Ok(Expiry::Off) };
        Ok(match (ttl.time_to_live_status, ttl.attribute_name) {
            (Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling), Some(name)) => {
                if name == EXPIRES_AT { Expiry::Ours } else { Expiry::Other(name) }
            }
            _ => Expiry::Off,
        })
    }

    async fn identity(&self) -> Result<Option<String>, PortError> {
        let item = self.table.read(self.identity_pk()).await?;
        item.map(|item| self.fingerprint(&item)).transpose()
    }

    async fn put_identity(
        &self,
        fingerprint: &str,
        replaces: Option<&str>,
    ) -> Result<String, PortError> {
        let item = HashMap::from([
            (PK.to_owned(), text(self.identity_pk())),
            (FINGERPRINT.to_owned(), text(fingerprint)),
        ]);
        let condition = condition::absent_or(FINGERPRINT, replaces);
        let Err(error) = self.table.send(Conditional { item, condition }).await else {
            return Ok(fingerprint.to_owned());
        };
        match told_by(&error) {
            Some(Some(item)) if !item.is_empty() => self.fingerprint(item),
            Some(_) => {
                let in_force = self.identity().await?;
                in_force
                    .ok_or_else(|| self.table.call("PutItem").refused("TransactionConflict", None))
            }
            None => Err(self.table.call("PutItem").failed(&error)),
        }
    }
}

impl AwsLedger {
    fn identity_pk(&self) -> String {
        format!("cfg#{}", self.table.queue)
    }

    fn fingerprint(&self, item: &Item) -> Result<String, PortError> {
        match item.get(FINGERPRINT) {
            Some(AttributeValue::S(fingerprint)) => Ok(fingerprint.clone()),
            _ => {
                let what =
                    format!("item {}: attribute {FINGERPRINT} cannot be read", self.identity_pk());
                Err(self.table.call("GetItem").nonsense(what))
            }
        }
    }

    fn listed(&self, item: &Item) -> Result<(RecordId, Record), PortError> {
        let record = Record::from_item(item).map_err(|e| self.table.unreadable(&e))?;
        Ok((self.record_id(item)?, record))
    }

    fn record_id(&self, item: &Item) -> Result<RecordId, PortError> {
        let prefix = format!("rec#{}#", self.table.queue);
        let pk = item.get(PK).and_then(|pk| pk.as_s().ok());
        pk.and_then(|pk| pk.strip_prefix(&prefix))
            .and_then(|id| RecordId::new(id).ok())
            .ok_or_else(|| self.table.call("Query").nonsense("an item of the index is no record"))
    }

    fn cursor(&self, key: &Item) -> Result<Cursor, PortError> {
        let sort_key = key.get(GSI_SK).and_then(|key| key.as_s().ok()).cloned();
        let sort_key = sort_key
            .ok_or_else(|| self.table.call("Query").nonsense("page end without sort key"))?;
        Ok(Cursor { id: self.record_id(key)?, sort_key })
    }
}
