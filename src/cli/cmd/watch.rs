//! `watch`, and `status --follow`: a run's progress until it stops.

use std::time::Duration;

use super::resume::run_id;
use crate::cli::exit::{CliError, Exit};
use crate::cli::redrive::{self, Display};
use crate::cli::world::World;
use crate::domain::id::RunId;
use crate::domain::run::State;
use crate::service::redrive::Redriver;

/// How often the run is read.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `watch`.
#[derive(Debug, clap::Args)]
pub struct Watch {
    /// The run; without it the open one, else the newest.
    #[arg(value_parser = run_id)]
    run: Option<RunId>,
}

impl Watch {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        follow(&redriver, self.run.as_ref(), json).await
    }
}

/// Shows a run's progress until it stops, then where it is. A run that nobody executes may never stop: it
/// is named instead.
pub(super) async fn follow(
    redriver: &Redriver,
    run: Option<&RunId>,
    json: bool,
) -> Result<Exit, CliError> {
    let mut run = redrive::find(redriver, run).await?;
    let mut display = Display::new(redriver.clock.clone());
    while run.state == State::Running && run.held_by(redriver.clock.wall()).is_some() {
        display.show(redrive::progress(&run));
        tokio::time::sleep(LOOK_EVERY).await;
        run = redrive::find(redriver, Some(&run.id)).await?;
    }
    display.finish();
    let report = redriver.report(&run).await?;
    redrive::print_status(json, &report)?;
    if run.state == State::Running {
        let id = &run.id;
        return Err(CliError::Failed(format!("nobody executes run {id}: `redrive resume {id}`")));
    }
    Ok(redrive::exit_of(&report))
}
