//! The ledger of one source in a DynamoDB table.
//!
//! Every write is one conditional put of a whole item, or two in a transaction, and asks for the item as
//! it is should its condition fail. Only a failed condition is a verdict: a conflict, a throttle or any
//! other reason anywhere in a transaction makes its fate unknown, whatever stands beside it.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use super::client::Aws;
use super::condition::{self, Expression};
use super::error::Call;
pub use super::item::EXPIRES_AT;
use super::item::{GSI_PK, GSI_SK, Item, Kept, PK, Undecodable, index_partition, text};
use crate::domain::entry::Entry;
use crate::domain::id::{EntryKey, QueueName, RecordId};
use crate::domain::record::Record;
use crate::domain::time::Wall;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::index::{PAGE_RECORDS, bounds};
use crate::port::ledger::{
    Condition, Cursor, EntryWrite, Expect, Ledger, Page, Range, RecordWrite, Shard, TransactError,
    WriteError,
};

/// The index of records by state.
pub const BY_STATE: &str = "by_state";
/// The fingerprint in the item `cfg#<queue>`.
const FINGERPRINT: &str = "fingerprint";

/// A ledger in DynamoDB.
#[derive(Debug, Clone)]
pub struct AwsLedger {
    client: Client,
    table: String,
    queue: QueueName,
}

/// A conditional put of one item, ready to be sent.
struct Conditional {
    item: Item,
    condition: Expression,
}

impl AwsLedger {
    /// The ledger of `queue` in `table`. Nothing is called yet.
    #[must_use]
    pub fn new(aws: &Aws, table: impl Into<String>, queue: QueueName) -> Self {
        Self { client: aws.dynamodb.clone(), table: table.into(), queue }
    }

