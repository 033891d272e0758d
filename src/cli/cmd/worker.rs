//! `worker`: consumes the source until a signal.

use std::sync::Arc;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::cli::exit::{CliError, Exit};
use crate::cli::patience::until_answered;
use crate::cli::wiring;
use crate::cli::world::World;
use crate::service::consumer::Ending;
use crate::service::settings::Ports;
use crate::service::shutdown::{Stage, watch_signals};
use crate::service::start::{StartError, prepare};
use crate::service::worker;
use crate::system::{self, SystemClock};

/// Arguments of `worker`.
#[derive(Debug, clap::Args)]
pub struct Worker {}

impl Worker {
    pub(super) async fn run(&self, world: &World) -> Result<Exit, CliError> {
        let handler = wiring::handler(&world.config)?;
        let settings = wiring::settings(&world.config)?;
        let failed = |problem: &dyn std::fmt::Display| CliError::Failed(problem.to_string());
        let mut stages = watch_signals().map_err(|e| failed(&e))?;
        let ports = async {
            let source = world.source().await?;
            let dlq = world.needed_dlq(&source).await?;
            let ledger = Arc::new(world.ledger());
            Ok::<_, CliError>(Ports {
                source: Arc::new(source),
                dlq: Arc::new(dlq),
                vault: Arc::new(world.vault().await),
                runs: ledger.clone(),
                ledger,
                handler,
                clock: Arc::new(SystemClock::start()),
            })
        };
        let start = async {
            let ports = ports.await?;
            let prepared =
                until_answered(async || match prepare(ports.clone(), settings.clone()).await {
                    Err(StartError::Port(error)) => Err(error),
                    other => Ok(other),
                });
            prepared.await?.map_err(|misfit| CliError::Misfit(misfit.to_string()))
        };
        // Nothing has begun before the start is over, so a stop needs no draining.
        let context = tokio::select! {
            biased;
            _ = stages.wait_for(|stage| *stage != Stage::Running) => return Ok(Exit::Ok),
            context = start => context?,
        };
        let seed = system::seed().map_err(|e| failed(&e))?;
        let queue = world.config.source.queue.name();
        tracing::info!(%queue, seed, version = env!("CARGO_PKG_VERSION"), "worker started");
        let ending = worker::run(context, stages, StdRng::seed_from_u64(seed)).await;
        tracing::info!(?ending, "worker stopped");
        Ok(match ending {
            Ending::Drained => Exit::Ok,
            Ending::GraceRanOut => Exit::TryAgain,
        })
    }
}
