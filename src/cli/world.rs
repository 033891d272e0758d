//! What a command works on: the configuration, and the adapters that it names.

use std::path::Path;

use super::exit::CliError;
use super::patience::until_answered;
use super::wiring;
use crate::aws::client::{Aws, Caller};
use crate::aws::dynamodb::AwsLedger;
use crate::aws::s3::{AwsVault, Place};
use crate::aws::sqs::AwsQueue;
use crate::config::{self, Config, QueueRef};
use crate::domain::time::Wall;
use crate::port::clock::Clock as _;
use crate::port::queue::{Queue as _, QueueFacts};
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
        let is_empty = |(name, value): &(String, String)| {
            name.starts_with("AWS_ENDPOINT_URL") && value.is_empty()
        };
        if let Some((name, _)) = config::environment().find(is_empty) {
            return Err(CliError::Misfit(format!(
                "{name} is set and empty: unset it, or set a URL"
            )));
        }
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

    /// The vault, whose owner is the configured account, else the caller's own.
    pub(super) async fn vault(&self) -> AwsVault {
        let vault = &self.config.vault;
        let expected_owner = match &vault.owner {
            Some(owner) => Some(owner.as_str().to_owned()),
            None => self.caller().await.map(|caller| caller.account),
        };
        let place = Place {
            bucket: vault.bucket.as_str().to_owned(),
            prefix: vault.prefix.as_str().to_owned(),
            expected_owner,
            kms_key_id: vault.kms_key_id.clone(),
        };
        AwsVault::new(&self.aws, place)
    }

    /// Who calls, if STS says so.
    async fn caller(&self) -> Option<Caller> {
        let caller = self.aws.caller().await;
        caller.inspect_err(|error| tracing::warn!(%error, "the caller is not known")).ok()
    }

    /// Who answers for an act: the caller's ARN, or the user of this machine.
    pub(super) async fn operator(&self) -> String {
        match self.caller().await {
            Some(caller) => caller.arn,
            None => format!("unknown ({})", wiring::user()),
        }
    }

    /// Finds a queue by its name, URL or ARN.
    pub(super) async fn queue(&self, queue: &str) -> Result<AwsQueue, CliError> {
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

    /// Its DLQ, which there must be.
    pub(super) async fn needed_dlq(&self, source: &AwsQueue) -> Result<AwsQueue, CliError> {
        self.dlq(&source.facts().await?).await?.ok_or_else(|| {
            CliError::Misfit(format!(
                "queue {} has no RedrivePolicy and no DLQ is configured: set source.dlq, or give the \
                 queue a RedrivePolicy",
                source.name()
            ))
        })
    }
}
