//! `pause`: nothing more is sent until `resume`.

use super::resume::run_id;
use crate::cli::exit::{CliError, Exit};
use crate::cli::redrive;
use crate::cli::world::World;
use crate::domain::id::RunId;
use crate::service::redrive::Wish;

/// Arguments of `pause`.
#[derive(Debug, clap::Args)]
pub struct Pause {
    /// The run; without it the open one.
    #[arg(value_parser = run_id)]
    run: Option<RunId>,
    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT", value_parser = redrive::note)]
    note: Option<String>,
}

impl Pause {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        let run = redrive::find_open(&redriver, self.run.as_ref()).await?;
        let by = redrive::by(world, self.note.as_ref()).await;
        let run = redriver.ask(&run, Wish::Pause, &by, &mut redrive::chance()?).await?;
        tracing::info!(run_id = %run.id, state = run.state.name(), "run sends nothing more");
        redrive::print_status(json, &redriver.report(&run).await?)?;
        Ok(Exit::Ok)
    }
}
