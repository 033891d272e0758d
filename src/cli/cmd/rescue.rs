//! `rescue`: takes records back whose copies are lost.

use crate::cli::exit::{CliError, Exit};
use crate::cli::operate::MoveFlags;
use crate::cli::world::World;
use crate::config::Span;
use crate::service::operate::Move;

/// Arguments of `rescue`.
#[derive(Debug, clap::Args)]
pub struct Rescue {
    /// Redriven, and without a word for at least this long, for example 6h.
    #[arg(long, value_name = "TIME")]
    older: Option<Span>,
    #[command(flatten)]
    flags: MoveFlags,
}

impl Rescue {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        self.flags.run(Move::Rescue, self.older.map(|age| age.0), world, json).await
    }
}
