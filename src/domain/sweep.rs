//! The sweep's decisions: whose a DLQ message is, what becomes of a token, of a bare message, and of a
//! record that may have no token any more.

use std::time::Duration;

use super::entry::Entry;
use super::id::{ParkToken, QueueArn, QueueName, RecordId};
use super::identity::{Content, Judgement};
use super::message::Received;
use super::record::{Record, State};
use super::time::Wall;
use super::token::{Marker, Token, recognise_any};

/// How long before the DLQ forgets a token it is issued again: two daily sweeps may fail.
const BEFORE_EXPIRY: Duration = Duration::from_secs(2 * 86_400);

/// What a DLQ message is to the sweep of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A token of our own source.
    Token(Token),
    /// A bare message that SQS moved here from our own source.
    Bare,
    /// A bare message of which nobody says whose it is.
    Unsourced,
    /// A token or a bare message of this queue, another source.
    Others(String),
}

/// Sorts a DLQ message. What SQS has moved here is bare, whatever attributes it carries; a token of another
/// source is that source's.
#[must_use]
pub fn sort(message: &Received, source: &QueueName, arn: &QueueArn) -> Found {
    if let Some(from) = &message.dead_letter_source {
        return match from == arn {
            true => Found::Bare,
            false => Found::Others(from.name().map_or_else(|| from.to_string(), Into::into)),
        };
    }
    match recognise_any(&message.body, &message.attributes).map(|carried| carried.marker().clone())
    {
        Some(marker) if marker.queue() != source => Found::Others(marker.queue().to_string()),
        Some(Marker::Token(token)) => Found::Token(token),
        Some(Marker::Copy(_)) | None => Found::Unsourced,
    }
}

/// What is to be done with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenVerdict {
    /// It stands for a quarantined record: give it back.
    Keep,
    /// It no longer counts: delete it.
    Delete,
    /// Its record is gone: rebuild it from the envelope, then keep the token.
    Rebuild,
}

/// Decides about a token of our own source.
#[must_use]
pub fn decide_token(park: &ParkToken, record: Option<&Record>) -> TokenVerdict {
    match record.map(|record| (record.state, record.park_token == *park)) {
        None => TokenVerdict::Rebuild,
        Some((State::Quarantined | State::Redriving, true)) => TokenVerdict::Keep,
        Some((State::Quarantined | State::Redriving, false))
        | Some((State::Redriven | State::Resolved | State::Discarded, _)) => TokenVerdict::Delete,
    }
}

/// What is to be done with a bare message of our own source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Adoption {
    /// Its work is done, by the commit of this origin.
    Done(RecordId),
    /// Somebody works on its key: leave it to a later pass.
    Leave,
    /// Another payload was committed under its key: park it for a person to decide.
    Mismatch,
    /// Park it as its worker would have.
    Park,
}

/// Decides about a bare message, by the entry of its key as it was read.
pub fn decide_adoption(
    entry: Option<&Entry>,
    content: &Content,
    repeat_window: Duration,
    now: Wall,
) -> Adoption {
    let Some(entry) = entry.filter(|entry| !entry.is_expired(now)) else { return Adoption::Park };
    let is_live = entry.lease_until().is_some_and(|until| now < until);
    match content.judge(entry, repeat_window) {
        Judgement::Done(by) => Adoption::Done(by),
        Judgement::Mismatch | Judgement::New if is_live => Adoption::Leave,
        Judgement::Mismatch => Adoption::Mismatch,
        Judgement::New => Adoption::Park,
    }
}

/// How much of the DLQ a full sweep has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All that could be received.
    Whole,
    /// Not all, or not yet: what was not seen may be there.
    Part,
}

/// Why a token is issued again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reissue {
    /// It was never accepted, as far as the record knows.
    NeverSent,
    /// The DLQ will forget it soon.
    Expiring,
    /// It is not in the DLQ.
    NotSeen,
}

/// A full sweep's view of the DLQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// When it began: what was parked or sent later may have been missed.
    pub began: Wall,
    /// The DLQ's message retention period.
    pub retention: Duration,
    /// How much it saw.
    pub coverage: Coverage,
}

