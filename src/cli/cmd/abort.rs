//! `abort`: ends an open run. What it has not sent stays parked.

use super::resume::run_id;
use crate::cli::exit::{CliError, Exit};
use crate::cli::redrive;
use crate::cli::world::World;
use crate::domain::id::RunId;
use crate::service::redrive::Wish;

/// Arguments of `abort`.
#[derive(Debug, clap::Args)]
pub struct Abort {
    /// The run; without it the open one.
    #[arg(value_parser = run_id)]
    run: Option<RunId>,
    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT", required = true, value_parser = redrive::note)]
    note: String,
}

impl Abort {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        let run = redrive::find_open(&redriver, self.run.as_ref()).await?;
        let by = redrive::by(world, Some(&self.note)).await;
        let run = redriver.ask(&run, Wish::Abort, &by, &mut redrive::chance()?).await?;
        tracing::info!(run_id = %run.id, state = run.state.name(), "run ended");
        redrive::print(json, &redriver.report(&run).await?)?;
        Ok(Exit::Ok)
    }
}
