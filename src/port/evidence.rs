//! Proof that something is durable, and the right to delete that follows from it (G1).
//!
//! [`Stored`] is made only by an adapter that saw the service say so; a test of the source tree keeps it
//! that way. [`Deletable`] is made only from such proof.

use crate::domain::entry::Entry;
use crate::domain::id::{MessageId, ReceiptHandle, RecordId};
use crate::domain::message::Received;
use crate::domain::record::{Record, State};
use crate::domain::sweep::{TokenVerdict, decide_token};
use crate::domain::token::Token;

/// A value that an adapter saw durably stored, or read back from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "evidence is there to be shown"]
pub struct Stored<T>(T);

impl<T> Stored<T> {
    /// For adapters alone: the service confirmed that `value` is durable.
    pub(crate) const fn witnessed(value: T) -> Self {
        Self(value)
    }

    /// The stored value.
    pub const fn get(&self) -> &T {
        &self.0
    }

    /// The stored value, giving up the proof.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// A message that may be deleted: it can be made only from evidence.
#[derive(Debug, Clone)]
#[must_use = "a message that may be deleted should be"]
pub struct Deletable {
    message_id: MessageId,
    receipt: ReceiptHandle,
}

impl Deletable {
    /// The work of `origin`, or of the commit that made it a repeat, is committed in the stored entry.
    pub fn committed(received: &Received, entry: &Stored<Entry>, by: &RecordId) -> Option<Self> {
        entry.get().commits.contains_key(by).then(|| Self::of(received))
    }

    /// The message is quarantined: its record names its envelope and says that its token was accepted,
    /// whoever sent it. `n` is which copy the message is, 0 for a plain one.
    pub fn parked(received: &Received, record: &Stored<Record>, n: u32) -> Option<Self> {
        let record = record.get();
        let waits = record.state == State::Quarantined && record.redrive_count >= n;
        (waits && record.token_sent.is_some()).then(|| Self::of(received))
    }

    /// The message's record has moved on: it is a leftover of a parking that was finished. One that a run
    /// may yet give back must have its token.
    pub fn superseded(received: &Received, record: &Stored<Record>, n: u32) -> Option<Self> {
        let record = record.get();
        let moved = match record.state {
            State::Resolved | State::Discarded => true,
            State::Redriven => record.redrive_count > n,
            State::Quarantined | State::Redriving => {
                record.redrive_count > n && record.token_sent.is_some()
            }
        };
        moved.then(|| Self::of(received))
    }

    /// A token in the DLQ that no longer counts, as its record says.
    pub fn outdated(received: &Received, token: &Token, record: &Stored<Record>) -> Option<Self> {
        let verdict = decide_token(&token.park, Some(record.get()));
        (verdict == TokenVerdict::Delete).then(|| Self::of(received))
    }

    fn of(received: &Received) -> Self {
        Self { message_id: received.message_id.clone(), receipt: received.receipt.clone() }
    }

    /// The message.
    #[must_use]
    pub const fn message_id(&self) -> &MessageId {
        &self.message_id
    }

    /// Its receipt handle.
    #[must_use]
    pub const fn receipt(&self) -> &ReceiptHandle {
        &self.receipt
    }
}
