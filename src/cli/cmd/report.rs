//! `report` and `status`: what became of a run's records.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::resume::run_id;
use super::watch;
use crate::cli::exit::{CliError, Exit};
use crate::cli::redrive;
use crate::cli::world::World;
use crate::domain::id::RunId;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Report {
    /// The run; without it the open one, else the newest.
    #[arg(value_parser = run_id)]
    run: Option<RunId>,
    /// A file of record ids, one a line, that must be resolved.
    #[arg(long, value_name = "FILE")]
    expect_file: Option<PathBuf>,
}

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub struct Status {
    /// The run; without it the open one, else the newest.
    #[arg(value_parser = run_id)]
    run: Option<RunId>,
    /// Show its progress until it stops, as `watch` does.
    #[arg(long)]
    follow: bool,
}

impl Report {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        let run = redrive::find(&redriver, self.run.as_ref()).await?;
        let report = redriver.report(&run).await?;
        redrive::print(json, &report)?;
        if let Some(file) = &self.expect_file {
            let resolved: BTreeSet<&str> = report.resolved.iter().map(|id| id.as_str()).collect();
            let expected = std::fs::read_to_string(file)
                .map_err(|e| CliError::Usage(format!("{}: {e}", file.display())))?;
            let ids = expected.lines().map(str::trim).filter(|id| !id.is_empty());
            let missing: Vec<&str> = ids.filter(|id| !resolved.contains(id)).collect();
            if !missing.is_empty() {
                return Err(CliError::Failed(format!(
                    "{} expected records are not resolved: {}",
                    missing.len(),
                    missing.join(" ")
                )));
            }
        }
        Ok(redrive::exit_of(&report))
    }
}

impl Status {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        if self.follow {
            return watch::follow(&redriver, self.run.as_ref(), json).await;
        }
        let run = redrive::find(&redriver, self.run.as_ref()).await?;
        redrive::print_status(json, &redriver.report(&run).await?)?;
        Ok(Exit::Ok)
    }
}
