//! `demo`: the whole story on an embedded AWS, with handlers that are built in.

use crate::cli::demo;
use crate::cli::exit::{CliError, Exit};
use crate::config;
use crate::telemetry::logs;

/// What is logged unless `REDRIVE_LOG` says otherwise: the story is on stdout.
const FILTER: &str = "warn";

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub struct Demo {}

impl Demo {
    /// Reads no configuration. Ctrl-C gives it up: all it has is in the memory of this process.
    pub(super) async fn run(&self, json: bool) -> Result<Exit, CliError> {
        let filter = config::environment().find(|(name, _)| name == logs::FILTER_VARIABLE);
        logs::start(None, Some(filter.as_ref().map_or(FILTER, |(_, text)| text.as_str())));
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted),
            told = demo::tell(json) => told,
        }
    }
}
