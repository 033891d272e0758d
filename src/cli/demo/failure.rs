//! The first half: messages are sent, version 1 of the handler refuses some, and these are parked.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use serde_json::json;

use super::census::{Census, Sent};
use super::handler::{Book, RoyaltyHandler, Version};
use super::line::{self, Flaw, Sample};
use super::place::{Deployment, Place, QUEUE, depth};
use super::step::Step;
use super::teller::Teller;
use crate::cli::exit::CliError;
use crate::cli::render::{self, Table};
use crate::domain::envelope::Envelope;
use crate::domain::failure::ErrorCode;
use crate::domain::id::{RecordId, Sha256Hex};
use crate::domain::message::{Attribute, Attributes, MAX_BATCH_ENTRIES, Outgoing};
use crate::domain::record::{Record, State};
use crate::domain::selection::Selection;
use crate::port::evidence::Stored;
use crate::service::query::{Parked, Records};
use crate::service::stats::Stats;

/// How much of a body is shown, in characters.
const SHOWN: usize = 300;

/// Parked messages by code.
pub(super) type ByCode = BTreeMap<String, u64>;

/// Starts the AWS.
pub(super) async fn set_up(teller: &mut Teller) -> Result<Place, CliError> {
    let mut step = teller.begin(
        "setup",
        "An AWS in the memory of this process",
        "SQS, S3 and DynamoDB on a loopback port, used through AWS's own SDK. Your account is not touched.",
    )?;
    let (place, report) = Place::open().await?;
    teller.say(&format!("listening on {}", place.endpoint()))?;
    for created in &report.created {
        teller.say(&format!("created {created}"))?;
    }
    step.note("endpoint", place.endpoint());
    step.note("created", json!(report.created));
    step.check("created_count", report.created.len(), 4);
    teller.end(step)?;
    Ok(place)
}

/// What every message carries beside its body.
pub(super) fn attributes() -> Attributes {
    Attributes::from([("feed".to_owned(), Attribute::string("dsp-usage-2026-10"))])
}

/// Sends all samples, and the first one again.
pub(super) async fn produce(teller: &mut Teller, place: &Place) -> Result<Vec<Sent>, CliError> {
    let mut step = teller.begin(
        "produce",
        "A producer sends royalty lines and change orders",
        "Some lines have lost the end of an ISRC, some share out 140 %, some come from a territory that nobody\n\
         announced; the change orders write amounts as in Europe. One line is sent twice.",
    )?;
    let samples = line::samples().map_err(|e| CliError::Failed(e.to_string()))?;
    let all: Vec<Sample> = samples.iter().chain(samples.first()).cloned().collect();
    let mut sent = Vec::new();
    for batch in all.chunks(MAX_BATCH_ENTRIES) {
        let messages: Vec<Outgoing> = batch
            .iter()
            .map(|sample| Outgoing {
                body: sample.body.clone(),
                attributes: attributes(),
                ..Outgoing::default()
            })
            .collect();
        let answers = place.source.send(&messages).await?;
        for (sample, answer) in batch.iter().zip(answers) {
            match answer.map(Stored::into_inner) {
                Ok(accepted) => sent.push(Sent {
                    id: RecordId::from(&accepted.message_id),
                    sample: sample.clone(),
                }),
                Err(refused) => step.fail(format!("SQS refused a message: {refused}")),
            }
        }
    }
    let waiting = depth(place.source.as_ref()).await?;
    teller.say(&format!("{} messages sent to {QUEUE}, {waiting} waiting there", sent.len()))?;
    for sample in samples.iter().take(1).chain(samples.last()) {
        teller.say(&format!("for example {}", sample.body))?;
    }
    step.check("sent", sent.len(), all.len());
    step.check("waiting", waiting, sent.len());
    teller.end(step)?;
    Ok(sent)
}

