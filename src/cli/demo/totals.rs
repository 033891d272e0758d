//! The end: every message is accounted for, by the ledger, the vault, the queues and the handler's book.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::census::{Census, Sent};
use super::failure::attributes;
use super::handler::Book;
use super::place::{Place, depth};
use super::step::Step;
use super::teller::Teller;
use crate::cli::exit::CliError;
use crate::cli::render::Table;
use crate::domain::envelope::{self, Envelope};
use crate::domain::id::{RecordId, Sha256Hex};
use crate::domain::record::State;
use crate::domain::time::Mono;
use crate::service::stats::Stats;

/// What the totals are about.
pub(super) struct Work<'a> {
    /// What was sent, of which the last repeats the first.
    pub(super) sent: &'a [Sent],
    /// What was booked.
    pub(super) book: &'a Arc<Book>,
    /// Copies that failed again: each has an envelope of its own.
    pub(super) failed_again: u64,
    /// When it began.
    pub(super) began: Mono,
}

/// One thing that is proven.
struct Proof<'a> {
    place: &'static str,
    what: &'a str,
    figure: &'static str,
    found: u64,
    expected: u64,
}

/// Adds everything up.
pub(super) async fn prove(
    teller: &mut Teller,
    place: &Place,
    work: &Work<'_>,
) -> Result<(), CliError> {
    let mut step = teller.begin(
        "totals",
        "What became of every message",
        "Read from the ledger by MessageId, one by one; then held against the vault, the queues and the\n\
         book that the handler keeps for itself.",
    )?;
    let samples: Vec<_> = work.sent.iter().rev().skip(1).map(|sent| sent.sample.clone()).collect();
    let first = Census::expected(&samples);
    let census = Census::take(place, work.sent).await?;
    balance(teller, &mut step, &census, work.sent.len())?;
    step.check("committed", census.committed, first.committed);
    step.check("repeats", census.repeats, first.repeats);
    step.check("resolved", census.all_resolved(), first.all_parked());
    step.check("resolved_by_code", json!(census.resolved), json!(first.parked));
    step.check("parked", census.all_parked(), 0);
    step.check("unsettled", census.unsettled, 0);

    let stats = Stats::gather(place.ledger.as_ref(), place.clock.wall()).await?;
    let (envelopes, as_sent) = envelopes(place, work.sent).await?;
    let parkings = first.all_parked() + work.failed_again;
    let booked = work.book.added_up();
    let worth = samples.iter().map(|sample| sample.cents).sum();
    let parked_again =
        format!("envelopes: {} parkings, {} again", first.all_parked(), work.failed_again);
    let row = |place, what, figure, found, expected| Proof { place, what, figure, found, expected };
    let proofs = [
        row("ledger", "records", "records", stats.states.values().sum(), first.all_parked()),
        row(
            "ledger",
            "of these resolved",
            "records_resolved",
            stats.of(State::Resolved),
            first.all_parked(),
        ),
        row("vault", &parked_again, "envelopes", envelopes, parkings),
        row("vault", "of these byte for byte as sent", "envelopes_as_sent", as_sent, parkings),
        row(
            "book",
            "payloads booked",
            "bookings",
            booked.bookings,
            first.committed + first.all_parked(),
        ),
        row("book", "of these more than once", "booked_twice", booked.twice, 0),
        row("book", "cents booked", "cents", booked.cents, worth),
        row("source", "messages left", "source_depth", depth(place.source.as_ref()).await?, 0),
        row("DLQ", "messages left", "dlq_depth", depth(place.dlq.as_ref()).await?, 0),
    ];
    let mut table = Table::new(["WHERE", "WHAT", "FOUND", "EXPECTED"]);
    for Proof { place, what, figure, found, expected } in proofs {
        let cells = [place.to_owned(), what.to_owned(), found.to_string(), expected.to_string()];
        table.row(&mut teller.out, cells)?;
        step.check(figure, found, expected);
    }
    table.flush(&mut teller.out)?;
    let seconds = place.clock.mono().since(work.began).as_secs();
    step.note("seconds", seconds);
    if step.ok {
        teller.say(&format!("\nEverything adds up, after {seconds} s."))?;
        teller.say(
            "Next: redrive local serves such an AWS for your own tries; redrive init configures.",
        )?;
    }
    teller.end_with_totals(step)
}

/// The sum of what became of the messages, which must be what was sent.
fn balance(
    teller: &mut Teller,
    step: &mut Step,
    census: &Census,
    sent: usize,
) -> Result<(), CliError> {
    let mut rows = vec![
        ("committed by version 1".to_owned(), census.committed),
        ("not run: an exact repeat".to_owned(), census.repeats),
    ];
    let resolved = census.resolved.iter();
    rows.extend(resolved.map(|(code, count)| (format!("parked, now resolved: {code}"), *count)));
    rows.push(("still parked".to_owned(), census.all_parked()));
    rows.push(("sum".to_owned(), census.accounted()));
    let mut table = Table::new(["WHAT", "MESSAGES"]);
    for (what, count) in rows {
        table.row(&mut teller.out, [what, count.to_string()])?;
    }
    table.row(&mut teller.out, ["sent".to_owned(), sent.to_string()])?;
    table.flush(&mut teller.out)?;
    teller.say("")?;
    step.note("sent", sent);
    step.check("accounted", census.accounted(), sent);
    Ok(())
}

/// Counts envelopes, and those whose message is as it was sent.
async fn envelopes(place: &Place, sent: &[Sent]) -> Result<(u64, u64), CliError> {
    let bodies: BTreeMap<&RecordId, &str> =
        sent.iter().map(|sent| (&sent.id, sent.sample.body.as_str())).collect();
    let (mut envelopes, mut as_sent) = (0, 0);
    for key in place.vault.list(&envelope::folder("", place.source.name())).await? {
        let bytes = place.vault.get(&key).await?;
        let envelope = Envelope::decode(&bytes).map_err(|e| CliError::Failed(e.to_string()))?;
        let body = envelope.payload.body.as_str();
        let is_as_sent = bodies.get(&envelope.record_id) == Some(&body)
            && envelope.attributes == attributes()
            && envelope.payload_sha256 == Sha256Hex::of(body.as_bytes());
        envelopes += 1;
        as_sent += u64::from(is_as_sent);
    }
    Ok((envelopes, as_sent))
}
