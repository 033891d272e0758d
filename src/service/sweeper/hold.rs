//! What a pass holds: hidden from everybody else until it is given back.
//!
//! A receive hides a message for half a minute, so that a pass that dies early costs little; a pass that
//! lasts hides its messages for longer, so that extending them keeps pace with receiving them.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::{SweepError, Sweeper};
use crate::domain::id::ReceiptHandle;
use crate::domain::message::{MAX_BATCH_ENTRIES, Received};
use crate::domain::time::Mono;
use crate::port::error::PortError;

/// How long a receive hides a message.
pub(super) const HOLD: Duration = Duration::from_secs(30);
/// How long an extension hides it.
const LONGER: Duration = Duration::from_secs(300);
/// How many batches are extended or given back at once.
const AT_ONCE: usize = 8;

/// The messages that a pass holds.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// With when they are to be extended.
    held: Vec<(ReceiptHandle, Mono)>,
}

impl Hold {
    /// Takes a batch that was received just now.
    pub(super) fn add(&mut self, batch: &[Received], answered: Mono) {
        let due = answered.plus(HOLD.div_f64(3.0));
        self.held.extend(batch.iter().map(|message| (message.receipt.clone(), due)));
    }

    /// Forgets those of the last batch that are deleted.
    pub(super) fn forget(&mut self, deleted: &[ReceiptHandle]) {
        let batch = self.held.split_off(self.held.len().saturating_sub(MAX_BATCH_ENTRIES));
        self.held.extend(batch.into_iter().filter(|(receipt, _)| !deleted.contains(receipt)));
    }

    /// Extends what would come back soon. What cannot be extended may come back before the pass is over:
    /// then it repeats, and ends the pass.
    pub(super) async fn extend_due(&mut self, sweeper: &Sweeper) {
        let now = sweeper.ctx.ports.clock.mono();
        let due: Vec<_> = self.held.iter_mut().filter(|(_, due)| *due <= now).collect();
        if due.is_empty() {
            return;
        }
        let receipts: Vec<_> = due.iter().map(|(receipt, _)| receipt.clone()).collect();
        match change(sweeper, &receipts, LONGER).await {
            Ok(()) => {
                let next = now.plus(LONGER.div_f64(3.0));
                due.into_iter().for_each(|(_, due)| *due = next);
            }
            Err(error) => tracing::warn!(%error, "what the sweep holds is not extended"),
        }
    }

    /// Gives everything back. An entry that fails comes back by itself when its time is over.
    pub(super) async fn give_back(self, sweeper: &Sweeper) -> Result<(), SweepError> {
        let receipts: Vec<_> = self.held.into_iter().map(|(receipt, _)| receipt).collect();
        let given = change(sweeper, &receipts, Duration::ZERO);
        let (given, _lock) = sweeper.beside(&mut Self::default(), given).await;
        Ok(given?)
    }
}

/// Sets when these become visible again.
async fn change(
    sweeper: &Sweeper,
    receipts: &[ReceiptHandle],
    visibility: Duration,
) -> Result<(), PortError> {
    let changes = |batch: &[ReceiptHandle]| -> Vec<_> {
        batch.iter().map(|receipt| (receipt.clone(), visibility)).collect()
    };
    let batches: Vec<_> = receipts.chunks(MAX_BATCH_ENTRIES).map(changes).collect();
    let calls = batches
        .into_iter()
        .map(|changes| async move { sweeper.dlq().change_visibility(&changes).await.map(drop) });
    let answers: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    answers.into_iter().collect()
}