/// Runs the worker with version 1 until the source has nothing left.
pub(super) async fn work(
    teller: &mut Teller,
    place: &mut Place,
    sent: &[Sent],
    book: &Arc<Book>,
) -> Result<(Deployment, ByCode), CliError> {
    let mut step = teller.begin(
        "work",
        "The worker runs version 1 of the handler",
        "What succeeds is committed. What may succeed later is tried again. What cannot succeed is parked at\n\
         once: an envelope in S3, a record in DynamoDB, a message in the DLQ, and only then is it deleted.",
    )?;
    let handler = Arc::new(RoyaltyHandler::new(Version::One, Arc::clone(book)));
    let worker = place.deploy(handler).await?;
    step.check("left_in_source", place.drain().await?, 0);

    let census = Census::take(place, sent).await?;
    let stats = Stats::gather(place.ledger.as_ref(), place.clock.wall()).await?;
    let mut by_code = ByCode::new();
    let mut table = Table::new(["CODE", "REASON", "PARKED"]);
    for ((code, reason), parkings) in &stats.by_code {
        by_code.insert(code.to_string(), parkings.count);
        let (reason, count) = (reason.as_str().to_owned(), parkings.count.to_string());
        table.row(&mut teller.out, [code.to_string(), reason, count])?;
    }
    table.flush(&mut teller.out)?;
    let dlq_depth = depth(place.dlq.as_ref()).await?;
    let Census { committed, retried, repeats, unsettled, .. } = census;
    let parked = census.all_parked();
    teller.say(&format!(
        "\n{} sent = {committed} committed ({retried} of them at a second try) + {parked} parked + \
         {repeats} exact repeat, not run again",
        sent.len()
    ))?;
    teller.say(&format!("DLQ depth: {dlq_depth}"))?;

    let samples: Vec<Sample> = sent.iter().rev().skip(1).map(|sent| sent.sample.clone()).collect();
    let expected = Census::expected(&samples);
    step.check("committed", committed, expected.committed);
    step.check("retried", retried, expected.retried);
    step.check("repeats", repeats, expected.repeats);
    step.check("parked", parked, expected.all_parked());
    step.check("parked_by_code", json!(by_code), json!(expected.parked));
    step.check("unsettled", unsettled, 0);
    step.check("accounted", census.accounted(), sent.len());
    step.check("dlq_depth", dlq_depth, parked);
    teller.end(step)?;
    Ok((worker, by_code))
}

/// Looks at one record with its envelope.
pub(super) async fn triage(
    teller: &mut Teller,
    place: &Place,
    sent: &[Sent],
) -> Result<(), CliError> {
    let mut step = teller.begin(
        "triage",
        "Somebody looks at one of them",
        "A DLQ alone would have a body without a reason. The envelope has everything, as it was.\n\
         With a queue of your own: redrive show ID.",
    )?;
    let codes = vec![ErrorCode::from(Flaw::SplitSumInvalid.code())];
    let wanted = Selection { codes, ..Selection::default() };
    let ledger = place.ledger.as_ref();
    let mut records = Records::new(ledger, &[State::Quarantined], Parked::default());
    match records.next_of(&wanted).await? {
        Some((id, record)) => show(teller, &mut step, place, (&id, &record), sent).await?,
        None => step.fail("no such record".to_owned()),
    }
    teller.end(step)
}

async fn show(
    teller: &mut Teller,
    step: &mut Step,
    place: &Place,
    (id, record): (&RecordId, &Record),
    sent: &[Sent],
) -> Result<(), CliError> {
    let bytes = place.vault.get(&record.envelope).await?;
    let envelope = Envelope::decode(&bytes).map_err(|e| CliError::Failed(e.to_string()))?;
    let body = &envelope.payload.body;
    let output = envelope.validation_output.as_ref().map_or_else(String::new, ToString::to_string);
    let labels: Vec<String> =
        envelope.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let failures: Vec<String> = envelope
        .history
        .iter()
        .map(|failure| format!("attempt {}: {}", failure.attempt, failure.outcome))
        .collect();
    let lines = [
        ("record", id.to_string()),
        ("envelope", record.envelope.to_string()),
        ("error", format!("{}: {}", envelope.error_code, envelope.error_message)),
        ("kind", format!("{} ({})", envelope.disposition.as_str(), envelope.reason.as_str())),
        ("attempts", format!("{} ({})", envelope.attempts, failures.join(", "))),
        ("validator said", output),
        ("labels", labels.join(", ")),
        ("first seen", envelope.first_seen.to_rfc3339()),
        ("parked", envelope.parked_at.to_rfc3339()),
        ("payload sha256", envelope.payload_sha256.to_string()),
        ("payload", body.chars().take(SHOWN).collect()),
    ];
    for (name, text) in lines {
        writeln!(teller.out, "{name:<14}  {}", render::plain(&text))?;
    }
    let original = sent.iter().find(|sent| sent.id == *id);
    step.note("record_id", id.as_str());
    step.note("envelope", json!(envelope));
    step.check("is_as_sent", original.is_some_and(|sent| sent.sample.body == *body), true);
    step.check("attributes_are_as_sent", envelope.attributes == attributes(), true);
    let hash = Sha256Hex::of(body.as_bytes());
    step.check("payload_sha256", envelope.payload_sha256.as_str(), hash.as_str());
    step.check("is_explained", envelope.validation_output.is_some(), true);
    step.check("has_labels", envelope.labels.len(), 2);
    Ok(())
}
