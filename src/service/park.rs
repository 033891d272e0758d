//! Parking: envelope → ledger → token → delete from the source.
//!
//! | crash after | what is there | what the next delivery does |
//! | --- | --- | --- |
//! | nothing | the message | a new attempt, or the crash limit |
//! | envelope | an envelope that no record names: evidence, never read | the same |
//! | ledger | entry parked, record quarantined without a token | finishes: new token, mark, delete |
//! | token | the same with a token in the DLQ, not marked sent | finishes: new token; the old one no longer counts |
//! | mark | all but the delete | deletes |
//!
//! Deleting before the token is in the DLQ would hide a quarantined record from depth and alarms;
//! sending the token before the ledger would let a redrive meet a record that does not exist. The mark is
//! the proof that the delete needs: a parker whose token another has replaced finds it refused, and leaves
//! the message to the other, who may not have sent its own token yet.

use bytes::Bytes;
use rand::rngs::StdRng;

use crate::domain::entry::{Entry, Event};
use crate::domain::failure::ErrorClass;
use crate::domain::id::{LeaseToken, ParkToken, RecordId};
use crate::domain::record::{self, Parking, Record, Step};
use crate::domain::token::Original;
use crate::port::error::{PortError, Target};
use crate::port::evidence::{Deletable, Stored};
use crate::port::ledger::{Expect, RecordWrite, WriteError, write_record};
use crate::service::evidence::{self, Cause};
use crate::service::held::{Held, Interrupted, persevere};
use crate::service::keeper::LiveLease;
use crate::service::settings::Context;
use crate::service::token::Issuer;
use crate::service::work::Work;

/// How often a record may change under a parking.
const TRIES: u32 = 5;

/// Which entry a parking moves along.
pub(crate) enum Owner<'a> {
    /// The claim that failed: its entry becomes parked in the same transaction.
    Claim(&'a mut Held, Event),
    /// None: the entry belongs to another payload, or is parked already.
    Nobody(&'a LiveLease),
}

impl Owner<'_> {
    const fn lease(&self) -> &LiveLease {
        match self {
            Self::Claim(held, _) => &held.lease,
            Self::Nobody(lease) => lease,
        }
    }
}

/// One parking in progress.
pub(crate) struct Park<'a> {
    pub ctx: &'a Context,
    pub work: &'a Work,
    pub rng: &'a mut StdRng,
}

/// The record as it is, and what the row of its state says.
struct Row {
    existing: Option<Stored<Record>>,
    step: Step,
}

