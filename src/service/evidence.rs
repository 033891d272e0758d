//! The evidence of one parking: the envelope, and what record and token say of it.

use std::collections::BTreeMap;

use crate::domain::entry::{Attempt, ERROR_TEXT_CHARS, Entry};
use crate::domain::envelope::{
    self, Envelope, EnvelopeError, HistoryItem, MessageFacts, Payload, SCHEMA_VERSION, Worker,
};
use crate::domain::failure::{Disposition, Failure, Reason};
use crate::domain::id::{EntryKey, EnvelopeKey, IdError, LeaseToken, ParkToken, RecordId};
use crate::domain::message::legal_text;
use crate::domain::record::Parking;
use crate::domain::time::Wall;
use crate::service::settings::{Context, ErrorText};
use crate::service::work::Work;

/// The longest label value, in characters: labels are for grouping, and live in the ledger's items.
const LABEL_CHARS: usize = 256;

/// Why a message is parked.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    /// The failure, whole.
    pub failure: Failure,
    /// Why.
    pub reason: Reason,
    /// Whether retrying could have helped.
    pub disposition: Disposition,
    /// Attempts of this parking.
    pub attempts: u32,
    /// The failures of this origin, oldest first, this one included.
    pub history: Vec<Attempt>,
}

impl Cause {
    /// The cause that an entry remembers of an origin: for a parking that another delivery began.
    pub(crate) fn remembered(entry: &Entry, origin: &RecordId) -> Self {
        let history = own_history(entry, origin);
        let (reason, disposition) = match history.last().map(|attempt| attempt.outcome.as_str()) {
            Some("permanent") => (Reason::Validation, Disposition::Permanent),
            Some("low_confidence") => (Reason::LowConfidence, Disposition::Permanent),
            Some(_) => (Reason::Exception, Disposition::Exhausted),
            None => (Reason::ReceivesExhausted, Disposition::Exhausted),
        };
        let failure = last_failure(&history);
        Self { failure, reason, disposition, attempts: entry.attempts, history }
    }

    /// The cause of a bare message, whose worker ended without a word: its last failure, if its entry
    /// remembers one.
    pub(crate) fn adopted(entry: Option<&Entry>, work: &Work, reason: Reason) -> Self {
        let history = entry.map(|e| own_history(e, &work.content.origin)).unwrap_or_default();
        let held = entry.filter(|entry| entry.holder == work.received.message_id);
        let noted = history.last().map_or(0, |attempt| attempt.attempt);
        Self {
            failure: last_failure(&history),
            reason,
            disposition: Disposition::Exhausted,
            attempts: held.map_or(noted, |entry| entry.attempts),
            history,
        }
    }

    /// A message that fails whatever its handler says.
    pub(crate) fn refused(failure: Failure) -> Self {
        Self {
            failure,
            reason: Reason::Validation,
            disposition: Disposition::Permanent,
            attempts: 0,
            history: Vec::new(),
        }
    }

    /// Another payload was committed under the key.
    pub(crate) fn mismatch(key: &EntryKey) -> Self {
        Self::refused(Failure::permanent(
            "PAYLOAD_MISMATCH",
            format!("another payload was committed under the key {key}"),
        ))
    }
}

fn last_failure(history: &[Attempt]) -> Failure {
    history.last().map_or_else(
        || Failure::transient("RECEIVES_EXHAUSTED", "no failure of this message is recorded"),
        |attempt| Failure::permanent(attempt.error_code.as_str(), attempt.error_message.clone()),
    )
}

/// The failures of one origin that an entry remembers.
pub(crate) fn own_history(entry: &Entry, origin: &RecordId) -> Vec<Attempt> {
    entry.history.iter().filter(|attempt| attempt.origin == *origin).cloned().collect()
}

/// The attempt as the entry remembers it: its text cut, or left out where texts stay in the vault.
pub(crate) fn attempt(ctx: &Context, work: &Work, failure: &Failure, number: u32) -> Attempt {
    Attempt {
        at: ctx.ports.clock.wall(),
        attempt: number,
        outcome: failure.outcome().to_owned(),
        error_code: failure.error_code.clone(),
        error_message: ledger_text(ctx, &failure.message),
        origin: work.content.origin.clone(),
    }
}

