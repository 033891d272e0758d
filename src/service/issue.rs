//! A token and its mark: what makes a quarantined record show in the DLQ.
//!
//! The token is sent, then marked in the record. Only the newest token of a record counts, so a second one
//! does no harm; a mark that is refused says that another has replaced it.

use crate::domain::failure::ErrorClass;
use crate::domain::id::{RecordId, Sha256Hex};
use crate::domain::record::{self, Record, Step};
use crate::domain::token::{Marker, Original, Token, wrap};
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::ledger::{Expect, RecordWrite, WriteError, write_record};
use crate::port::queue::Accepted;
use crate::service::held::{Interrupted, persevere};
use crate::service::keeper::LiveLease;
use crate::service::settings::Context;

/// How often a record may change under a mark.
const TRIES: u32 = 5;

/// The issue of one record's token.
pub(crate) struct Issue<'a> {
    pub ctx: &'a Context,
    pub record: &'a RecordId,
    pub original: Original<'a>,
}

impl Issue<'_> {
    /// Sends the token of the record as stored, and says what the record is after its mark.
    pub(crate) async fn send_and_mark(
        &self,
        lease: &LiveLease,
        stored: Stored<Record>,
    ) -> Result<Stored<Record>, Interrupted> {
        let accepted = self.send_token(lease, stored.get()).await?;
        let (record_id, message_id) = (self.record, &accepted.get().message_id);
        tracing::debug!(%record_id, %message_id, "token accepted");
        self.mark_sent(lease, stored).await
    }

    async fn send_token(
        &self,
        lease: &LiveLease,
        record: &Record,
    ) -> Result<Stored<Accepted>, Interrupted> {
        let marker = Marker::Token(Token {
            queue: self.ctx.ports.source.name().clone(),
            record: self.record.clone(),
            n: record.redrive_count,
            sent_ms: record.sent,
            sha256: Sha256Hex::of(self.original.body.as_bytes()),
            park: record.park_token.clone(),
            envelope: record.envelope.clone(),
            code: record.error_code.clone(),
            reason: record.reason,
            parked_at_ms: record.parked_at,
        });
        let message = wrap(&marker, &self.original, self.ctx.dlq_max_bytes)
            .map_err(|e| Interrupted::Illegal(e.to_string()))?;
        let dlq = self.ctx.ports.dlq.as_ref();
        let batch = [message];
        let answer = persevere(self.ctx, lease, || dlq.send(&batch)).await?;
        let name = dlq.name().as_str();
        let failed = |class, code: String| {
            Interrupted::Dependency(PortError::new(class, Target::Sqs, "send token", name, code))
        };
        match answer.into_iter().next() {
            Some(Ok(accepted)) => Ok(accepted),
            Some(Err(e)) if e.sender_fault => Err(failed(ErrorClass::Invalid, e.code)),
            Some(Err(e)) => Err(failed(ErrorClass::Transient, e.code)),
            None => Err(failed(ErrorClass::Bug, "MissingFromAnswer".to_owned())),
        }
    }

    /// Marks the token as sent, and says what the record is then: marked, or overtaken by another parking
    /// or by a run. Whether the message may go is read from that; an unknown mark is no verdict.
    async fn mark_sent(
        &self,
        lease: &LiveLease,
        stored: Stored<Record>,
    ) -> Result<Stored<Record>, Interrupted> {
        let event = record::Event::TokenSent(stored.get().park_token.clone());
        let ledger = self.ctx.ports.ledger.as_ref();
        let mut stored = stored;
        for _ in 0..TRIES {
            let now = self.ctx.ports.clock.wall();
            let step = record::apply(Some(stored.get()), &event, self.ctx.settings.remember, now);
            let Ok(Step::Write(next)) = step else { return Ok(stored) };
            let write = RecordWrite {
                id: self.record.clone(),
                expect: Expect::Is(Box::new(stored.get().clone())),
                next: *next,
            };
            match persevere(self.ctx, lease, || write_record(ledger, &write, now)).await {
                Ok(marked) => return Ok(marked),
                Err(WriteError::Lost(Some(changed))) => stored = *changed,
                Err(WriteError::Lost(None)) => return Err(Interrupted::LeaseLost),
                Err(WriteError::Unknown(e)) => return Err(e.into()),
            }
        }
        Err(contended(self.record))
    }
}

/// Others write this record all the time: its message comes back.
pub(crate) fn contended(record: &RecordId) -> Interrupted {
    let id = record.as_str();
    PortError::new(ErrorClass::Transient, Target::DynamoDb, "park", id, "Contended").into()
}
