//! The source as executors reach it: every send is written down with what was in doubt at that moment, by
//! the ledger itself and not by the executor's memory. Entries can be refused.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use redrive::domain::id::{QueueName, ReceiptHandle, RecordId, RunId};
use redrive::domain::message::{Outgoing, Received};
use redrive::domain::record::State;
use redrive::domain::time::Mono;
use redrive::domain::token::{Carried, Copy, Marker, recognise};
use redrive::port::clock::Clock as _;
use redrive::port::error::PortError;
use redrive::port::evidence::{Deletable, Stored};
use redrive::port::queue::{Accepted, BatchAnswer, EntryError, Queue, QueueFacts};
use redrive::sim::clock::SimClock;
use redrive::sim::ledger::SimLedger;
use redrive::sim::queue::SimQueue;

/// One SendMessageBatch that reached SQS.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) at: Mono,
    pub(crate) copies: Vec<Copy>,
    /// Records of the run that are on their way, these included.
    pub(crate) in_doubt: usize,
    /// Records of the run that are resolved by their own work.
    pub(crate) proven: usize,
}

/// The source with its log.
#[derive(Debug)]
pub(crate) struct Spy {
    source: SimQueue,
    ledger: Arc<SimLedger>,
    clock: Arc<SimClock>,
    batches: Mutex<Vec<Batch>>,
    refused: Mutex<BTreeSet<(RecordId, usize)>>,
}

impl Spy {
    pub(crate) fn new(source: SimQueue, ledger: Arc<SimLedger>, clock: Arc<SimClock>) -> Self {
        let (batches, refused) = (Mutex::default(), Mutex::default());
        Self { source, ledger, clock, batches, refused }
    }

    /// SQS refuses the `time`-th send, from 1, of this record's copies.
    pub(crate) fn refuse(&self, id: &RecordId, time: usize) {
        self.refused.lock().unwrap().insert((id.clone(), time));
    }

    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap().clone()
    }

    /// The copies of all sends, in order.
    pub(crate) fn copies(&self) -> Vec<Copy> {
        self.batches().into_iter().flat_map(|batch| batch.copies).collect()
    }

    /// How many copies of this record were sent.
    pub(crate) fn sends_of(&self, id: &RecordId) -> usize {
        self.copies().iter().filter(|copy| copy.record == *id).count()
    }

    fn doubt(&self, run: &RunId) -> (usize, usize) {
        let records = self.ledger.records();
        let ours = || records.values().filter(|record| record.run_id.as_ref() == Some(run));
        let in_doubt = ours().filter(|r| matches!(r.state, State::Redriving | State::Redriven));
        let proven = ours().filter(|r| r.state == State::Resolved && r.duplicate_of.is_none());
        (in_doubt.count(), proven.count())
    }

    fn note(&self, messages: &[Outgoing]) -> Vec<bool> {
        let copy = |m: &Outgoing| match recognise(&m.body, &m.attributes, self.source.name()) {
            Some(Carried::Inline(Marker::Copy(c)) | Carried::Pointer(Marker::Copy(c))) => c,
            other => panic!("an executor sends copies alone, not {other:?}"),
        };
        let copies: Vec<Copy> = messages.iter().map(copy).collect();
        let (in_doubt, proven) = self.doubt(&copies[0].run);
        let at = self.clock.mono();
        self.batches.lock().unwrap().push(Batch { at, copies: copies.clone(), in_doubt, proven });
        let refused = self.refused.lock().unwrap();
        let is_refused =
            |copy: &Copy| refused.contains(&(copy.record.clone(), self.sends_of(&copy.record)));
        copies.iter().map(is_refused).collect()
    }
}

#[async_trait]
impl Queue for Spy {
    fn name(&self) -> &QueueName {
        self.source.name()
    }

    async fn facts(&self) -> Result<QueueFacts, PortError> {
        self.source.facts().await
    }

    async fn sources(&self) -> Result<Vec<QueueName>, PortError> {
        self.source.sources().await
    }

    async fn receive(
        &self,
        max: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, PortError> {
        self.source.receive(max, wait, visibility).await
    }

    async fn send(
        &self,
        messages: &[Outgoing],
    ) -> Result<BatchAnswer<Stored<Accepted>>, PortError> {
        let mut answers = Vec::new();
        for (message, is_refused) in messages.iter().zip(self.note(messages)) {
            if is_refused {
                let code = "InvalidMessageContents".to_owned();
                answers.push(Err(EntryError { code, sender_fault: true }));
            } else {
                answers.extend(self.source.send(std::slice::from_ref(message)).await?);
            }
        }
        Ok(answers)
    }

    async fn delete(&self, messages: &[Deletable]) -> Result<BatchAnswer<()>, PortError> {
        self.source.delete(messages).await
    }

    async fn change_visibility(
        &self,
        changes: &[(ReceiptHandle, Duration)],
    ) -> Result<BatchAnswer<()>, PortError> {
        self.source.change_visibility(changes).await
    }
}
