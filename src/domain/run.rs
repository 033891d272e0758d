//! A redrive run: its item in the ledger, and what became of each of its records.
//!
//! [`Run::apply`] is the table of states and events. What became of a record is read from the record
//! itself ([`standing`]) and never counted elsewhere; the counters of the item are what the last tick read.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dispatch::Dispatch;
use super::envelope;
use super::failure::ErrorCode;
use super::id::{EnvelopeKey, IdError, QueueName, RecordId, RunId, Sha256Hex};
use super::ramp::{RampPolicy, Trip};
use super::record::{self, Record};
use super::time::Wall;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It sends, or waits for outcomes.
    Running,
    /// It may go on.
    Paused,
    /// Every record of its plan has its outcome.
    Completed,
    /// It stopped by itself.
    Tripped,
    /// An operator ended it.
    Aborted,
}

/// How a run counts its records. `planned` is the sum of all but `sent`, `duplicates` and
/// `assumed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Records of the plan.
    pub planned: u64,
    /// Not touched by this run.
    pub not_sent: u64,
    /// Records of this run with an accepted send.
    pub sent: u64,
    /// Sent, and no outcome yet.
    pub in_doubt: u64,
    /// Their work is done; duplicates and assumed ones included.
    pub resolved: u64,
    /// Their work was done already.
    pub duplicates: u64,
    /// Resolved ones of which nobody has said so: see [`Standing::Assumed`].
    pub assumed: u64,
    /// Parked again.
    pub failed_again: u64,
    /// At their cap, or given up by an operator.
    pub discarded: u64,
    /// Taken by another run.
    pub skipped: u64,
    /// Could not be sent.
    pub errored: u64,
}

/// The lease of the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorLease {
    /// Who executes.
    pub owner: String,
    /// Until when, unless extended.
    pub until: Wall,
}

/// What an operator asks of the executor, in the order in which one outdoes the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    /// Send nothing more for now.
    Pause,
    /// End it.
    Abort,
}

/// The run's item.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its id, a uuid v7.
    pub id: RunId,
    /// The source.
    pub queue: QueueName,
    /// The plan's hash.
    pub plan_hash: Sha256Hex,
    /// Why it was started.
    pub note: Option<String>,
    /// Who started it.
    pub operator: String,
    /// Its state.
    pub state: State,
    /// Why it tripped, if it did.
    pub tripped: Option<Trip>,
    /// The bounds it was started with; the highest rate may be set anew.
    pub policy: RampPolicy,
    /// How its copies are sent.
    pub dispatch: Dispatch,
    /// The cap on redrives it was started with.
    pub max_redrives: u32,
    /// The rate of the last tick.
    pub rate: f64,
    /// The window of the last tick.
    pub window: u32,
    /// How far in the plan the last batch reaches.
    pub place: u64,
    /// The batch in hand: taken, and not all confirmed.
    pub batch: Vec<RecordId>,
    /// How many outcome objects are written.
    pub outcome_objects: u32,
    /// The counters of the last tick.
    pub counts: Counts,
    /// Who executes it; none while nobody does.
    pub lease: Option<ExecutorLease>,
    /// Raised by each executor: an older one's writes are refused.
    pub fence: u64,
    /// What an operator asks of the executor.
    pub desired: Option<Desired>,
    /// Raised by each write: what every conditional write compares.
    pub rev: u64,
    /// When it was started.
    pub started_at: Wall,
    /// When it was completed or aborted.
    pub ended_at: Option<Wall>,
}

/// What happens to a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An executor takes it over, or resumes it.
    Claim {
        /// Who.
        owner: String,
        /// For how long.
        lease: Duration,
    },
    /// The executor goes on: its lease is extended.
    Extend {
        /// For how long.
        lease: Duration,
    },
    /// The executor stops for now and gives its lease back.
    Pause,
    /// Too much failed, or nothing came back.
    Trip(Trip),
    /// Every record has its outcome.
    Complete,
    /// An operator ends it.
    Abort,
    /// An operator asks something of its executor.
    Ask(Desired),
    /// An operator sets the highest rate, in sends a second.
    SetRate(f64),
}

/// The kind of an [`Event`], for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// [`Event::Claim`]
    Claim,
    /// [`Event::Extend`]
    Extend,
    /// [`Event::Pause`]
    Pause,
    /// [`Event::Trip`]
    Trip,
    /// [`Event::Complete`]
    Complete,
    /// [`Event::Abort`]
    Abort,
    /// [`Event::Ask`]
    Ask,
    /// [`Event::SetRate`]
    SetRate,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Another executor has it.
    #[error("{owner} executes it until {}", until.to_rfc3339())]
    Held {
        /// Who.
        owner: String,
        /// Until when.
        until: Wall,
    },
    /// The table lists no such event in this state.
    #[error("a run that is {} has no {event:?}", state.name())]
    Illegal {
        /// The state.
        state: State,
        /// The event.
        event: EventKind,
    },
}

