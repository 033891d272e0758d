//! What a worker needs: its ports and its settings, validated before they get here.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::backoff::Backoff;
use crate::domain::breaker::Bounds;
use crate::domain::delivery::Limits;
use crate::domain::id::QueueArn;
use crate::domain::identity::KeyStrategy;
use crate::domain::selector::Selector;
use crate::port::clock::Clock;
use crate::port::handler::Handler;
use crate::port::ledger::Ledger;
use crate::port::queue::Queue;
use crate::port::runs::Runs;
use crate::port::vault::Vault;
use crate::telemetry::Telemetry;

/// The world of one worker.
#[derive(Debug, Clone)]
pub struct Ports {
    /// The source.
    pub source: Arc<dyn Queue>,
    /// Its DLQ.
    pub dlq: Arc<dyn Queue>,
    /// The vault.
    pub vault: Arc<dyn Vault>,
    /// The ledger of the source.
    pub ledger: Arc<dyn Ledger>,
    /// The runs and locks of the source.
    pub runs: Arc<dyn Runs>,
    /// The work.
    pub handler: Arc<dyn Handler>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Where error texts may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorText {
    /// In ledger and vault.
    Ledger,
    /// In the vault alone.
    Vault,
}

/// Whether a worker executes runs beside its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecuteRuns {
    /// It takes up what nobody executes.
    Yes,
    /// It leaves runs to others.
    No,
}

/// The payload versions that the handler understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Where the version is.
    pub version: Selector,
    /// Which are supported.
    pub supported: Vec<String>,
}

/// How one worker works. What depends on the queues is filled in by [`super::start::prepare`].
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Long-poll wait, 0 to 20 s.
    pub wait: Duration,
    /// Visibility timeout; none: the queue's own.
    pub visibility: Option<Duration>,
    /// Handlers at once.
    pub concurrency: usize,
    /// Polls at once, at most.
    pub pollers_max: usize,
    /// When to stop receiving.
    pub breaker: Bounds,
    /// The longest a handler may run.
    pub handler_timeout: Duration,
    /// Own limit on attempts; none: the source's maxReceiveCount.
    pub max_attempts: Option<u32>,
    /// Crashes at which a message is parked unrun.
    pub crash_limit: u32,
    /// The floor of reported confidence.
    pub confidence_floor: f64,
    /// How long handlers may finish after a stop.
    pub grace: Duration,
    /// Back-off of transient failures.
    pub retry: Backoff,
    /// How keys are made.
    pub strategy: KeyStrategy,
    /// The window of repeats.
    pub repeat_window: Duration,
    /// How long entries and resolved records are remembered.
    pub remember: Duration,
    /// Labels by name.
    pub labels: Vec<(String, Selector)>,
    /// Supported payload versions.
    pub schema: Option<Schema>,
    /// The vault's key prefix.
    pub prefix: String,
    /// Where error texts may be kept.
    pub error_text: ErrorText,
    /// How often the DLQ is swept.
    pub sweep_every: Duration,
    /// How often the DLQ and the index are swept whole.
    pub sweep_full_every: Duration,
    /// How long an executor of a run may be silent.
    pub run_lease: Duration,
    /// Whether this worker executes runs.
    pub runs: ExecuteRuns,
    /// Who this worker is: the owner of its claims.
    pub owner: String,
    /// The host, for the envelope.
    pub host: String,
}

/// A worker that may start: settings with what the queues said.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) ports: Ports,
    pub(crate) settings: Settings,
    pub(crate) source_arn: QueueArn,
    pub(crate) visibility: Duration,
    pub(crate) limits: Limits,
    pub(crate) source_max_bytes: usize,
    pub(crate) dlq_max_bytes: usize,
    pub(crate) telemetry: Telemetry,
}

impl Context {
    /// What this worker says of itself.
    #[must_use]
    pub const fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The same worker, saying it here.
    #[must_use]
    pub fn with_telemetry(self, telemetry: Telemetry) -> Self {
        Self { telemetry, ..self }
    }

    /// The same worker with other ports: with faults around them, in a simulation.
    #[must_use]
    pub fn with_ports(self, ports: Ports) -> Self {
        Self { ports, ..self }
    }
}