fn ledger_text(ctx: &Context, text: &str) -> String {
    match ctx.settings.error_text {
        ErrorText::Ledger => legal_text(text).chars().take(ERROR_TEXT_CHARS).collect(),
        ErrorText::Vault => String::new(),
    }
}

/// What the record will say.
pub(crate) fn parking(
    ctx: &Context,
    work: &Work,
    cause: &Cause,
    envelope: EnvelopeKey,
    park_token: ParkToken,
) -> Parking {
    let sequence = work.received.sequence_number.clone();
    Parking {
        key: work.key.clone(),
        payload_sha256: work.content.payload.clone(),
        park_token,
        envelope,
        reason: cause.reason,
        disposition: cause.disposition,
        error_code: cause.failure.error_code.clone(),
        error_message: ledger_text(ctx, &cause.failure.message),
        attempts: cause.attempts,
        labels: labels(ctx, work),
        group_id: work.group_id.clone(),
        sequence,
        sent: work.content.sent,
        first_seen: first_seen(ctx, work),
    }
}

/// The envelope's key.
pub(crate) fn key(ctx: &Context, work: &Work, token: &LeaseToken) -> Result<EnvelopeKey, IdError> {
    let prefix = &ctx.settings.prefix;
    let queue = ctx.ports.source.name();
    let (payload, origin) = (&work.content.payload, &work.content.origin);
    envelope::key(prefix, queue, payload, origin, work.delivery.n(), token)
}

/// The envelope's bytes.
pub(crate) fn envelope(
    ctx: &Context,
    work: &Work,
    cause: &Cause,
    now: Wall,
) -> Result<Vec<u8>, EnvelopeError> {
    let received = &work.received;
    let failure = &cause.failure;
    Envelope {
        schema_version: SCHEMA_VERSION,
        record_id: work.content.origin.clone(),
        key: work.key.clone(),
        payload_sha256: work.content.payload.clone(),
        queue_arn: ctx.source_arn.clone(),
        reason: cause.reason,
        disposition: cause.disposition,
        error_code: failure.error_code.clone(),
        error_message: failure.message.clone(),
        validation_output: failure.validation_output.clone(),
        exception: failure.exception.clone(),
        confidence: failure.confidence,
        attempts: cause.attempts,
        redrive_count: work.delivery.n(),
        run_id: work.delivery.run().cloned(),
        first_seen: first_seen(ctx, work),
        parked_at: now,
        history: cause.history.iter().map(HistoryItem::from).collect(),
        labels: labels(ctx, work),
        payload_schema_version: ctx
            .settings
            .schema
            .as_ref()
            .and_then(|schema| schema.version.select(&work.body, &work.attributes)),
        message: MessageFacts {
            message_id: received.message_id.to_string(),
            sent_at: received.sent,
            first_received_at: received.first_received,
            receive_count: received.receive_count,
            group_id: work.group_id.clone(),
            deduplication_id: received.deduplication_id.clone(),
            sequence_number: received.sequence_number.clone(),
            trace_header: work.trace_header.clone(),
        },
        attributes: work.attributes.clone(),
        payload: Payload { encoding: "utf-8".to_owned(), body: work.body.clone() },
        offloaded: None,
        worker: Worker {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            handler: ctx.ports.handler.kind().to_owned(),
            host: ctx.settings.host.clone(),
        },
    }
    .encode()
}

fn labels(ctx: &Context, work: &Work) -> BTreeMap<String, String> {
    let select = |(name, selector): &(String, crate::domain::selector::Selector)| {
        let value = selector.select(&work.body, &work.attributes)?;
        Some((name.clone(), value.chars().take(LABEL_CHARS).collect()))
    };
    ctx.settings.labels.iter().filter_map(select).collect()
}

fn first_seen(ctx: &Context, work: &Work) -> Wall {
    work.received.first_received.unwrap_or_else(|| ctx.ports.clock.wall())
}
