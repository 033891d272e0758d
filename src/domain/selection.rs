//! Which records an operator means.
//!
//! Several codes, reasons or ids mean any of them; several labels mean all of them. Everything given
//! must hold. Times and states are ranges of the index and not judged here.

use super::failure::{ErrorCode, Reason};
use super::id::{RecordId, Sha256Hex};
use super::record::Record;

/// What selects a record, beside its state and when it was parked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Error codes; none: any.
    pub codes: Vec<ErrorCode>,
    /// Reasons; none: any.
    pub reasons: Vec<Reason>,
    /// Labels with their values.
    pub labels: Vec<(String, String)>,
    /// The payload's SHA-256, or the entry's key.
    pub key: Option<Sha256Hex>,
    /// Ids; none: any.
    pub records: Vec<RecordId>,
}

impl Selection {
    /// Whether nothing is asked for: every record is meant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this record is meant.
    #[must_use]
    pub fn matches(&self, id: &RecordId, record: &Record) -> bool {
        is_among(&self.codes, &record.error_code)
            && is_among(&self.reasons, &record.reason)
            && is_among(&self.records, id)
            && self.labels.iter().all(|(name, value)| record.labels.get(name) == Some(value))
            && self.key.as_ref().is_none_or(|key| {
                record.payload_sha256 == *key || record.key.as_str() == key.as_str()
            })
    }
}

fn is_among<T: PartialEq>(wanted: &[T], value: &T) -> bool {
    wanted.is_empty() || wanted.contains(value)
}
