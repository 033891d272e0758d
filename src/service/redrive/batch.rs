//! One batch: envelopes, take, send, confirm.
//!
//! A batch to a FIFO source is sent in rounds, each with the first copy of every group that is not settled
//! yet: whatever becomes of a copy, no later one of its group is sent before SQS has accepted or refused it.
//! A batch of one group thus costs a request a copy. A request with all of them would do if SQS took all or
//! none, and it answers entry by entry. After a refusal the group goes on, as it does after a parking.

use std::collections::BTreeSet;

use super::executor::Executor;
use super::strain::Strain;
use super::{RedriveError, Redriver};
use crate::domain::batch::plan_batches;
use crate::domain::dispatch::Feedback;
use crate::domain::envelope::{self, Envelope};
use crate::domain::failure::ErrorClass;
use crate::domain::id::{RecordId, RunId, Sha256Hex};
use crate::domain::message::{MAX_MESSAGE_BYTES, Outgoing};
use crate::domain::plan::is_at_cap;
use crate::domain::record::{self, Blocked, EarlierSend, Record, Step};
use crate::domain::run::Run;
use crate::domain::token::{Copy, Marker, Original, without_lineage, wrap};
use crate::port::error::PortError;
use crate::port::evidence::Stored;
use crate::port::ledger::{Expect, RecordWrite, WriteError, write_record};
use crate::port::queue::{Accepted, EntryError};
use crate::service::original;

/// How often a send whose answer is unknown is made.
const SENDS: u32 = 5;
/// The pause between them; it doubles.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// A record that is about to be taken.
pub(super) enum Ready {
    /// With its original, to be sent.
    Send(Box<Envelope>),
    /// It is at its cap.
    AtCap,
    /// It cannot be sent.
    Unsendable(Blocked),
}

/// A record that is taken, and its copy.
pub(super) struct Taken {
    /// Its place in the plan.
    pub index: usize,
    /// The record.
    pub id: RecordId,
    /// The record as stored, redriving.
    pub record: Record,
    /// The copy.
    pub copy: Outgoing,
}

/// What became of one send.
pub(super) enum Sent {
    /// SQS accepted it.
    Accepted,
    /// SQS refused it.
    Refused(EarlierSend),
}

/// What is known of one send.
enum Fate {
    /// Nothing that counts; whether an earlier one may have got through.
    Open(EarlierSend),
    /// It is accepted or refused.
    Settled(Sent),
}

impl Fate {
    /// Takes in an answer; `None` if the whole call failed.
    fn heard(&mut self, answer: Option<Result<Stored<Accepted>, EntryError>>) {
        let Self::Open(earlier) = *self else { return };
        *self = match answer {
            Some(Ok(_)) => Self::Settled(Sent::Accepted),
            Some(Err(e)) if e.sender_fault => {
                tracing::warn!(code = e.code, "copy refused");
                Self::Settled(Sent::Refused(earlier))
            }
            Some(Err(_)) | None => Self::Open(EarlierSend::Unknown),
        };
    }
}

/// The copies to send next: all that are open, of a FIFO source the first of each group.
fn next_round(copies: &[&Outgoing], fates: &[Fate]) -> Vec<usize> {
    let mut groups = BTreeSet::new();
    let open = fates.iter().zip(copies).enumerate();
    open.filter(|(_, (fate, copy))| {
        let is_fifo = copy.deduplication_id.is_some();
        matches!(fate, Fate::Open(_)) && (!is_fifo || groups.insert(&copy.group_id))
    })
    .map(|(index, _)| index)
    .collect()
}

impl Redriver {
    /// Gets what is to be sent of a record. Only what concerns this record alone makes it unsendable.
    pub(super) async fn ready(
        &self,
        run: &Run,
        id: &RecordId,
        record: &Record,
    ) -> Result<Ready, RedriveError> {
        if is_at_cap(record, run.max_redrives) {
            return Ok(Ready::AtCap);
        }
        let Some(envelope) = self.original(id, record).await? else {
            return Ok(Ready::Unsendable(Blocked::Unreadable));
        };
        if run.dispatch.feedback == Feedback::Queue {
            let next = Record { redrive_count: record.redrive_count + 1, ..record.clone() };
            if self.copy(run, id, &next, &envelope)?.body != envelope.payload.body {
                tracing::warn!(record_id = %id, "only a pointer fits, which another's consumer cannot read");
                return Ok(Ready::Unsendable(Blocked::Refused));
            }
        }
        Ok(Ready::Send(Box::new(envelope)))
    }

