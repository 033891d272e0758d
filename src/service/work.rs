//! From a received message to the work it stands for: whose it is, what its payload is, which entry.

use bytes::Bytes;

use crate::domain::delivery::{self, Delivery, Kind, Travel};
use crate::domain::envelope::{self, Envelope};
use crate::domain::failure::{ErrorClass, Failure};
use crate::domain::id::{EntryKey, EnvelopeKey, RecordId, Sha256Hex};
use crate::domain::identity::{Content, IdentityMissing, content_hash};
use crate::domain::message::{Attributes, Received};
use crate::domain::token::ATTRIBUTE;
use crate::port::error::{PortError, Target};
use crate::port::handler::Job;
use crate::service::held::Held;
use crate::service::settings::Context;

/// One delivery and the work it stands for.
#[derive(Debug)]
pub(crate) struct Work {
    /// The message, without our own attribute.
    pub received: Received,
    /// What it is.
    pub delivery: Delivery,
    /// The original's body.
    pub body: String,
    /// The original's attributes.
    pub attributes: Attributes,
    /// The original's message group.
    pub group_id: Option<String>,
    /// The original's trace header.
    pub trace_header: Option<String>,
    /// What decides repeats.
    pub content: Content,
    /// The entry.
    pub key: EntryKey,
    /// Set where the message lacks what the key strategy needs.
    pub missing: Option<IdentityMissing>,
}

/// Recognises a message and gets its original.
///
/// # Errors
/// The original of a pointer cannot be read: a dependency's fault, never the message's.
pub(crate) async fn identify(ctx: &Context, mut received: Received) -> Result<Work, PortError> {
    let delivery = recognise(ctx, &mut received).await?;
    let (body, attributes, group_id, trace_header) = match delivery.travel {
        Travel::Inline => (
            std::mem::take(&mut received.body),
            received.attributes.clone(),
            received.group_id.clone(),
            received.trace_header.clone(),
        ),
        Travel::Pointer => {
            let original = fetch_original(ctx, &delivery).await?;
            let message = original.message;
            (original.payload.body, original.attributes, message.group_id, message.trace_header)
        }
    };
    let payload = Sha256Hex::of(body.as_bytes());
    let key = ctx.settings.strategy.key(&delivery.origin, &payload, &body, &attributes);
    let (key, missing) = match key {
        Ok(key) => (key, None),
        Err(missing) => (payload.clone().into(), Some(missing)),
    };
    let content = Content {
        origin: delivery.origin.clone(),
        sent: delivery.sent,
        hash: content_hash(&body, &attributes),
        payload,
        provenance: delivery.provenance(),
    };
    Ok(Work { received, delivery, body, attributes, group_id, trace_header, content, key, missing })
}

/// Recognises a message. A copy or token that its record cannot have sent is a producer's message, whose
/// attribute of our name is its own.
async fn recognise(ctx: &Context, received: &mut Received) -> Result<Delivery, PortError> {
    let now = ctx.ports.clock.wall();
    let carried = received.attributes.get(ATTRIBUTE).cloned();
    let delivery = delivery::classify(received, ctx.ports.source.name(), now);
    if delivery.kind == Kind::Plain {
        return Ok(delivery);
    }
    let record = ctx.ports.ledger.record(&delivery.origin, now).await?;
    if record.is_none_or(|record| delivery.is_of(record.get())) {
        return Ok(delivery);
    }
    let message_id = &received.message_id;
    tracing::warn!(%message_id, record_id = %delivery.origin, "copy is not of the record it names");
    received.attributes.extend(carried.map(|attribute| (ATTRIBUTE.to_owned(), attribute)));
    Ok(Delivery::plain(received, now))
}

async fn fetch_original(ctx: &Context, delivery: &Delivery) -> Result<Envelope, PortError> {
    let unreadable = |object: &str, code: &str| {
        PortError::new(ErrorClass::Transient, Target::S3, "read envelope", object, code)
    };
    let (key, sha256) = match &delivery.kind {
        Kind::RedrivenToken(token) => (token.envelope.clone(), &token.sha256),
        Kind::Copy(copy) => (envelope_of(ctx, &copy.record).await?, &copy.sha256),
        Kind::Plain => return Err(unreadable("plain message", "NoPointer")),
    };
    let folder = envelope::folder(&ctx.settings.prefix, ctx.ports.source.name());
    if !key.as_str().starts_with(&folder) {
        return Err(unreadable(key.as_str(), "OutsideVault"));
    }
    let bytes = ctx.ports.vault.get(&key).await?;
    let envelope = Envelope::decode(&bytes).map_err(|_| unreadable(key.as_str(), "Corrupt"))?;
    if Sha256Hex::of(envelope.payload.body.as_bytes()) != *sha256 {
        return Err(unreadable(key.as_str(), "OtherBody"));
    }
    Ok(envelope)
}

async fn envelope_of(ctx: &Context, id: &RecordId) -> Result<EnvelopeKey, PortError> {
    let record = ctx.ports.ledger.record(id, ctx.ports.clock.wall()).await?;
    record.map(|record| record.into_inner().envelope).ok_or_else(|| {
        PortError::new(
            ErrorClass::NotFound,
            Target::DynamoDb,
            "read record",
            id.as_str(),
            "NoSuchRecord",
        )
    })
}

impl Work {
    /// What fails this message before its handler is run.
    pub(crate) fn refusal(&self, ctx: &Context) -> Option<Failure> {
        if let Some(missing) = &self.missing {
            return Some(Failure::permanent("IDENTITY_MISSING", missing.to_string()));
        }
        let schema = ctx.settings.schema.as_ref()?;
        let version = schema.version.select(&self.body, &self.attributes);
        if version.as_ref().is_some_and(|v| schema.supported.contains(v)) {
            return None;
        }
        let supported = schema.supported.join(", ");
        let version = version.unwrap_or_else(|| "none".to_owned());
        Some(Failure::permanent(
            "SCHEMA_VERSION_UNSUPPORTED",
            format!("schema version {version} at {}; supported: {supported}", schema.version),
        ))
    }

    /// The handler's input.
    pub(crate) fn job(&self, ctx: &Context, held: &Held) -> Job {
        let entry = held.entry();
        Job {
            payload: Bytes::from(self.body.clone()),
            attributes: self.attributes.clone(),
            key: self.key.clone(),
            generation: entry.generation,
            record_id: self.delivery.origin.clone(),
            message_id: self.received.message_id.clone(),
            attempt: entry.attempts,
            receive_count: self.received.receive_count,
            queue: ctx.ports.source.name().clone(),
            group_id: self.group_id.clone(),
            run_id: self.delivery.run().cloned(),
        }
    }
}
