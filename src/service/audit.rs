//! The audit trail: one object for each act of an operator, never overwritten (G7).
//!
//! The object is put before the act's first change, and says what the act set out to do:
//!
//! | crash after | put before the change | put after it |
//! | --- | --- | --- |
//! | nothing | nothing happened | nothing happened |
//! | the first of both | an object, and nothing done: a try that is known | a change that nobody answers for |
//! | some of the changes | an object, and less done than it says | the same |
//! | all | both | both |
//!
//! So no act is unaudited, and an act whose object cannot be put is not done. What came of it is read from
//! the records and from the run. A second object at the end would prove no more, and could be missing.
//!
//! The key begins with the run's id, where there is a run. What is done to a run a second time (a pause)
//! finds that key taken, and gets one of its own; its `run_id` says which run it was.

use std::time::Duration;

use bytes::Bytes;
use rand::{Rng, RngExt as _};
use serde::{Serialize, Serializer};

use crate::domain::envelope;
use crate::domain::id::{EnvelopeKey, IdError, QueueName, RunId, Sha256Hex};
use crate::domain::run::Counts;
use crate::port::clock::Clock;
use crate::port::error::PortError;
use crate::port::vault::Vault;
use crate::service::insist::insist;
use crate::service::scope::Scope;

/// How long a put is insisted on.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who acts, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct By {
    /// Who.
    pub operator: String,
    /// Why, if it was said.
    pub note: Option<String>,
}

/// What an operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Gives records up.
    Discard,
    /// Takes a giving up back.
    Restore,
    /// Says that the work is done.
    Resolve,
    /// Takes records back whose copies are lost.
    Rescue,
    /// Opens a run.
    Start,
    /// Goes on with a run.
    Resume,
    /// Ends a run.
    Abort,
    /// Pauses a run.
    Pause,
    /// Sets a run's highest rate.
    SetRate,
}

/// What an act set out to do.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub(crate) enum Tally {
    /// The counters of a run when the act began.
    Run(Counts),
    /// How many records are to be moved.
    Moves {
        /// All that were selected.
        matched: u64,
    },
}

/// One act, as it is written down.
#[derive(Debug, Serialize)]
pub(crate) struct Entry<'a> {
    pub act: Act,
    #[serde(flatten)]
    pub by: &'a By,
    pub run_id: Option<&'a RunId>,
    pub plan_hash: Option<&'a Sha256Hex>,
    pub selection: Option<&'a Scope>,
    pub counts: Tally,
    /// Sends a second, where the act sets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

#[derive(Serialize)]
struct Shape<'a> {
    at: String,
    queue: &'a QueueName,
    #[serde(flatten)]
    entry: &'a Entry<'a>,
}

/// An act that could not be written down, and so must not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    /// The vault failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The prefix makes no key.
    #[error(transparent)]
    Key(#[from] IdError),
    /// It cannot be written as JSON.
    #[error(transparent)]
    Encoding(#[from] serde_json::Error),
}

/// Where acts on one source are written down.
pub(crate) struct Trail<'a> {
    pub vault: &'a dyn Vault,
    pub clock: &'a dyn Clock,
    pub prefix: &'a str,
    pub queue: &'a QueueName,
}

impl Trail<'_> {
    /// Writes an act down: to be called before its first change.
    pub(crate) async fn put(
        &self,
        entry: &Entry<'_>,
        rng: &mut impl Rng,
    ) -> Result<(), AuditError> {
        let now = self.clock.wall();
        let shape = Shape { at: now.to_rfc3339(), queue: self.queue, entry };
        let bytes = Bytes::from(serde_json::to_vec(&shape)?);
        let until = self.clock.mono().plus(PATIENCE);
        if let Some(run) = entry.run_id {
            let key = self.key(run.as_str(), entry.act)?;
            let put = || self.vault.put_new(&key, bytes.clone());
            if insist(self.clock, || until, put).await?.is_some() {
                return Ok(());
            }
            // An act before this one, or our own try whose answer was lost: once more says no less.
        }
        let own = uuid::Builder::from_unix_timestamp_millis(now.as_ms(), &rng.random());
        let key = self.key(&own.into_uuid().to_string(), entry.act)?;
        // Nobody else has this key: that it is taken means that an earlier try got through.
        let stored =
            insist(self.clock, || until, || self.vault.put_new(&key, bytes.clone())).await?;
        tracing::debug!(%key, again = stored.is_none(), "act written down");
        Ok(())
    }

    fn key(&self, id: &str, act: Act) -> Result<EnvelopeKey, IdError> {
        let root = envelope::root(self.prefix);
        EnvelopeKey::new(format!("{root}audit/{id}-{}.json", act.name()))
    }
}

impl Act {
    /// Its name in every stored format: the command's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::Restore => "restore",
            Self::Resolve => "resolve",
            Self::Rescue => "rescue",
            Self::Start => "start",
            Self::Resume => "resume",
            Self::Abort => "abort",
            Self::Pause => "pause",
            Self::SetRate => "set-rate",
        }
    }
}

impl Serialize for Act {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
