//! The dead-letter record: what became of one message that was parked.
//!
//! [`apply`] is the whole table of states and events. A record is one per original MessageId, so no
//! evidence is ever merged or replaced on behalf of another message.

use std::collections::BTreeMap;
use std::time::Duration;

mod table;

pub use table::apply;

use super::failure::{Disposition, ErrorCode, Reason};
use super::id::{EntryKey, EnvelopeKey, ParkToken, RecordId, RunId, Sha256Hex};
use super::time::Wall;

/// The state of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Parked, waiting for a decision.
    Quarantined,
    /// A run has taken it and is about to send its copy.
    Redriving,
    /// Its copy was accepted by the source.
    Redriven,
    /// Its work is done.
    Resolved,
    /// Given up, by an operator or by the loop guard.
    Discarded,
}

/// Why a record came back unrun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// SQS refused its copy.
    Refused,
    /// Its envelope could not be read.
    Unreadable,
    /// Its run was settled without its executor.
    Unsettled,
    /// An operator took it back.
    Rescued,
}

/// One dead-lettered message of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The state.
    pub state: State,
    /// The key of its entry.
    pub key: EntryKey,
    /// Its payload's SHA-256.
    pub payload_sha256: Sha256Hex,
    /// How often it was sent back (n).
    pub redrive_count: u32,
    /// The run that had it last.
    pub run_id: Option<RunId>,
    /// Which of its DLQ messages counts.
    pub park_token: ParkToken,
    /// When that DLQ message was accepted, if it was.
    pub token_sent: Option<Wall>,
    /// The newest envelope.
    pub envelope: EnvelopeKey,
    /// Why it was parked.
    pub reason: Reason,
    /// Whether retrying could have helped.
    pub disposition: Disposition,
    /// The code of the last failure.
    pub error_code: ErrorCode,
    /// Its text, at most 512 characters; empty where texts are kept in the vault alone.
    pub error_message: String,
    /// Attempts of all its parkings.
    pub attempts_total: u32,
    /// Labels of the payload.
    pub labels: BTreeMap<String, String>,
    /// The original's message group.
    pub group_id: Option<String>,
    /// The original's SequenceNumber.
    pub sequence: Option<String>,
    /// The original's SentTimestamp.
    pub sent: Wall,
    /// When the message was first received.
    pub first_seen: Wall,
    /// When it was parked last.
    pub parked_at: Wall,
    /// When its copy was accepted last.
    pub redriven_at: Option<Wall>,
    /// When it was resolved.
    pub resolved_at: Option<Wall>,
    /// The origin whose commit made this one a duplicate.
    pub duplicate_of: Option<RecordId>,
    /// Why it came back unrun.
    pub blocked: Option<Blocked>,
    /// When DynamoDB may forget it, in epoch seconds: resolved records only.
    pub expires_at_secs: Option<u64>,
}

/// The evidence of one parking, as the record keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parking {
    /// The entry's key.
    pub key: EntryKey,
    /// The payload's SHA-256.
    pub payload_sha256: Sha256Hex,
    /// The new DLQ message's token.
    pub park_token: ParkToken,
    /// The envelope.
    pub envelope: EnvelopeKey,
    /// Why.
    pub reason: Reason,
    /// Whether retrying could have helped.
    pub disposition: Disposition,
    /// The code.
    pub error_code: ErrorCode,
    /// The text, already cut.
    pub error_message: String,
    /// Attempts of this parking.
    pub attempts: u32,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Message group.
    pub group_id: Option<String>,
    /// SequenceNumber of the original, if this is the original.
    pub sequence: Option<String>,
    /// The original's SentTimestamp.
    pub sent: Wall,
    /// When this message was first received.
    pub first_seen: Wall,
}

