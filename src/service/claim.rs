//! The claim: one optimistic write on the happy path, then what the condition's failure shows.

use rand::rngs::StdRng;

use crate::domain::delivery::{ClaimRequest, Meeting, Then, decide_claim};
use crate::domain::entry::{Claim, Entry};
use crate::domain::failure::ErrorClass;
use crate::domain::id::{LeaseToken, RecordId};
use crate::domain::lease::Lease;
use crate::domain::time::Wall;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::ledger::{EntryWrite, Expect, WriteError, write_entry};
use crate::service::held::{Held, Interrupted};
use crate::service::settings::Context;
use crate::service::work::Work;

/// How often the entry may change under a claim before the delivery is given back.
const TRIES: u32 = 5;

/// What a delivery met.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// Its work is done, as this entry shows.
    Done { entry: Stored<Entry>, by: RecordId },
    /// Another payload was committed under its key.
    Mismatch,
    /// Somebody works on it.
    Refused { until: Wall },
    /// It was parked before; the entry remembers why.
    FinishParking(Stored<Entry>),
    /// It is ours.
    Held(Box<Held>, Then),
}

/// Claims the entry of a work. A claim whose fate is unknown is given back as far as it can be.
pub(crate) async fn claim(
    ctx: &Context,
    work: &Work,
    lease: Lease,
    rng: &mut StdRng,
) -> Result<Claimed, Interrupted> {
    let token = LeaseToken::generate(ctx.ports.clock.wall(), rng);
    let request = ClaimRequest {
        claim: Claim {
            token: token.clone(),
            holder: work.received.message_id.clone(),
            owner: ctx.settings.owner.clone(),
            payload_sha256: work.content.payload.clone(),
            lease: lease.trust_left(ctx.ports.clock.mono()),
            remember: ctx.settings.remember,
        },
        content: work.content.clone(),
        receive_count: work.received.receive_count,
        repeat_window: ctx.settings.repeat_window,
        crash_limit: ctx.settings.crash_limit,
    };
    let ledger = ctx.ports.ledger.as_ref();
    let mut seen: Option<Stored<Entry>> = None;
    for _ in 0..TRIES {
        if !lease.is_trusted(ctx.ports.clock.mono()) {
            return Err(Interrupted::LeaseLost);
        }
        let now = ctx.ports.clock.wall();
        let (next, then) =
            match (decide_claim(seen.as_ref().map(Stored::get), &request, now), seen.take()) {
                (Meeting::Done(by), Some(entry)) => return Ok(Claimed::Done { entry, by }),
                (Meeting::FinishParking, Some(entry)) => return Ok(Claimed::FinishParking(entry)),
                (Meeting::Mismatch, _) => return Ok(Claimed::Mismatch),
                (Meeting::Refused { until }, _) => return Ok(Claimed::Refused { until }),
                (Meeting::Take { next, then }, entry) => {
                    seen = entry;
                    (next, then)
                }
                (Meeting::Done(_) | Meeting::FinishParking, None) => {
                    return Err(Interrupted::Illegal("an absent entry has no commits".to_owned()));
                }
            };
        let expect = seen.take().map_or(Expect::Absent, |e| Expect::Is(Box::new(e.into_inner())));
        let write = EntryWrite { key: work.key.clone(), expect, next: *next };
        match write_entry(ledger, &write, now).await {
            Ok(stored) => {
                let held = Held { key: work.key.clone(), token, lease, stored };
                return Ok(Claimed::Held(Box::new(held), then));
            }
            Err(WriteError::Lost(current)) => seen = current.map(|current| *current),
            Err(WriteError::Unknown(e)) => {
                give_back(ctx, &write.next, work).await;
                return Err(e.into());
            }
        }
    }
    let key = work.key.as_str();
    Err(PortError::new(ErrorClass::Transient, Target::DynamoDb, "claim", key, "Contended").into())
}

/// Releases a claim that may or may not have been written: the condition knows.
async fn give_back(ctx: &Context, claimed: &Entry, work: &Work) {
    use crate::domain::entry::{Event, Step};
    let now = ctx.ports.clock.wall();
    let step = claimed.apply(&claimed.lease_token, &Event::Release, ctx.settings.remember, now);
    let Ok(Step::Write(next)) = step else { return };
    let write = EntryWrite {
        key: work.key.clone(),
        expect: Expect::Is(Box::new(claimed.clone())),
        next: *next,
    };
    match write_entry(ctx.ports.ledger.as_ref(), &write, now).await {
        Ok(_) | Err(WriteError::Lost(_)) => {}
        Err(WriteError::Unknown(e)) => {
            tracing::warn!(key = %work.key, error = %e, "claim unknown and not released: its lease will run out");
        }
    }
}
