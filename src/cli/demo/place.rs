//! Where the demo plays: an embedded AWS of its own, the real adapters on it, and workers.
//!
//! All settings are here, in code. Neither a configuration file nor the environment's AWS is looked at.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::aws::client::Aws;
use crate::aws::dynamodb::AwsLedger;
use crate::aws::s3::{AwsVault, Place as VaultPlace};
use crate::aws::setup::{SetupReport, SetupSpec, setup};
use crate::aws::sqs::AwsQueue;
use crate::cli::exit::CliError;
use crate::cli::wiring;
use crate::config::NEW_MAX_RECEIVE_COUNT;
use crate::domain::backoff::Backoff;
use crate::domain::breaker::Bounds;
use crate::domain::id::QueueName;
use crate::domain::identity::KeyStrategy;
use crate::domain::ramp::RampPolicy;
use crate::domain::selector::Selector;
use crate::local::LocalAws;
use crate::port::clock::Clock;
use crate::port::handler::Handler;
use crate::port::ledger::Ledger;
use crate::port::queue::{Depth, Queue};
use crate::port::runs::Runs;
use crate::port::vault::Vault;
use crate::service::consumer::Ending;
use crate::service::redrive::Redriver;
use crate::service::settings::{ErrorText, ExecuteRuns, Ports, Settings};
use crate::service::shutdown::Stage;
use crate::service::start::{StartError, prepare, prepare_sweep};
use crate::service::sweeper::{NoHandler, Sweeper};
use crate::service::worker;
use crate::system::{self, SystemClock};

/// The source.
pub(super) const QUEUE: &str = "royalty-lines";
const DLQ: &str = "royalty-lines-dlq";
const BUCKET: &str = "royalty-vault";
const TABLE: &str = "royalty-ledger";

/// How long what was received stays hidden: long enough for a machine that is busy with other things.
const VISIBILITY: Duration = Duration::from_secs(60);
/// How long entries are remembered: longer than both queues keep messages.
const REMEMBER: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How long the source may take to be drained: only to tell a hang.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(100);

/// The bounds of every run of the demo: as careful as by default, only faster.
pub(super) const RAMP: RampPolicy = RampPolicy {
    canary: 5,
    start_rate: 5.0,
    growth: 2.0,
    step: Duration::from_secs(1),
    max_rate: 50.0,
    max_in_doubt: 1_000,
    max_failure_ratio: 0.2,
    max_backlog: 10_000,
    outcome_timeout: Duration::from_secs(120),
};

/// How often a record may be sent back.
pub(super) const MAX_REDRIVES: u32 = 3;

/// The embedded AWS with the adapters on it.
#[derive(Debug)]
pub(super) struct Place {
    /// Serves as long as this lives.
    aws: LocalAws,
    /// The source.
    pub(super) source: Arc<dyn Queue>,
    /// Its DLQ.
    pub(super) dlq: Arc<dyn Queue>,
    /// The vault.
    pub(super) vault: Arc<dyn Vault>,
    /// The ledger.
    pub(super) ledger: Arc<dyn Ledger>,
    runs: Arc<dyn Runs>,
    /// The clocks.
    pub(super) clock: Arc<dyn Clock>,
    /// The chance.
    pub(super) rng: StdRng,
}

/// A worker that runs.
#[derive(Debug)]
pub(super) struct Deployment {
    stage: watch::Sender<Stage>,
    worker: AbortOnDropHandle<Ending>,
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failed(error.to_string())
}

fn unprepared(error: StartError) -> CliError {
    match error {
        StartError::Port(error) => CliError::Port(error),
        misfit => failed(misfit),
    }
}