/// What happens to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A plain message with this id is parked.
    ParkPlain(Box<Parking>),
    /// Copy `n` of it is parked.
    ParkCopy {
        /// Which copy.
        n: u32,
        /// The run that sent it; none for AWS's own button.
        run: Option<RunId>,
        /// The evidence.
        parking: Box<Parking>,
    },
    /// A copy or redriven token was committed, or is done.
    Committed {
        /// The origin whose commit made it a duplicate, if one did.
        duplicate_of: Option<RecordId>,
    },
    /// The DLQ message with this token was accepted.
    TokenSent(ParkToken),
    /// A run found that it cannot be sent.
    Unsendable {
        /// The run.
        run: RunId,
        /// Why.
        why: Blocked,
    },
    /// A run takes it.
    Take {
        /// The run.
        run: RunId,
        /// The cap on redrives.
        max_redrives: u32,
    },
    /// Its copy was accepted.
    SendConfirmed {
        /// The run.
        run: RunId,
        /// Which copy.
        n: u32,
    },
    /// Its copy was refused.
    SendRefused {
        /// The run.
        run: RunId,
        /// Which copy.
        n: u32,
        /// Whether an earlier send of this copy may have got through.
        earlier: EarlierSend,
    },
    /// Its run was settled without its executor.
    Settled {
        /// The run.
        run: RunId,
    },
    /// An operator takes it back; the new DLQ message's token.
    Rescue(ParkToken),
    /// An operator gives it up.
    Discard,
    /// An operator takes back the giving up; the new DLQ message's token.
    Restore(ParkToken),
    /// An operator says the work is done.
    Resolve,
}

/// Whether an earlier send of the same copy may have got through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlierSend {
    /// None did.
    None,
    /// One stayed unknown, or another executor may have sent it.
    Unknown,
}

/// The kind of an [`Event`], for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// [`Event::ParkPlain`]
    ParkPlain,
    /// [`Event::ParkCopy`]
    ParkCopy,
    /// [`Event::Committed`]
    Committed,
    /// [`Event::TokenSent`]
    TokenSent,
    /// [`Event::Unsendable`]
    Unsendable,
    /// [`Event::Take`]
    Take,
    /// [`Event::SendConfirmed`]
    SendConfirmed,
    /// [`Event::SendRefused`]
    SendRefused,
    /// [`Event::Settled`]
    Settled,
    /// [`Event::Rescue`]
    Rescue,
    /// [`Event::Discard`]
    Discard,
    /// [`Event::Restore`]
    Restore,
    /// [`Event::Resolve`]
    Resolve,
}

/// What an event does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Write this; new evidence.
    Write(Box<Record>),
    /// Write this; the parking was made before and keeps its envelope: send its new token.
    FinishParking(Box<Record>),
    /// The record has moved on: write nothing to it, delete the message.
    DeleteMessage,
    /// Commit the entry alone.
    EntryOnly,
    /// Our own earlier try got through, or the copy has already come back: it counts as sent.
    CountsAsSent,
    /// Refused: nothing is written, nobody is at fault.
    Refused(Refusal),
}

/// Why an event was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This run had the record already.
    #[error("this run had it already")]
    HadAlready,
    /// The record is not quarantined any more.
    #[error("it is not quarantined any more")]
    Moved,
    /// A run has it.
    #[error("run {} has it", .0.as_ref().map_or("of another time", RunId::as_str))]
    InRun(Option<RunId>),
    /// It is redriven: rescue it first.
    #[error("its copy is on its way: rescue it first")]
    RescueFirst,
    /// The event is about another park token, run or n.
    #[error("it has changed since")]
    Outdated,
}

/// An event that the table does not list: nothing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record that is {} has no {event:?}", state.map_or("absent", State::name))]
pub struct IllegalTransition {
    /// The state; none if there is no record.
    pub state: Option<State>,
    /// The event.
    pub event: EventKind,
}

impl State {
    /// All states, in the order of the documentation.
    pub const ALL: [Self; 5] =
        [Self::Quarantined, Self::Redriving, Self::Redriven, Self::Resolved, Self::Discarded];

    /// The state's name in every stored format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quarantined => "quarantined",
            Self::Redriving => "redriving",
            Self::Redriven => "redriven",
            Self::Resolved => "resolved",
            Self::Discarded => "discarded",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl Blocked {
    /// Its name in every stored format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
            Self::Unsettled => "unsettled",
            Self::Rescued => "rescued",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Refused, Self::Unreadable, Self::Unsettled, Self::Rescued]
            .into_iter()
            .find(|blocked| blocked.name() == name)
    }
}

