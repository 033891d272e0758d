//! The idempotency entry: who works on one key of one source, and whether the work is committed.
//!
//! [`Entry::apply`] is the whole table of states and events, total and without a wildcard. A claim is
//! decided in [`super::delivery`], which also knows repeats and mismatches; this file only says what the
//! state allows. Lease tokens are new for each claim and stay on the item after a transition, so that a
//! write whose answer was lost can be recognised as our own.

use std::collections::BTreeMap;
use std::time::Duration;

use super::failure::ErrorCode;
use super::id::{LeaseToken, MessageId, RecordId, Sha256Hex};
use super::time::Wall;

/// How many commits and how many failures an entry remembers.
pub const REMEMBERED: usize = 20;

/// The longest error text kept in the ledger, in characters.
pub const ERROR_TEXT_CHARS: usize = 512;

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A worker holds it until the lease is over.
    InProgress {
        /// `lease_until_ms`.
        lease_until: Wall,
    },
    /// The last attempt failed or was given back; the next claim goes on.
    Open,
    /// The holder was parked.
    Parked,
    /// The work is done.
    Committed {
        /// `committed_at_ms`.
        at: Wall,
    },
}

/// A commit, keyed in the entry by its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The origin's SentTimestamp.
    pub sent: Wall,
    /// The content hash (body and attributes of the original).
    pub hash: Sha256Hex,
    /// The payload's SHA-256.
    pub payload: Sha256Hex,
    /// When it was committed.
    pub at: Wall,
}

/// A failed attempt, as the entry remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// When it ended.
    pub at: Wall,
    /// Its number, from 1.
    pub attempt: u32,
    /// `transient`, `permanent`, `low_confidence` or `crash`.
    pub outcome: String,
    /// Its code.
    pub error_code: ErrorCode,
    /// Its text, at most [`ERROR_TEXT_CHARS`] characters.
    pub error_message: String,
    /// The origin of the delivery that failed.
    pub origin: RecordId,
}

/// One idempotency entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The state.
    pub state: State,
    /// The token of the last claim.
    pub lease_token: LeaseToken,
    /// Which worker made the last claim.
    pub owner: String,
    /// The delivery that holds it (`message_id`).
    pub holder: MessageId,
    /// The generation of the work.
    pub generation: u64,
    /// Attempts of the holder.
    pub attempts: u32,
    /// Crashes of the holder.
    pub crashes: u32,
    /// The payload of the holder.
    pub payload_sha256: Sha256Hex,
    /// The last commits, by origin.
    pub commits: BTreeMap<RecordId, Commit>,
    /// The last failures, oldest first.
    pub history: Vec<Attempt>,
    /// When DynamoDB may forget it, in epoch seconds.
    pub expires_at_secs: u64,
}

/// What a claim brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The claim's own token.
    pub token: LeaseToken,
    /// The delivery.
    pub holder: MessageId,
    /// The worker.
    pub owner: String,
    /// The payload's SHA-256.
    pub payload_sha256: Sha256Hex,
    /// How long the lease lasts.
    pub lease: Duration,
    /// How long the entry is remembered.
    pub remember: Duration,
}

/// What happens to an entry after its claim. Every event carries the claim's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The work is done.
    Success {
        /// Whose work.
        origin: RecordId,
        /// The commit.
        commit: Commit,
    },
    /// The attempt failed and may be tried again.
    Transient(Attempt),
    /// The claim is given back and its attempt not counted.
    Release,
    /// The holder is parked; the failure is the one that parked it, if there was one.
    Park(Option<Attempt>),
    /// The lease is extended.
    Extend {
        /// The new `lease_until_ms`.
        lease_until: Wall,
    },
}

/// The kind of an [`Event`], for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// [`Event::Success`]
    Success,
    /// [`Event::Transient`]
    Transient,
    /// [`Event::Release`]
    Release,
    /// [`Event::Park`]
    Park,
    /// [`Event::Extend`]
    Extend,
}

/// What a claim may do, by state alone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Claimed {
    /// Write this: the claim is ours if the write's condition holds.
    Take(Box<Entry>),
    /// Somebody works on it until then. Not a failure.
    Refused {
        /// When the lease is over.
        until: Wall,
    },
    /// This very delivery was parked before: finish the parking, do not run.
    FinishParking(Box<Entry>),
}

