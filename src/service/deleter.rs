//! Deletes in batches: at most ten, at most 200 ms late, each entry by its own answer.
//!
//! A delete that fails is retried alone a few times. Losing one costs a redelivery, which the ledger
//! recognises as done; so after that it is left, and said.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::domain::message::MAX_BATCH_ENTRIES;
use crate::port::evidence::Deletable;
use crate::port::queue::Queue;

/// How long a delete waits for company.
const LINGER: Duration = Duration::from_millis(200);
/// How often one entry is tried.
const TRIES: u32 = 4;
/// The pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(250);

/// Deletes what comes through `incoming` until the channel is closed and all of it is settled.
pub(crate) async fn run(source: Arc<dyn Queue>, mut incoming: mpsc::Receiver<Deletable>) {
    let mut batch: Vec<Deletable> = Vec::with_capacity(MAX_BATCH_ENTRIES);
    while let Some(first) = incoming.recv().await {
        batch.push(first);
        let flush_at = tokio::time::Instant::now() + LINGER;
        while batch.len() < MAX_BATCH_ENTRIES {
            match tokio::time::timeout_at(flush_at, incoming.recv()).await {
                Ok(Some(next)) => batch.push(next),
                Ok(None) | Err(_) => break,
            }
        }
        flush(source.as_ref(), std::mem::take(&mut batch)).await;
    }
}

async fn flush(source: &dyn Queue, batch: Vec<Deletable>) {
    let mut batches = vec![batch];
    let mut pause = PAUSE;
    for tried in 1..=TRIES {
        let mut failed = Vec::new();
        for batch in batches {
            failed.extend(delete(source, batch, tried).await);
        }
        if failed.is_empty() {
            return;
        }
        if tried < TRIES {
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2);
        }
        // Alone, so that one bad entry cannot hold up the others.
        batches = failed.into_iter().map(|entry| vec![entry]).collect();
    }
    for left in batches.iter().flatten() {
        tracing::warn!(message_id = %left.message_id(), "not deleted: its next delivery is recognised as done");
    }
}

/// Deletes one batch; what is worth another try comes back.
async fn delete(source: &dyn Queue, batch: Vec<Deletable>, tried: u32) -> Vec<Deletable> {
    let answers = match source.delete(&batch).await {
        Ok(answers) => answers,
        Err(error) => {
            tracing::debug!(%error, tried, entries = batch.len(), "delete failed");
            return batch;
        }
    };
    let mut failed = Vec::new();
    let mut answers = answers.into_iter();
    for entry in batch {
        match answers.next() {
            Some(Ok(())) => {}
            Some(Err(e)) if e.sender_fault => {
                let message_id = entry.message_id();
                tracing::warn!(%message_id, code = e.code, "delete refused: its next delivery is recognised as done");
            }
            Some(Err(_)) | None => failed.push(entry),
        }
    }
    failed
}