impl Event {
    /// The event's kind.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::ParkPlain(_) => EventKind::ParkPlain,
            Self::ParkCopy { .. } => EventKind::ParkCopy,
            Self::Committed { .. } => EventKind::Committed,
            Self::TokenSent(_) => EventKind::TokenSent,
            Self::Unsendable { .. } => EventKind::Unsendable,
            Self::Take { .. } => EventKind::Take,
            Self::SendConfirmed { .. } => EventKind::SendConfirmed,
            Self::SendRefused { .. } => EventKind::SendRefused,
            Self::Settled { .. } => EventKind::Settled,
            Self::Rescue(_) => EventKind::Rescue,
            Self::Discard => EventKind::Discard,
            Self::Restore(_) => EventKind::Restore,
            Self::Resolve => EventKind::Resolve,
        }
    }
}

impl Parking {
    /// A parking of the same evidence with a new token: no attempt was made since.
    #[must_use]
    pub fn again(record: &Record, park_token: ParkToken) -> Self {
        Self {
            key: record.key.clone(),
            payload_sha256: record.payload_sha256.clone(),
            park_token,
            envelope: record.envelope.clone(),
            reason: record.reason,
            disposition: record.disposition,
            error_code: record.error_code.clone(),
            error_message: record.error_message.clone(),
            attempts: 0,
            labels: record.labels.clone(),
            group_id: record.group_id.clone(),
            sequence: record.sequence.clone(),
            sent: record.sent,
            first_seen: record.first_seen,
        }
    }
}

impl Record {
    /// Whether the record is past its expiry: then it counts as absent, deleted or not.
    #[must_use]
    pub fn is_expired(&self, now: Wall) -> bool {
        self.expires_at_secs.is_some_and(|at| at <= now.as_secs())
    }

    /// Whether `other` is this record unchanged: what every conditional write compares.
    #[must_use]
    pub fn is_version_of(&self, other: &Self) -> bool {
        self.state == other.state
            && self.redrive_count == other.redrive_count
            && self.park_token == other.park_token
            && self.token_sent == other.token_sent
            && self.run_id == other.run_id
    }

    /// The record of a first parking.
    #[must_use]
    pub fn parked(n: u32, run: Option<RunId>, parking: &Parking, now: Wall) -> Self {
        Self {
            state: State::Quarantined,
            key: parking.key.clone(),
            payload_sha256: parking.payload_sha256.clone(),
            redrive_count: n,
            run_id: run,
            park_token: parking.park_token.clone(),
            token_sent: None,
            envelope: parking.envelope.clone(),
            reason: parking.reason,
            disposition: parking.disposition,
            error_code: parking.error_code.clone(),
            error_message: parking.error_message.clone(),
            attempts_total: parking.attempts,
            labels: parking.labels.clone(),
            group_id: parking.group_id.clone(),
            sequence: parking.sequence.clone(),
            sent: parking.sent,
            first_seen: parking.first_seen,
            parked_at: now,
            redriven_at: None,
            resolved_at: None,
            duplicate_of: None,
            blocked: None,
            expires_at_secs: None,
        }
    }

    fn parked_again(&self, n: u32, run: Option<RunId>, parking: &Parking, now: Wall) -> Self {
        Self {
            attempts_total: self.attempts_total.saturating_add(parking.attempts),
            sequence: self.sequence.clone(),
            sent: self.sent,
            first_seen: self.first_seen,
            redriven_at: self.redriven_at,
            ..Self::parked(n, run, parking, now)
        }
    }

    fn requarantined(&self, park_token: &ParkToken) -> Self {
        Self {
            state: State::Quarantined,
            park_token: park_token.clone(),
            token_sent: None,
            ..self.clone()
        }
    }

    fn came_back(&self, n: u32, why: Blocked) -> Self {
        Self { state: State::Quarantined, redrive_count: n, blocked: Some(why), ..self.clone() }
    }

    fn resolved(&self, duplicate_of: Option<RecordId>, remember: Duration, now: Wall) -> Self {
        Self {
            state: State::Resolved,
            resolved_at: Some(now),
            duplicate_of,
            expires_at_secs: Some(now.plus(remember).as_secs()),
            ..self.clone()
        }
    }
}
