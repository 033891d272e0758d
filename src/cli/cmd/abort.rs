//! `abort`: ends an open run. What it has not sent stays parked.

use super::resume::run_id;
use crate::cli::exit::{CliError, Exit};
use crate::cli::redrive;
use crate::cli::world::World;
use crate::domain::id::RunId;

/// Arguments of `abort`.
#[derive(Debug, clap::Args)]
pub struct Abort {
    /// The run; without it the open one.
    #[arg(value_parser = run_id)]
    run: Option<RunId>,
    /// Why, for the log.
    #[arg(long, value_name = "TEXT", required = true)]
    note: String,
}

impl Abort {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        let run = redrive::find_open(&redriver, self.run.as_ref()).await?;
        let run = redriver.abort(redriver.claim(&run).await?).await?;
        tracing::info!(run_id = %run.id, note = self.note, "run aborted");
        redrive::print(json, &redriver.report(&run).await?)?;
        Ok(Exit::Ok)
    }
}
