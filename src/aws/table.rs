//! The table as every item of it is read and written.
//!
//! Every write is one conditional put of a whole item, or several in a transaction, and asks for the item
//! as it is should its condition fail. Only a failed condition is a verdict: a conflict, a throttle or any
//! other reason anywhere in a transaction makes its fate unknown, whatever stands beside it.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    CancellationReason, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use super::condition::{self, Expression};
use super::error::Call;
use super::item::{Item, Kept, PK, Undecodable, text};
use crate::domain::id::QueueName;
use crate::domain::time::Wall;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::ledger::{Condition, Expect, WriteError};

/// One source's part of a table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) queue: QueueName,
}

/// A conditional put of one item, ready to be sent.
pub(super) struct Conditional {
    pub(super) item: Item,
    pub(super) condition: Expression,
}

/// A transaction that was not carried out, or whose fate is unknown.
pub(super) enum Cancelled {
    /// At least one condition did not hold: one reason a write, in their order.
    Lost(Vec<CancellationReason>),
    Unknown(PortError),
}

impl Table {
    pub(super) const fn call(&self, operation: &'static str) -> Call<'_> {
        Call::new(Target::DynamoDb, operation, self.name.as_str())
    }

    pub(super) async fn read(&self, pk: String) -> Result<Option<Item>, PortError> {
        let get = self.client.get_item().table_name(&self.name).consistent_read(true);
        let answer = get.key(PK, text(pk)).send().await;
        Ok(answer.map_err(|e| self.call("GetItem").failed(&e))?.item)
    }

    /// What the table keeps under an id, unless it is past its expiry.
    pub(super) async fn kept<T: Kept>(
        &self,
        id: &T::Id,
        now: Wall,
    ) -> Result<Option<Stored<T>>, PortError> {
        let item = self.read(T::pk(&self.queue, id)).await?;
        item.map_or(Ok(None), |item| self.decode(&item, now))
    }

    pub(super) fn decode<T: Kept>(
        &self,
        item: &Item,
        now: Wall,
    ) -> Result<Option<Stored<T>>, PortError> {
        let kept = T::from_item(item).map_err(|e| self.unreadable(&e))?;
        Ok(if kept.is_expired(now) { None } else { Some(Stored::witnessed(kept)) })
    }

    pub(super) fn unreadable(&self, error: &Undecodable) -> PortError {
        self.call("read").nonsense(error.to_string())
    }

    /// The item after a failed condition, as the failure told it; a server that tells nothing is asked.
    pub(super) async fn current<T: Kept>(
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

    pub(super) fn conditional<T: Kept>(
        &self,
        id: &T::Id,
        expect: &Expect<T>,
        next: &T,
        now: Wall,
    ) -> Conditional {
        let condition = condition::of(expect, now);
        Conditional { item: next.to_item(&self.queue, id), condition }
    }

    pub(super) async fn send(
        &self,
        put: Conditional,
    ) -> Result<(), SdkError<PutItemError, HttpResponse>> {
        self.client
            .put_item()
            .table_name(&self.name)
            .set_item(Some(put.item))
            .condition_expression(put.condition.text)
            .set_expression_attribute_names(Some(put.condition.names))
            .set_expression_attribute_values(put.condition.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .map(|_| ())
    }

    pub(super) async fn put<T: Kept + Clone + std::fmt::Debug + Send + Sync>(
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

    pub(super) fn transacted(&self, put: Conditional) -> Result<TransactWriteItem, PortError> {
        let put = Put::builder()
            .table_name(&self.name)
            .set_item(Some(put.item))
            .condition_expression(put.condition.text)
            .set_expression_attribute_names(Some(put.condition.names))
            .set_expression_attribute_values(put.condition.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(|_| self.call(TRANSACT).invalid("incomplete put"))?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// A conditional delete, as one write of a transaction.
    pub(super) fn deleted(
        &self,
        pk: String,
        condition: Expression,
    ) -> Result<TransactWriteItem, PortError> {
        let delete = Delete::builder()
            .table_name(&self.name)
            .key(PK, text(pk))
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names))
            .set_expression_attribute_values(condition.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(|_| self.call(TRANSACT).invalid("incomplete delete"))?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }

    /// Carries out all writes, or none.
    pub(super) async fn transact(&self, writes: Vec<TransactWriteItem>) -> Result<(), Cancelled> {
        let count = writes.len();
        let sent = self.client.transact_write_items().set_transact_items(Some(writes)).send();
        let Err(error) = sent.await else { return Ok(()) };
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
        else {
            return Err(Cancelled::Unknown(self.call(TRANSACT).failed(&error)));
        };
        let reasons = cancelled.cancellation_reasons();
        Err(match verdict(reasons, count) {
            Ok(()) => Cancelled::Lost(reasons.to_vec()),
            Err(code) => Cancelled::Unknown(self.call(TRANSACT).refused(&code, Some(400))),
        })
    }

    /// The reasons are not as many as the writes; [`Table::transact`] sees that they are.
    pub(super) fn reasons_missing(&self) -> PortError {
        self.call(TRANSACT).nonsense("reasons missing")
    }

    pub(super) async fn condition<T: Kept>(
        &self,
        reason: &CancellationReason,
        id: &T::Id,
        now: Wall,
    ) -> Result<Condition<T>, PortError> {
        if !is_lost(reason) {
            return Ok(Condition::Held);
        }
        Ok(Condition::Lost(self.current(reason.item(), id, now).await?))
    }
}

const TRANSACT: &str = "TransactWriteItems";
const CONDITION_FAILED: &str = "ConditionalCheckFailed";

/// The item that came with a failed condition; `None` if the error is no failed condition.
pub(super) fn told_by(error: &SdkError<PutItemError, HttpResponse>) -> Option<Option<&Item>> {
    match error.as_service_error() {
        Some(PutItemError::ConditionalCheckFailedException(lost)) => Some(lost.item()),
        _ => None,
    }
}

/// Whether a write's condition did not hold.
pub(super) fn is_lost(reason: &CancellationReason) -> bool {
    reason.code() == Some(CONDITION_FAILED)
}

/// Whether a transaction of `count` writes was cancelled for conditions and nothing else; if not, the first
/// code that makes its fate unknown.
fn verdict(reasons: &[CancellationReason], count: usize) -> Result<(), String> {
    let code = |reason: &CancellationReason| reason.code().unwrap_or("None").to_owned();
    let unknown = reasons.iter().map(code).find(|c| c != "None" && c != CONDITION_FAILED);
    match unknown {
        Some(code) => Err(code),
        None if reasons.len() == count && reasons.iter().any(is_lost) => Ok(()),
        None => Err("TransactionCanceledException".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons<const N: usize>(codes: [Option<&str>; N]) -> Vec<CancellationReason> {
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
            assert!(verdict(&reasons(codes), 2).is_ok(), "{codes:?}");
        }
        for code in ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"] {
            for codes in [[none, Some(code)], [failed, Some(code)], [Some(code), failed]] {
                assert_eq!(verdict(&reasons(codes), 2).err().as_deref(), Some(code), "{codes:?}");
            }
        }
        assert!(verdict(&reasons([none, none]), 2).is_err());
        assert!(verdict(&[], 2).is_err());
        assert!(verdict(&reasons([none, none, failed]), 3).is_ok());
        assert!(verdict(&reasons([none, failed]), 3).is_err(), "one reason a write");
    }
}
