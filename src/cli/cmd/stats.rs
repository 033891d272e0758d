//! `stats`: what is parked, how much waits, and what expires first.

use std::io::{self, Write};

use crate::cli::exit::{CliError, Exit};
use crate::cli::patience::until_answered;
use crate::cli::render::{self, Table};
use crate::cli::shape::StatsShape;
use crate::cli::world::World;
use crate::domain::id::QueueName;
use crate::domain::record::State;
use crate::domain::time::Wall;
use crate::port::queue::{Depth, Queue as _};
use crate::service::stats::Stats as Counts;

/// Arguments of `stats`.
#[derive(Debug, clap::Args)]
pub struct Stats {}

impl Stats {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let source = world.source().await?;
        let facts = source.facts().await?;
        let dlq = match world.dlq(&facts).await? {
            Some(dlq) => Some((dlq.facts().await?, dlq)),
            None => None,
        };
        let now = world.now();
        let ledger = world.ledger();
        let counts = until_answered(async || Counts::gather(&ledger, now).await).await?;
        let first_expiry =
            dlq.as_ref().and_then(|(dlq, _)| Some(counts.oldest_token?.plus(dlq.retention)));
        let queues = (
            (source.name(), facts.depth),
            dlq.as_ref().map(|(facts, dlq)| (dlq.name(), facts.depth)),
        );
        let mut out = io::stdout().lock();
        if json {
            let shape = StatsShape::new(&counts, queues.0, queues.1, first_expiry);
            render::json(&mut out, &shape)?;
        } else {
            text(&mut out, &counts, queues, first_expiry)?;
        }
        Ok(Exit::Ok)
    }
}

fn text(
    out: &mut impl Write,
    counts: &Counts,
    (source, dlq): ((&QueueName, Depth), Option<(&QueueName, Depth)>),
    first_expiry: Option<Wall>,
) -> io::Result<()> {
    let mut queues = Table::new(["QUEUE", "VISIBLE", "IN FLIGHT", "DELAYED"]);
    for (name, queue) in [("source", Some(source)), ("dlq", dlq)] {
        if let Some((_, Depth { visible, in_flight, delayed })) = queue {
            let cells = [visible, in_flight, delayed].map(|n| n.to_string());
            let [visible, in_flight, delayed] = cells;
            queues.row(out, [name.to_owned(), visible, in_flight, delayed])?;
        }
    }
    queues.flush(out)?;
    for (queue, depth) in [Some(source), dlq].into_iter().flatten() {
        if depth.is_saturated(queue) {
            writeln!(
                out,
                "{queue}: SQS's limit of messages in flight: receives come back empty though messages wait"
            )?;
        }
    }
    writeln!(out)?;
    let mut states = Table::new(["STATE", "RECORDS"]);
    for state in State::ALL {
        states.row(out, [state.name().to_owned(), counts.of(state).to_string()])?;
    }
    states.flush(out)?;
    codes(out, counts)?;
    labels(out, counts)?;
    writeln!(out)?;
    if let Some(rate) = counts.resolution_rate() {
        writeln!(out, "resolved: {:.1} % of all records", rate * 100.0)?;
    }
    if counts.silent > 0 {
        writeln!(out, "silent: {} redriven without a word for a day", counts.silent)?;
    }
    match first_expiry {
        Some(at) => writeln!(out, "first expiry in the DLQ: {}", at.to_rfc3339()),
        None => Ok(()),
    }
}

fn codes(out: &mut impl Write, counts: &Counts) -> io::Result<()> {
    if counts.by_code.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut by_code: Vec<_> = counts.by_code.iter().collect();
    by_code.sort_by_key(|(_, parkings)| std::cmp::Reverse(parkings.count));
    let mut table = Table::new(["CODE", "REASON", "QUARANTINED", "OLDEST"]);
    for ((code, reason), parkings) in by_code {
        let (count, oldest) = (parkings.count.to_string(), parkings.oldest.to_rfc3339());
        table.row(out, [code.to_string(), reason.as_str().to_owned(), count, oldest])?;
    }
    table.flush(out)
}

fn labels(out: &mut impl Write, counts: &Counts) -> io::Result<()> {
    if counts.by_label.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(["LABEL", "VALUE", "QUARANTINED"]);
    for (name, values) in &counts.by_label {
        for (value, count) in values {
            table.row(out, [name.clone(), value.clone(), count.to_string()])?;
        }
    }
    table.flush(out)
}
