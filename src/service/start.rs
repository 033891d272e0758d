//! What must be true before the first message is received.

use crate::domain::delivery::Limits;
use crate::domain::envelope;
use crate::port::error::PortError;
use crate::port::ledger::Expiry;
use crate::port::queue::QueueFacts;
use crate::service::settings::{Context, Ports, Settings};
use crate::telemetry::Telemetry;

/// maxReceiveCount taken for a source that has no RedrivePolicy.
const DEFAULT_MAX_ATTEMPTS: u32 = 5;

/// Why a worker may not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A dependency did not answer as it must.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The handler is not there.
    #[error("{0}")]
    Handler(String),
    /// Configuration and deployment do not fit; the text names both and the next step.
    #[error("{0}")]
    Misfit(String),
}

/// Asks every dependency once and holds the settings against what they say.
///
/// # Errors
/// See [`StartError`].
pub async fn prepare(ports: Ports, settings: Settings) -> Result<Context, StartError> {
    let source = ports.source.facts().await?;
    let dlq = ports.dlq.facts().await?;
    let ours = settings.strategy.to_string();
    let in_force = ports.ledger.put_identity(&ours, None).await?;
    check_identity(&ports, &settings, &in_force)?;
    ports.vault.check(&envelope::folder(&settings.prefix, ports.source.name())).await?;
    ports.handler.check().await.map_err(StartError::Handler)?;
    warn_of(source.redrive_policy.as_ref().map(|policy| policy.max_receive_count));
    warn_of_expiry(ports.ledger.expiry().await);
    fit(ports, settings, source, &dlq)
}

/// The same for those who sweep without a worker: nothing is written.
///
/// # Errors
/// See [`StartError`].
pub async fn prepare_sweep(ports: Ports, settings: Settings) -> Result<Context, StartError> {
    let source = ports.source.facts().await?;
    let dlq = ports.dlq.facts().await?;
    if let Some(in_force) = ports.ledger.identity().await? {
        check_identity(&ports, &settings, &in_force)?;
    }
    fit(ports, settings, source, &dlq)
}

/// Holds the settings against what the queues say.
///
/// # Errors
/// They do not fit: see [`StartError::Misfit`].
pub fn fit(
    ports: Ports,
    settings: Settings,
    source: QueueFacts,
    dlq: &QueueFacts,
) -> Result<Context, StartError> {
    if source.arn == dlq.arn {
        let name = ports.source.name();
        return Err(StartError::Misfit(format!(
            "{name} is its own DLQ: name another queue as source.dlq"
        )));
    }
    if ports.source.name().is_fifo() != ports.dlq.name().is_fifo() {
        let (source, dlq) = (ports.source.name(), ports.dlq.name());
        return Err(StartError::Misfit(format!(
            "{source} and {dlq} must both be FIFO or both standard: name a DLQ of the same type"
        )));
    }
    let needed = source.retention.saturating_add(dlq.retention).saturating_add(MARGIN);
    if settings.remember < needed {
        let days = needed.as_secs().div_ceil(86_400);
        return Err(StartError::Misfit(format!(
            "identity.remember is shorter than source retention + DLQ retention + 12 h: set it to at least \"{days}d\""
        )));
    }
    let visibility = settings.visibility.unwrap_or(source.visibility_timeout);
    if visibility.is_zero() {
        let name = ports.source.name();
        return Err(StartError::Misfit(format!(
            "{name} has a visibility timeout of 0: set source.visibility_timeout"
        )));
    }
    let native = source.redrive_policy.map(|policy| policy.max_receive_count);
    let limits = decide_limits(settings.max_attempts, native)?;
    let name = ports.source.name().clone();
    let telemetry = Telemetry::new(name, settings.wait, ports.clock.mono());
    Ok(Context {
        telemetry,
        source_arn: source.arn,
        visibility,
        limits,
        source_max_bytes: source.max_message_bytes,
        dlq_max_bytes: dlq.max_message_bytes,
        ports,
        settings,
    })
}

/// How much longer than both retentions an entry must be remembered: SQS's longest visibility.
const MARGIN: std::time::Duration = std::time::Duration::from_secs(12 * 3_600);

fn decide_limits(own: Option<u32>, native: Option<u32>) -> Result<Limits, StartError> {
    let max_attempts = own.or(native).unwrap_or(DEFAULT_MAX_ATTEMPTS);
    match native {
        Some(native) if max_attempts > native => Err(StartError::Misfit(format!(
            "limits.max_attempts = {max_attempts} is above the source's maxReceiveCount {native}, so SQS would move messages first, without evidence: lower it to {native} or raise maxReceiveCount"
        ))),
        _ => Ok(Limits { max_attempts, native_limit: native }),
    }
}

fn warn_of(native: Option<u32>) {
    match native {
        None => tracing::warn!(
            "the source has no RedrivePolicy: crashed messages have no native net; set one with maxReceiveCount 5 or more"
        ),
        Some(1) => tracing::warn!(
            "maxReceiveCount is 1: a receive whose answer is lost is a dead letter; set 5 or more"
        ),
        Some(_) => {}
    }
}

fn check_identity(ports: &Ports, settings: &Settings, in_force: &str) -> Result<(), StartError> {
    let ours = settings.strategy.to_string();
    if in_force == ours {
        return Ok(());
    }
    let name = ports.source.name();
    Err(StartError::Misfit(format!(
        "the ledger of {name} is keyed by \"{in_force}\", the configuration says \"{ours}\": set identity.key back, or run `redrive setup --change-identity` if it is meant"
    )))
}

/// A ledger that forgets wrongly is trouble for later: said, and no reason not to start.
fn warn_of_expiry(expiry: Result<Expiry, PortError>) {
    match expiry {
        Ok(Expiry::Ours) => {}
        Ok(Expiry::Other(attribute)) => tracing::warn!(
            attribute,
            "the ledger's TTL goes by another attribute than expires_at: entries are never swept, or too early; set the table's TTL attribute to expires_at"
        ),
        Ok(Expiry::Off) => tracing::warn!(
            "the ledger's TTL is off, so it grows: turn it on for the attribute expires_at"
        ),
        Err(error) => tracing::warn!(%error, "whether the ledger's TTL is right is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_limit_defaults_to_the_native_one_and_may_not_pass_it() {
        let limits = |own, native| decide_limits(own, native).map(|l| l.max_attempts).ok();
        assert_eq!(limits(None, Some(3)), Some(3));
        assert_eq!(limits(Some(2), Some(3)), Some(2));
        assert_eq!(limits(Some(4), Some(3)), None);
        assert_eq!(limits(None, None), Some(5));
        assert_eq!(limits(Some(50), None), Some(50));
    }
}
