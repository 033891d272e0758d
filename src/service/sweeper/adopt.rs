//! Adopting a bare message: a delivery whose worker died is parked as its worker would have parked it, the
//! DLQ standing for the source.
//!
//! The entry is read and never written, so a worker that lives after all meets what it left. Everything
//! else is `park`'s: envelope, record, token, mark, and the right to delete that the mark gives.
//!
//! | crash after | what is there | what the next pass does |
//! | --- | --- | --- |
//! | envelope | an envelope that no record names | adopts |
//! | ledger | a quarantined record without a token | finishes: new token, mark, delete |
//! | token | the same with a token, not marked sent | the same; the old one no longer counts |
//! | mark | all but the delete | deletes |

use rand::rngs::StdRng;

use crate::domain::failure::Reason;
use crate::domain::lease::Lease;
use crate::domain::message::Received;
use crate::domain::sweep::{Adoption, decide_adoption};
use crate::port::evidence::{Deletable, Stored};
use crate::service::commit::resolve_record;
use crate::service::evidence::Cause;
use crate::service::held::{Interrupted, persevere};
use crate::service::keeper::LiveLease;
use crate::service::park::{Owner, Park};
use crate::service::settings::Context;
use crate::service::work::identify;

/// What became of a bare message.
pub(super) enum Adopted {
    /// A record stands for it.
    Parked(Deletable),
    /// Its work is done.
    Done(Deletable),
    /// Somebody works on it.
    Left,
}

/// Adopts one bare message of our own source. `reason` is what is known of how it got here.
pub(super) async fn adopt(
    ctx: &Context,
    message: Received,
    reason: Reason,
    lease: Lease,
    mut rng: StdRng,
) -> Result<Adopted, Interrupted> {
    let lease = LiveLease::fixed(lease);
    let work = identify(ctx, message).await?;
    let now = ctx.ports.clock.wall();
    let entry = persevere(ctx, &lease, || ctx.ports.ledger.entry(&work.key, now)).await?;
    let known = entry.as_ref().map(Stored::get);
    let cause = match decide_adoption(known, &work.content, ctx.settings.repeat_window, now) {
        Adoption::Leave => return Ok(Adopted::Left),
        Adoption::Done(by) => {
            resolve_record(ctx, &work, &lease, &by).await?;
            let done = entry.and_then(|entry| Deletable::committed(&work.received, &entry, &by));
            return done.map(Adopted::Done).ok_or(Interrupted::LeaseLost);
        }
        Adoption::Mismatch => Cause::mismatch(&work.key),
        Adoption::Park => match work.refusal(ctx) {
            Some(failure) => Cause::refused(failure),
            None => Cause::adopted(known, &work, reason),
        },
    };
    let mut park = Park { ctx, work: &work, rng: &mut rng };
    let parked = park.park(Owner::Nobody(&lease), &cause).await?;
    let (record_id, error_code) = (&work.content.origin, &cause.failure.error_code);
    let reason = cause.reason.as_str();
    tracing::info!(%record_id, %error_code, reason, "bare message adopted");
    Ok(Adopted::Parked(parked))
}
