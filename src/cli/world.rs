//! What a command works on: the configuration, and the adapters that it names.

use std::path::Path;

use super::exit::CliError;
use super::patience::until_answered;
use crate::aws::client::Aws;
use crate::aws::dynamodb::AwsLedger;
use crate::aws::s3::{AwsVault, Place};
use crate::aws::sqs::AwsQueue;
use crate::config::{self, Config, QueueRef};
use crate::domain::time::Wall;
use crate::port::clock::Clock as _;
use crate::port::queue::QueueFacts;
use crate::system::SystemClock;
use crate::telemetry::logs;

/// Reads the configuration and begins to log as it says.
pub(super) fn configure(file: Option<&Path>) -> Result<Config, CliError> {
    let config = Config::load(config::environment(), file)?;
    start_logs(&config);
    Ok(config)
}

pub(super) fn start_logs(config: &Config) {
    let filter = config::environment().find(|(name, _)| name == logs::FILTER_VARIABLE);
    logs::start(config.telemetry.log, filter.as_ref().map(|(_, text)| text.as_str()));
}

/// The adapters of one source.
#[derive(Debug)]
pub(super) struct World {
    pub(super) config: Config,
    pub(super) aws: Aws,
    clock: SystemClock,
}

impl World {
    /// Connects as AWS's own variables say. Nothing is called yet.
    pub(super) async fn connect(file: Option<&Path>) -> Result<Self, CliError> {
        let config = configure(file)?;
        let aws = Aws::connect().await;
        if aws.region().is_none() {
            return Err(CliError::Misfit(
                "no region: set AWS_REGION, or AWS_PROFILE to a profile that has one".to_owned(),
            ));
        }
        Ok(Self { config, aws, clock: SystemClock::start() })
    }

    pub(super) fn now(&self) -> Wall {
        self.clock.wall()
    }

    pub(super) fn ledger(&self) -> AwsLedger {
        let table = self.config.ledger.table.as_str();
        AwsLedger::new(&self.aws, table, self.config.source.queue.name().clone())
    }

    pub(super) fn vault(&self) -> AwsVault {
        let vault = &self.config.vault;
        let place = Place {
            bucket: vault.bucket.as_str().to_owned(),
            prefix: vault.prefix.as_str().to_owned(),
            expected_owner: vault.owner.as_ref().map(|owner| owner.as_str().to_owned()),
            kms_key_id: vault.kms_key_id.clone(),
        };
        AwsVault::new(&self.aws, place)
    }

    /// Finds a queue by its name, URL or ARN.
    async fn queue(&self, queue: &str) -> Result<AwsQueue, CliError> {
        Ok(until_answered(async || AwsQueue::resolve(&self.aws, queue).await).await?)
    }

    /// The source.
    pub(super) async fn source(&self) -> Result<AwsQueue, CliError> {
        self.queue(self.config.source.queue.as_str()).await
    }

    /// Its DLQ: the configured one, else the one that the source's own policy names, if any.
    pub(super) async fn dlq(&self, source: &QueueFacts) -> Result<Option<AwsQueue>, CliError> {
        let policy = source.redrive_policy.as_ref().map(|policy| policy.target.as_str());
        let configured = self.config.source.dlq.as_ref().map(QueueRef::as_str);
        match configured.or(policy) {
            Some(dlq) => self.queue(dlq).await.map(Some),
            None => Ok(None),
        }
    }
}
