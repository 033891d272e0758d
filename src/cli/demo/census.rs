//! What became of every message that was sent, as the ledger tells it, and what it should tell.
//!
//! A message's entry has the key of its payload; its record, if it was ever parked, has its MessageId.

use std::collections::BTreeMap;

use super::line::Sample;
use super::place::Place;
use crate::cli::exit::CliError;
use crate::domain::entry::{self, Entry};
use crate::domain::id::{RecordId, Sha256Hex};
use crate::domain::record::{self, Record};
use crate::port::evidence::Stored;

/// A message that SQS accepted.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// Its MessageId: the id of its record, should it be parked.
    pub(super) id: RecordId,
    /// What it is.
    pub(super) sample: Sample,
}

/// Messages by what became of them. Every message is counted once, but for `retried`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Census {
    /// Committed and never parked.
    pub(super) committed: u64,
    /// Of these, after at least one failure.
    pub(super) retried: u64,
    /// Done without a run: their bytes had been committed.
    pub(super) repeats: u64,
    /// In quarantine, by code.
    pub(super) parked: BTreeMap<String, u64>,
    /// Parked before, and committed now, by the code that they had been parked with.
    pub(super) resolved: BTreeMap<String, u64>,
    /// Everything else.
    pub(super) unsettled: u64,
}

impl Census {
    /// Asks the ledger about each message.
    pub(super) async fn take(place: &Place, sent: &[Sent]) -> Result<Self, CliError> {
        let mut census = Self::default();
        for Sent { id, sample } in sent {
            let now = place.clock.wall();
            let key = Sha256Hex::of(sample.body.as_bytes()).into();
            let record = place.ledger.record(id, now).await?.map(Stored::into_inner);
            let entry = place.ledger.entry(&key, now).await?.map(Stored::into_inner);
            census.count(id, record.as_ref(), entry.as_ref());
        }
        Ok(census)
    }

    fn count(&mut self, id: &RecordId, record: Option<&Record>, entry: Option<&Entry>) {
        let is_committed = entry.is_some_and(|entry| entry.commits.contains_key(id));
        let is_done =
            entry.is_some_and(|entry| matches!(entry.state, entry::State::Committed { .. }));
        match record.map(|record| (record.state, &record.error_code)) {
            None if is_committed => {
                self.committed += 1;
                self.retried += u64::from(entry.is_some_and(|entry| !entry.history.is_empty()));
            }
            None if is_done => self.repeats += 1,
            Some((record::State::Quarantined, code)) => {
                *self.parked.entry(code.to_string()).or_default() += 1;
            }
            Some((record::State::Resolved, code)) if is_committed => {
                *self.resolved.entry(code.to_string()).or_default() += 1;
            }
            None | Some(_) => self.unsettled += 1,
        }
    }

    /// How many are in quarantine.
    pub(super) fn all_parked(&self) -> u64 {
        self.parked.values().sum()
    }

    /// How many were parked and are committed now.
    pub(super) fn all_resolved(&self) -> u64 {
        self.resolved.values().sum()
    }

    /// All that are accounted for: the sum must be what was sent.
    pub(super) fn accounted(&self) -> u64 {
        self.committed + self.repeats + self.all_parked() + self.all_resolved()
    }

    /// What version 1 of the handler must leave behind, given that the last message repeats the first.
    pub(super) fn expected(samples: &[Sample]) -> Self {
        let mut expected = Self { repeats: 1, ..Self::default() };
        for sample in samples {
            match sample.flaw {
                Some(flaw) => {
                    *expected.parked.entry(flaw.code().to_owned()).or_default() += 1;
                }
                None => {
                    expected.committed += 1;
                    expected.retried += u64::from(sample.is_retried);
                }
            }
        }
        expected
    }
}
