//! What became of the records of a run: read from the records, written down once.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::draft::unusable;
use super::{RedriveError, Redriver};
use crate::domain::failure::ErrorClass;
use crate::domain::id::{RecordId, RunId};
use crate::domain::plan::Planned;
use crate::domain::record::Record;
use crate::domain::run::{self, OutcomeLine, Run, Standing};
use crate::domain::time::Wall;
use crate::port::evidence::Stored;
use crate::port::runs::MAX_READ;

/// What is known of one record of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tracked {
    /// The record.
    pub planned: Planned,
    /// What became of it.
    pub standing: Standing,
    /// Whether this run had an accepted send of it.
    pub sent: bool,
    /// Whether its outcome is written down.
    pub is_written: bool,
}

impl Tracked {
    /// The outcome to write down, if there is one that is not.
    pub(super) fn unwritten(&self, now: Wall) -> Option<OutcomeLine> {
        (self.standing.is_outcome() && !self.is_written).then(|| OutcomeLine {
            record_id: self.planned.record_id.clone(),
            outcome: self.standing,
            sent: self.sent,
            at_ms: now,
        })
    }
}

impl Redriver {
    /// Reads records in the order asked.
    pub(super) async fn read_records(
        &self,
        ids: &[RecordId],
    ) -> Result<Vec<Option<Stored<Record>>>, RedriveError> {
        let mut records = Vec::with_capacity(ids.len());
        for ids in ids.chunks(MAX_READ) {
            let now = self.clock.wall();
            records.extend(self.insist(|| self.runs.records(ids, now)).await?);
        }
        Ok(records)
    }

    /// All outcomes written down for a run, the first of each record; and the number of objects.
    pub(super) async fn read_outcomes(
        &self,
        run: &RunId,
    ) -> Result<(BTreeMap<RecordId, OutcomeLine>, u32), RedriveError> {
        let mut outcomes = BTreeMap::new();
        let mut sequence = 0_u32;
        loop {
            let key = run::outcomes_key(&self.prefix, run, sequence);
            let key = key.map_err(|e| unusable("outcomes", &e))?;
            let bytes = match self.insist_found(&key).await? {
                Some(bytes) => bytes,
                None => return Ok((outcomes, sequence)),
            };
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let line: OutcomeLine =
                    serde_json::from_slice(line).map_err(|e| unusable(key.as_str(), &e))?;
                outcomes.entry(line.record_id.clone()).or_insert(line);
            }
            sequence = sequence.saturating_add(1);
        }
    }

    async fn insist_found(
        &self,
        key: &crate::domain::id::EnvelopeKey,
    ) -> Result<Option<Bytes>, RedriveError> {
        let get = || async {
            match self.vault.get(key).await {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.class() == ErrorClass::NotFound => Ok(None),
                Err(e) => Err(e),
            }
        };
        Ok(self.insist(get).await?)
    }

    /// Writes outcomes down, as object `sequence` or a later one; returns the number of objects after.
    pub(super) async fn write_outcomes(
        &self,
        run: &RunId,
        mut sequence: u32,
        lines: &[OutcomeLine],
    ) -> Result<u32, RedriveError> {
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line).map_err(|e| unusable("outcomes", &e))?;
            bytes.push(b'\n');
        }
        let bytes = Bytes::from(bytes);
        loop {
            let key = run::outcomes_key(&self.prefix, run, sequence);
            let key = key.map_err(|e| unusable("outcomes", &e))?;
            sequence = sequence.saturating_add(1);
            let put = || self.vault.put_new(&key, bytes.clone());
            if self.insist(put).await?.is_some() {
                return Ok(sequence);
            }
            // Taken: by an executor that was here before, or by our own try whose answer was lost. The
            // same outcomes twice say the same.
        }
    }

    /// What is known of every record of a run: what is written down, else what its record says.
    pub(super) async fn track(&self, run: &Run) -> Result<(Vec<Tracked>, u32), RedriveError> {
        let plan = self.plan_of(run).await?;
        let (outcomes, objects) = self.read_outcomes(&run.id).await?;
        let open: Vec<RecordId> = plan
            .records()
            .iter()
            .map(|planned| planned.record_id.clone())
            .filter(|id| !outcomes.contains_key(id))
            .collect();
        let records = self.read_records(&open).await?;
        let mut records: BTreeMap<RecordId, Option<Stored<Record>>> =
            open.into_iter().zip(records).collect();
        let track = |planned: &Planned| {
            let written = outcomes.get(&planned.record_id).map(|line| (line.outcome, line.sent));
            let is_written = written.is_some();
            let (standing, sent) = written.unwrap_or_else(|| {
                let record = records.remove(&planned.record_id).flatten();
                let record = record.as_ref().map(Stored::get);
                let standing = run::standing(record, &run.id);
                (standing, run::was_sent(record, &run.id, standing))
            });
            Tracked { planned: planned.clone(), standing, sent, is_written }
        };
        Ok((plan.records().iter().map(track).collect(), objects))
    }
}
