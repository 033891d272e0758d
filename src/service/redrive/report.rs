//! The report of a run: every record of its plan, added up.

use std::collections::BTreeMap;

use super::{RedriveError, Redriver};
use crate::domain::failure::ErrorCode;
use crate::domain::id::{RecordId, RunId};
use crate::domain::record::Blocked;
use crate::domain::run::{self, Counts, Run, Standing};
use crate::port::evidence::Stored;

/// A record that did not do what the run was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The record.
    pub record_id: RecordId,
    /// `failed_again`, or why it could not be sent.
    pub kind: &'static str,
    /// Its error code now.
    pub code: ErrorCode,
    /// Its error text now.
    pub detail: String,
}

/// A run and what became of its records.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The run.
    pub run: Run,
    /// All its records.
    pub counts: Counts,
    /// By the code they had when the plan was made.
    pub by_code: BTreeMap<ErrorCode, Counts>,
    /// What went wrong.
    pub troubles: Vec<Trouble>,
    /// Whose work is done, by this run or before it.
    pub resolved: Vec<RecordId>,
}

impl Report {
    /// Whether the counters add up, for all and for each code.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let codes = self.by_code.values();
        self.counts.is_balanced()
            && codes.clone().all(Counts::is_balanced)
            && codes.map(|c| c.planned).sum::<u64>() == self.counts.planned
    }

    /// Whether it is completed and nothing went wrong.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.run.state == run::State::Completed
            && self.counts.failed_again == 0
            && self.counts.errored == 0
            && self.is_balanced()
    }

    /// The share of the plan whose work is done; none for an empty plan.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
    pub fn resolution_rate(&self) -> Option<f64> {
        let planned = self.counts.planned;
        (planned > 0).then(|| self.counts.resolved as f64 / planned as f64)
    }
}

impl Redriver {
    /// The run with this id; without one the open run, else the newest.
    ///
    /// # Errors
    /// A call failed, or there is no such run.
    pub async fn find(&self, id: Option<&RunId>) -> Result<Option<Stored<Run>>, RedriveError> {
        let id = match id {
            Some(id) => Some(id.clone()),
            None => match self.insist(|| self.runs.open_run()).await? {
                Some(open) => Some(open),
                None => {
                    let page = self.insist(|| self.runs.runs(None)).await?;
                    page.runs.first().map(|run| run.id.clone())
                }
            },
        };
        let Some(id) = id else { return Ok(None) };
        let found = self.insist(|| self.runs.run(&id)).await?;
        match found {
            Some(run) if run.get().queue == *self.queue() => Ok(Some(run)),
            Some(_) | None => Err(RedriveError::NoRun(id)),
        }
    }

    /// Adds up what became of a run's records.
    ///
    /// # Errors
    /// A call failed, or a stored object cannot be used.
    pub async fn report(&self, run: &Run) -> Result<Report, RedriveError> {
        let (tracked, _) = self.track(run).await?;
        let standings = tracked.iter().map(|t| (&t.planned.error_code, t.standing, t.sent));
        let (counts, by_code) = run::count(standings);
        let of = |wanted: fn(Standing) -> bool| -> Vec<RecordId> {
            let these = tracked.iter().filter(|t| wanted(t.standing));
            these.map(|t| t.planned.record_id.clone()).collect()
        };
        let resolved =
            of(|s| matches!(s, Standing::Resolved | Standing::Duplicate | Standing::Assumed));
        let failed = of(|s| s == Standing::FailedAgain);
        let errored = of(|s| s == Standing::Errored);
        let mut troubles = Vec::new();
        for (ids, failed_again) in [(failed, true), (errored, false)] {
            for (record_id, record) in ids.iter().zip(self.read_records(&ids).await?) {
                let Some(record) = record.map(Stored::into_inner) else { continue };
                let blocked = record.blocked.map_or("errored", Blocked::name);
                troubles.push(Trouble {
                    record_id: record_id.clone(),
                    kind: if failed_again { "failed_again" } else { blocked },
                    code: record.error_code,
                    detail: record.error_message,
                });
            }
        }
        Ok(Report { run: run.clone(), counts, by_code, troubles, resolved })
    }
}
