//! What operators do to records: discard, restore, resolve, rescue.
//!
//! The act is written down first ([`crate::service::audit`]). Then each record is read, judged by the
//! record's own table, and written on the condition that it is still as read: one that has moved meanwhile
//! is refused, with the reason. What enters quarantine gets a new token: its envelope is read first, so that
//! nothing is moved whose token could not be made, then state, token, mark.
//!
//! | crash after | what is there | what mends it |
//! | --- | --- | --- |
//! | the audit object | nothing moved | the act, made again |
//! | state | the record moved; in quarantine without a token | the full sweep issues one |
//! | token | the same with a token in the DLQ, not marked sent | the full sweep issues another |
//! | mark | all | |
//!
//! The tokens of what is discarded, resolved or rescued no longer count from that write on. Sweeps remove
//! them; deleting them here would need a receive of the whole DLQ.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rand::Rng;
use tokio_util::sync::CancellationToken;

use crate::domain::envelope::{self, Envelope};
use crate::domain::failure::ErrorCode;
use crate::domain::id::{ParkToken, QueueName, RecordId, RunId};
use crate::domain::message::MAX_BATCH_ENTRIES;
use crate::domain::plan::{Plan, Planned};
use crate::domain::record::{self, Event, Record, Refusal, State, Step};
use crate::domain::token::Original;
use crate::port::clock::Clock;
use crate::port::error::PortError;
use crate::port::evidence::Stored;
use crate::port::ledger::{Expect, Ledger, RecordWrite, WriteError, write_record};
use crate::port::queue::Queue;
use crate::port::runs::{MAX_READ, Runs};
use crate::port::vault::Vault;
use crate::service::audit::{Act, AuditError, By, Entry, Tally, Trail};
use crate::service::insist::{Verdict, insist};
use crate::service::original;
use crate::service::query::Records;
use crate::service::scope::Scope;
use crate::service::token::{IssueError, Issuer};

/// How long a call is insisted on.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a record is judged again after its token alone has changed.
const TRIES: u32 = 5;

/// A move of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// It is given up: kept, and out of the DLQ.
    Discard,
    /// The giving up is taken back.
    Restore,
    /// Its work is done, by other means.
    Resolve,
    /// Its copy is lost: it comes back to quarantine.
    Rescue,
}

impl Move {
    /// The state of the records that it is for. `resolve` takes discarded ones too, but only by their ids.
    #[must_use]
    pub const fn from(self) -> State {
        match self {
            Self::Discard | Self::Resolve => State::Quarantined,
            Self::Restore => State::Discarded,
            Self::Rescue => State::Redriven,
        }
    }

    /// As the audit trail names it.
    #[must_use]
    pub const fn act(self) -> Act {
        match self {
            Self::Discard => Act::Discard,
            Self::Restore => Act::Restore,
            Self::Resolve => Act::Resolve,
            Self::Rescue => Act::Rescue,
        }
    }

    fn event(self, token: ParkToken) -> Event {
        match self {
            Self::Discard => Event::Discard,
            Self::Restore => Event::Restore(token),
            Self::Resolve => Event::Resolve,
            Self::Rescue => Event::Rescue(token),
        }
    }
}

/// What moves of one source work on.
#[derive(Debug, Clone)]
pub struct Mover {
    /// The source.
    pub source: QueueName,
    /// Its DLQ: where tokens go.
    pub dlq: Arc<dyn Queue>,
    /// The DLQ's `MaximumMessageSize` in bytes.
    pub dlq_max_bytes: usize,
    /// Envelopes, and the audit trail.
    pub vault: Arc<dyn Vault>,
    /// Records.
    pub ledger: Arc<dyn Ledger>,
    /// Records in batches.
    pub runs: Arc<dyn Runs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The vault's key prefix.
    pub prefix: String,
    /// How long resolved records are remembered.
    pub remember: Duration,
}

/// A record that is not moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The record.
    pub record_id: RecordId,
    /// Why.
    pub why: String,
    /// The run that has it, if that is why.
    pub run: Option<RunId>,
}

/// What a move would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The move.
    pub act: Move,
    /// What was asked for.
    pub scope: Scope,
    /// The records, in parked order; those that are named, as they are named.
    pub plan: Plan,
    /// How many have which code.
    pub by_code: BTreeMap<ErrorCode, u64>,
    /// Those that would be refused as they are now.
    pub refused: Vec<Refused>,
}

impl Selected {
    /// How many records.
    #[must_use]
    pub fn matched(&self) -> u64 {
        u64::try_from(self.plan.records().len()).unwrap_or(u64::MAX)
    }
}

/// What a move did. What is neither moved nor refused was not reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// Records moved.
    pub moved: u64,
    /// Records that were not, or not wholly.
    pub refused: Vec<Refused>,
    /// What ended it early.
    pub failed: Option<PortError>,
}

/// A move that was not begun: nothing is changed.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// A dependency failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The act cannot be written down.
    #[error("the act cannot be written down: {0}")]
    Audit(String),
}