/// What an event does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Write this.
    Write(Box<Entry>),
    /// Our own earlier try got through: nothing to write.
    OwnRetry,
    /// Another claim has taken over: nothing may be written.
    LostLease,
}

/// An event that the table does not list: nothing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an entry that is {state} has no {event:?}")]
pub struct IllegalTransition {
    /// The state's name.
    pub state: &'static str,
    /// The event.
    pub event: EventKind,
}

impl State {
    /// The state's name in every stored format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InProgress { .. } => "in_progress",
            Self::Open => "open",
            Self::Parked => "parked",
            Self::Committed { .. } => "committed",
        }
    }
}

impl Event {
    /// The event's kind.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Success { .. } => EventKind::Success,
            Self::Transient(_) => EventKind::Transient,
            Self::Release => EventKind::Release,
            Self::Park(_) => EventKind::Park,
            Self::Extend { .. } => EventKind::Extend,
        }
    }
}

impl Entry {
    /// Whether the entry is past its expiry: then it counts as absent, deleted or not.
    #[must_use]
    pub const fn is_expired(&self, now: Wall) -> bool {
        self.expires_at_secs <= now.as_secs()
    }

    /// Whether `other` is this entry unchanged: what every conditional write compares. State, token and
    /// lease end together name one version, since a token is new for each claim and every later write
    /// of its holder changes state or lease end.
    #[must_use]
    pub fn is_version_of(&self, other: &Self) -> bool {
        self.lease_token == other.lease_token
            && self.lease_until() == other.lease_until()
            && self.state.name() == other.state.name()
    }

    /// Whether the stored `self` is what the write of `next` would have left: our own write, whose answer
    /// was lost.
    #[must_use]
    pub fn is_own_write_of(&self, next: &Self) -> bool {
        self.is_version_of(next) && self.attempts == next.attempts
    }

    /// When the lease is over, while there is one.
    #[must_use]
    pub const fn lease_until(&self) -> Option<Wall> {
        match self.state {
            State::InProgress { lease_until } => Some(lease_until),
            State::Open | State::Parked | State::Committed { .. } => None,
        }
    }

    /// The newest commit and its origin.
    #[must_use]
    pub fn newest_commit(&self) -> Option<(&RecordId, &Commit)> {
        self.commits.iter().max_by_key(|(_, commit)| commit.at)
    }

    /// What a claim finds. `existing` is the entry as read, unless it is absent or expired.
    pub fn claim(existing: Option<&Self>, claim: &Claim, now: Wall) -> Claimed {
        let Some(entry) = existing.filter(|entry| !entry.is_expired(now)) else {
            return Claimed::Take(Box::new(Self::begin(claim, now)));
        };
        let same_holder = entry.holder == claim.holder;
        match entry.state {
            State::InProgress { lease_until } if now < lease_until => {
                Claimed::Refused { until: lease_until }
            }
            State::InProgress { .. } => {
                let mut next = entry.taken_by(claim, now);
                if same_holder {
                    next.attempts = entry.attempts.saturating_add(1);
                    next.crashes = entry.crashes.saturating_add(1);
                }
                Claimed::Take(Box::new(next))
            }
            State::Open => {
                let mut next = entry.taken_by(claim, now);
                if same_holder {
                    next.attempts = entry.attempts.saturating_add(1);
                    next.crashes = entry.crashes;
                }
                Claimed::Take(Box::new(next))
            }
            State::Parked if same_holder => Claimed::FinishParking(Box::new(entry.clone())),
            State::Parked => Claimed::Take(Box::new(entry.taken_by(claim, now))),
            State::Committed { .. } => {
                let mut next = entry.taken_by(claim, now);
                next.generation = now.as_ms().max(entry.generation.saturating_add(1));
                Claimed::Take(Box::new(next))
            }
        }
    }

    fn begin(claim: &Claim, now: Wall) -> Self {
        Self {
            state: State::InProgress { lease_until: now.plus(claim.lease) },
            lease_token: claim.token.clone(),
            owner: claim.owner.clone(),
            holder: claim.holder.clone(),
            generation: now.as_ms(),
            attempts: 1,
            crashes: 0,
            payload_sha256: claim.payload_sha256.clone(),
            commits: BTreeMap::new(),
            history: Vec::new(),
            expires_at_secs: now.plus(claim.remember).as_secs(),
        }
    }

