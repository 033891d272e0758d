//! Redrive runs: plan, open, execute, report.
//!
//! Work comes from the ledger and the vault, never from the DLQ. A batch is taken in one transaction with
//! the run, then sent, then confirmed entry by entry; what became of a record is read from the record.
//!
//! | crash after | what is there | what the next executor does |
//! | --- | --- | --- |
//! | take | records redriving, the batch in hand | sends the batch; claims absorb what had been sent |
//! | send | the same, and copies in the source | the same |
//! | some confirmations | some redriven | sends the others |
//! | an outcome object | outcomes that the run's counters do not have | reads all objects and records again |

mod batch;
mod draft;
mod elsewhere;
mod executor;
mod foreign;
mod outcome;
mod report;
mod strain;
mod takeover;
mod tenant;
mod wish;

use std::sync::Arc;
use std::time::Duration;

pub use draft::{Draft, Opening};
pub use executor::Progress;
pub use report::{Report, Trouble};
pub(crate) use tenant::Tenant;
pub use wish::Wish;

use crate::domain::id::{QueueName, RunId, Sha256Hex};
use crate::domain::run::RunError;
use crate::domain::time::Mono;
use crate::port::clock::Clock;
use crate::port::error::PortError;
use crate::port::ledger::Ledger;
use crate::port::queue::Queue;
use crate::port::runs::Runs;
use crate::port::vault::Vault;
use crate::service::insist::{Verdict, insist};
use crate::service::settings::Context;
use crate::service::sweeper::Sweeper;

/// How long a call is insisted on.
const PATIENCE: Duration = Duration::from_secs(10);

/// What redrives of one source work on.
#[derive(Debug, Clone)]
pub struct Redriver {
    /// The source: where copies go.
    pub source: Arc<dyn Queue>,
    /// The other queue that they go to, if the source stands for one: see [`Self::sending_to`].
    pub to: Option<QueueName>,
    /// Plans, envelopes and outcomes.
    pub vault: Arc<dyn Vault>,
    /// Records.
    pub ledger: Arc<dyn Ledger>,
    /// Runs.
    pub runs: Arc<dyn Runs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The vault's key prefix.
    pub prefix: String,
    /// Who executes.
    pub owner: String,
    /// The source's `MaximumMessageSize` in bytes.
    pub max_message_bytes: usize,
    /// How long an executor may be silent.
    pub lease: Duration,
    /// How long resolved records are remembered.
    pub remember: Duration,
    /// Takes tokens of redriven records out of the DLQ.
    pub sweeper: Sweeper,
}

/// A redrive that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum RedriveError {
    /// A dependency failed; what was begun is taken up by `resume`.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Another run of this source is open.
    #[error("run {0} of this source is open: resume or abort it first")]
    Open(RunId),
    /// Another executor has taken the run over.
    #[error("run {0} was taken over by another executor")]
    Fenced(RunId),
    /// The run does not allow it now.
    #[error("run {id}: {why}")]
    Refused {
        /// The run.
        id: RunId,
        /// Why.
        why: RunError,
    },
    /// Its executor lives and did not answer a wish in time; it is still asked.
    #[error("the executor of run {0} has not answered yet: see `redrive status {0}`")]
    Unheard(RunId),
    /// Its copies go to another queue than this redriver's.
    #[error("the copies of run {id} go to {}", to.as_ref().map_or("their source", QueueName::as_str))]
    Elsewhere {
        /// The run.
        id: RunId,
        /// Where its copies go; none for their source.
        to: Option<QueueName>,
    },
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The plan is not the one that was agreed to.
    #[error("the plan's hash is {found}, not {expected}: the selection has changed; plan again")]
    PlanHash {
        /// As given.
        expected: Sha256Hex,
        /// As planned now.
        found: Sha256Hex,
    },
    /// A stored object cannot be used.
    #[error("{object}: {why}")]
    Unusable {
        /// Its key.
        object: String,
        /// Why.
        why: String,
    },
}

impl Redriver {
    /// The redriver of a worker or sweep, whose executor may be silent for `lease`.
    pub(crate) fn of(ctx: &Context, sweeper: Sweeper, lease: Duration) -> Self {
        let ports = &ctx.ports;
        Self {
            source: Arc::clone(&ports.source),
            to: None,
            vault: Arc::clone(&ports.vault),
            ledger: Arc::clone(&ports.ledger),
            runs: Arc::clone(&ports.runs),
            clock: Arc::clone(&ports.clock),
            prefix: ctx.settings.prefix.clone(),
            owner: ctx.settings.owner.clone(),
            max_message_bytes: ctx.source_max_bytes,
            lease,
            remember: ctx.settings.remember,
            sweeper,
        }
    }
}

impl Redriver {
    fn queue(&self) -> &QueueName {
        self.source.name()
    }

    fn patience(&self) -> Mono {
        self.clock.mono().plus(PATIENCE)
    }

    async fn insist<T, E, F>(&self, call: impl FnMut() -> F) -> Result<T, E>
    where
        E: Verdict,
        F: Future<Output = Result<T, E>>,
    {
        let until = self.patience();
        insist(self.clock.as_ref(), || until, call).await
    }
}