impl State {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::Paused, Self::Completed, Self::Tripped, Self::Aborted];

    /// Its name in every stored format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Tripped => "tripped",
            Self::Aborted => "aborted",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the run still holds the lock of its source.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Running | Self::Paused | Self::Tripped => true,
            Self::Completed | Self::Aborted => false,
        }
    }
}

impl Desired {
    /// Its name in every stored format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Abort => "abort",
        }
    }

    /// The wish with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Pause, Self::Abort].into_iter().find(|desired| desired.name() == name)
    }
}

impl Event {
    /// The event's kind.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Claim { .. } => EventKind::Claim,
            Self::Extend { .. } => EventKind::Extend,
            Self::Pause => EventKind::Pause,
            Self::Trip(_) => EventKind::Trip,
            Self::Complete => EventKind::Complete,
            Self::Abort => EventKind::Abort,
            Self::Ask(_) => EventKind::Ask,
            Self::SetRate(_) => EventKind::SetRate,
        }
    }
}

impl Run {
    /// Whether an executor holds it at `now`.
    #[must_use]
    pub fn held_by(&self, now: Wall) -> Option<&ExecutorLease> {
        self.lease.as_ref().filter(|lease| now < lease.until)
    }

    /// Whether this is the version that `other` is of: what every conditional write compares.
    #[must_use]
    pub const fn is_version_of(&self, other: &Self) -> bool {
        self.rev == other.rev && self.fence == other.fence
    }

    /// Whether this is `written` with nothing but operators' wishes since.
    #[must_use]
    pub fn is_with_wishes(&self, written: &Self) -> bool {
        let Self { rev, desired, policy, .. } = written;
        Self { rev: *rev, desired: *desired, policy: *policy, ..self.clone() } == *written
    }

    /// What an event makes of it. What ends or begins an execution answers what was asked of it.
    ///
    /// # Errors
    /// Nothing may be written: see [`RunError`].
    pub fn apply(&self, event: &Event, now: Wall) -> Result<Self, RunError> {
        let illegal = || RunError::Illegal { state: self.state, event: event.kind() };
        let mut next = self.clone();
        next.rev = self.rev.saturating_add(1);
        match (self.state, event) {
            (State::Running | State::Paused | State::Tripped, Event::Claim { owner, lease }) => {
                if let Some(held) = self.held_by(now).filter(|held| held.owner != *owner) {
                    let (owner, until) = (held.owner.clone(), held.until);
                    return Err(RunError::Held { owner, until });
                }
                next.state = State::Running;
                next.tripped = None;
                next.desired = None;
                next.fence = self.fence.saturating_add(1);
                next.lease = Some(ExecutorLease { owner: owner.clone(), until: now.plus(*lease) });
            }
            (State::Running, Event::Extend { lease }) => {
                let held = next.lease.as_mut().ok_or_else(illegal)?;
                held.until = now.plus(*lease);
            }
            (State::Running, Event::Pause) => next.stop(State::Paused),
            (State::Running, Event::Trip(why)) => {
                next.stop(State::Tripped);
                next.tripped = Some(*why);
            }
            (State::Running, Event::Complete) => {
                next.stop(State::Completed);
                next.ended_at = Some(now);
            }
            (State::Running, Event::Abort) => {
                next.stop(State::Aborted);
                next.ended_at = Some(now);
            }
            (State::Running, Event::Ask(desired)) => {
                next.desired = self.desired.max(Some(*desired));
            }
            (State::Running | State::Paused | State::Tripped, Event::SetRate(most)) => {
                next.policy.max_rate = *most;
            }
            (State::Completed | State::Aborted, Event::Claim { .. } | Event::SetRate(_))
            | (
                State::Paused | State::Completed | State::Tripped | State::Aborted,
                Event::Extend { .. }
                | Event::Pause
                | Event::Trip(_)
                | Event::Complete
                | Event::Abort
                | Event::Ask(_),
            ) => return Err(illegal()),
        }
        Ok(next)
    }

    fn stop(&mut self, state: State) {
        self.state = state;
        self.lease = None;
        self.desired = None;
    }
}

/// What became of a record in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Not touched by this run.
    NotSent,
    /// Sent, or about to be, and no outcome yet.
    InDoubt,
    /// Its work is done.
    Resolved,
    /// Its work was done already.
    Duplicate,
    /// Its consumer says nothing, and it did not come back.
    Assumed,
    /// Parked again.
    FailedAgain,
    /// Given up.
    Discarded,
    /// Taken by another run.
    Skipped,
    /// Could not be sent.
    Errored,
}

