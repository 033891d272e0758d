//! One batch of the DLQ: each message is sorted, decided about, and deleted where the ledger says so.

use futures_util::future::join_all;

use super::adopt::{Adopted, adopt};
use super::hold::HOLD;
use super::{Pass, count};
use crate::domain::envelope::Envelope;
use crate::domain::failure::Reason;
use crate::domain::id::ReceiptHandle;
use crate::domain::lease::Lease;
use crate::domain::message::Received;
use crate::domain::record::{Parking, Record};
use crate::domain::sweep::{Found, TokenVerdict, decide_token, sort};
use crate::domain::time::{Mono, Wall};
use crate::domain::token::Token;
use crate::port::error::PortError;
use crate::port::evidence::{Deletable, Stored};
use crate::port::ledger::{Expect, RecordWrite, WriteError, write_record};
use crate::service::held::Interrupted;

/// What a deletion counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Adopted,
    Removed,
}

impl Pass<'_> {
    /// Settles each message of a batch; gives the receipts of what is deleted.
    pub(super) async fn settle(
        &mut self,
        batch: Vec<Received>,
        answered: Mono,
    ) -> Result<Vec<ReceiptHandle>, PortError> {
        self.swept.received = self.swept.received.saturating_add(count(batch.len()));
        let (tokens, bare) = self.sorted(batch).await;
        let outdated = self.tokens(tokens).await?;
        let mut out: Vec<_> = outdated.into_iter().map(|token| (token, Out::Removed)).collect();
        out.extend(self.adopt_all(bare, answered).await);
        let deleted = self.delete(out).await?;
        let gone = self.swept.adopted.saturating_add(self.swept.removed);
        self.swept.kept = self.swept.received.saturating_sub(gone);
        Ok(deleted)
    }

    /// Our own tokens and bare messages; all else is left where it is.
    async fn sorted(
        &mut self,
        batch: Vec<Received>,
    ) -> (Vec<(Received, Token)>, Vec<(Received, Reason)>) {
        let (mut tokens, mut bare) = (Vec::new(), Vec::new());
        for message in batch {
            let source = self.sweeper.ctx.ports.source.name();
            match sort(&message, source, &self.sweeper.ctx.source_arn) {
                Found::Token(token) => tokens.push((message, token)),
                Found::Bare => bare.push((message, Reason::ReceivesExhausted)),
                Found::Unsourced => match self.why_not_ours().await {
                    None => bare.push((message, Reason::Unknown)),
                    Some(why) => self.leave(message, Some(why)),
                },
                Found::Others(queue) => {
                    let why = self.why_abandoned(&queue).await;
                    self.leave(message, why);
                }
            }
        }
        (tokens, bare)
    }

    fn leave(&mut self, message: Received, why: Option<String>) {
        self.swept.bare = self.swept.bare.saturating_add(1);
        if let Some(why) = why {
            self.fail(message.message_id, why);
        }
    }

    /// The sources of this DLQ, asked for once.
    async fn sources(&self) -> &Result<Vec<crate::domain::id::QueueName>, String> {
        let ask = || async {
            self.sweeper.dlq().sources().await.map_err(|e| format!("the DLQ's sources: {e}"))
        };
        self.sources.get_or_init(ask).await
    }

    /// Why a message that says no source is not ours: it is if there is no other source.
    async fn why_not_ours(&self) -> Option<String> {
        match self.sources().await {
            Ok(sources) if *sources == [self.sweeper.ctx.ports.source.name().clone()] => None,
            Ok(sources) => Some(format!(
                "it says no source, and {} queues name this DLQ: left where it is",
                sources.len()
            )),
            Err(why) => Some(format!("it says no source: {why}")),
        }
    }

    /// Why nobody will sweep the messages of another queue, if so.
    async fn why_abandoned(&self, queue: &str) -> Option<String> {
        let sources = self.sources().await.as_ref().ok()?;
        let is_gone = sources.iter().all(|source| source.as_str() != queue);
        is_gone.then(|| format!("it is of {queue}, which does not name this DLQ: left where it is"))
    }

    /// Decides about tokens by their records; gives those that no longer count.
    async fn tokens(
        &mut self,
        tokens: Vec<(Received, Token)>,
    ) -> Result<Vec<Deletable>, PortError> {
        let mut ids: Vec<_> = tokens.iter().map(|(_, token)| token.record.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let records = self.sweeper.ctx.ports.runs.records(&ids, self.sweeper.wall()).await?;
        let mut outdated = Vec::new();
        for (message, token) in tokens {
            let found = ids.binary_search(&token.record).ok().and_then(|at| records.get(at));
            let record = found.and_then(Option::as_ref);
            match decide_token(&token.park, record.map(Stored::get)) {
                TokenVerdict::Delete => {
                    outdated.extend(record.and_then(|r| Deletable::outdated(&message, &token, r)));
                }
                TokenVerdict::Keep => {
                    let replaced = self.replace_expiring(&message, &token, record).await;
                    outdated.extend(replaced);
                }
                TokenVerdict::Rebuild => match self.rebuild(&message, &token).await {
                    Ok(()) => {
                        self.swept.rebuilt = self.swept.rebuilt.saturating_add(1);
                        self.met(&token);
                    }
                    Err(why) => self.fail(message.message_id, why),
                },
            }
        }
        Ok(outdated)
    }

    /// Notes for a full sweep that this token is there.
    fn met(&mut self, token: &Token) {
        if let Some((_, met)) = &mut self.full {
            met.insert(token.record.clone(), token.park.clone());
        }
    }

    /// A full sweep issues a token again before the DLQ forgets it; gives the old one then.
    async fn replace_expiring(
        &mut self,
        message: &Received,
        token: &Token,
        record: Option<&Stored<Record>>,
    ) -> Option<Deletable> {
        self.met(token);
        let (walk, _) = self.full.as_ref()?;
        let record = record?;
        walk.decide_reissue(record.get(), Some(&token.park))?;
        let issued = self.reissue(&token.record, record.clone()).await?;
        Deletable::outdated(message, token, &issued)
    }

    /// Adopts bare messages, each for itself.
    async fn adopt_all(
        &mut self,
        bare: Vec<(Received, Reason)>,
        answered: Mono,
    ) -> Vec<(Deletable, Out)> {
        let sweeper = self.sweeper;
        let ctx = sweeper.ctx.as_ref();
        let lease = Lease::received(answered, HOLD);
        let adoptions = bare.into_iter().map(|(message, reason)| async move {
            let id = message.message_id.clone();
            (id, adopt(ctx, message, reason, lease, sweeper.chance()).await)
        });
        let mut out = Vec::new();
        for (message_id, adopted) in join_all(adoptions).await {
            match adopted {
                Ok(Adopted::Parked(deletable)) => out.push((deletable, Out::Adopted)),
                Ok(Adopted::Done(deletable)) => out.push((deletable, Out::Removed)),
                // Whoever works on it, or has overtaken us, looks after it.
                Ok(Adopted::Left) | Err(Interrupted::LeaseLost | Interrupted::Stopped) => {
                    self.swept.bare = self.swept.bare.saturating_add(1);
                }
                Err(error) => {
                    self.swept.bare = self.swept.bare.saturating_add(1);
                    self.fail(message_id, format!("not adopted: {error}"));
                }
            }
        }
        out
    }

    /// Deletes what may go; gives the receipts of what went.
    async fn delete(
        &mut self,
        out: Vec<(Deletable, Out)>,
    ) -> Result<Vec<ReceiptHandle>, PortError> {
        if out.is_empty() {
            return Ok(Vec::new());
        }
        let (entries, fates): (Vec<_>, Vec<_>) = out.into_iter().unzip();
        let answers = self.sweeper.dlq().delete(&entries).await?;
        let mut deleted = Vec::new();
        for ((entry, fate), answer) in entries.into_iter().zip(fates).zip(answers) {
            let counter = match fate {
                Out::Adopted => &mut self.swept.adopted,
                Out::Removed => &mut self.swept.removed,
            };
            match answer {
                Ok(()) => {
                    *counter = counter.saturating_add(1);
                    deleted.push(entry.receipt().clone());
                }
                Err(error) => self.fail(entry.message_id().clone(), format!("delete: {error}")),
            }
        }
        Ok(deleted)
    }

    /// Rebuilds a record that is gone from the envelope that its token names.
    async fn rebuild(&self, message: &Received, token: &Token) -> Result<(), String> {
        let envelope = self.sweeper.envelope(&token.envelope, &token.record).await?;
        if envelope.payload_sha256 != token.sha256 {
            return Err(format!("{} is of another payload", token.envelope));
        }
        let now = self.sweeper.wall();
        let write = RecordWrite {
            id: token.record.clone(),
            expect: Expect::Absent,
            next: rebuilt(token, envelope, message.sent.unwrap_or(now), now),
        };
        match write_record(self.sweeper.ctx.ports.ledger.as_ref(), &write, now).await {
            Ok(_) | Err(WriteError::Lost(_)) => Ok(()),
            Err(WriteError::Unknown(e)) => Err(e.to_string()),
        }
    }
}

fn rebuilt(token: &Token, envelope: Envelope, token_sent: Wall, now: Wall) -> Record {
    let parking = Parking {
        key: envelope.key,
        payload_sha256: envelope.payload_sha256,
        park_token: token.park.clone(),
        envelope: token.envelope.clone(),
        reason: envelope.reason,
        disposition: envelope.disposition,
        error_code: envelope.error_code,
        error_message: String::new(),
        attempts: envelope.attempts,
        labels: envelope.labels,
        group_id: envelope.message.group_id,
        sequence: envelope.message.sequence_number,
        sent: token.sent_ms,
        first_seen: envelope.first_seen,
    };
    Record {
        token_sent: Some(token_sent),
        parked_at: envelope.parked_at,
        ..Record::parked(token.n, None, &parking, now)
    }
}