impl From<AuditError> for MoveError {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Port(error) => Self::Port(error),
            AuditError::Key(_) | AuditError::Encoding(_) => Self::Audit(error.to_string()),
        }
    }
}

/// Whether an event moves a record; else why not.
fn judge(
    record: Option<&Record>,
    event: &Event,
    remember: Duration,
    now: crate::domain::time::Wall,
) -> Result<Record, (String, Option<RunId>)> {
    match record::apply(record, event, remember, now) {
        Ok(Step::Write(next)) => Ok(*next),
        Ok(Step::Refused(why)) => {
            let run = if let Refusal::InRun(run) = &why { run.clone() } else { None };
            Err((why.to_string(), run))
        }
        Ok(_) => Err((String::from("there is nothing to do"), None)),
        Err(illegal) => Err((illegal.state.map_or("it is gone".to_owned(), is_in), None)),
    }
}

fn is_in(state: State) -> String {
    format!("it is {}", state.name())
}

/// Whether a record changed in nothing that an operator looks at: its token alone, perhaps.
fn is_same(read: &Record, now: &Record) -> bool {
    (read.state, read.redrive_count, &read.envelope)
        == (now.state, now.redrive_count, &now.envelope)
}

impl Mover {
    async fn insist<T, E, F>(&self, call: impl FnMut() -> F) -> Result<T, E>
    where
        E: Verdict,
        F: Future<Output = Result<T, E>>,
    {
        let until = self.clock.mono().plus(PATIENCE);
        insist(self.clock.as_ref(), || until, call).await
    }

