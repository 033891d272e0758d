//! A claim that is ours, and the writes that only its holder may make.
//!
//! Every write is conditional on the lease token and the version as last seen. A version that moved
//! under the same token is our own earlier write (an extension whose answer came late): it is taken
//! over and the write made again. Another token means the lease is lost.

use crate::domain::entry::{Entry, Event, State, Step};
use crate::domain::id::{EntryKey, LeaseToken};
use crate::port::error::PortError;
use crate::port::evidence::Stored;
use crate::port::ledger::{
    Condition, EntryWrite, Expect, RecordWrite, TransactError, WriteError, write_both, write_entry,
};
use crate::service::insist::{Verdict, insist};
use crate::service::keeper::LiveLease;
use crate::service::settings::Context;

/// How often a write is made again after the version moved.
const TRIES: u32 = 4;

/// Why a message's processing ended early. The claim is released by whoever holds it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Interrupted {
    /// A dependency failed: nobody's fault (G6).
    #[error(transparent)]
    Dependency(#[from] PortError),
    /// Another claim has taken over, or ours can no longer be trusted: the message is left alone.
    #[error("the lease is lost")]
    LeaseLost,
    /// The worker stops.
    #[error("the worker stops")]
    Stopped,
    /// A state that the tables do not list: nothing was written.
    #[error("{0}")]
    Illegal(String),
}

/// Makes a call until there is a verdict, the lease can no longer be trusted, or the tries are used up.
pub(crate) async fn persevere<T, E, F>(
    ctx: &Context,
    lease: &LiveLease,
    call: impl FnMut() -> F,
) -> Result<T, E>
where
    E: Verdict,
    F: Future<Output = Result<T, E>>,
{
    insist(ctx.ports.clock.as_ref(), || lease.get().trusted_until(), call).await
}

/// A claim that is ours.
#[derive(Debug)]
pub(crate) struct Held {
    /// The entry's key.
    pub key: EntryKey,
    /// The claim's token.
    pub token: LeaseToken,
    /// The message's visibility.
    pub lease: LiveLease,
    /// The entry as last stored.
    pub stored: Stored<Entry>,
}

impl Held {
    /// The entry as last stored.
    pub(crate) const fn entry(&self) -> &Entry {
        self.stored.get()
    }

    /// Whether the work is still to be committed, parked or released.
    pub(crate) const fn is_in_progress(&self) -> bool {
        matches!(self.entry().state, State::InProgress { .. })
    }

    fn next(&self, ctx: &Context, event: &Event) -> Result<Option<EntryWrite>, Interrupted> {
        let now = ctx.ports.clock.wall();
        match self.entry().apply(&self.token, event, ctx.settings.remember, now) {
            Ok(Step::Write(next)) => Ok(Some(EntryWrite {
                key: self.key.clone(),
                expect: Expect::Is(Box::new(self.entry().clone())),
                next: *next,
            })),
            Ok(Step::OwnRetry) => Ok(None),
            Ok(Step::LostLease) => Err(Interrupted::LeaseLost),
            Err(illegal) => Err(Interrupted::Illegal(illegal.to_string())),
        }
    }

    /// Takes over the entry as it is, if it is still under our token.
    fn catch_up(&mut self, current: Option<Box<Stored<Entry>>>) -> Result<(), Interrupted> {
        match current {
            Some(current) if current.get().lease_token == self.token => {
                self.stored = *current;
                Ok(())
            }
            Some(_) | None => Err(Interrupted::LeaseLost),
        }
    }

    /// Writes the entry alone.
    pub(crate) async fn write(&mut self, ctx: &Context, event: &Event) -> Result<(), Interrupted> {
        let ledger = ctx.ports.ledger.as_ref();
        for _ in 0..TRIES {
            let Some(write) = self.next(ctx, event)? else { return Ok(()) };
            let now = ctx.ports.clock.wall();
            match persevere(ctx, &self.lease, || write_entry(ledger, &write, now)).await {
                Ok(stored) => {
                    self.stored = stored;
                    return Ok(());
                }
                Err(WriteError::Lost(current)) => self.catch_up(current)?,
                Err(WriteError::Unknown(e)) => return Err(e.into()),
            }
        }
        Err(Interrupted::LeaseLost)
    }

    /// Writes the entry and a record in one transaction. `Ok(None)`: the record has changed; read it
    /// again.
    pub(crate) async fn write_with(
        &mut self,
        ctx: &Context,
        event: &Event,
        record: &RecordWrite,
    ) -> Result<Option<Stored<crate::domain::record::Record>>, Interrupted> {
        let ledger = ctx.ports.ledger.as_ref();
        for _ in 0..TRIES {
            let Some(entry) = self.next(ctx, event)? else { return Ok(None) };
            let now = ctx.ports.clock.wall();
            match persevere(ctx, &self.lease, || write_both(ledger, &entry, record, now)).await {
                Ok((entry, record)) => {
                    self.stored = entry;
                    return Ok(Some(record));
                }
                Err(TransactError::Lost { entry: Condition::Lost(current), .. }) => {
                    self.catch_up(current)?;
                }
                Err(TransactError::Lost { entry: Condition::Held, .. }) => return Ok(None),
                Err(TransactError::Unknown(e)) => return Err(e.into()),
            }
        }
        Err(Interrupted::LeaseLost)
    }

    /// Gives the claim back, its attempt not counted. Only a claim that is still in progress can be.
    ///
    /// # Errors
    /// Whether it was given back is unknown.
    pub(crate) async fn release(&mut self, ctx: &Context) -> Result<(), PortError> {
        if !self.is_in_progress() {
            return Ok(());
        }
        match self.write(ctx, &Event::Release).await {
            Ok(()) | Err(Interrupted::LeaseLost | Interrupted::Stopped) => Ok(()),
            Err(Interrupted::Dependency(e)) => Err(e),
            Err(Interrupted::Illegal(e)) => {
                tracing::debug!(key = %self.key, error = %e, "nothing to release");
                Ok(())
            }
        }
    }
}
