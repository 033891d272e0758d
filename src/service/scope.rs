//! What an act of an operator is about: which records, of which time, how many at most.
//!
//! Everything given must hold. It is written into the audit trail as it was given.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::domain::failure::{ErrorCode, Reason};
use crate::domain::id::{RecordId, Sha256Hex};
use crate::domain::record::Record;
use crate::domain::selection::Selection;
use crate::domain::time::Wall;
use crate::service::query::Parked;

/// Which records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// What selects them.
    pub selection: Selection,
    /// When they were parked.
    pub parked: Parked,
    /// How long they have been redriven without a word, at least.
    pub silent: Option<Duration>,
    /// How many at most.
    pub limit: Option<u64>,
}

impl Scope {
    /// Whether a record is meant.
    #[must_use]
    pub fn matches(&self, id: &RecordId, record: &Record, now: Wall) -> bool {
        let Parked { from, until } = self.parked;
        let is_silent =
            |least: Duration| record.redriven_at.is_some_and(|at| now.since(at) >= least);
        self.selection.matches(id, record)
            && from.is_none_or(|from| record.parked_at >= from)
            && until.is_none_or(|until| record.parked_at < until)
            && self.silent.is_none_or(is_silent)
    }
}

#[derive(Serialize)]
struct Shape<'a> {
    codes: &'a [ErrorCode],
    reasons: &'a [Reason],
    labels: Vec<String>,
    key: &'a Option<Sha256Hex>,
    records: &'a [RecordId],
    since: Option<String>,
    until: Option<String>,
    silent_s: Option<u64>,
    limit: Option<u64>,
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Selection { codes, reasons, labels, key, records } = &self.selection;
        let shape = Shape {
            codes,
            reasons,
            labels: labels.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            key,
            records,
            since: self.parked.from.map(Wall::to_rfc3339),
            until: self.parked.until.map(Wall::to_rfc3339),
            silent_s: self.silent.map(|least| least.as_secs()),
            limit: self.limit,
        };
        shape.serialize(serializer)
    }
}
