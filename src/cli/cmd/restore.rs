//! `restore`: takes the giving up of records back: they are quarantined again.

use crate::cli::exit::{CliError, Exit};
use crate::cli::operate::MoveFlags;
use crate::cli::world::World;
use crate::service::operate::Move;

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
pub struct Restore {
    #[command(flatten)]
    flags: MoveFlags,
}

impl Restore {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        self.flags.run(Move::Restore, None, world, json).await
    }
}
