//! Success: the entry is committed, and with it the record of a copy, in one transaction.

use crate::domain::delivery::Kind;
use crate::domain::entry::{Commit, Event};
use crate::domain::id::RecordId;
use crate::domain::record::{self, Step};
use crate::port::evidence::{Deletable, Stored};
use crate::port::ledger::{Expect, RecordWrite, WriteError, write_record};
use crate::service::held::{Held, Interrupted, persevere};
use crate::service::keeper::LiveLease;
use crate::service::settings::Context;
use crate::service::work::Work;

/// How often a record may change under us.
const TRIES: u32 = 5;

/// Commits the work.
pub(crate) async fn commit(
    ctx: &Context,
    work: &Work,
    held: &mut Held,
) -> Result<Deletable, Interrupted> {
    let origin = work.content.origin.clone();
    let event = Event::Success {
        origin: origin.clone(),
        commit: Commit {
            sent: work.content.sent,
            hash: work.content.hash.clone(),
            payload: work.content.payload.clone(),
            at: ctx.ports.clock.wall(),
        },
    };
    match work.delivery.kind {
        Kind::Plain => held.write(ctx, &event).await?,
        Kind::Copy(_) | Kind::RedrivenToken(_) => {
            commit_with_record(ctx, work, held, &event).await?;
        }
    }
    Deletable::committed(&work.received, &held.stored, &origin).ok_or(Interrupted::LeaseLost)
}

async fn commit_with_record(
    ctx: &Context,
    work: &Work,
    held: &mut Held,
    event: &Event,
) -> Result<(), Interrupted> {
    for _ in 0..TRIES {
        match resolve_write(ctx, work, &held.lease, None).await? {
            None => return held.write(ctx, event).await,
            Some(write) => {
                if held.write_with(ctx, event, &write).await?.is_some()
                    || held.entry().commits.contains_key(&work.content.origin)
                {
                    return Ok(());
                }
            }
        }
    }
    Err(Interrupted::LeaseLost)
}

/// The write that resolves the record of a copy; none if the record needs none.
async fn resolve_write(
    ctx: &Context,
    work: &Work,
    lease: &LiveLease,
    duplicate_of: Option<RecordId>,
) -> Result<Option<RecordWrite>, Interrupted> {
    let now = ctx.ports.clock.wall();
    let id = &work.content.origin;
    let existing = persevere(ctx, lease, || ctx.ports.ledger.record(id, now)).await?;
    let existing = existing.map(Stored::into_inner);
    let event = record::Event::Committed { duplicate_of };
    match record::apply(existing.as_ref(), &event, ctx.settings.remember, now) {
        Ok(Step::Write(next)) => Ok(Some(RecordWrite {
            id: id.clone(),
            expect: existing.map_or(Expect::Absent, |r| Expect::Is(Box::new(r))),
            next: *next,
        })),
        Ok(_) => Ok(None),
        Err(illegal) => Err(Interrupted::Illegal(illegal.to_string())),
    }
}

/// Resolves the record of a message whose work is done already, by the commit of `by`.
///
/// A plain message has one if its parking was not finished; unless it is resolved, deleting the message would
/// leave it quarantined without a token. One that committed itself has none.
pub(crate) async fn resolve_done(
    ctx: &Context,
    work: &Work,
    lease: &LiveLease,
    by: &RecordId,
) -> Result<(), Interrupted> {
    if work.delivery.kind == Kind::Plain && *by == work.content.origin {
        return Ok(());
    }
    resolve_record(ctx, work, lease, by).await
}

/// The same, whatever the message is: nobody else may look after its record.
pub(crate) async fn resolve_record(
    ctx: &Context,
    work: &Work,
    lease: &LiveLease,
    by: &RecordId,
) -> Result<(), Interrupted> {
    let duplicate_of = (*by != work.content.origin).then(|| by.clone());
    for _ in 0..TRIES {
        let Some(write) = resolve_write(ctx, work, lease, duplicate_of.clone()).await? else {
            return Ok(());
        };
        let now = ctx.ports.clock.wall();
        let ledger = ctx.ports.ledger.as_ref();
        match persevere(ctx, lease, || write_record(ledger, &write, now)).await {
            Ok(_) => return Ok(()),
            Err(WriteError::Lost(_)) => {}
            Err(WriteError::Unknown(e)) => return Err(e.into()),
        }
    }
    Err(Interrupted::LeaseLost)
}