impl Place {
    /// Starts an AWS on a free port of this machine and creates queues, bucket and table on it.
    pub(super) async fn open() -> Result<(Self, SetupReport), CliError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let seed = system::seed().map_err(failed)?;
        tracing::debug!(seed, "the demo takes its chances from this seed");
        let local = LocalAws::start(0, Arc::clone(&clock), seed).await.map_err(failed)?;
        let aws = Aws::embedded(&local.endpoint());
        let queue = QueueName::new(QUEUE).map_err(failed)?;
        let spec = SetupSpec {
            dlq: QueueName::new(DLQ).map_err(failed)?,
            queue: queue.clone(),
            max_receive_count: NEW_MAX_RECEIVE_COUNT,
            visibility_timeout: VISIBILITY,
            bucket: BUCKET.to_owned(),
            table: TABLE.to_owned(),
        };
        let report = setup(&aws, &spec).await.map_err(failed)?;
        let ledger = Arc::new(AwsLedger::new(&aws, TABLE, queue));
        let vault = VaultPlace {
            bucket: BUCKET.to_owned(),
            prefix: String::new(),
            expected_owner: None,
            kms_key_id: None,
        };
        let place = Self {
            aws: local,
            source: Arc::new(AwsQueue::resolve(&aws, QUEUE).await?),
            dlq: Arc::new(AwsQueue::resolve(&aws, DLQ).await?),
            vault: Arc::new(AwsVault::new(&aws, vault)),
            runs: ledger.clone(),
            ledger,
            clock,
            rng: StdRng::seed_from_u64(seed),
        };
        Ok((place, report))
    }

    /// Where the AWS listens.
    pub(super) fn endpoint(&self) -> String {
        self.aws.endpoint()
    }

    /// Starts a worker with this handler.
    pub(super) async fn deploy(
        &mut self,
        handler: Arc<dyn Handler>,
    ) -> Result<Deployment, CliError> {
        let context = prepare(self.ports(handler), settings()?).await.map_err(unprepared)?;
        let (stage, stages) = watch::channel(Stage::Running);
        let rng = StdRng::from_seed(self.rng.random());
        let worker = AbortOnDropHandle::new(tokio::spawn(worker::run(context, stages, rng)));
        Ok(Deployment { stage, worker })
    }

    /// What reconciles the DLQ with the ledger.
    pub(super) async fn sweeper(&self) -> Result<Sweeper, CliError> {
        let owner = format!("{}-operator", wiring::owner());
        let settings = Settings { owner, ..settings()? };
        let context = prepare_sweep(self.ports(Arc::new(NoHandler)), settings).await;
        let rng = StdRng::seed_from_u64(system::seed().map_err(failed)?);
        Ok(Sweeper::new(context.map_err(unprepared)?, rng))
    }

    /// What sends records back.
    pub(super) async fn redriver(&self) -> Result<Redriver, CliError> {
        Ok(Redriver {
            source: Arc::clone(&self.source),
            to: None,
            vault: Arc::clone(&self.vault),
            ledger: Arc::clone(&self.ledger),
            runs: Arc::clone(&self.runs),
            clock: Arc::clone(&self.clock),
            prefix: String::new(),
            owner: format!("{}-operator", wiring::owner()),
            max_message_bytes: self.source.facts().await?.max_message_bytes,
            lease: Duration::from_secs(15),
            remember: REMEMBER,
            sweeper: self.sweeper().await?,
        })
    }

    fn ports(&self, handler: Arc<dyn Handler>) -> Ports {
        Ports {
            source: Arc::clone(&self.source),
            dlq: Arc::clone(&self.dlq),
            vault: Arc::clone(&self.vault),
            ledger: Arc::clone(&self.ledger),
            runs: Arc::clone(&self.runs),
            handler,
            clock: Arc::clone(&self.clock),
        }
    }

    /// Waits until the source has nothing left, and says how much it has.
    pub(super) async fn drain(&self) -> Result<u64, CliError> {
        let given_up = self.clock.mono().plus(PATIENCE);
        loop {
            let left = depth(self.source.as_ref()).await?;
            if left == 0 || self.clock.mono() >= given_up {
                return Ok(left);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Deployment {
    /// Stops the worker as SIGTERM does, and waits until what it has in hand is done.
    pub(super) async fn retire(self) -> Result<Ending, CliError> {
        self.stage.send_replace(Stage::Draining);
        self.worker.await.map_err(failed)
    }
}

/// Messages of a queue, wherever they are.
pub(super) async fn depth(queue: &dyn Queue) -> Result<u64, CliError> {
    let Depth { visible, in_flight, delayed } = queue.facts().await?.depth;
    Ok(visible + in_flight + delayed)
}

fn settings() -> Result<Settings, CliError> {
    let label = |name: &str, pointer: &str| {
        Ok::<_, CliError>((name.to_owned(), pointer.parse::<Selector>().map_err(failed)?))
    };
    Ok(Settings {
        wait: Duration::from_secs(1),
        visibility: Some(VISIBILITY),
        concurrency: 16,
        pollers_max: 4,
        breaker: Bounds {
            window: Duration::from_secs(30),
            min_outcomes: 20,
            open_ratio: 0.5,
            probe_after: Duration::from_secs(5),
        },
        handler_timeout: Duration::from_secs(30),
        max_attempts: None,
        crash_limit: 3,
        confidence_floor: 0.75,
        grace: Duration::from_secs(25),
        retry: Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(2) },
        strategy: KeyStrategy::Payload,
        repeat_window: Duration::from_secs(300),
        remember: REMEMBER,
        labels: vec![
            label("territory_code", "/territory_code")?,
            label("period", "/reporting_period")?,
        ],
        schema: None,
        prefix: String::new(),
        error_text: ErrorText::Ledger,
        sweep_every: Duration::from_secs(300),
        sweep_full_every: Duration::from_secs(24 * 3_600),
        run_lease: Duration::from_secs(15),
        runs: ExecuteRuns::No,
        owner: wiring::owner(),
        host: wiring::host(),
    })
}
