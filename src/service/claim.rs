//! The claim: one optimistic write on the happy path, then what the condition's failure shows.

use rand::rngs::StdRng;

use crate::domain::delivery::{ClaimRequest, Meeting, Then, decide_claim};
use crate::domain::entry::{Claim, Entry, Event, Step};
use crate::domain::failure::ErrorClass;
use crate::domain::id::{EntryKey, LeaseToken, RecordId};
use crate::domain::time::Wall;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::ledger::{EntryWrite, Expect, WriteError, write_entry};
use crate::service::held::{Held, Interrupted, persevere};
use crate::service::keeper::LiveLease;
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
    /// It may be ours: no answer came. Written was this.
    InDoubt(Box<Doubt>, PortError),
}

/// A claim that may or may not have been written. Until the ledger says which, its lease would look like a
/// crash to whoever comes next.
#[derive(Debug)]
pub(crate) struct Doubt {
    key: EntryKey,
    claimed: Entry,
}

/// Claims the entry of a work.
pub(crate) async fn claim(
    ctx: &Context,
    work: &Work,
    lease: &LiveLease,
    rng: &mut StdRng,
) -> Result<Claimed, Interrupted> {
    let token = LeaseToken::generate(ctx.ports.clock.wall(), rng);
    let request = ClaimRequest {
        claim: Claim {
            token: token.clone(),
            holder: work.received.message_id.clone(),
            owner: ctx.settings.owner.clone(),
            payload_sha256: work.content.payload.clone(),
            lease: lease.get().trust_left(ctx.ports.clock.mono()),
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
        if !lease.get().is_trusted(ctx.ports.clock.mono()) {
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
        match persevere(ctx, lease, || write_entry(ledger, &write, now)).await {
            Ok(stored) => {
                let held = Held { key: work.key.clone(), token, lease: lease.clone(), stored };
                return Ok(Claimed::Held(Box::new(held), then));
            }
            Err(WriteError::Lost(current)) => seen = current.map(|current| *current),
            Err(WriteError::Unknown(e)) => {
                let doubt = Doubt { key: write.key, claimed: write.next };
                return Ok(Claimed::InDoubt(Box::new(doubt), e));
            }
        }
    }
    let key = work.key.as_str();
    Err(PortError::new(ErrorClass::Transient, Target::DynamoDb, "claim", key, "Contended").into())
}

impl Doubt {
    /// Releases the claim if it was written: the condition knows.
    ///
    /// # Errors
    /// It is still unknown.
    pub(crate) async fn release(&self, ctx: &Context) -> Result<(), PortError> {
        let now = ctx.ports.clock.wall();
        let Self { key, claimed } = self;
        let step = claimed.apply(&claimed.lease_token, &Event::Release, ctx.settings.remember, now);
        let Ok(Step::Write(next)) = step else { return Ok(()) };
        let expect = Expect::Is(Box::new(claimed.clone()));
        let write = EntryWrite { key: key.clone(), expect, next: *next };
        match write_entry(ctx.ports.ledger.as_ref(), &write, now).await {
            Ok(_) | Err(WriteError::Lost(_)) => Ok(()),
            Err(WriteError::Unknown(e)) => Err(e),
        }
    }
}
