//! `set-rate`: the highest rate of an open run, from now on.

use super::resume::run_id;
use crate::cli::exit::{CliError, Exit};
use crate::cli::ramp;
use crate::cli::redrive;
use crate::cli::world::World;
use crate::domain::id::RunId;
use crate::service::redrive::Wish;

/// Arguments of `set-rate`.
#[derive(Debug, clap::Args)]
pub struct SetRate {
    /// Messages per second at most. A faster run comes down at once, a slower one grows as before.
    #[arg(value_parser = ramp::rate)]
    rate: f64,
    /// The run; without it the open one.
    #[arg(value_parser = run_id)]
    run: Option<RunId>,
    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT", value_parser = redrive::note)]
    note: Option<String>,
}

impl SetRate {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let redriver = redrive::redriver(world).await?;
        let run = redrive::find_open(&redriver, self.run.as_ref()).await?;
        let by = redrive::by(world, self.note.as_ref()).await;
        let wish = Wish::Rate(self.rate);
        let run = redriver.ask(&run, wish, &by, &mut redrive::chance()?).await?;
        tracing::info!(run_id = %run.id, max_rate = run.policy.max_rate, "highest rate set");
        redrive::print_status(json, &redriver.report(&run).await?)?;
        Ok(Exit::Ok)
    }
}
