//! `ls`: lists records, oldest parking first, as they are read.

use std::io::{self, Write as _};

use crate::cli::exit::{CliError, Exit};
use crate::cli::patience::until_answered;
use crate::cli::render::{self, Table};
use crate::cli::select::Select;
use crate::cli::shape::RecordShape;
use crate::cli::world::World;
use crate::domain::record::State;
use crate::service::query::Records;

/// Arguments of `ls`.
#[derive(Debug, clap::Args)]
pub struct Ls {
    #[command(flatten)]
    select: Select,
    /// The state: quarantined, redriving, redriven, resolved, discarded or any.
    #[arg(long, value_name = "STATE", default_value = "quarantined", value_parser = states)]
    state: States,
}

#[derive(Debug, Clone)]
struct States(Vec<State>);

fn states(text: &str) -> Result<States, String> {
    if text == "any" {
        return Ok(States(State::ALL.to_vec()));
    }
    State::from_name(text).map(|state| States(vec![state])).ok_or_else(|| {
        let names = State::ALL.map(State::name).join(", ");
        format!("there are {names} and any")
    })
}

impl Ls {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let ledger = world.ledger();
        let mut records = Records::new(&ledger, &self.state.0, self.select.parked(world.now()));
        let selection = self.select.selection();
        let mut left = self.select.limit();
        // Nothing is lost when its first read is repeated.
        let mut next = until_answered(async || records.next_of(&selection).await).await?;
        let mut out = io::BufWriter::new(io::stdout());
        let mut table =
            Table::new(["RECORD", "STATE", "CODE", "REASON", "ATTEMPTS", "REDRIVES", "PARKED"]);
        while let Some((id, record)) = next.take().filter(|_| left > 0) {
            left -= 1;
            if json {
                render::json(&mut out, &RecordShape::new(&id, &record))?;
            } else {
                let row = [
                    id.to_string(),
                    record.state.name().to_owned(),
                    record.error_code.to_string(),
                    record.reason.as_str().to_owned(),
                    record.attempts_total.to_string(),
                    record.redrive_count.to_string(),
                    record.parked_at.to_rfc3339(),
                ];
                table.row(&mut out, row)?;
            }
            if left > 0 {
                next = records.next_of(&selection).await?;
            }
        }
        table.flush(&mut out)?;
        out.flush()?;
        Ok(Exit::Ok)
    }
}
