//! The sweep: reconciles the DLQ with the ledger.
//!
//! A pass receives the DLQ in batches, deletes tokens that no longer count, rebuilds records that are gone
//! from their envelopes, and holds all else until receives come back empty or repeat; then it gives back
//! what it held. One pass at a time for each source. A pass that dies costs the held messages its
//! visibility, nothing more.
//!
//! Deliberately absent: adopting bare messages. They are left where they are, and counted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::envelope::{self, Envelope};
use crate::domain::id::{MessageId, QueueName, ReceiptHandle, Sha256Hex};
use crate::domain::message::{MAX_BATCH_ENTRIES, Received};
use crate::domain::record::{Parking, Record};
use crate::domain::sweep::{TokenVerdict, decide_token};
use crate::domain::token::{Carried, Marker, Token, recognise};
use crate::port::clock::Clock;
use crate::port::error::PortError;
use crate::port::evidence::{Deletable, Stored};
use crate::port::ledger::{Expect, Ledger, RecordWrite, WriteError, write_record};
use crate::port::queue::Queue;
use crate::port::runs::{Runs, SweepLock};
use crate::port::vault::Vault;

/// How long a pass hides what it holds.
const HOLD: Duration = Duration::from_secs(30);
/// How long the lock is ours after each batch.
const LEASE: Duration = Duration::from_secs(20);
/// How long a receive waits for a message.
const WAIT: Duration = Duration::from_secs(1);
/// How many empty receives in a row mean the end: one may be empty though the queue is not.
const EMPTY_ENOUGH: u32 = 2;

/// What a sweep works on.
#[derive(Debug, Clone)]
pub struct Sweeper {
    /// The source whose DLQ it is.
    pub source: QueueName,
    /// The DLQ.
    pub dlq: Arc<dyn Queue>,
    /// The vault.
    pub vault: Arc<dyn Vault>,
    /// Records.
    pub ledger: Arc<dyn Ledger>,
    /// The lock, and records in batches.
    pub runs: Arc<dyn Runs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The vault's key prefix.
    pub prefix: String,
    /// Who sweeps: the owner of the lock.
    pub owner: String,
}

/// What a pass did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Messages received, each once.
    pub received: u64,
    /// Tokens deleted.
    pub removed: u64,
    /// Messages left in the DLQ.
    pub kept: u64,
    /// Of these, messages that are no tokens of this source.
    pub bare: u64,
    /// Records rebuilt from their envelopes.
    pub rebuilt: u64,
    /// Whether the pass ended before it had seen all.
    pub truncated: bool,
    /// What could not be done, a message each.
    pub errors: Vec<SweepFailure>,
}

/// What could not be done about one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepFailure {
    /// The message.
    pub message_id: MessageId,
    /// Why.
    pub why: String,
}

/// A pass that did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Another sweep of this source is under way.
    #[error("{owner} sweeps this source, until {} at most", until.to_rfc3339())]
    Held {
        /// Whose the lock is.
        owner: String,
        /// Until when.
        until: crate::domain::time::Wall,
    },
    /// A dependency failed.
    #[error(transparent)]
    Port(#[from] PortError),
}

impl Sweeper {
    /// Makes one pass over at most `most` messages. `stop` ends it early; what it holds is given back.
    ///
    /// # Errors
    /// See [`SweepError`].
    pub async fn pass(&self, most: u64, stop: &CancellationToken) -> Result<Swept, SweepError> {
        self.lock().await?;
        let mut held = Vec::new();
        let mut swept = Swept::default();
        let ended = self.look(most, stop, &mut held, &mut swept).await;
        let given_back = self.give_back(&held).await;
        let unlocked = self.runs.unlock_sweep(&self.owner).await;
        ended?;
        given_back?;
        unlocked?;
        Ok(swept)
    }

    async fn lock(&self) -> Result<(), SweepError> {
        match self.runs.lock_sweep(&self.owner, LEASE, self.clock.wall()).await? {
            SweepLock::Ours => Ok(()),
            SweepLock::Held { owner, until } => Err(SweepError::Held { owner, until }),
        }
    }

