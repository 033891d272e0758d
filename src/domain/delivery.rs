//! What a received message is, what its claim meets, and what follows from a failed attempt.

use std::time::Duration;

use super::entry::{Claim, Claimed, Entry};
use super::failure::{Disposition, Failure, FailureKind, Reason};
use super::id::{QueueName, RecordId, RunId};
use super::identity::{Content, Judgement, Provenance};
use super::message::Received;
use super::record::Record;
use super::time::Wall;
use super::token::{ATTRIBUTE, Carried, Copy, Marker, Token, recognise};

/// What a message in the source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A producer's message.
    Plain,
    /// A copy sent by a run.
    Copy(Copy),
    /// A token that AWS's own button moved to the source.
    RedrivenToken(Token),
}

/// Where the original's body and attributes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Travel {
    /// In the message itself.
    Inline,
    /// In the envelope.
    Pointer,
}

/// A received message, recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What it is.
    pub kind: Kind,
    /// Where the original is.
    pub travel: Travel,
    /// Whose work it is: the record of a copy or redriven token, else the message itself.
    pub origin: RecordId,
    /// The origin's SentTimestamp.
    pub sent: Wall,
}

/// Recognises a message of `queue`, and takes our own attribute off a copy or token. `now` stands in for
/// a SentTimestamp that SQS did not say.
#[must_use]
pub fn classify(received: &mut Received, queue: &QueueName, now: Wall) -> Delivery {
    let (marker, travel) = match recognise(&received.body, &received.attributes, queue) {
        None => return Delivery::plain(received, now),
        Some(Carried::Inline(marker)) => (marker, Travel::Inline),
        Some(Carried::Pointer(marker)) => (marker, Travel::Pointer),
    };
    received.attributes.remove(ATTRIBUTE);
    match marker {
        Marker::Copy(copy) => Delivery {
            travel,
            origin: copy.record.clone(),
            sent: copy.sent_ms,
            kind: Kind::Copy(copy),
        },
        Marker::Token(token) => Delivery {
            travel,
            origin: token.record.clone(),
            sent: token.sent_ms,
            kind: Kind::RedrivenToken(token),
        },
    }
}

impl Delivery {
    /// A producer's message.
    #[must_use]
    pub fn plain(received: &Received, now: Wall) -> Self {
        let sent = received.sent.or(received.first_received).unwrap_or(now);
        let origin = RecordId::from(&received.message_id);
        Self { kind: Kind::Plain, travel: Travel::Inline, origin, sent }
    }

    /// Whether a copy or redriven token can be of this record: the same payload, and a number that the
    /// record can have given out. (One above its own: a send that was refused after an earlier one of it
    /// had got through.) Anything else is a user's attribute, or a forgery.
    #[must_use]
    pub fn is_of(&self, record: &Record) -> bool {
        let sha256 = match &self.kind {
            Kind::Plain => return true,
            Kind::Copy(copy) => &copy.sha256,
            Kind::RedrivenToken(token) => &token.sha256,
        };
        *sha256 == record.payload_sha256 && self.n() <= record.redrive_count.saturating_add(1)
    }

    /// Where it comes from, as far as repeats are concerned.
    #[must_use]
    pub const fn provenance(&self) -> Provenance {
        match &self.kind {
            Kind::Plain => Provenance::Plain,
            Kind::Copy(copy) if copy.force => Provenance::Forced,
            Kind::Copy(_) | Kind::RedrivenToken(_) => Provenance::Redriven,
        }
    }

    /// Which copy of its record it is; 0 for a plain message.
    #[must_use]
    pub const fn n(&self) -> u32 {
        match &self.kind {
            Kind::Plain => 0,
            Kind::Copy(copy) => copy.n,
            Kind::RedrivenToken(token) => token.n.saturating_add(1),
        }
    }

    /// The run that sent it.
    #[must_use]
    pub const fn run(&self) -> Option<&RunId> {
        match &self.kind {
            Kind::Copy(copy) => Some(&copy.run),
            Kind::Plain | Kind::RedrivenToken(_) => None,
        }
    }
}

