//! `worker`: consumes the source until a signal.
//!
//! stdout has the metrics, if they are printed, and nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::exit::{CliError, Exit};
use crate::cli::patience::until_answered;
use crate::cli::wiring;
use crate::cli::world::World;
use crate::config::Metrics;
use crate::port::clock::Clock;
use crate::service::consumer::Ending;
use crate::service::settings::{Context, Ports};
use crate::service::shutdown::{Stage, watch_signals};
use crate::service::start::{StartError, prepare};
use crate::service::worker;
use crate::system::{self, SystemClock};
use crate::telemetry::serve::Server;
use crate::telemetry::{Telemetry, emf};

/// How long the last metrics may take to be written, and the last answers to be given.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Arguments of `worker`.
#[derive(Debug, clap::Args)]
pub struct Worker {
    /// Serve /healthz, /readyz and /metrics on this address, like 127.0.0.1:9464.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
}

impl Worker {
    pub(super) async fn run(&self, world: &World) -> Result<Exit, CliError> {
        let mut stages = watch_signals().map_err(failed)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let queue = world.config.source.queue.name();
        let telemetry = Telemetry::new(queue.clone(), world.config.source.wait, clock.mono());
        let mut voice = Voice::new(telemetry.clone(), Arc::clone(&clock));
        if let Some(address) = self.listen.or(world.config.telemetry.listen) {
            voice.serve(address).await?;
        }
        // Nothing has begun before the start is over, so a stop needs no draining.
        let context = tokio::select! {
            biased;
            _ = stages.wait_for(|stage| *stage != Stage::Running) => return Ok(Exit::Ok),
            context = start(world, clock) => context?.with_telemetry(telemetry),
        };
        let seed = system::seed().map_err(failed)?;
        tracing::info!(%queue, seed, version = env!("CARGO_PKG_VERSION"), "worker started");
        // Only now: a worker that cannot start must look silent.
        if world.config.telemetry.metrics == Metrics::Emf {
            voice.print();
        }
        let ending = worker::run(context, stages, StdRng::seed_from_u64(seed)).await;
        voice.end().await;
        tracing::info!(?ending, "worker stopped");
        Ok(match ending {
            Ending::Drained => Exit::Ok,
            Ending::GraceRanOut => Exit::TryAgain,
        })
    }
}

/// Connects the worker, and checks all that it needs.
async fn start(world: &World, clock: Arc<dyn Clock>) -> Result<Context, CliError> {
    let handler = wiring::handler(&world.config)?;
    let settings = wiring::settings(&world.config)?;
    let source = world.source().await?;
    let dlq = world.needed_dlq(&source).await?;
    let ledger = Arc::new(world.ledger());
    let ports = Ports {
        source: Arc::new(source),
        dlq: Arc::new(dlq),
        vault: Arc::new(world.vault().await),
        runs: ledger.clone(),
        ledger,
        handler,
        clock,
    };
    let prepared = until_answered(async || match prepare(ports.clone(), settings.clone()).await {
        Err(StartError::Port(error)) => Err(error),
        other => Ok(other),
    });
    prepared.await?.map_err(|misfit| CliError::Misfit(misfit.to_string()))
}

/// What tells others of this worker: the server, and the printed metrics.
struct Voice {
    telemetry: Telemetry,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl Voice {
    fn new(telemetry: Telemetry, clock: Arc<dyn Clock>) -> Self {
        Self { telemetry, clock, stop: CancellationToken::new(), tasks: Vec::new() }
    }

    async fn serve(&mut self, address: SocketAddr) -> Result<(), CliError> {
        let server = Server::bind(address).await.map_err(|error| {
            let step = "name another address with --listen or telemetry.listen";
            CliError::Misfit(format!("{error}; {step}"))
        })?;
        tracing::info!(address = %server.address(), "serving /healthz, /readyz and /metrics");
        let (telemetry, clock) = (self.telemetry.clone(), Arc::clone(&self.clock));
        self.speak(server.run(telemetry, clock, self.stop.clone()));
        Ok(())
    }

    fn print(&mut self) {
        let (meter, clock) = (self.telemetry.meter.clone(), Arc::clone(&self.clock));
        let stop = self.stop.clone();
        self.speak(emf::flush_every(meter, clock, emf::EVERY, stop, tokio::io::stdout()));
    }

    fn speak(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(AbortOnDropHandle::new(tokio::spawn(task)));
    }

    /// Ends it, with the last metrics.
    async fn end(self) {
        self.stop.cancel();
        let all = async {
            for task in self.tasks {
                if task.await.is_err() {
                    tracing::error!("a part of the telemetry ended unexpectedly");
                }
            }
        };
        if tokio::time::timeout(LAST_WORDS, all).await.is_err() {
            tracing::warn!("nobody takes the last metrics or answers");
        }
    }
}

fn failed(problem: impl std::fmt::Display) -> CliError {
    CliError::Failed(problem.to_string())
}
