//! `setup`: creates queues, bucket and table, or checks that they are there, and puts the identity
//! strategy in force.

use std::io::Write as _;

use serde::Serialize;

use crate::aws::client::Aws;
use crate::aws::setup::{SetupError, SetupReport, SetupSpec, setup};
use crate::cli::exit::{CliError, Exit};
use crate::cli::patience::until_answered;
use crate::cli::render;
use crate::cli::world::World;
use crate::config::{Config, NEW_MAX_RECEIVE_COUNT, NEW_VISIBILITY_TIMEOUT};
use crate::domain::failure::ErrorClass;
use crate::domain::id::QueueName;
use crate::port::ledger::Ledger;
use crate::port::queue::{Queue as _, RedrivePolicy};

/// Arguments of `setup`.
#[derive(Debug, clap::Args)]
pub struct Setup {
    /// Put the configured identity.key in force, although another one is: messages that were handled
    /// under the old one may be handled again.
    #[arg(long)]
    change_identity: bool,
}

/// What a setup did, as `kind name`.
#[derive(Debug, Serialize)]
struct Shape {
    created: Vec<String>,
    existing: Vec<String>,
    notes: Vec<String>,
}

impl Setup {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        let config = &world.config;
        let spec = spec(config, existing_policy(world).await?)?;
        let report = create(&world.aws, &spec).await?;
        let strategy = config.identity.key.to_string();
        let ledger = world.ledger();
        let identity = put_identity(&ledger, &strategy, self.change_identity).await?;
        print(report, identity, &strategy, json)
    }
}

/// Whether the strategy was put in force or was so before.
#[derive(Debug, Clone, Copy)]
enum Identity {
    Put,
    Was,
}

fn print(
    report: SetupReport,
    identity: Identity,
    strategy: &str,
    json: bool,
) -> Result<Exit, CliError> {
    let SetupReport { mut created, mut existing, notes } = report;
    let list = match identity {
        Identity::Put => &mut created,
        Identity::Was => &mut existing,
    };
    list.push(format!("identity {strategy}"));
    let mut out = std::io::stdout().lock();
    if json {
        render::json(&mut out, &Shape { created, existing, notes })?;
        return Ok(Exit::Ok);
    }
    for (what, names) in [("created", created), ("existing", existing), ("note", notes)] {
        for name in names {
            writeln!(out, "{what:<8}  {}", render::plain(&name))?;
        }
    }
    Ok(Exit::Ok)
}

/// The source's own RedrivePolicy, if the source is there and has one.
async fn existing_policy(world: &World) -> Result<Option<RedrivePolicy>, CliError> {
    match world.source().await {
        Ok(source) => Ok(source.facts().await?.redrive_policy),
        Err(CliError::Port(error)) if error.class() == ErrorClass::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the configuration asks for. An existing policy is kept, but for a DLQ that is configured.
pub(super) fn spec(config: &Config, policy: Option<RedrivePolicy>) -> Result<SetupSpec, CliError> {
    let queue = config.source.queue.name().clone();
    let max_receive_count = policy.as_ref().map(|policy| policy.max_receive_count);
    let existing = policy.and_then(|policy| policy.target.name());
    let dlq = match config.source.dlq.as_ref().map(|dlq| dlq.name().clone()).or(existing) {
        Some(dlq) => dlq,
        None => beside(&queue)?,
    };
    Ok(SetupSpec {
        dlq,
        max_receive_count: max_receive_count.unwrap_or(NEW_MAX_RECEIVE_COUNT),
        visibility_timeout: config.source.visibility_timeout.unwrap_or(NEW_VISIBILITY_TIMEOUT),
        bucket: config.vault.bucket.as_str().to_owned(),
        table: config.ledger.table.as_str().to_owned(),
        queue,
    })
}

/// The usual name of a queue's DLQ.
fn beside(queue: &QueueName) -> Result<QueueName, CliError> {
    let name = match queue.as_str().strip_suffix(".fifo") {
        Some(name) => format!("{name}-dlq.fifo"),
        None => format!("{queue}-dlq"),
    };
    QueueName::new(name).map_err(|e| CliError::Misfit(format!("{e}; set source.dlq")))
}

/// Creates what is not there. May be repeated, so an endpoint that does not answer yet is waited for.
pub(super) async fn create(aws: &Aws, spec: &SetupSpec) -> Result<SetupReport, CliError> {
    let made = until_answered(async || match setup(aws, spec).await {
        Ok(report) => Ok(Ok(report)),
        Err(SetupError::Port(error)) => Err(error),
        Err(misfit) => Ok(Err(misfit)),
    });
    made.await?.map_err(|misfit| CliError::Misfit(misfit.to_string()))
}

async fn put_identity(
    ledger: &dyn Ledger,
    strategy: &str,
    change: bool,
) -> Result<Identity, CliError> {
    let replaced = match ledger.identity().await? {
        Some(in_force) if in_force == strategy => return Ok(Identity::Was),
        Some(in_force) if !change => {
            return Err(CliError::Misfit(format!(
                "identity.key is {strategy:?} but {in_force:?} is in force for this queue: put it back, \
                 or run `redrive setup --change-identity` if the change is meant"
            )));
        }
        in_force => in_force,
    };
    let now_in_force = ledger.put_identity(strategy, replaced.as_deref()).await?;
    if now_in_force == strategy {
        return Ok(Identity::Put);
    }
    Err(CliError::Misfit(format!("{now_in_force:?} was put in force meanwhile: run setup again")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_queue_has_a_fifo_dlq() {
        let of = |name| beside(&QueueName::new(name).unwrap()).unwrap().to_string();
        assert_eq!(of("orders"), "orders-dlq");
        assert_eq!(of("orders.fifo"), "orders-dlq.fifo");
        let long = QueueName::new("x".repeat(80)).unwrap();
        assert!(beside(&long).is_err_and(|e| e.exit() == Exit::Config));
    }
}