/// What the decision to claim needs besides the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The claim.
    pub claim: Claim,
    /// The delivery's content.
    pub content: Content,
    /// The receive count, if SQS said it.
    pub receive_count: Option<u32>,
    /// The window of repeats.
    pub repeat_window: Duration,
    /// Crashes at which a message is parked unrun.
    pub crash_limit: u32,
}

/// What a delivery meets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Meeting {
    /// Its work is done, by the commit of this origin.
    Done(RecordId),
    /// Another payload was committed under its key: park it under its own record.
    Mismatch,
    /// Somebody works on its key until then.
    Refused {
        /// When their lease is over.
        until: Wall,
    },
    /// It was parked before: finish the parking.
    FinishParking,
    /// Write this entry, then go on.
    Take {
        /// The entry to write.
        next: Box<Entry>,
        /// What to do once it is written.
        then: Then,
    },
}

/// What to do once the claim is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Run the handler.
    Run,
    /// Read the record of this message first: it may have been parked before.
    ReadRecord,
    /// Park it unrun: it has crashed too many workers.
    ParkCrashed,
}

/// Decides what a delivery meets. `existing` is the entry as read.
pub fn decide_claim(existing: Option<&Entry>, request: &ClaimRequest, now: Wall) -> Meeting {
    let existing = existing.filter(|entry| !entry.is_expired(now));
    if let Some(entry) = existing {
        match request.content.judge(entry, request.repeat_window) {
            Judgement::Done(by) => return Meeting::Done(by),
            Judgement::Mismatch => return Meeting::Mismatch,
            Judgement::New => {}
        }
    }
    match Entry::claim(existing, &request.claim, now) {
        Claimed::Refused { until } => Meeting::Refused { until },
        Claimed::FinishParking(_) => Meeting::FinishParking,
        Claimed::Take(next) => {
            let then = decide_then(existing, request, &next);
            Meeting::Take { next, then }
        }
    }
}

fn decide_then(existing: Option<&Entry>, request: &ClaimRequest, next: &Entry) -> Then {
    if next.crashes >= request.crash_limit {
        return Then::ParkCrashed;
    }
    let anothers = existing.is_some_and(|entry| entry.holder != request.claim.holder);
    let redelivered = request.receive_count != Some(1);
    match request.content.provenance {
        Provenance::Plain if anothers || redelivered => Then::ReadRecord,
        Provenance::Plain | Provenance::Redriven | Provenance::Forced => Then::Run,
    }
}

/// The limits that a failed attempt is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Own limit on attempts.
    pub max_attempts: u32,
    /// The source's own maxReceiveCount.
    pub native_limit: Option<u32>,
}

impl Limits {
    /// Whether giving a message back would let SQS move it. An unknown receive count is not at the limit.
    #[must_use]
    pub fn is_last_receive(self, receive_count: Option<u32>) -> bool {
        self.native_limit.zip(receive_count).is_some_and(|(limit, count)| count >= limit)
    }
}

/// What follows from a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Park it now.
    Park(Reason, Disposition),
    /// Try again, after this if the handler asked for it, else after the back-off.
    Retry {
        /// What the handler asked for.
        retry_after: Option<Duration>,
    },
}

/// Decides what follows from a failed attempt.
#[must_use]
pub fn decide_failure(
    failure: &Failure,
    attempts: u32,
    receive_count: Option<u32>,
    limits: Limits,
) -> AfterFailure {
    match failure.kind {
        FailureKind::Permanent => AfterFailure::Park(Reason::Validation, Disposition::Permanent),
        FailureKind::LowConfidence => {
            AfterFailure::Park(Reason::LowConfidence, Disposition::Permanent)
        }
        FailureKind::Transient { .. } if attempts >= limits.max_attempts => {
            AfterFailure::Park(Reason::Exception, Disposition::Exhausted)
        }
        FailureKind::Transient { retry_after } => {
            if limits.is_last_receive(receive_count) {
                AfterFailure::Park(Reason::ReceivesExhausted, Disposition::Exhausted)
            } else {
                AfterFailure::Retry { retry_after }
            }
        }
    }
}
