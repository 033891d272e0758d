//! `payload`: a record's payload, byte for byte and with nothing around it.

use std::io::{self, Write as _};

use super::record;
use crate::cli::exit::{CliError, Exit};
use crate::cli::world::World;

/// Arguments of `payload`.
#[derive(Debug, clap::Args)]
pub struct Payload {
    /// A record's id, the beginning of one, or a payload's SHA-256.
    id: String,
}

impl Payload {
    pub(super) async fn run(&self, world: &World) -> Result<Exit, CliError> {
        let (_, record) = record::one(world, &self.id).await?;
        let (_, envelope) = record::envelope(world, &record).await?;
        let mut out = io::stdout().lock();
        out.write_all(envelope.payload.body.as_bytes())?;
        out.flush()?;
        Ok(Exit::Ok)
    }
}