    fn taken_by(&self, claim: &Claim, now: Wall) -> Self {
        Self {
            generation: self.generation,
            commits: self.commits.clone(),
            history: self.history.clone(),
            ..Self::begin(claim, now)
        }
    }

    /// What an event of the claim with `token` does.
    ///
    /// # Errors
    /// The table lists no such event in this state: nothing may be written.
    pub fn apply(
        &self,
        token: &LeaseToken,
        event: &Event,
        remember: Duration,
        now: Wall,
    ) -> Result<Step, IllegalTransition> {
        if self.lease_token != *token {
            return Ok(Step::LostLease);
        }
        let illegal = IllegalTransition { state: self.state.name(), event: event.kind() };
        let mut next = self.clone();
        next.expires_at_secs = now.plus(remember).as_secs();
        match (self.state, event) {
            (State::InProgress { .. }, Event::Success { origin, commit }) => {
                next.state = State::Committed { at: now };
                next.remember_commit(origin.clone(), commit.clone());
            }
            (State::InProgress { .. }, Event::Transient(attempt)) => {
                next.state = State::Open;
                next.remember_failure(attempt.clone());
            }
            (State::InProgress { .. }, Event::Release) => {
                next.state = State::Open;
                next.attempts = self.attempts.saturating_sub(1);
            }
            (State::InProgress { .. }, Event::Park(attempt)) => {
                next.state = State::Parked;
                next.history_extend(attempt.as_ref());
            }
            (State::InProgress { .. }, Event::Extend { lease_until }) => {
                next.state = State::InProgress { lease_until: *lease_until };
            }
            (State::Committed { .. }, Event::Success { .. })
            | (State::Open, Event::Transient(_) | Event::Release)
            | (State::Parked, Event::Park(_)) => return Ok(Step::OwnRetry),
            (State::Open | State::Parked, Event::Success { .. } | Event::Extend { .. })
            | (State::Committed { .. }, Event::Extend { .. }) => return Ok(Step::LostLease),
            (State::Open, Event::Park(_))
            | (State::Parked, Event::Transient(_) | Event::Release)
            | (State::Committed { .. }, Event::Transient(_) | Event::Release | Event::Park(_)) => {
                return Err(illegal);
            }
        }
        Ok(Step::Write(Box::new(next)))
    }

    fn remember_commit(&mut self, origin: RecordId, commit: Commit) {
        self.commits.insert(origin, commit);
        while self.commits.len() > REMEMBERED {
            let oldest = self.commits.iter().min_by_key(|(_, c)| c.at).map(|(o, _)| o.clone());
            if let Some(oldest) = oldest {
                self.commits.remove(&oldest);
            }
        }
    }

    fn history_extend(&mut self, attempt: Option<&Attempt>) {
        if let Some(attempt) = attempt {
            self.remember_failure(attempt.clone());
        }
    }

    fn remember_failure(&mut self, attempt: Attempt) {
        self.history.push(attempt);
        let excess = self.history.len().saturating_sub(REMEMBERED);
        self.history.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(token: &str, holder: &str) -> Claim {
        Claim {
            token: LeaseToken::new(token).unwrap(),
            holder: MessageId::new(holder).unwrap(),
            owner: "worker".into(),
            payload_sha256: Sha256Hex::of(b"{}"),
            lease: Duration::from_secs(5),
            remember: Duration::from_secs(30 * 86_400),
        }
    }

    #[test]
    fn case_f3_a_claim_of_five_seconds_holds_at_four_nine_and_not_at_five_one() {
        let now = Wall::from_ms(1_700_000_000_250);
        let Claimed::Take(first) = Entry::claim(None, &claim("one", "m-1"), now) else {
            panic!("an absent entry is free")
        };
        assert_eq!(first.expires_at_secs, now.as_secs() + 30 * 86_400, "epoch seconds");
        let State::InProgress { lease_until } = first.state else { panic!("{first:?}") };
        assert_eq!(lease_until.as_ms(), 1_700_000_005_250, "epoch milliseconds");
        let after = |ms| {
            Entry::claim(Some(&first), &claim("two", "m-2"), now.plus(Duration::from_millis(ms)))
        };
        assert_eq!(after(4_900), Claimed::Refused { until: lease_until });
        assert!(matches!(after(5_100), Claimed::Take(_)));
    }
}
