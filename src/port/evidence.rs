//! Proof that something is durable, and the right to delete that follows from it (G1).
//!
//! [`Stored`] is made only by an adapter that saw the service say so; `tidy` keeps it that way.

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
pub struct Deletable {
    message_id: crate::domain::id::MessageId,
    receipt: crate::domain::id::ReceiptHandle,
}

impl Deletable {
    /// The message.
    #[must_use]
    pub const fn message_id(&self) -> &crate::domain::id::MessageId {
        &self.message_id
    }

    /// Its receipt handle.
    #[must_use]
    pub const fn receipt(&self) -> &crate::domain::id::ReceiptHandle {
        &self.receipt
    }
}