impl Standing {
    /// Whether it is an outcome, which never changes.
    #[must_use]
    pub const fn is_outcome(self) -> bool {
        match self {
            Self::NotSent | Self::InDoubt => false,
            Self::Resolved
            | Self::Duplicate
            | Self::Assumed
            | Self::FailedAgain
            | Self::Discarded
            | Self::Skipped
            | Self::Errored => true,
        }
    }
}

/// Reads what became of a record in `run`. An absent record has expired, and only resolved ones do.
#[must_use]
pub fn standing(record: Option<&Record>, run: &RunId) -> Standing {
    let Some(record) = record else { return Standing::Resolved };
    let ours = record.run_id.as_ref() == Some(run);
    match record.state {
        record::State::Resolved if record.duplicate_of.is_some() => Standing::Duplicate,
        record::State::Resolved => Standing::Resolved,
        record::State::Discarded => Standing::Discarded,
        record::State::Redriving | record::State::Redriven if ours => Standing::InDoubt,
        record::State::Redriving | record::State::Redriven => Standing::Skipped,
        record::State::Quarantined if ours && record.blocked.is_some() => Standing::Errored,
        record::State::Quarantined if ours => Standing::FailedAgain,
        record::State::Quarantined => Standing::NotSent,
    }
}

/// Whether `run` had an accepted send of a record that stands like this.
#[must_use]
pub fn was_sent(record: Option<&Record>, run: &RunId, standing: Standing) -> bool {
    let ours = record.filter(|record| record.run_id.as_ref() == Some(run));
    match standing {
        Standing::Resolved | Standing::Duplicate | Standing::Assumed | Standing::FailedAgain => {
            ours.is_some()
        }
        Standing::InDoubt => ours.is_some_and(|r| r.state == record::State::Redriven),
        Standing::NotSent | Standing::Discarded | Standing::Skipped | Standing::Errored => false,
    }
}

/// An outcome as it is written down: the first one of a record stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeLine {
    /// The record.
    pub record_id: RecordId,
    /// What became of it.
    pub outcome: Standing,
    /// Whether this run had an accepted send of it.
    pub sent: bool,
    /// When it was read, epoch milliseconds.
    pub at_ms: Wall,
}

/// The key of a run's frozen plan.
///
/// # Errors
/// The prefix makes the key too long, or has characters that no key may have.
pub fn plan_key(prefix: &str, run: &RunId) -> Result<EnvelopeKey, IdError> {
    EnvelopeKey::new(format!("{}runs/{run}/plan.jsonl", envelope::root(prefix)))
}

/// The key of a run's `sequence`-th object of outcomes, from 0.
///
/// # Errors
/// As [`plan_key`].
pub fn outcomes_key(prefix: &str, run: &RunId, sequence: u32) -> Result<EnvelopeKey, IdError> {
    let root = envelope::root(prefix);
    EnvelopeKey::new(format!("{root}runs/{run}/outcomes/{sequence:08}.jsonl"))
}

/// Adds up standings, one record each; `was_sent` says which had an accepted send.
#[must_use]
pub fn count<'a>(
    standings: impl IntoIterator<Item = (&'a ErrorCode, Standing, bool)>,
) -> (Counts, BTreeMap<ErrorCode, Counts>) {
    let mut all = Counts::default();
    let mut by_code: BTreeMap<ErrorCode, Counts> = BTreeMap::new();
    for (code, standing, was_sent) in standings {
        all.add(standing, was_sent);
        by_code.entry(code.clone()).or_default().add(standing, was_sent);
    }
    (all, by_code)
}

impl Counts {
    /// Nothing.
    pub const NONE: Self = Self {
        planned: 0,
        not_sent: 0,
        sent: 0,
        in_doubt: 0,
        resolved: 0,
        duplicates: 0,
        assumed: 0,
        failed_again: 0,
        discarded: 0,
        skipped: 0,
        errored: 0,
    };

    fn add(&mut self, standing: Standing, was_sent: bool) {
        self.planned = self.planned.saturating_add(1);
        self.sent = self.sent.saturating_add(u64::from(was_sent));
        let counter = match standing {
            Standing::NotSent => &mut self.not_sent,
            Standing::InDoubt => &mut self.in_doubt,
            Standing::Resolved => &mut self.resolved,
            Standing::Duplicate => {
                self.duplicates = self.duplicates.saturating_add(1);
                &mut self.resolved
            }
            Standing::Assumed => {
                self.assumed = self.assumed.saturating_add(1);
                &mut self.resolved
            }
            Standing::FailedAgain => &mut self.failed_again,
            Standing::Discarded => &mut self.discarded,
            Standing::Skipped => &mut self.skipped,
            Standing::Errored => &mut self.errored,
        };
        *counter = counter.saturating_add(1);
    }

    /// Whether the counters add up.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let parts = [
            self.not_sent,
            self.in_doubt,
            self.resolved,
            self.failed_again,
            self.discarded,
            self.skipped,
            self.errored,
        ];
        parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part)) == self.planned
    }
}
