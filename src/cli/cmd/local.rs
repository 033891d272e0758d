//! `local`: serves the embedded AWS until a signal, with everything that the configuration names.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::setup;
use crate::aws::client::Aws;
use crate::cli::exit::{CliError, Exit};
use crate::cli::world;
use crate::config::{self, Config};
use crate::local::{KEY, LocalAws, LocalError};
use crate::service::shutdown::{Stage, watch_signals};
use crate::system::{self, SystemClock};

/// How long calls may go on after the signal.
const STOP: Duration = Duration::from_secs(2);

/// Arguments of `local`.
#[derive(Debug, clap::Args)]
pub struct Local {
    /// The port on 127.0.0.1; 0 takes any.
    #[arg(long, default_value_t = 4566)]
    port: u16,
}

impl Local {
    pub(super) async fn run(&self, file: Option<&Path>) -> Result<Exit, CliError> {
        let config = Config::load_or_local(config::environment(), file)?;
        world::start_logs(&config);
        let mut stages = watch_signals().map_err(failed)?;
        let seed = system::seed().map_err(failed)?;
        tracing::debug!(seed, "the embedded AWS takes its chances from this seed");
        let clock = Arc::new(SystemClock::start());
        let aws = LocalAws::start(self.port, clock, seed).await.map_err(refused)?;
        let endpoint = aws.endpoint();
        setup::create(&Aws::embedded(&endpoint), &setup::spec(&config, None)?).await?;
        announce(&config, &endpoint)?;
        // The channel does not close while the process lives.
        let _closed = stages.wait_for(|stage| *stage != Stage::Running).await;
        // All of it is in memory: what does not end in time holds nothing.
        if tokio::time::timeout(STOP, aws.stop()).await.is_err() {
            tracing::debug!("calls were cut off");
        }
        Ok(Exit::Ok)
    }
}

fn announce(config: &Config, endpoint: &str) -> Result<(), CliError> {
    let mut progress = std::io::stderr().lock();
    writeln!(
        progress,
        "export AWS_ENDPOINT_URL={endpoint} AWS_REGION=us-east-1 \
         AWS_ACCESS_KEY_ID={KEY} AWS_SECRET_ACCESS_KEY={KEY}\n\
         export REDRIVE_SOURCE_QUEUE={} REDRIVE_VAULT_BUCKET={}",
        config.source.queue.name(),
        config.vault.bucket.as_str(),
    )?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {endpoint}")?;
    Ok(out.flush()?)
}

fn refused(error: LocalError) -> CliError {
    match error {
        LocalError::Listen { .. } => {
            CliError::Failed(format!("{error}; `--port 0` takes any free one"))
        }
        LocalError::DynamoDb(_) => failed(error),
    }
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failed(error.to_string())
}