    /// The record's original, checked; none if its envelope is missing, forbidden or corrupt.
    pub(super) async fn original(
        &self,
        id: &RecordId,
        record: &Record,
    ) -> Result<Option<Envelope>, RedriveError> {
        let folder = envelope::folder(&self.prefix, self.queue());
        let vault = self.vault.as_ref();
        let fetched = self.insist(|| original::fetch(vault, &folder, id, record)).await?;
        Ok(fetched
            .inspect_err(|why| {
                let key = &record.envelope;
                tracing::warn!(record_id = %id, envelope = %key, why, "record cannot be sent");
            })
            .ok())
    }

    /// The copy of a record that is redriving.
    pub(super) fn copy(
        &self,
        run: &Run,
        id: &RecordId,
        record: &Record,
        envelope: &Envelope,
    ) -> Result<Outgoing, RedriveError> {
        let marker = Marker::Copy(Copy {
            queue: self.queue().clone(),
            record: id.clone(),
            run: run.id.clone(),
            n: record.redrive_count,
            sent_ms: record.sent,
            sha256: Sha256Hex::of(envelope.payload.body.as_bytes()),
            force: run.dispatch.force,
        });
        let trace_header = envelope.message.trace_header.as_deref().map(without_lineage);
        let original = Original {
            body: &envelope.payload.body,
            attributes: &envelope.attributes,
            trace_header: trace_header.as_deref(),
            group_id: envelope.message.group_id.as_deref(),
        };
        wrap(&marker, &original, self.max_message_bytes)
            .map_err(|e| super::draft::unusable(record.envelope.as_str(), &e))
    }

    /// Sends copies, again where the answer is unknown, until each is accepted or refused.
    pub(super) async fn send(
        &self,
        copies: &[&Outgoing],
        earlier: EarlierSend,
        strain: &mut Strain,
    ) -> Result<Vec<Sent>, PortError> {
        let mut fates: Vec<Fate> = copies.iter().map(|_| Fate::Open(earlier)).collect();
        let mut last = None;
        let mut round = next_round(copies, &fates);
        while !round.is_empty() {
            self.send_round(copies, &round, &mut fates, &mut last, strain).await;
            let next = next_round(copies, &fates);
            if next.iter().any(|index| round.contains(index)) {
                return Err(last.unwrap_or_else(|| self.unanswered()));
            }
            round = next;
        }
        let settled = fates.into_iter().map(|fate| match fate {
            Fate::Settled(sent) => Some(sent),
            Fate::Open(_) => None,
        });
        settled.collect::<Option<_>>().ok_or_else(|| self.unanswered())
    }

