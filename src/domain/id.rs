//! Newtypes for names and identities, validated when made.
//!
//! What reaches an S3 key or a DynamoDB key is restricted to characters that need no escaping there.
//! A receipt handle is a capability: its `Debug` hides it and it has no `Display`.

use std::fmt;

use rand::{Rng, RngExt as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::time::Wall;

/// A text that does not have the form its type demands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {kind}: it must be {form}")]
pub struct IdError {
    text: String,
    kind: &'static str,
    form: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $form:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps a text.
            ///
            /// # Errors
            #[doc = concat!("The text is not ", $form, ".")]
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                let valid: fn(&str) -> bool = $valid;
                if valid(&text) {
                    Ok(Self(text))
                } else {
                    let text = text.chars().take(128).collect();
                    Err(IdError { text, kind: $kind, form: $form })
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

fn is_word(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn is_hex64(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_envelope_key(text: &str) -> bool {
    (1..=512).contains(&text.len())
        && !text.contains("..")
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_=.-".contains(&b))
}

id!(
    /// A queue's name: what scopes entries, records and envelopes.
    QueueName, "queue name", "1 to 80 of A-Z a-z 0-9 - _, with .fifo at the end for FIFO",
    |t| t.len() <= 80 && is_word(t.strip_suffix(".fifo").unwrap_or(t), 80)
);
id!(
    /// `arn:aws:sqs:REGION:ACCOUNT:NAME`.
    QueueArn, "queue ARN", "arn:PARTITION:sqs:REGION:ACCOUNT:NAME",
    |t| {
        let parts: Vec<&str> = t.split(':').collect();
        matches!(parts.as_slice(), ["arn", _, "sqs", _, _, name] if QueueName::new(*name).is_ok())
    }
);
id!(
    /// An SQS MessageId.
    MessageId, "message id", "1 to 100 of A-Z a-z 0-9 - _", |t| is_word(t, 100)
);
id!(
    /// The id of a record: the original MessageId, kept across redrives.
    RecordId, "record id", "1 to 100 of A-Z a-z 0-9 - _", |t| is_word(t, 100)
);
id!(
    /// The key of an idempotency entry: 64 lower-case hex digits.
    EntryKey, "entry key", "64 lower-case hex digits", is_hex64
);
id!(
    /// A SHA-256 in 64 lower-case hex digits.
    Sha256Hex, "SHA-256", "64 lower-case hex digits", is_hex64
);
id!(
    /// The S3 key of an envelope.
    EnvelopeKey, "envelope key", "1 to 512 of A-Z a-z 0-9 / _ = . - without two dots in a row",
    is_envelope_key
);
id!(
    /// The id of a redrive run, a uuid v7.
    RunId, "run id", "1 to 64 of A-Z a-z 0-9 - _", |t| is_word(t, 64)
);
id!(
    /// The token of one claim: new for each, known before the write.
    LeaseToken, "lease token", "1 to 64 of A-Z a-z 0-9 - _", |t| is_word(t, 64)
);
id!(
    /// The token of one issue of a DLQ message: only the newest of a record counts.
    ParkToken, "park token", "1 to 64 of A-Z a-z 0-9 - _", |t| is_word(t, 64)
);

macro_rules! generated {
    ($($name:ident),*) => {$(
        impl $name {
            /// A new one: a uuid v7 of `now` and chance.
            pub fn generate(now: Wall, rng: &mut impl Rng) -> Self {
                let uuid = uuid::Builder::from_unix_timestamp_millis(now.as_ms(), &rng.random());
                Self(uuid.into_uuid().to_string())
            }
        }
    )*};
}

generated!(RunId, LeaseToken, ParkToken);

/// A receipt handle. It is a capability, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ReceiptHandle(String);

impl ReceiptHandle {
    /// Wraps a handle as SQS gave it.
    #[must_use]
    pub fn new(handle: impl Into<String>) -> Self {
        Self(handle.into())
    }

    /// The handle, for the call that needs it and nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ReceiptHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiptHandle(..)")
    }
}

impl QueueArn {
    /// The queue's name, the last part of the ARN.
    #[must_use]
    pub fn name(&self) -> Option<QueueName> {
        self.0.rsplit(':').next().and_then(|name| QueueName::new(name).ok())
    }
}

impl QueueName {
    /// Whether this names a FIFO queue.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.0.ends_with(".fifo")
    }
}

impl From<&MessageId> for RecordId {
    fn from(id: &MessageId) -> Self {
        Self(id.0.clone())
    }
}

impl From<&RecordId> for MessageId {
    fn from(id: &RecordId) -> Self {
        Self(id.0.clone())
    }
}

impl Sha256Hex {
    /// The SHA-256 of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_digest(Sha256::new_with_prefix(bytes))
    }

    /// The value of a finished digest.
    #[must_use]
    pub fn from_digest(digest: Sha256) -> Self {
        Self(hex(&digest.finalize()))
    }
}

impl From<Sha256Hex> for EntryKey {
    fn from(hash: Sha256Hex) -> Self {
        Self(hash.0)
    }
}

/// Lower-case hex of some bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len().saturating_mul(2)), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_enforced() {
        assert!(QueueName::new("orders").is_ok());
        assert!(QueueName::new("orders.fifo").is_ok_and(|q| q.is_fifo()));
        for bad in ["", "a.b", ".fifo", "../x", "a b", &"x".repeat(81)] {
            assert!(QueueName::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            QueueArn::new("arn:aws:sqs:us-east-1:000000000000:orders").unwrap().name(),
            QueueName::new("orders").ok()
        );
        assert!(QueueArn::new("arn:aws:s3:::bucket").is_err());
        assert!(EnvelopeKey::new("a/../b").is_err());
        assert!(RecordId::new("../../x").is_err());
        assert!(EntryKey::new("A".repeat(64)).is_err());
    }

    #[test]
    fn known_answer_of_the_payload_hash() {
        assert_eq!(
            Sha256Hex::of(br#"{"id":"a1"}"#).as_str(),
            "5cc2b0b4633517b59ff08d134998061ecc5b278ddf09cf26813aea7409d03738"
        );
    }

    #[test]
    fn a_receipt_handle_does_not_show_itself() {
        assert_eq!(format!("{:?}", ReceiptHandle::new("SECRET")), "ReceiptHandle(..)");
    }
}