    const fn call(&self, operation: &'static str) -> Call<'_> {
        Call::new(Target::DynamoDb, operation, self.table.as_str())
    }

    async fn read(&self, pk: String) -> Result<Option<Item>, PortError> {
        let get = self.client.get_item().table_name(&self.table).consistent_read(true);
        let answer = get.key(PK, text(pk)).send().await;
        Ok(answer.map_err(|e| self.call("GetItem").failed(&e))?.item)
    }

    /// What the table keeps under an id, unless it is past its expiry.
    async fn kept<T: Kept>(&self, id: &T::Id, now: Wall) -> Result<Option<Stored<T>>, PortError> {
        let item = self.read(T::pk(&self.queue, id)).await?;
        item.map_or(Ok(None), |item| self.decode(&item, now))
    }

    fn decode<T: Kept>(&self, item: &Item, now: Wall) -> Result<Option<Stored<T>>, PortError> {
        let kept = T::from_item(item).map_err(|e| self.unreadable(&e))?;
        Ok(if kept.is_expired(now) { None } else { Some(Stored::witnessed(kept)) })
    }

    fn unreadable(&self, error: &Undecodable) -> PortError {
        self.call("read").nonsense(error.to_string())
    }

    /// The item after a failed condition, as the failure told it; a server that tells nothing is asked.
    async fn current<T: Kept>(
        &self,
        told: Option<&Item>,
        id: &T::Id,
        now: Wall,
    ) -> Result<Option<Box<Stored<T>>>, PortError> {
        let current = match told.filter(|item| !item.is_empty()) {
            Some(item) => self.decode(item, now)?,
            None => self.kept(id, now).await?,
        };
        Ok(current.map(Box::new))
    }

    fn conditional<T: Kept>(
        &self,
        id: &T::Id,
        expect: &Expect<T>,
        next: &T,
        now: Wall,
    ) -> Conditional {
        let condition = condition::of(expect, now);
        Conditional { item: next.to_item(&self.queue, id), condition }
    }

    async fn send(&self, put: Conditional) -> Result<(), SdkError<PutItemError, HttpResponse>> {
        self.client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(put.item))
            .condition_expression(put.condition.text)
            .set_expression_attribute_names(Some(put.condition.names))
            .set_expression_attribute_values(put.condition.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .map(|_| ())
    }

    async fn put<T: Kept + Clone + std::fmt::Debug + Send + Sync>(
        &self,
        id: &T::Id,
        expect: &Expect<T>,
        next: &T,
        now: Wall,
    ) -> Result<Stored<T>, WriteError<T>> {
        let Err(error) = self.send(self.conditional(id, expect, next, now)).await else {
            return Ok(Stored::witnessed(next.clone()));
        };
        match told_by(&error) {
            Some(told) => Err(WriteError::Lost(self.current(told, id, now).await?)),
            None => Err(WriteError::Unknown(self.call("PutItem").failed(&error))),
        }
    }

    fn transacted(&self, put: Conditional) -> Result<TransactWriteItem, PortError> {
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(put.item))
            .condition_expression(put.condition.text)
            .set_expression_attribute_names(Some(put.condition.names))
            .set_expression_attribute_values(put.condition.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(|_| self.call("TransactWriteItems").invalid("incomplete put"))?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    async fn condition<T: Kept>(
        &self,
        reason: &CancellationReason,
        id: &T::Id,
        now: Wall,
    ) -> Result<Condition<T>, PortError> {
        if reason.code() != Some(CONDITION_FAILED) {
            return Ok(Condition::Held);
        }
        Ok(Condition::Lost(self.current(reason.item(), id, now).await?))
    }
}

const CONDITION_FAILED: &str = "ConditionalCheckFailed";

/// The item that came with a failed condition; `None` if the error is no failed condition.
fn told_by(error: &SdkError<PutItemError, HttpResponse>) -> Option<Option<&Item>> {
    match error.as_service_error() {
        Some(PutItemError::ConditionalCheckFailedException(lost)) => Some(lost.item()),
        _ => None,
    }
}

/// The reasons of a transaction that was cancelled for conditions and nothing else, entry and record;
/// else the first code that makes its fate unknown.
fn verdict(
    reasons: &[CancellationReason],
) -> Result<(&CancellationReason, &CancellationReason), String> {
    let code = |reason: &CancellationReason| reason.code().unwrap_or("None").to_owned();
    let unknown = reasons.iter().map(code).find(|c| c != "None" && c != CONDITION_FAILED);
    match (unknown, reasons) {
        (Some(code), _) => Err(code),
        (None, [entry, record]) if reasons.iter().any(|r| code(r) == CONDITION_FAILED) => {
            Ok((entry, record))
        }
        (None, _) => Err("TransactionCanceledException".to_owned()),
    }
}

#[async_trait]
impl Ledger for AwsLedger {
    async fn entry(&self, key: &EntryKey, now: Wall) -> Result<Option<Stored<Entry>>, PortError> {
        self.kept(key, now).await
    }

    async fn record(&self, id: &RecordId, now: Wall) -> Result<Option<Stored<Record>>, PortError> {
        self.kept(id, now).await
    }

    async fn put_entry(
        &self,
        write: &EntryWrite,
        now: Wall,
    ) -> Result<Stored<Entry>, WriteError<Entry>> {
        self.put(&write.key, &write.expect, &write.next, now).await
    }

    async fn put_record(
        &self,
        write: &RecordWrite,
        now: Wall,
    ) -> Result<Stored<Record>, WriteError<Record>> {
        self.put(&write.id, &write.expect, &write.next, now).await
    }

    async fn put_both(
        &self,
        entry: &EntryWrite,
        record: &RecordWrite,
        now: Wall,
    ) -> Result<(Stored<Entry>, Stored<Record>), TransactError> {
        let call = self.call("TransactWriteItems");
        let puts = [
            self.transacted(self.conditional(&entry.key, &entry.expect, &entry.next, now))?,
            self.transacted(self.conditional(&record.id, &record.expect, &record.next, now))?,
        ];
        let sent = self.client.transact_write_items().set_transact_items(Some(puts.into()));
        let Err(error) = sent.send().await else {
            let stored = Stored::witnessed(entry.next.clone());
            return Ok((stored, Stored::witnessed(record.next.clone())));
        };
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
        else {
            return Err(call.failed(&error).into());
        };
        match verdict(cancelled.cancellation_reasons()) {
            Ok((of_entry, of_record)) => Err(TransactError::Lost {
                entry: self.condition(of_entry, &entry.key, now).await?,
                record: self.condition(of_record, &record.id, now).await?,
            }),
            Err(code) => Err(call.refused(&code, Some(400)).into()),
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
        let partition = index_partition(&self.queue, range.state, shard);
        let start = after.map(|after| {
            HashMap::from([
                (PK.to_owned(), text(Record::pk(&self.queue, &after.id))),
                (GSI_PK.to_owned(), text(partition.clone())),
                (GSI_SK.to_owned(), text(after.sort_key.clone())),
            ])
        });
        let answer = self
            .client
            .query()
            .table_name(&self.table)
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
            .map_err(|e| self.call("Query").failed(&e))?;
        let records = answer.items().iter().map(|item| self.listed(item));
        let next = answer.last_evaluated_key().map(|key| self.cursor(key)).transpose()?;
        Ok(Page { records: records.collect::<Result<_, _>>()?, next })
    }

    async fn identity(&self) -> Result<Option<String>, PortError> {
        let item = self.read(self.identity_pk()).await?;
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
        let Err(error) = self.send(Conditional { item, condition }).await else {
            return Ok(fingerprint.to_owned());
        };
        match told_by(&error) {
            Some(Some(item)) if !item.is_empty() => self.fingerprint(item),
            Some(_) => {
                let in_force = self.identity().await?;
                in_force.ok_or_else(|| self.call("PutItem").refused("TransactionConflict", None))
            }
            None => Err(self.call("PutItem").failed(&error)),
        }
    }
}

impl AwsLedger {
    fn identity_pk(&self) -> String {
        format!("cfg#{}", self.queue)
    }

    fn fingerprint(&self, item: &Item) -> Result<String, PortError> {
        match item.get(FINGERPRINT) {
            Some(AttributeValue::S(fingerprint)) => Ok(fingerprint.clone()),
            _ => {
                let what =
                    format!("item {}: attribute {FINGERPRINT} cannot be read", self.identity_pk());
                Err(self.call("GetItem").nonsense(what))
            }
        }
    }

    fn listed(&self, item: &Item) -> Result<(RecordId, Record), PortError> {
        let record = Record::from_item(item).map_err(|e| self.unreadable(&e))?;
        Ok((self.record_id(item)?, record))
    }

    fn record_id(&self, item: &Item) -> Result<RecordId, PortError> {
        let prefix = format!("rec#{}#", self.queue);
        let pk = item.get(PK).and_then(|pk| pk.as_s().ok());
        pk.and_then(|pk| pk.strip_prefix(&prefix))
            .and_then(|id| RecordId::new(id).ok())
            .ok_or_else(|| self.call("Query").nonsense("an item of the index is no record"))
    }

    fn cursor(&self, key: &Item) -> Result<Cursor, PortError> {
        let sort_key = key.get(GSI_SK).and_then(|key| key.as_s().ok()).cloned();
        let sort_key =
            sort_key.ok_or_else(|| self.call("Query").nonsense("page end without sort key"))?;
        Ok(Cursor { id: self.record_id(key)?, sort_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(codes: [Option<&str>; 2]) -> Vec<CancellationReason> {
        let reason = |code: Option<&str>| {
            CancellationReason::builder().set_code(code.map(str::to_owned)).build()
        };
        codes.into_iter().map(reason).collect()
    }

    #[test]
    fn only_conditions_are_a_verdict() {
        let none = Some("None");
        let failed = Some(CONDITION_FAILED);
        for codes in [[none, failed], [failed, none], [failed, failed], [None, failed]] {
            assert!(verdict(&reasons(codes)).is_ok(), "{codes:?}");
        }
        for code in ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"] {
            for codes in [[none, Some(code)], [failed, Some(code)], [Some(code), failed]] {
                assert_eq!(verdict(&reasons(codes)).err().as_deref(), Some(code), "{codes:?}");
            }
        }
        assert!(verdict(&reasons([none, none])).is_err());
        assert!(verdict(&[]).is_err());
    }
}
