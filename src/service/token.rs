//! Issues the DLQ message that stands for a quarantined record: token, then mark.
//!
//! | crash after | what is there | what mends it |
//! | --- | --- | --- |
//! | nothing | a quarantined record without a token | who began: the next delivery, or the full sweep |
//! | token | the same with a token in the DLQ, not marked sent | the same: a new token, and this one no longer counts |
//!
//! A retried send is the same message: on a FIFO queue SQS knows it by its deduplication id; on a standard
//! queue a second one stands for the same record, and goes when it does.

use std::time::Duration;

use crate::domain::failure::ErrorClass;
use crate::domain::id::{QueueName, RecordId, Sha256Hex};
use crate::domain::record::{self, Record, Step};
use crate::domain::time::Mono;
use crate::domain::token::{Marker, Original, Token, wrap};
use crate::port::clock::Clock;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::ledger::{Expect, Ledger, RecordWrite, WriteError, write_record};
use crate::port::queue::{Accepted, Queue};
use crate::service::held::Interrupted;
use crate::service::insist::insist;
use crate::service::settings::Context;

/// How often a record may change under its mark.
const TRIES: u32 = 5;

/// What issuing a token works on.
pub(crate) struct Issuer<'a> {
    pub source: &'a QueueName,
    pub dlq: &'a dyn Queue,
    /// The DLQ's `MaximumMessageSize` in bytes.
    pub dlq_max_bytes: usize,
    pub ledger: &'a dyn Ledger,
    pub clock: &'a dyn Clock,
    pub remember: Duration,
    /// Until when calls are insisted on.
    pub until: &'a (dyn Fn() -> Mono + Sync),
}

/// A token that was not issued, or not marked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    /// A dependency failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The record is gone.
    #[error("the record is gone")]
    Gone,
    /// The token cannot be written.
    #[error("the token cannot be written: {0}")]
    Encoding(#[from] serde_json::Error),
}

impl<'a> Issuer<'a> {
    /// The issuer of a worker or sweep.
    pub(crate) fn of(ctx: &'a Context, until: &'a (dyn Fn() -> Mono + Sync)) -> Self {
        Self {
            source: ctx.ports.source.name(),
            dlq: ctx.ports.dlq.as_ref(),
            dlq_max_bytes: ctx.dlq_max_bytes,
            ledger: ctx.ports.ledger.as_ref(),
            clock: ctx.ports.clock.as_ref(),
            remember: ctx.settings.remember,
            until,
        }
    }

    /// Sends a record's token with its original, then marks it sent. Says what the record is then: marked,
    /// or overtaken by whoever issued another token, or by a run.
    pub(crate) async fn issue(
        &self,
        id: &RecordId,
        stored: Stored<Record>,
        original: &Original<'_>,
    ) -> Result<Stored<Record>, IssueError> {
        let accepted = self.send(id, stored.get(), original).await?;
        tracing::debug!(record_id = %id, message_id = %accepted.get().message_id, "token accepted");
        self.mark(id, stored).await
    }

    async fn send(
        &self,
        id: &RecordId,
        record: &Record,
        original: &Original<'_>,
    ) -> Result<Stored<Accepted>, IssueError> {
        let marker = Marker::Token(Token {
            queue: self.source.clone(),
            record: id.clone(),
            n: record.redrive_count,
            sent_ms: record.sent,
            sha256: Sha256Hex::of(original.body.as_bytes()),
            park: record.park_token.clone(),
            envelope: record.envelope.clone(),
            code: record.error_code.clone(),
            reason: record.reason,
            parked_at_ms: record.parked_at,
        });
        let batch = [wrap(&marker, original, self.dlq_max_bytes)?];
        let answer = insist(self.clock, self.until, || self.dlq.send(&batch)).await?;
        let name = self.dlq.name().as_str();
        let failed = |class, code: String| {
            PortError::new(class, Target::Sqs, "send token", name, code).into()
        };
        match answer.into_iter().next() {
            Some(Ok(accepted)) => Ok(accepted),
            Some(Err(e)) if e.sender_fault => Err(failed(ErrorClass::Invalid, e.code)),
            Some(Err(e)) => Err(failed(ErrorClass::Transient, e.code)),
            None => Err(failed(ErrorClass::Bug, "MissingFromAnswer".to_owned())),
        }
    }

    /// Whether the mark was made is read from the record that comes back; an unknown mark is no verdict.
    async fn mark(
        &self,
        id: &RecordId,
        mut stored: Stored<Record>,
    ) -> Result<Stored<Record>, IssueError> {
        let event = record::Event::TokenSent(stored.get().park_token.clone());
        for _ in 0..TRIES {
            let now = self.clock.wall();
            let step = record::apply(Some(stored.get()), &event, self.remember, now);
            let Ok(Step::Write(next)) = step else { return Ok(stored) };
            let write = RecordWrite {
                id: id.clone(),
                expect: Expect::Is(Box::new(stored.get().clone())),
                next: *next,
            };
            let marked = insist(self.clock, self.until, || write_record(self.ledger, &write, now));
            match marked.await {
                Ok(marked) => return Ok(marked),
                Err(WriteError::Lost(Some(changed))) => stored = *changed,
                Err(WriteError::Lost(None)) => return Err(IssueError::Gone),
                Err(WriteError::Unknown(e)) => return Err(e.into()),
            }
        }
        let class = ErrorClass::Transient;
        Err(PortError::new(class, Target::DynamoDb, "mark token", id.as_str(), "Contended").into())
    }
}

impl From<IssueError> for Interrupted {
    fn from(error: IssueError) -> Self {
        match error {
            IssueError::Port(error) => Self::Dependency(error),
            IssueError::Gone => Self::LeaseLost,
            IssueError::Encoding(error) => Self::Illegal(error.to_string()),
        }
    }
}
