//! `resume`: executes an open run that is paused, has tripped, or whose executor died.

use super::start;
use crate::cli::exit::{CliError, Exit};
use crate::cli::ramp;
use crate::cli::redrive;
use crate::cli::world::World;
use crate::domain::id::RunId;

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
pub struct Resume {
    /// The run; without it the open one.
    #[arg(value_parser = run_id)]
    run: Option<RunId>,
    /// Leave the run to a worker with redriver.enabled instead of executing it here.
    #[arg(long)]
    detach: bool,
    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT", value_parser = redrive::note)]
    note: Option<String>,
}

/// Reads a run id.
pub(super) fn run_id(text: &str) -> Result<RunId, String> {
    RunId::new(text).map_err(|e| e.to_string())
}

impl Resume {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        let run = redrive::find_open(&redriver, self.run.as_ref()).await?;
        let redriver = match &run.dispatch.to {
            Some(to) => ramp::sending_to(world, redriver, to.as_str()).await?,
            None => redriver,
        };
        let by = redrive::by(world, self.note.as_ref()).await;
        let run = redriver.resume(&run, &by, &mut redrive::chance()?).await?;
        tracing::info!(run_id = %run.get().id, fence = run.get().fence, "run resumed");
        if self.detach {
            return start::detach(&redriver, run, json).await;
        }
        start::execute(&redriver, run, json).await
    }
}