impl Walk {
    /// Whether the token of a record must be issued again. `seen` is the token of this record that the walk
    /// met. A second token does no harm, since only the newest counts; a missing one hides the record.
    #[must_use]
    pub fn decide_reissue(&self, record: &Record, seen: Option<&ParkToken>) -> Option<Reissue> {
        if record.state != State::Quarantined {
            return None;
        }
        let Some(sent) = record.token_sent else {
            return (record.parked_at < self.began).then_some(Reissue::NeverSent);
        };
        if self.began.since(sent) >= self.retention.saturating_sub(BEFORE_EXPIRY) {
            return Some(Reissue::Expiring);
        }
        let missed = self.coverage == Coverage::Whole && sent < self.began;
        (missed && seen != Some(&record.park_token)).then_some(Reissue::NotSeen)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::entry::{Claim, Claimed, Commit, State as EntryState};
    use super::super::failure::{Disposition, ErrorCode, Reason};
    use super::super::id::{EnvelopeKey, LeaseToken, MessageId, ReceiptHandle, Sha256Hex};
    use super::super::identity::Provenance;
    use super::super::message::{Attribute, Attributes};
    use super::super::record::Parking;
    use super::super::token::{ATTRIBUTE, Copy};
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(ms: u64) -> Wall {
        Wall::from_ms(ms)
    }

    fn message(marker: Option<&Marker>, from: Option<&str>) -> Received {
        let attribute =
            |marker: &Marker| (ATTRIBUTE.to_owned(), Attribute::string(marker.encode().unwrap()));
        Received {
            message_id: MessageId::new("m").unwrap(),
            receipt: ReceiptHandle::new("r"),
            body: "body".into(),
            attributes: marker.map(attribute).into_iter().collect::<Attributes>(),
            sent: None,
            first_received: None,
            receive_count: None,
            group_id: None,
            deduplication_id: None,
            sequence_number: None,
            trace_header: None,
            dead_letter_source: from.map(arn),
        }
    }

    fn arn(name: &str) -> QueueArn {
        QueueArn::new(format!("arn:aws:sqs:us-east-1:000000000000:{name}")).unwrap()
    }

    fn token(queue: &str) -> Marker {
        Marker::Token(Token {
            queue: QueueName::new(queue).unwrap(),
            record: RecordId::new("m").unwrap(),
            n: 0,
            sent_ms: at(1),
            sha256: Sha256Hex::of(b"body"),
            park: ParkToken::new("p").unwrap(),
            envelope: EnvelopeKey::new("e").unwrap(),
            code: ErrorCode::normalize("BAD"),
            reason: Reason::Validation,
            parked_at_ms: at(1),
        })
    }

    fn copy(queue: &str) -> Marker {
        Marker::Copy(Copy {
            queue: QueueName::new(queue).unwrap(),
            record: RecordId::new("m").unwrap(),
            run: super::super::id::RunId::new("r").unwrap(),
            n: 1,
            sent_ms: at(1),
            sha256: Sha256Hex::of(b"body"),
            force: false,
        })
    }

    #[test]
    fn whose_a_message_is_goes_by_its_source_and_then_by_its_token() {
        let (ours, our_arn) = (QueueName::new("orders").unwrap(), arn("orders"));
        let sorted = |marker: Option<&Marker>, from| sort(&message(marker, from), &ours, &our_arn);
        let others = Found::Others("other".into());
        let Marker::Token(own) = token("orders") else { unreachable!() };
        for (marker, from, found) in [
            (Some(token("orders")), None, Found::Token(own)),
            (Some(token("other")), None, others.clone()),
            (Some(copy("orders")), None, Found::Unsourced),
            (Some(copy("other")), None, others.clone()),
            (None, None, Found::Unsourced),
            (Some(token("orders")), Some("orders"), Found::Bare),
            (Some(token("other")), Some("orders"), Found::Bare),
            (None, Some("orders"), Found::Bare),
            (Some(token("orders")), Some("other"), others.clone()),
            (None, Some("other"), others),
        ] {
            assert_eq!(sorted(marker.as_ref(), from), found, "{marker:?} {from:?}");
        }
    }

    fn content(origin: &str, body: &str) -> Content {
        Content {
            origin: RecordId::new(origin).unwrap(),
            sent: at(1),
            hash: Sha256Hex::of(body.as_bytes()),
            payload: Sha256Hex::of(body.as_bytes()),
            provenance: Provenance::Plain,
        }
    }

    fn entry(state: EntryState, commits: &[(&str, &str)]) -> Entry {
        let claim = Claim {
            token: LeaseToken::new("t").unwrap(),
            holder: MessageId::new("m").unwrap(),
            owner: "w".into(),
            payload_sha256: Sha256Hex::of(b"body"),
            lease: Duration::from_secs(30),
            remember: DAY,
        };
        let Claimed::Take(entry) = Entry::claim(None, &claim, at(0)) else { unreachable!() };
        let commit = |(origin, body): &(&str, &str)| {
            let Content { origin, hash, payload, .. } = content(origin, body);
            (origin, Commit { sent: at(900_000_000), hash, payload, at: at(5) })
        };
        Entry { state, commits: commits.iter().map(commit).collect::<BTreeMap<_, _>>(), ..*entry }
    }

    #[test]
    fn trap_03_a_bare_message_is_done_first_then_left_while_its_lease_lives_then_parked() {
        let live = EntryState::InProgress { lease_until: at(1_001) };
        let over = EntryState::InProgress { lease_until: at(1_000) };
        let done = Adoption::Done(RecordId::new("m").unwrap());
        let committed = EntryState::Committed { at: at(5) };
        for (entry, adoption) in [
            (None, Adoption::Park),
            (Some(entry(live, &[])), Adoption::Leave),
            (Some(entry(over, &[])), Adoption::Park),
            (Some(entry(EntryState::Open, &[])), Adoption::Park),
            (Some(entry(EntryState::Parked, &[])), Adoption::Park),
            (Some(entry(live, &[("m", "body")])), done.clone()),
            (Some(entry(committed, &[("m", "body")])), done),
            (Some(entry(committed, &[("other", "body")])), Adoption::Park),
            (Some(entry(committed, &[("other", "another")])), Adoption::Mismatch),
            (Some(entry(over, &[("other", "another")])), Adoption::Mismatch),
            (Some(entry(live, &[("other", "another")])), Adoption::Leave),
        ] {
            let decided =
                decide_adoption(entry.as_ref(), &content("m", "body"), Duration::ZERO, at(1_000));
            assert_eq!(decided, adoption, "{entry:?}");
        }
    }

    fn record(state: State, parked: Wall, sent: Option<Wall>) -> Record {
        let parking = Parking {
            key: Sha256Hex::of(b"body").into(),
            payload_sha256: Sha256Hex::of(b"body"),
            park_token: ParkToken::new("p").unwrap(),
            envelope: EnvelopeKey::new("e").unwrap(),
            reason: Reason::Validation,
            disposition: Disposition::Permanent,
            error_code: ErrorCode::normalize("BAD"),
            error_message: String::new(),
            attempts: 1,
            labels: BTreeMap::new(),
            group_id: None,
            sequence: None,
            sent: at(1),
            first_seen: at(1),
        };
        Record { state, token_sent: sent, ..Record::parked(0, None, &parking, parked) }
    }

    #[test]
    fn a_token_is_issued_again_when_it_was_never_sent_expires_or_is_not_there() {
        let began = at(1_000_000_000_000);
        let whole = Walk { began, retention: DAY * 14, coverage: Coverage::Whole };
        let part = Walk { coverage: Coverage::Part, ..whole };
        let (old, young) = (began.minus(DAY * 12), began.minus(DAY * 12 - Duration::from_secs(1)));
        let (own, other) = (ParkToken::new("p").unwrap(), ParkToken::new("q").unwrap());
        let decide = |walk: &Walk, sent, seen| {
            walk.decide_reissue(&record(State::Quarantined, young, sent), seen)
        };
        for walk in [whole, part] {
            assert_eq!(decide(&walk, None, None), Some(Reissue::NeverSent));
            assert_eq!(decide(&walk, Some(old), Some(&own)), Some(Reissue::Expiring));
            assert_eq!(decide(&walk, Some(young), Some(&own)), None);
            assert_eq!(decide(&walk, Some(began), None), None, "sent since");
            let fresh = record(State::Quarantined, began, None);
            assert_eq!(walk.decide_reissue(&fresh, None), None, "parked since");
            for state in State::ALL.into_iter().filter(|state| *state != State::Quarantined) {
                assert_eq!(walk.decide_reissue(&record(state, old, None), None), None);
            }
        }
        for seen in [None, Some(&other)] {
            assert_eq!(decide(&whole, Some(young), seen), Some(Reissue::NotSeen));
            assert_eq!(decide(&part, Some(young), seen), None, "it may be there");
        }
    }
}