    /// Says what a move would do. Records that are named by their ids are looked at whatever their state;
    /// others are those of the state that the move is for. Writes nothing.
    ///
    /// # Errors
    /// Records cannot be read.
    pub async fn select(&self, act: Move, scope: Scope) -> Result<Selected, PortError> {
        let plan = Plan::default();
        let mut selected =
            Selected { act, scope, plan, by_code: BTreeMap::new(), refused: Vec::new() };
        let mut planned = Vec::new();
        let limit = usize::try_from(selected.scope.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        if selected.scope.selection.records.is_empty() {
            let parked = selected.scope.parked;
            let mut records = Records::new(self.ledger.as_ref(), &[act.from()], parked);
            while planned.len() < limit {
                let next = records.next_of(&selected.scope.selection).await?;
                let Some((id, record)) = next else { break };
                self.plan_one(&mut selected, &mut planned, id, &record);
            }
        } else {
            let ids = selected.scope.selection.records.clone();
            for ids in ids.chunks(MAX_READ) {
                for (id, record) in ids.iter().zip(self.read(ids).await?) {
                    if let Some(record) = record.filter(|_| planned.len() < limit) {
                        self.plan_one(&mut selected, &mut planned, id.clone(), record.get());
                    }
                }
            }
        }
        selected.plan = Plan::new(planned);
        Ok(selected)
    }

    fn plan_one(
        &self,
        selected: &mut Selected,
        planned: &mut Vec<Planned>,
        record_id: RecordId,
        record: &Record,
    ) {
        let now = self.clock.wall();
        if !selected.scope.matches(&record_id, record, now) {
            return;
        }
        // Any token will do, to see what the table says.
        let event = selected.act.event(record.park_token.clone());
        if let Err((why, run)) = judge(Some(record), &event, self.remember, now) {
            selected.refused.push(Refused { record_id: record_id.clone(), why, run });
        }
        *selected.by_code.entry(record.error_code.clone()).or_default() += 1;
        planned.push(Planned { record_id, error_code: record.error_code.clone() });
    }

    /// Moves what was selected. `stop` ends it after the records in hand, as a failed dependency does.
    ///
    /// # Errors
    /// The act cannot be written down: nothing is moved.
    pub async fn carry_out(
        &self,
        selected: &Selected,
        by: &By,
        rng: &mut impl Rng,
        stop: &CancellationToken,
    ) -> Result<Moved, MoveError> {
        let mut moved = Moved::default();
        if selected.plan.records().is_empty() {
            return Ok(moved);
        }
        self.write_down(selected, by, rng).await?;
        for planned in selected.plan.records().chunks(MAX_BATCH_ENTRIES) {
            if stop.is_cancelled() || moved.failed.is_some() {
                break;
            }
            let ids: Vec<RecordId> = planned.iter().map(|one| one.record_id.clone()).collect();
            let records = match self.read(&ids).await {
                Ok(records) => records,
                Err(error) => {
                    moved.failed = Some(error);
                    break;
                }
            };
            let now = self.clock.wall();
            let tokens: Vec<_> = ids.iter().map(|_| ParkToken::generate(now, rng)).collect();
            let moves = ids.iter().zip(records).zip(tokens).map(|((id, record), token)| {
                self.move_one(selected, id, record, selected.act.event(token))
            });
            for (record_id, answer) in ids.iter().zip(join_all(moves).await) {
                moved.note(record_id, answer);
            }
        }
        Ok(moved)
    }

    async fn write_down(
        &self,
        selected: &Selected,
        by: &By,
        rng: &mut impl Rng,
    ) -> Result<(), AuditError> {
        let entry = Entry {
            act: selected.act.act(),
            by,
            run_id: None,
            plan_hash: Some(&selected.plan.hash()),
            selection: Some(&selected.scope),
            counts: Tally::Moves { matched: selected.matched() },
            rate: None,
        };
        let (vault, clock) = (self.vault.as_ref(), self.clock.as_ref());
        let trail = Trail { vault, clock, prefix: &self.prefix, queue: &self.source };
        trail.put(&entry, rng).await
    }

    async fn read(&self, ids: &[RecordId]) -> Result<Vec<Option<Stored<Record>>>, PortError> {
        let now = self.clock.wall();
        self.insist(|| self.runs.records(ids, now)).await
    }

    /// Moves one record, as it was just read.
    async fn move_one(
        &self,
        selected: &Selected,
        id: &RecordId,
        record: Option<Stored<Record>>,
        event: Event,
    ) -> Result<(), Stuck> {
        let read = record.map(Stored::into_inner);
        let mut current = read.clone();
        let mut original = None;
        for _ in 0..TRIES {
            let now = self.clock.wall();
            let next = judge(current.as_ref(), &event, self.remember, now)
                .map_err(|(why, run)| Stuck::Refused(why, run))?;
            let (Some(before), Some(read)) = (current.as_ref(), read.as_ref()) else { break };
            if !is_same(read, before) || !selected.scope.matches(id, before, now) {
                break;
            }
            if next.state == State::Quarantined && original.is_none() {
                original = Some(self.original(id, before).await?);
            }
            let expect = Expect::Is(Box::new(before.clone()));
            let write = RecordWrite { id: id.clone(), expect, next };
            let ledger = self.ledger.as_ref();
            match self.insist(|| write_record(ledger, &write, now)).await {
                Ok(stored) => {
                    return match original {
                        Some(original) => self.issue(id, stored, &original).await,
                        None => Ok(()),
                    };
                }
                Err(WriteError::Lost(changed)) => current = changed.map(|c| c.into_inner()),
                Err(WriteError::Unknown(error)) => return Err(Stuck::Failed(error)),
            }
        }
        Err(Stuck::Refused("it has changed since it was selected: look again".to_owned(), None))
    }

    /// The original that a new token will carry.
    async fn original(&self, id: &RecordId, record: &Record) -> Result<Envelope, Stuck> {
        let folder = envelope::folder(&self.prefix, &self.source);
        let vault = self.vault.as_ref();
        match self.insist(|| original::fetch(vault, &folder, id, record)).await {
            Ok(Ok(envelope)) => Ok(envelope),
            Ok(Err(why)) => Err(Stuck::Refused(format!("{}: {why}", record.envelope), None)),
            Err(error) => Err(Stuck::Failed(error)),
        }
    }

    /// Sends the token of a record that has entered quarantine.
    async fn issue(
        &self,
        id: &RecordId,
        stored: Stored<Record>,
        envelope: &Envelope,
    ) -> Result<(), Stuck> {
        let until = self.clock.mono().plus(PATIENCE);
        let issuer = Issuer {
            source: &self.source,
            dlq: self.dlq.as_ref(),
            dlq_max_bytes: self.dlq_max_bytes,
            ledger: self.ledger.as_ref(),
            clock: self.clock.as_ref(),
            remember: self.remember,
            until: &|| until,
        };
        let original = Original {
            body: &envelope.payload.body,
            attributes: &envelope.attributes,
            trace_header: envelope.message.trace_header.as_deref(),
            group_id: envelope.message.group_id.as_deref(),
        };
        match issuer.issue(id, stored, &original).await {
            Ok(_) => Ok(()),
            Err(error) => Err(Stuck::Tokenless(error)),
        }
    }
}

/// Why a record is not moved, or not wholly.
enum Stuck {
    /// Its table, or its envelope.
    Refused(String, Option<RunId>),
    /// A dependency.
    Failed(PortError),
    /// It is in quarantine, and its token is not known to be in the DLQ.
    Tokenless(IssueError),
}

impl Moved {
    fn note(&mut self, record_id: &RecordId, answer: Result<(), Stuck>) {
        let (why, run) = match answer {
            Ok(()) => {
                self.moved = self.moved.saturating_add(1);
                return;
            }
            Err(Stuck::Refused(why, run)) => (why, run),
            Err(Stuck::Failed(error)) => {
                let why = error.to_string();
                self.failed.get_or_insert(error);
                (why, None)
            }
            Err(Stuck::Tokenless(error)) => {
                let why = format!(
                    "it is quarantined, but its DLQ message is not sent: {error}; `redrive sweep \
                     --full` sends it"
                );
                if let IssueError::Port(error) = error {
                    self.failed.get_or_insert(error);
                }
                (why, None)
            }
        };
        self.refused.push(Refused { record_id: record_id.clone(), why, run });
    }
}