impl Park<'_> {
    /// Parks a message for a cause, by the row that its kind has in the record's table.
    pub(crate) async fn park(
        &mut self,
        mut owner: Owner<'_>,
        cause: &Cause,
    ) -> Result<Deletable, Interrupted> {
        let now = self.ctx.ports.clock.wall();
        let token = match &owner {
            Owner::Claim(held, _) => held.token.clone(),
            Owner::Nobody(_) => LeaseToken::generate(now, self.rng),
        };
        let key = evidence::key(self.ctx, self.work, &token)
            .map_err(|e| Interrupted::Illegal(format!("{e}: shorten vault.prefix")))?;
        let park_token = ParkToken::generate(now, self.rng);
        let parking = evidence::parking(self.ctx, self.work, cause, key, park_token);
        let envelope = evidence::envelope(self.ctx, self.work, cause, now)
            .map_err(|e| Interrupted::Illegal(e.to_string()))?;
        let envelope = Bytes::from(envelope);
        let mut stored = None;
        for _ in 0..TRIES {
            let row = self.row(owner.lease(), &parking).await?;
            let next = match row.step {
                Step::Write(next) => {
                    // Without a claim there is no new attempt, and so no newer evidence; but one that came
                    // back unrun was not parked since, and has its say now.
                    let parked = row.existing.as_ref().filter(|r| r.get().blocked.is_none());
                    let finished = self.finished(parked);
                    if let (Owner::Nobody(_), Some(deletable)) = (&owner, finished) {
                        return Ok(deletable);
                    }
                    if stored.is_none() {
                        let vault = self.ctx.ports.vault.as_ref();
                        let put = || vault.put(&parking.envelope, envelope.clone());
                        stored = Some(persevere(self.ctx, owner.lease(), put).await?);
                    }
                    next
                }
                Step::FinishParking(next) => match self.finished(row.existing.as_ref()) {
                    None => next,
                    Some(deletable) => {
                        self.park_entry(owner).await?;
                        return Ok(deletable);
                    }
                },
                Step::DeleteMessage => return self.superseded(owner, row.existing).await,
                other => return Err(Interrupted::Illegal(format!("parking met {other:?}"))),
            };
            let write = self.write(row.existing, *next);
            if let Some(stored) = self.store(&mut owner, &write).await? {
                return self.finish(owner.lease(), stored).await;
            }
        }
        Err(contended(&self.work.content.origin))
    }

    /// Finishes a parking that an earlier delivery of this message began: the record keeps its envelope
    /// and gets a new token. `entry` is the parked entry.
    pub(crate) async fn resume(
        &mut self,
        lease: &LiveLease,
        entry: &Entry,
    ) -> Result<Deletable, Interrupted> {
        for _ in 0..TRIES {
            let now = self.ctx.ports.clock.wall();
            let Some(existing) = self.read(lease).await? else {
                let cause = Cause::remembered(entry, &self.work.content.origin);
                return self.park(Owner::Nobody(lease), &cause).await;
            };
            if let Some(deletable) = self.finished(Some(&existing)) {
                return Ok(deletable);
            }
            let parking = Parking::again(existing.get(), ParkToken::generate(now, self.rng));
            let step = self.apply(Some(existing.get()), parking)?;
            let next = match step {
                Step::Write(next) | Step::FinishParking(next) => next,
                Step::DeleteMessage => {
                    return self.superseded(Owner::Nobody(lease), Some(existing)).await;
                }
                other => return Err(Interrupted::Illegal(format!("parking met {other:?}"))),
            };
            let write = self.write(Some(existing), *next);
            if let Some(stored) = self.store(&mut Owner::Nobody(lease), &write).await? {
                return self.finish(lease, stored).await;
            }
        }
        Err(contended(&self.work.content.origin))
    }

    async fn read(&self, lease: &LiveLease) -> Result<Option<Stored<Record>>, PortError> {
        let now = self.ctx.ports.clock.wall();
        let ledger = &self.ctx.ports.ledger;
        persevere(self.ctx, lease, || ledger.record(&self.work.content.origin, now)).await
    }

    async fn row(&self, lease: &LiveLease, parking: &Parking) -> Result<Row, Interrupted> {
        let existing = self.read(lease).await?;
        let step = self.apply(existing.as_ref().map(Stored::get), parking.clone())?;
        Ok(Row { existing, step })
    }

    fn apply(&self, existing: Option<&Record>, parking: Parking) -> Result<Step, Interrupted> {
        use crate::domain::delivery::Kind;
        let parking = Box::new(parking);
        let event = match &self.work.delivery.kind {
            Kind::Plain => record::Event::ParkPlain(parking),
            Kind::Copy(_) | Kind::RedrivenToken(_) => record::Event::ParkCopy {
                n: self.work.delivery.n(),
                run: self.work.delivery.run().cloned(),
                parking,
            },
        };
        let now = self.ctx.ports.clock.wall();
        record::apply(existing, &event, self.ctx.settings.remember, now)
            .map_err(|illegal| Interrupted::Illegal(illegal.to_string()))
    }

    fn write(&self, existing: Option<Stored<Record>>, next: Record) -> RecordWrite {
        RecordWrite {
            id: self.work.content.origin.clone(),
            expect: existing.map_or(Expect::Absent, |r| Expect::Is(Box::new(r.into_inner()))),
            next,
        }
    }

    /// Writes the record, and the entry with it. `None`: the record has changed, read it again.
    async fn store(
        &self,
        owner: &mut Owner<'_>,
        write: &RecordWrite,
    ) -> Result<Option<Stored<Record>>, Interrupted> {
        let ledger = self.ctx.ports.ledger.as_ref();
        match owner {
            Owner::Claim(held, event) => held.write_with(self.ctx, event, write).await,
            Owner::Nobody(lease) => {
                let now = self.ctx.ports.clock.wall();
                match persevere(self.ctx, lease, || write_record(ledger, write, now)).await {
                    Ok(stored) => Ok(Some(stored)),
                    Err(WriteError::Lost(_)) => Ok(None),
                    Err(WriteError::Unknown(e)) => Err(e.into()),
                }
            }
        }
    }

    /// The record has moved on: the entry becomes parked all the same, the message goes.
    ///
    /// A run may have taken the record before its token was sent. Should its copy be refused, the record
    /// comes back with that token: so it is sent now, while this message still stands for it.
    async fn superseded(
        &self,
        owner: Owner<'_>,
        existing: Option<Stored<Record>>,
    ) -> Result<Deletable, Interrupted> {
        let mut existing = existing.ok_or_else(|| {
            Interrupted::Illegal("a record that is absent has not moved".to_owned())
        })?;
        if may_come_back_unsent(existing.get()) {
            existing = self.send_and_mark(owner.lease(), existing).await?;
        }
        self.park_entry(owner).await?;
        let n = self.work.delivery.n();
        Deletable::superseded(&self.work.received, &existing, n).ok_or(Interrupted::LeaseLost)
    }

    /// Moves the entry of a claim to parked, where the record needs no write with it.
    async fn park_entry(&self, owner: Owner<'_>) -> Result<(), Interrupted> {
        match owner {
            Owner::Claim(held, event) => held.write(self.ctx, &event).await,
            Owner::Nobody(_) => Ok(()),
        }
    }

    /// The right to delete, if the parking of this message is finished but for that.
    fn finished(&self, existing: Option<&Stored<Record>>) -> Option<Deletable> {
        Deletable::parked(&self.work.received, existing?, self.work.delivery.n())
    }

    /// Token, then mark, then the right to delete. A parking that another one has overtaken is left to it.
    async fn finish(
        &self,
        lease: &LiveLease,
        stored: Stored<Record>,
    ) -> Result<Deletable, Interrupted> {
        let marked = self.send_and_mark(lease, stored).await?;
        let n = self.work.delivery.n();
        self.finished(Some(&marked))
            .or_else(|| Deletable::superseded(&self.work.received, &marked, n))
            .ok_or(Interrupted::LeaseLost)
    }

    async fn send_and_mark(
        &self,
        lease: &LiveLease,
        stored: Stored<Record>,
    ) -> Result<Stored<Record>, Interrupted> {
        let Work { body, attributes, group_id, trace_header, .. } = self.work;
        let (trace_header, group_id) = (trace_header.as_deref(), group_id.as_deref());
        let original = Original { body, attributes, trace_header, group_id };
        let until = || lease.get().trusted_until();
        let issuer = Issuer::of(self.ctx, &until);
        Ok(issuer.issue(&self.work.content.origin, stored, &original).await?)
    }
}

fn may_come_back_unsent(record: &Record) -> bool {
    record.state == record::State::Redriving && record.token_sent.is_none()
}

/// Others write this record all the time: the message comes back.
fn contended(record: &RecordId) -> Interrupted {
    let id = record.as_str();
    PortError::new(ErrorClass::Transient, Target::DynamoDb, "park", id, "Contended").into()
}
