//! Finds the one record that an ID on the command line means, and its evidence.

use bytes::Bytes;

use crate::cli::exit::CliError;
use crate::cli::patience::until_answered;
use crate::cli::world::World;
use crate::domain::envelope::Envelope;
use crate::domain::failure::ErrorClass;
use crate::domain::id::RecordId;
use crate::domain::record::Record;
use crate::port::vault::Vault as _;
use crate::service::query::{Found, find};

/// The record whose id, prefix of an id, or payload hash `text` is.
pub(in crate::cli) async fn one(world: &World, text: &str) -> Result<(RecordId, Record), CliError> {
    let (ledger, now) = (world.ledger(), world.now());
    match until_answered(async || find(&ledger, text, now).await).await? {
        Found::One(id, record) => Ok((id, *record)),
        Found::Nothing => {
            let queue = world.config.source.queue.name();
            let problem =
                format!("no record of {queue} is {text:?}: `redrive ls --state any` lists them");
            Err(CliError::NotFound(problem))
        }
        Found::Several(ids) => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            Err(CliError::Usage(format!("{text:?} means several records: {}", ids.join(", "))))
        }
    }
}

/// A record's envelope, as stored and as read. Its body must be the one that was parked.
pub(super) async fn envelope(
    world: &World,
    record: &Record,
) -> Result<(Bytes, Envelope), CliError> {
    let key = &record.envelope;
    let bytes = world.vault().await.get(key).await.map_err(|error| {
        let bucket = world.config.vault.bucket.as_str();
        match (error.class(), error.code()) {
            (ErrorClass::NotFound, "NoSuchKey") => {
                CliError::Failed(format!("envelope {key} is missing from bucket {bucket}"))
            }
            (ErrorClass::NotFound, _) => CliError::Misfit(format!(
                "bucket {bucket} does not exist: check [vault], or run `redrive setup`"
            )),
            _ => error.into(),
        }
    })?;
    let envelope = Envelope::decode(&bytes).map_err(|e| CliError::Failed(format!("{key}: {e}")))?;
    if envelope.body_sha256() != record.payload_sha256 {
        return Err(CliError::Failed(format!(
            "{key}: its body is not the one that was parked: look at the object's earlier versions"
        )));
    }
    Ok((bytes, envelope))
}
