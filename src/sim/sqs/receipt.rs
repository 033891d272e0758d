//! Receipt handles: which receive of which message of which queue.
//!
//! A handle is text that its holder should not read. It is good for its own queue alone. What a handle
//! still may do, once its message came back or went, is decided where it is used.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::SqsError;
use super::queue::Key;
use crate::domain::id::{QueueName, ReceiptHandle};

/// What a handle says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) key: Key,
    /// Which receive from this queue, from 1.
    pub(super) receive: u32,
}

pub(super) fn encode(queue: &QueueName, receipt: Receipt) -> ReceiptHandle {
    let Receipt { key, receive } = receipt;
    ReceiptHandle::new(URL_SAFE_NO_PAD.encode(format!("{queue}/{key}/{receive}")))
}

pub(super) fn decode(queue: &QueueName, handle: &ReceiptHandle) -> Result<Receipt, SqsError> {
    read(queue, handle).ok_or(SqsError::ReceiptHandleIsInvalid)
}

fn read(queue: &QueueName, handle: &ReceiptHandle) -> Option<Receipt> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(handle.expose()).ok()?).ok()?;
    let mut parts = text.split('/');
    if parts.next()? != queue.as_str() {
        return None;
    }
    Some(Receipt { key: parts.next()?.parse().ok()?, receive: parts.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_for_its_own_queue_alone() {
        let (mine, other) = (QueueName::new("mine").unwrap(), QueueName::new("other").unwrap());
        let receipt = Receipt { key: 7, receive: 2 };
        let handle = encode(&mine, receipt);
        assert_eq!(decode(&mine, &handle), Ok(receipt));
        assert_eq!(decode(&other, &handle), Err(SqsError::ReceiptHandleIsInvalid));
        assert!(decode(&mine, &ReceiptHandle::new("bogus")).is_err());
    }
}