    async fn look(
        &self,
        most: u64,
        stop: &CancellationToken,
        held: &mut Vec<ReceiptHandle>,
        swept: &mut Swept,
    ) -> Result<(), SweepError> {
        let mut seen: HashSet<MessageId> = HashSet::new();
        let mut empty = 0;
        while empty < EMPTY_ENOUGH {
            if stop.is_cancelled() || swept.received >= most {
                swept.truncated = true;
                return Ok(());
            }
            self.lock().await?;
            let batch = self.dlq.receive(MAX_BATCH_ENTRIES, WAIT, Some(HOLD)).await?;
            empty = if batch.is_empty() { empty.saturating_add(1) } else { 0 };
            let all = batch.len();
            held.extend(batch.iter().map(|message| message.receipt.clone()));
            let new: Vec<Received> =
                batch.into_iter().filter(|m| seen.insert(m.message_id.clone())).collect();
            let repeats = new.len() < all;
            swept.received = swept.received.saturating_add(count(new.len()));
            self.settle(new, held, swept).await?;
            if repeats {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Decides about each message of a batch; what is deleted is not held any more.
    async fn settle(
        &self,
        batch: Vec<Received>,
        held: &mut Vec<ReceiptHandle>,
        swept: &mut Swept,
    ) -> Result<(), SweepError> {
        let mut tokens = Vec::new();
        for message in batch {
            match self.token_of(&message) {
                Some(token) => tokens.push((message, token)),
                None => swept.bare = swept.bare.saturating_add(1),
            }
        }
        let now = self.clock.wall();
        let ids: Vec<_> = tokens.iter().map(|(_, token)| token.record.clone()).collect();
        let records = self.runs.records(&ids, now).await?;
        let mut outdated = Vec::new();
        for ((message, token), record) in tokens.into_iter().zip(records) {
            match decide_token(&token.park, record.as_ref().map(Stored::get)) {
                TokenVerdict::Keep => {}
                TokenVerdict::Delete => {
                    outdated.extend(record.and_then(|r| Deletable::outdated(&message, &token, &r)))
                }
                TokenVerdict::Rebuild => match self.rebuild(&token).await {
                    Ok(()) => swept.rebuilt = swept.rebuilt.saturating_add(1),
                    Err(why) => {
                        swept.errors.push(SweepFailure { message_id: message.message_id, why });
                    }
                },
            }
        }
        self.delete(outdated, held, swept).await?;
        swept.kept = swept.received.saturating_sub(swept.removed);
        Ok(())
    }

    /// The believed token of our own source; SQS's own moves are bare, whatever they carry.
    fn token_of(&self, message: &Received) -> Option<Token> {
        if message.dead_letter_source.is_some() {
            return None;
        }
        match recognise(&message.body, &message.attributes, &self.source)? {
            Carried::Inline(Marker::Token(token)) | Carried::Pointer(Marker::Token(token)) => {
                Some(token)
            }
            Carried::Inline(Marker::Copy(_)) | Carried::Pointer(Marker::Copy(_)) => None,
        }
    }

    async fn delete(
        &self,
        outdated: Vec<Deletable>,
        held: &mut Vec<ReceiptHandle>,
        swept: &mut Swept,
    ) -> Result<(), SweepError> {
        if outdated.is_empty() {
            return Ok(());
        }
        let answers = self.dlq.delete(&outdated).await?;
        for (entry, answer) in outdated.into_iter().zip(answers) {
            match answer {
                Ok(()) => {
                    swept.removed = swept.removed.saturating_add(1);
                    held.retain(|receipt| receipt != entry.receipt());
                }
                Err(e) => {
                    let (message_id, why) = (entry.message_id().clone(), format!("delete: {e}"));
                    swept.errors.push(SweepFailure { message_id, why });
                }
            }
        }
        Ok(())
    }

    /// Rebuilds a record that is gone from the envelope that its token names.
    async fn rebuild(&self, token: &Token) -> Result<(), String> {
        let folder = envelope::folder(&self.prefix, &self.source);
        if !token.envelope.as_str().starts_with(&folder) {
            return Err(format!("{} is outside the vault's folder {folder}", token.envelope));
        }
        let bytes = self.vault.get(&token.envelope).await.map_err(|e| e.to_string())?;
        let envelope = Envelope::decode(&bytes).map_err(|e| format!("{}: {e}", token.envelope))?;
        let same = envelope.record_id == token.record
            && Sha256Hex::of(envelope.payload.body.as_bytes()) == token.sha256;
        if !same {
            return Err(format!("{} is of another message", token.envelope));
        }
        let now = self.clock.wall();
        let write = RecordWrite {
            id: token.record.clone(),
            expect: Expect::Absent,
            next: rebuilt(token, envelope, now),
        };
        match write_record(self.ledger.as_ref(), &write, now).await {
            Ok(_) | Err(WriteError::Lost(_)) => Ok(()),
            Err(WriteError::Unknown(e)) => Err(e.to_string()),
        }
    }

    async fn give_back(&self, held: &[ReceiptHandle]) -> Result<(), PortError> {
        for batch in held.chunks(MAX_BATCH_ENTRIES) {
            let changes: Vec<_> = batch.iter().map(|r| (r.clone(), Duration::ZERO)).collect();
            // An entry that fails comes back by itself when its time is over.
            self.dlq.change_visibility(&changes).await?;
        }
        Ok(())
    }
}

fn rebuilt(token: &Token, envelope: Envelope, now: crate::domain::time::Wall) -> Record {
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
        token_sent: Some(now),
        parked_at: envelope.parked_at,
        ..Record::parked(token.n, None, &parking, now)
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
