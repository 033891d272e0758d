//! `payload`: a record's payload, byte for byte and with nothing around it.

use std::io::{self, Write as _};

use super::record;
use crate::cli::exit::{CliError, Exit};
use crate::cli::world::World;
use crate::domain::envelope::Envelope;

/// Arguments of `payload`.
#[derive(Debug, clap::Args)]
pub struct Payload {
    /// A record's id, the beginning of one, or a payload's SHA-256.
    id: String,
}

impl Payload {
    pub(super) async fn run(&self, world: &World) -> Result<Exit, CliError> {
        let (_, record) = record::one(world, &self.id).await?;
        let bytes = record::envelope(world, &record.envelope).await?;
        let envelope = Envelope::decode(&bytes)
            .map_err(|e| CliError::Failed(format!("{}: {e}", record.envelope)))?;
        let mut out = io::stdout().lock();
        out.write_all(envelope.payload.body.as_bytes())?;
        out.flush()?;
        Ok(Exit::Ok)
    }
}
