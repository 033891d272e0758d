//! `runs`: all runs of the source, newest first.

use std::io::{self, Write as _};

use crate::cli::exit::{CliError, Exit};
use crate::cli::redrive::{self, StatusShape};
use crate::cli::render::{self, Table};
use crate::cli::world::World;

/// Arguments of `runs`.
#[derive(Debug, clap::Args)]
pub struct Runs {}

impl Runs {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        let mut out = io::BufWriter::new(io::stdout());
        let mut table =
            Table::new(["RUN", "STATE", "PLANNED", "RESOLVED", "STARTED", "BY", "NOTE"]);
        let mut after = None;
        loop {
            let page = redriver.runs.runs(after.as_ref()).await?;
            for run in &page.runs {
                if json {
                    let report = redriver.report(run).await?;
                    render::json(&mut out, &StatusShape::new(&report))?;
                    continue;
                }
                let row = [
                    run.id.to_string(),
                    run.state.name().to_owned(),
                    run.counts.planned.to_string(),
                    run.counts.resolved.to_string(),
                    run.started_at.to_rfc3339(),
                    run.operator.clone(),
                    run.note.clone().unwrap_or_default(),
                ];
                table.row(&mut out, row)?;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        table.flush(&mut out)?;
        out.flush()?;
        Ok(Exit::Ok)
    }
}