    /// Sends these copies, some times over where the answer is unknown.
    async fn send_round(
        &self,
        copies: &[&Outgoing],
        round: &[usize],
        fates: &mut [Fate],
        last: &mut Option<PortError>,
        strain: &mut Strain,
    ) {
        let mut pause = PAUSE;
        for attempt in 0..SENDS {
            let is_open = |index: &usize| matches!(fates.get(*index), Some(Fate::Open(_)));
            let open: Vec<usize> = round.iter().copied().filter(is_open).collect();
            if open.is_empty() {
                return;
            }
            if attempt > 0 {
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2);
            }
            let answers = self.send_once(copies, &open, last).await;
            last.iter().for_each(|error| strain.heard(error));
            for (index, answer) in answers {
                if let Some(Err(entry)) = &answer {
                    strain.heard_code(&entry.code);
                }
                if let Some(fate) = fates.get_mut(index) {
                    fate.heard(answer);
                }
            }
        }
    }

    /// One try of the open copies; `None` for an entry whose whole call failed.
    async fn send_once(
        &self,
        copies: &[&Outgoing],
        open: &[usize],
        last: &mut Option<PortError>,
    ) -> Vec<(usize, Option<Result<Stored<Accepted>, EntryError>>)> {
        let messages: Vec<Outgoing> =
            open.iter().filter_map(|i| copies.get(*i)).map(|copy| (*copy).clone()).collect();
        let sizes: Vec<usize> = messages.iter().map(Outgoing::size).collect();
        let mut answers = Vec::new();
        for range in plan_batches(&sizes, MAX_MESSAGE_BYTES) {
            let (Some(batch), Some(indices)) = (messages.get(range.clone()), open.get(range))
            else {
                continue;
            };
            match self.source.send(batch).await {
                Ok(entries) => {
                    answers.extend(indices.iter().copied().zip(entries.into_iter().map(Some)));
                }
                // The queue is gone: nothing was accepted, and nothing will be.
                Err(error) if error.class() == ErrorClass::NotFound => {
                    let refusal = EntryError { code: error.code().to_owned(), sender_fault: true };
                    answers.extend(indices.iter().map(|i| (*i, Some(Err(refusal.clone())))));
                }
                Err(error) => {
                    tracing::warn!(%error, "send failed: whether copies were accepted is unknown");
                    *last = Some(error);
                    answers.extend(indices.iter().map(|i| (*i, None)));
                }
            }
        }
        answers
    }

    fn unanswered(&self) -> PortError {
        PortError::new(
            ErrorClass::Transient,
            crate::port::error::Target::Sqs,
            "SendMessageBatch",
            self.queue().as_str(),
            "InternalError",
        )
    }

    /// Writes what became of one send to the record. `None`: the record had moved on already.
    pub(super) async fn settle_send(
        &self,
        run: &RunId,
        taken: &Taken,
        sent: &Sent,
    ) -> Result<Option<Stored<Record>>, RedriveError> {
        let (run, n) = (run.clone(), taken.record.redrive_count);
        let event = match sent {
            Sent::Accepted => record::Event::SendConfirmed { run, n },
            Sent::Refused(earlier) => record::Event::SendRefused { run, n, earlier: *earlier },
        };
        self.move_record(&taken.id, &taken.record, &event).await
    }

    /// Writes what an event makes of a record. `None`: it makes nothing of it as it is now.
    pub(super) async fn move_record(
        &self,
        id: &RecordId,
        record: &Record,
        event: &record::Event,
    ) -> Result<Option<Stored<Record>>, RedriveError> {
        let mut current = record.clone();
        for _ in 0..SENDS {
            let now = self.clock.wall();
            let step = record::apply(Some(&current), event, self.remember, now);
            let Ok(Step::Write(next)) = step else { return Ok(None) };
            let write =
                RecordWrite { id: id.clone(), expect: Expect::Is(Box::new(current)), next: *next };
            let ledger = self.ledger.as_ref();
            match self.insist(|| write_record(ledger, &write, now)).await {
                Ok(stored) => return Ok(Some(stored)),
                // It may be that its token alone was marked: then the event still applies.
                Err(WriteError::Lost(Some(changed))) => current = changed.into_inner(),
                Err(WriteError::Lost(None)) => return Ok(None),
                Err(WriteError::Unknown(e)) => return Err(e.into()),
            }
        }
        Ok(None)
    }
}

impl Executor<'_> {
    /// The write that a record's taking needs, by what is ready of it; none if it may not be taken.
    pub(super) fn taking(
        &self,
        id: &RecordId,
        record: &Record,
        ready: &Ready,
    ) -> Option<RecordWrite> {
        let run = self.run.id.clone();
        let event = match ready {
            Ready::Send(_) | Ready::AtCap => {
                record::Event::Take { run, max_redrives: self.run.max_redrives }
            }
            Ready::Unsendable(why) => record::Event::Unsendable { run, why: *why },
        };
        let now = self.redriver.clock.wall();
        match record::apply(Some(record), &event, self.redriver.remember, now) {
            Ok(Step::Write(next)) => Some(RecordWrite {
                id: id.clone(),
                expect: Expect::Is(Box::new(record.clone())),
                next: *next,
            }),
            Ok(_) | Err(_) => None,
        }
    }
}
