//! `resolve`: says that the work of records is done, by other means.

use crate::cli::exit::{CliError, Exit};
use crate::cli::operate::MoveFlags;
use crate::cli::world::World;
use crate::service::operate::Move;

/// Arguments of `resolve`.
#[derive(Debug, clap::Args)]
pub struct Resolve {
    #[command(flatten)]
    flags: MoveFlags,
}

impl Resolve {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        self.flags.run(Move::Resolve, None, world, json).await
    }
}
