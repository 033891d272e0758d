//! `show`: one record with its newest envelope, and the keys of its earlier ones.

use std::io;

use serde::Serialize;
use serde_json::value::RawValue;

use super::record;
use crate::cli::exit::{CliError, Exit};
use crate::cli::render;
use crate::cli::shape::RecordShape;
use crate::cli::world::World;
use crate::domain::envelope::folder;
use crate::domain::id::{EnvelopeKey, RecordId};
use crate::domain::record::Record;
use crate::port::vault::Vault as _;

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// A record's id, the beginning of one, or a payload's SHA-256.
    id: String,
}

#[derive(Debug, Serialize)]
struct Shape<'a, E> {
    record: RecordShape<'a>,
    envelope: E,
    earlier: Vec<EnvelopeKey>,
}

impl Show {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let (id, record) = record::one(world, &self.id).await?;
        let (bytes, _) = record::envelope(world, &record).await?;
        let unreadable = |problem: &dyn std::fmt::Display| {
            CliError::Failed(format!("{}: {problem}", record.envelope))
        };
        let earlier = earlier(world, &id, &record).await?;
        let shown = RecordShape::new(&id, &record);
        let mut out = io::stdout().lock();
        if json {
            // As it is stored: numbers keep their text.
            let envelope: &RawValue = serde_json::from_slice(&bytes).map_err(|e| unreadable(&e))?;
            render::json(&mut out, &Shape { record: shown, envelope, earlier })?;
        } else {
            let envelope: serde_json::Value =
                serde_json::from_slice(&bytes).map_err(|e| unreadable(&e))?;
            let shape = Shape { record: shown, envelope, earlier };
            render::pretty_json(&mut out, &shape)?;
        }
        Ok(Exit::Ok)
    }
}

/// The keys of the record's other envelopes, in the order of their redrives.
async fn earlier(
    world: &World,
    id: &RecordId,
    record: &Record,
) -> Result<Vec<EnvelopeKey>, CliError> {
    let folder = folder(world.config.vault.prefix.as_str(), world.config.source.queue.name());
    let beginning = format!("{folder}{}/{id}-", record.payload_sha256);
    let keys = world.vault().await.list(&beginning).await?;
    let mut earlier: Vec<(u32, EnvelopeKey)> = keys
        .into_iter()
        .filter(|key| *key != record.envelope)
        .filter_map(|key| Some((redrive_count(&key, &beginning)?, key)))
        .collect();
    earlier.sort();
    Ok(earlier.into_iter().map(|(_, key)| key).collect())
}

/// The n of `<beginning><n>-<token>.json`; none for what has another form: another record's, perhaps,
/// whose id begins like this one.
fn redrive_count(key: &EnvelopeKey, beginning: &str) -> Option<u32> {
    let rest = key.as_str().strip_prefix(beginning)?;
    let (n, _token) = rest.split_once('-')?;
    n.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_records_own_envelopes_are_counted() {
        let n = |key: &str| redrive_count(&EnvelopeKey::new(key).unwrap(), "v/abc-");
        assert_eq!(n("v/abc-0-token.json"), Some(0));
        assert_eq!(n("v/abc-12-0193-token.json"), Some(12));
        assert_eq!(n("v/abc-d-0-token.json"), None);
        assert_eq!(n("w/abc-0-token.json"), None);
    }
}
