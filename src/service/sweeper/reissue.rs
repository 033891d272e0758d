//! The full sweep's other half: the index of quarantined records, and tokens that are issued again.
//!
//! The index may lag and the walk takes time, so what it shows is read again before anything is written,
//! and written on condition. A token that is somewhere else for a moment is issued twice at worst: the
//! older one no longer counts and goes.

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::hold::Hold;
use super::{LEASE, Pass, SweepError, Sweeper};
use crate::domain::envelope::{self, Envelope};
use crate::domain::id::{EnvelopeKey, MessageId, ParkToken, RecordId, Sha256Hex};
use crate::domain::lease::Lease;
use crate::domain::message::MAX_BATCH_ENTRIES;
use crate::domain::record::{self, Event, Parking, Record, State, Step};
use crate::domain::token::Original;
use crate::port::evidence::Stored;
use crate::port::ledger::{Expect, Range, RecordWrite, SHARDS, Shard, WriteError, write_record};
use crate::service::held::persevere;
use crate::service::keeper::LiveLease;
use crate::service::token::{IssueError, Issuer};

impl Pass<'_> {
    /// Walks the index, if this is a full sweep.
    pub(super) async fn walk_index(&mut self, stop: &CancellationToken) -> Result<(), SweepError> {
        if self.full.is_none() {
            return Ok(());
        }
        for shard in 0..SHARDS {
            self.walk_shard(shard, stop).await?;
        }
        Ok(())
    }

    async fn walk_shard(
        &mut self,
        shard: Shard,
        stop: &CancellationToken,
    ) -> Result<(), SweepError> {
        let sweeper = self.sweeper;
        let range = Range { state: State::Quarantined, from: None, until: None };
        let mut after = None;
        loop {
            if stop.is_cancelled() {
                self.swept.truncated = true;
                return Ok(());
            }
            sweeper.lock().await?;
            let page = sweeper.ctx.ports.ledger.page(&range, shard, after.as_ref()).await?;
            let due = page.records.iter().filter(|(id, record)| self.is_due(id, record));
            let due: Vec<RecordId> = due.map(|(id, _)| id.clone()).collect();
            let reissue = self.reissue_due(&due);
            let (reissued, kept) = sweeper.beside(&mut Hold::default(), reissue).await;
            reissued?;
            kept?;
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    fn is_due(&self, id: &RecordId, record: &Record) -> bool {
        let Some((walk, met)) = &self.full else { return false };
        walk.decide_reissue(record, met.get(id)).is_some()
    }

    /// Issues the tokens of those that are still due when read consistently.
    async fn reissue_due(&mut self, ids: &[RecordId]) -> Result<(), SweepError> {
        let sweeper = self.sweeper;
        for ids in ids.chunks(MAX_BATCH_ENTRIES) {
            let records = sweeper.ctx.ports.runs.records(ids, sweeper.wall()).await?;
            let due = ids.iter().cloned().zip(records).filter_map(|(id, r)| Some((id, r?)));
            let due: Vec<_> = due.filter(|(id, record)| self.is_due(id, record.get())).collect();
            let issues = due.into_iter().map(|(id, record)| async move {
                let issued = sweeper.reissue(&id, record).await;
                (id, issued)
            });
            for (id, issued) in join_all(issues).await {
                self.note(&id, issued);
            }
        }
        Ok(())
    }

    /// Issues the token of one record again, and says what the record is then.
    pub(super) async fn reissue(
        &mut self,
        id: &RecordId,
        read: Stored<Record>,
    ) -> Option<Stored<Record>> {
        let issued = self.sweeper.reissue(id, read).await;
        self.note(id, issued)
    }

    fn note(
        &mut self,
        id: &RecordId,
        issued: Result<Option<Stored<Record>>, String>,
    ) -> Option<Stored<Record>> {
        match issued {
            Ok(issued) => {
                let more = u64::from(issued.is_some());
                self.swept.reissued = self.swept.reissued.saturating_add(more);
                issued
            }
            Err(why) => {
                let message_id = MessageId::from(id);
                self.fail(message_id, format!("token not issued again: {why}"));
                None
            }
        }
    }
}

impl Sweeper {
    /// New token in the record, token from the envelope, mark. `None`: the record has changed meanwhile,
    /// and whoever changed it looks after it.
    async fn reissue(
        &self,
        id: &RecordId,
        read: Stored<Record>,
    ) -> Result<Option<Stored<Record>>, String> {
        // The evidence first: a new token that cannot be sent would take the old one's place.
        let envelope = self.envelope(&read.get().envelope, id).await?;
        let ctx = self.ctx.as_ref();
        let lease = LiveLease::fixed(Lease::received(ctx.ports.clock.mono(), LEASE));
        let now = self.wall();
        let again = Parking::again(read.get(), ParkToken::generate(now, &mut self.chance()));
        let event = Event::ParkPlain(Box::new(again));
        let step = record::apply(Some(read.get()), &event, ctx.settings.remember, now);
        let Ok(Step::FinishParking(next)) = step else { return Ok(None) };
        let expect = Expect::Is(Box::new(read.into_inner()));
        let write = RecordWrite { id: id.clone(), expect, next: *next };
        let ledger = ctx.ports.ledger.as_ref();
        let stored = match persevere(ctx, &lease, || write_record(ledger, &write, now)).await {
            Ok(stored) => stored,
            Err(WriteError::Lost(_)) => return Ok(None),
            Err(WriteError::Unknown(e)) => return Err(e.to_string()),
        };
        let original = Original {
            body: &envelope.payload.body,
            attributes: &envelope.attributes,
            trace_header: envelope.message.trace_header.as_deref(),
            group_id: envelope.message.group_id.as_deref(),
        };
        let until = || lease.get().trusted_until();
        match Issuer::of(ctx, &until).issue(id, stored, &original).await {
            Ok(marked) => Ok(Some(marked)),
            Err(IssueError::Gone) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The envelope of a record, from our own folder.
    pub(super) async fn envelope(
        &self,
        key: &EnvelopeKey,
        id: &RecordId,
    ) -> Result<Envelope, String> {
        let folder = envelope::folder(&self.ctx.settings.prefix, self.ctx.ports.source.name());
        if !key.as_str().starts_with(&folder) {
            return Err(format!("{key} is outside the vault's folder {folder}"));
        }
        let bytes = self.ctx.ports.vault.get(key).await.map_err(|e| e.to_string())?;
        let envelope = Envelope::decode(&bytes).map_err(|e| format!("{key}: {e}"))?;
        let body = Sha256Hex::of(envelope.payload.body.as_bytes());
        match envelope.record_id == *id && envelope.payload_sha256 == body {
            true => Ok(envelope),
            false => Err(format!("{key} is of another message")),
        }
    }
}
