//! `sweep`: one reconciliation of the DLQ with the ledger, now.

use std::io::{self, Write as _};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::cli::exit::{CliError, Exit};
use crate::cli::redrive;
use crate::cli::render;
use crate::cli::world::World;
use crate::service::sweeper::{SweepError, Swept};

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Sweep {
    /// Go through the records too, and send again the DLQ messages that are missing or expire soon.
    #[arg(long)]
    full: bool,
}

#[derive(Debug, Serialize)]
struct Shape<'a> {
    received: u64,
    adopted: u64,
    removed: u64,
    kept: u64,
    reissued: u64,
    truncated: bool,
    errors: Vec<ErrorShape<'a>>,
    bare: u64,
    rebuilt: u64,
}

#[derive(Debug, Serialize)]
struct ErrorShape<'a> {
    message_id: &'a str,
    why: &'a str,
}

impl<'a> Shape<'a> {
    fn new(swept: &'a Swept) -> Self {
        let errors = swept.errors.iter();
        Self {
            received: swept.received,
            adopted: swept.adopted,
            removed: swept.removed,
            kept: swept.kept,
            reissued: swept.reissued,
            truncated: swept.truncated,
            errors: errors
                .map(|e| ErrorShape { message_id: e.message_id.as_str(), why: &e.why })
                .collect(),
            bare: swept.bare,
            rebuilt: swept.rebuilt,
        }
    }
}

impl Sweep {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let sweeper = redrive::sweeper(world).await?;
        let stop = CancellationToken::new();
        let swept = {
            let pass = async {
                match self.full {
                    true => sweeper.full(&stop).await,
                    false => sweeper.pass(u64::MAX, &stop).await,
                }
            };
            tokio::pin!(pass);
            // What a pass holds is given back before it ends.
            tokio::select! {
                biased;
                swept = &mut pass => swept,
                _ = tokio::signal::ctrl_c() => {
                    stop.cancel();
                    pass.await
                }
            }
        };
        let swept = match swept {
            Ok(swept) => swept,
            Err(SweepError::Port(error)) => return Err(error.into()),
            Err(held @ SweepError::Held { .. }) => {
                return Err(CliError::TryAgain(held.to_string()));
            }
        };
        let mut out = io::stdout().lock();
        let shape = Shape::new(&swept);
        if json {
            render::json(&mut out, &shape)?;
        } else {
            text(&mut out, &shape)?;
            for failure in &swept.errors {
                writeln!(out, "{}  {}", failure.message_id, render::plain(&failure.why))?;
            }
        }
        if stop.is_cancelled() {
            return Err(CliError::Interrupted);
        }
        Ok(if swept.errors.is_empty() { Exit::Ok } else { Exit::Partial })
    }
}

fn text(out: &mut impl io::Write, shape: &Shape<'_>) -> io::Result<()> {
    let Shape { received, adopted, removed, kept, bare, reissued, rebuilt, .. } = shape;
    writeln!(
        out,
        "{received} received: {adopted} adopted, {removed} removed, {kept} kept, {bare} of them bare; \
         {reissued} tokens issued again, {rebuilt} records rebuilt"
    )?;
    if shape.truncated {
        writeln!(out, "truncated: it ended before it can have seen all")?;
    }
    Ok(())
}
