//! `discard`: gives records up: they are kept, and leave the DLQ.

use crate::cli::exit::{CliError, Exit};
use crate::cli::operate::MoveFlags;
use crate::cli::world::World;
use crate::service::operate::Move;

/// Arguments of `discard`.
#[derive(Debug, clap::Args)]
pub struct Discard {
    #[command(flatten)]
    flags: MoveFlags,
}

impl Discard {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        self.flags.run(Move::Discard, None, world, json).await
    }
}
