//! Batch entries of SQS, and their answers, matched by id.
//!
//! An entry's id is its place in the batch, so ids are distinct. An answer may name entries in any
//! order, and an entry that it does not name at all has an unknown fate.

use std::collections::HashMap;

use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};

use super::error::{code_text, is_passing};
use crate::domain::id::ReceiptHandle;
use crate::port::queue::{BatchAnswer, EntryError};

/// The code of an entry that the answer does not name.
const MISSING: &str = "MissingFromAnswer";

/// One answer an entry, in the order asked. An entry that both lists name counts as failed, unknown.
pub(super) fn in_order<T>(
    count: usize,
    successful: impl Iterator<Item = (String, T)>,
    failed: Vec<BatchResultErrorEntry>,
) -> BatchAnswer<T> {
    let mut successful: HashMap<String, T> = successful.collect();
    let mut failed: HashMap<String, BatchResultErrorEntry> =
        failed.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
    let answer = |place: usize| {
        let id = place.to_string();
        match (successful.remove(&id), failed.remove(&id)) {
            (Some(value), None) => Ok(value),
            (None, Some(failed)) => {
                let code = code_text(&failed.code);
                // SQS calls being throttled the sender's fault; it is no refusal.
                let sender_fault = failed.sender_fault && !is_passing(&code);
                Err(EntryError { code, sender_fault })
            }
            (Some(_), Some(_)) | (None, None) => {
                Err(EntryError { code: MISSING.to_owned(), sender_fault: false })
            }
        }
    };
    (0..count).map(answer).collect()
}

/// One entry of DeleteMessageBatch; always there, since its required fields are set.
pub(super) fn delete_entry(
    place: usize,
    receipt: &ReceiptHandle,
) -> Option<DeleteMessageBatchRequestEntry> {
    let entry = DeleteMessageBatchRequestEntry::builder().id(place.to_string());
    entry.receipt_handle(receipt.expose()).build().ok()
}

/// One entry of ChangeMessageVisibilityBatch; always there, since its required fields are set.
pub(super) fn visibility_entry(
    place: usize,
    receipt: &ReceiptHandle,
    secs: i32,
) -> Option<ChangeMessageVisibilityBatchRequestEntry> {
    ChangeMessageVisibilityBatchRequestEntry::builder()
        .id(place.to_string())
        .receipt_handle(receipt.expose())
        .visibility_timeout(secs)
        .build()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(id: &str, code: &str, sender_fault: bool) -> BatchResultErrorEntry {
        let entry = BatchResultErrorEntry::builder().id(id).code(code).message("secret");
        entry.sender_fault(sender_fault).build().unwrap()
    }

    #[test]
    fn answers_come_in_the_order_asked_whatever_order_they_came_in() {
        let ok = [("3".to_owned(), 'd'), ("0".to_owned(), 'a'), ("4".to_owned(), 'e')];
        let bad = vec![
            failed("4", "InternalError", false),
            failed("1", "com.amazonaws.sqs#InvalidMessageContents", true),
            failed("2", "RequestThrottled", true),
        ];
        let error = |code: &str, sender_fault| EntryError { code: code.to_owned(), sender_fault };
        assert_eq!(
            in_order(5, ok.into_iter(), bad),
            vec![
                Ok('a'),
                Err(error("InvalidMessageContents", true)),
                Err(error("RequestThrottled", false)),
                Ok('d'),
                Err(error(MISSING, false)),
            ]
        );
    }
}
