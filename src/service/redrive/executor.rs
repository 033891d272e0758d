//! The executor of a run: one loop that reads outcomes, decides by the ramp, and sends the next batch.
//!
//! A tick: outcomes, then what operators ask, then whether to stop, then the lease, then a batch. The batch in hand is always
//! brought to its end before the loop stops.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::batch::{Ready, Sent, Taken};
use super::outcome::Tracked;
use super::strain::Strain;
use super::takeover::AtStop;
use super::wish::LISTEN_EVERY;
use super::{RedriveError, Redriver};
use crate::domain::dispatch::Feedback;
use crate::domain::drain::Drain;
use crate::domain::id::RecordId;
use crate::domain::message::MAX_BATCH_ENTRIES;
use crate::domain::pacer::Pacer;
use crate::domain::ramp::{Outcome, Phase, Ramp};
use crate::domain::record::{EarlierSend, Record};
use crate::domain::run::{self, Counts, Desired, Event, OutcomeLine, Run, Standing};
use crate::domain::time::Mono;
use crate::port::evidence::Stored;
use crate::port::ledger::{Condition, RecordWrite, WriteError};
use crate::port::runs::TakeError;
use crate::service::sweeper::SweepError;

/// How often outcomes are read.
const TICK: Duration = Duration::from_millis(200);
/// How often a batch is put together again after its records changed.
const TRIES: u32 = 5;
/// The lease is extended when this part of it is over.
const LEASE_PARTS: f64 = 3.0;
/// How often the DLQ is swept along the run.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long the last sweep waits for another one to end, and for what it holds: longer than either lasts
/// after a sweep that died.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);
/// The pause between tries of the last sweep.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// Where a run is, for a display.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Canary or ramp.
    pub phase: Phase,
    /// Sends a second.
    pub rate: f64,
    /// Copies that may be in doubt.
    pub window: u32,
    /// The counters.
    pub counts: Counts,
}

/// One executor at work.
pub(super) struct Executor<'a> {
    pub redriver: &'a Redriver,
    pub run: Run,
    pub(super) tracked: Vec<Tracked>,
    pub(super) doubt: BTreeSet<usize>,
    pub(super) place: usize,
    pub(super) ramp: Ramp,
    pub(super) pacer: Pacer,
    pub(super) strain: Strain,
    pub(super) drain: Drain,
    /// How many messages its sweeps may still look at and keep.
    pub(super) looks: u64,
    pub(super) read_at: Option<Mono>,
    pub(super) written_at: Mono,
    pub(super) swept_at: Mono,
    pub(super) heard_at: Mono,
}

impl Executor<'_> {
    pub(super) async fn work(
        mut self,
        at_stop: AtStop,
        stop: &CancellationToken,
        watch: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Run, RedriveError> {
        loop {
            self.read_outcomes().await?;
            self.look_at_queues(stop).await?;
            watch(self.progress());
            self.listen().await?;
            let now = self.now();
            if let Some(why) = self.ramp.trip(self.in_doubt(), now) {
                self.end(Event::Trip(why), stop).await?;
                break;
            }
            if self.place == self.tracked.len() && self.doubt.is_empty() {
                self.end(Event::Complete, stop).await?;
                break;
            }
            if self.run.desired == Some(Desired::Abort) {
                self.end(Event::Abort, stop).await?;
                break;
            }
            if stop.is_cancelled() && at_stop == AtStop::Leave {
                self.write_down().await?;
                self.write(&Event::Extend { lease: Duration::ZERO }).await?;
                break;
            }
            if stop.is_cancelled() || self.run.desired == Some(Desired::Pause) {
                self.end(Event::Pause, stop).await?;
                break;
            }
            self.keep_lease().await?;
            let pressure = self.pressure().await;
            let rate = self.ramp.step(pressure, now);
            self.pacer.set_rate(rate, now);
            let pause = self.send_next().await?;
            if now.since(self.swept_at) >= SWEEP_EVERY {
                self.sweep(Within::Budget, stop).await?;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        watch(self.progress());
        Ok(self.run)
    }

    pub(super) fn now(&self) -> Mono {
        self.redriver.clock.mono()
    }

    pub(super) fn in_doubt(&self) -> u32 {
        u32::try_from(self.doubt.len()).unwrap_or(u32::MAX)
    }

    fn counts(&self) -> Counts {
        let standings = self.tracked.iter().map(|t| (&t.planned.error_code, t.standing, t.sent));
        run::count(standings).0
    }

    fn progress(&self) -> Progress {
        let (phase, window) = (self.ramp.phase(), self.ramp.window());
        Progress { phase, rate: self.pacer.rate(), window, counts: self.counts() }
    }

    /// Sends the next batch if ramp and pacer allow; says how long to wait before the next tick.
    async fn send_next(&mut self) -> Result<Duration, RedriveError> {
        let left = self.tracked.len().saturating_sub(self.place);
        let room = usize::try_from(self.ramp.allowance(self.in_doubt())).unwrap_or(usize::MAX);
        let want = left.min(room).min(MAX_BATCH_ENTRIES);
        if want == 0 {
            return Ok(TICK);
        }
        let now = self.now();
        let wait = self.pacer.wait_for(want, now);
        if !wait.is_zero() {
            return Ok(wait.min(TICK));
        }
        let count = want.min(self.pacer.allowed(now));
        self.send_batch(count).await?;
        Ok(Duration::ZERO)
    }

    /// Takes the next `count` records of the plan and sends what can be sent of them.
    async fn send_batch(&mut self, count: usize) -> Result<(), RedriveError> {
        for _ in 0..TRIES {
            if self.run.desired.is_some() {
                return Ok(());
            }
            let indices: Vec<usize> = (self.place..self.tracked.len()).take(count).collect();
            let ids: Vec<RecordId> = indices.iter().filter_map(|i| self.id(*i)).collect();
            let records = self.redriver.read_records(&ids).await?;
            let mut writes: Vec<(usize, RecordWrite, Ready)> = Vec::new();
            let mut dropped: Vec<(usize, Standing, bool)> = Vec::new();
            for ((index, id), record) in indices.iter().zip(&ids).zip(&records) {
                let record = record.as_ref().map(Stored::get);
                let standing = run::standing(record, &self.run.id);
                let Some(record) = record.filter(|_| standing == Standing::NotSent) else {
                    let sent = run::was_sent(record, &self.run.id, standing);
                    dropped.push((*index, standing, sent));
                    continue;
                };
                let ready = self.redriver.ready(&self.run, id, record).await?;
                if let Some(write) = self.taking(id, record, &ready) {
                    writes.push((*index, write, ready));
                }
            }
            if let Some(stored) = self.take(count, &writes).await? {
                for (index, standing, sent) in dropped {
                    self.learn(index, standing, sent);
                }
                return self.send_taken(writes, stored).await;
            }
        }
        Err(self.contended("take"))
    }

    /// What is to be written changes faster than it can be written.
    fn contended(&self, operation: &'static str) -> RedriveError {
        let id = self.run.id.as_str();
        let class = crate::domain::failure::ErrorClass::Transient;
        let target = crate::port::error::Target::DynamoDb;
        crate::port::error::PortError::new(class, target, operation, id, "Contended").into()
    }

    pub(super) fn id(&self, index: usize) -> Option<RecordId> {
        self.tracked.get(index).map(|tracked| tracked.planned.record_id.clone())
    }

    /// Takes a batch; `None` if a record has changed meanwhile.
    async fn take(
        &mut self,
        count: usize,
        writes: &[(usize, RecordWrite, Ready)],
    ) -> Result<Option<Vec<Stored<Record>>>, RedriveError> {
        let mut next = self.next_run(&Event::Extend { lease: self.redriver.lease })?;
        let place = self.place.saturating_add(count).min(self.tracked.len());
        next.place = u64::try_from(place).unwrap_or(u64::MAX);
        let to_send = writes.iter().filter(|(_, _, ready)| matches!(ready, Ready::Send(_)));
        next.batch = to_send.map(|(_, write, _)| write.id.clone()).collect();
        let records: Vec<RecordWrite> = writes.iter().map(|(_, write, _)| write.clone()).collect();
        let runs = &self.redriver.runs;
        let now = self.redriver.clock.wall();
        let taken = self.redriver.insist(|| runs.take(&self.run, &next, &records, now)).await;
        match taken {
            Ok((run, stored)) => {
                self.run = run.into_inner();
                self.place = place;
                self.written_at = self.now();
                Ok(Some(stored))
            }
            Err(TakeError::Lost { run: Condition::Held, .. }) => Ok(None),
            Err(TakeError::Lost { run: Condition::Lost(current), .. }) => {
                let current = current.map(|current| current.into_inner());
                match current {
                    // Our own take, whose answer was lost, and a wish since.
                    Some(current) if current.is_with_wishes(&next) => {
                        let ids: Vec<_> = records.iter().map(|write| write.id.clone()).collect();
                        let stored = self.redriver.read_records(&ids).await?;
                        self.heed(Some(current.clone()))?;
                        self.run = current;
                        self.place = place;
                        self.written_at = self.now();
                        Ok(stored.into_iter().collect())
                    }
                    current => self.heed(current).map(|()| None),
                }
            }
            Err(TakeError::Unknown(e)) => Err(e.into()),
        }
    }

    /// Sends the copies of a batch that is taken, and learns of what is not sent.
    async fn send_taken(
        &mut self,
        writes: Vec<(usize, RecordWrite, Ready)>,
        stored: Vec<Stored<Record>>,
    ) -> Result<(), RedriveError> {
        let mut taken = Vec::new();
        for ((index, write, ready), stored) in writes.into_iter().zip(stored) {
            let envelope = match ready {
                Ready::Send(envelope) => envelope,
                Ready::AtCap => {
                    self.learn(index, Standing::Discarded, false);
                    continue;
                }
                Ready::Unsendable(_) => {
                    self.learn(index, Standing::Errored, false);
                    continue;
                }
            };
            let record = stored.into_inner();
            let copy = self.redriver.copy(&self.run, &write.id, &record, &envelope)?;
            taken.push(Taken { index, id: write.id, record, copy });
        }
        let (before, now) = (self.in_doubt(), self.now());
        for taken in &taken {
            self.learn(taken.index, Standing::InDoubt, false);
        }
        self.ramp.sent(u32::try_from(taken.len()).unwrap_or(u32::MAX), before, now);
        self.pacer.sent(taken.len(), now);
        self.send_and_settle(&taken, EarlierSend::None).await
    }

    pub(super) async fn send_and_settle(
        &mut self,
        taken: &[Taken],
        earlier: EarlierSend,
    ) -> Result<(), RedriveError> {
        self.drain.disturb();
        let answers = self.send_to_the_end(taken, earlier).await?;
        for (taken, sent) in taken.iter().zip(answers) {
            let settled = self.redriver.settle_send(&self.run.id, taken, &sent).await?;
            match sent {
                Sent::Accepted => {
                    if let Some(tracked) = self.tracked.get_mut(taken.index) {
                        tracked.sent = true;
                    }
                }
                Sent::Refused(_) if settled.is_some() => {
                    self.ramp.without_outcome(1);
                    self.learn(taken.index, Standing::Errored, false);
                }
                // An earlier send of it got through and came back: its outcome is read from the record.
                Sent::Refused(_) => {}
            }
        }
        Ok(())
    }

    /// Reads the records in doubt, once a tick, and writes down what is new.
    pub(super) async fn read_outcomes(&mut self) -> Result<(), RedriveError> {
        let now = self.now();
        if self.read_at.is_some_and(|at| now.since(at) < TICK) {
            return Ok(());
        }
        self.read_at = Some(now);
        let doubt: Vec<(usize, RecordId)> =
            self.doubt.iter().filter_map(|i| Some((*i, self.id(*i)?))).collect();
        let ids: Vec<RecordId> = doubt.iter().map(|(_, id)| id.clone()).collect();
        let records = self.redriver.read_records(&ids).await?;
        for ((index, _), record) in doubt.iter().zip(records) {
            let record = record.as_ref().map(Stored::get);
            let standing = run::standing(record, &self.run.id);
            if standing != Standing::InDoubt {
                let sent = run::was_sent(record, &self.run.id, standing);
                self.outcome(standing);
                self.learn(*index, standing, sent);
            }
        }
        if self.write_down().await? {
            self.write(&Event::Extend { lease: self.redriver.lease }).await?;
        }
        Ok(())
    }

    /// Writes down what is known and not yet written: once another run has a record, the record no longer
    /// says what became of it in this one. Says whether there was anything.
    pub(super) async fn write_down(&mut self) -> Result<bool, RedriveError> {
        let now = self.redriver.clock.wall();
        let lines: Vec<OutcomeLine> =
            self.tracked.iter().filter_map(|tracked| tracked.unwritten(now)).collect();
        if lines.is_empty() {
            return Ok(false);
        }
        let objects = self.run.outcome_objects;
        let objects = self.redriver.write_outcomes(&self.run.id, objects, &lines).await?;
        self.run.outcome_objects = objects;
        for tracked in &mut self.tracked {
            tracked.is_written |= tracked.standing.is_outcome();
        }
        Ok(true)
    }

    /// Tells the ramp of a copy that is no longer in doubt.
    fn outcome(&mut self, standing: Standing) {
        let now = self.now();
        match standing {
            Standing::Resolved | Standing::Assumed => self.ramp.outcome(Outcome::Good, now),
            Standing::Duplicate => self.ramp.outcome(Outcome::Duplicate, now),
            Standing::FailedAgain => self.ramp.outcome(Outcome::FailedAgain, now),
            Standing::Discarded | Standing::Skipped | Standing::Errored | Standing::NotSent => {
                self.ramp.without_outcome(1);
            }
            Standing::InDoubt => {}
        }
    }

    /// Notes what became of a record; the first outcome stays.
    pub(super) fn learn(&mut self, index: usize, standing: Standing, sent: bool) {
        let Some(tracked) = self.tracked.get_mut(index) else { return };
        if tracked.standing.is_outcome() {
            return;
        }
        tracked.standing = standing;
        tracked.sent |= sent;
        if standing == Standing::InDoubt {
            self.doubt.insert(index);
        } else {
            self.doubt.remove(&index);
        }
    }

    async fn keep_lease(&mut self) -> Result<(), RedriveError> {
        if self.now().since(self.written_at) < self.redriver.lease.div_f64(LEASE_PARTS) {
            return Ok(());
        }
        self.write(&Event::Extend { lease: self.redriver.lease }).await
    }

    pub(super) fn next_run(&self, event: &Event) -> Result<Run, RedriveError> {
        let refused = |why| RedriveError::Refused { id: self.run.id.clone(), why };
        let next = self.run.apply(event, self.redriver.clock.wall()).map_err(refused)?;
        let (rate, window) = (self.pacer.rate(), self.ramp.window());
        Ok(Run { rate, window, counts: self.counts(), batch: Vec::new(), ..next })
    }

    pub(super) async fn write(&mut self, event: &Event) -> Result<(), RedriveError> {
        for _ in 0..TRIES {
            let next = self.next_run(event)?;
            let runs = &self.redriver.runs;
            let written = match self.redriver.insist(|| runs.put_run(&self.run, &next)).await {
                Ok(stored) => stored.into_inner(),
                Err(WriteError::Lost(current)) => match current.map(|run| run.into_inner()) {
                    // Our own write, whose answer was lost, and a wish since.
                    Some(current) if current.is_with_wishes(&next) => current,
                    current => {
                        self.heed(current)?;
                        continue;
                    }
                },
                Err(WriteError::Unknown(e)) => return Err(e.into()),
            };
            self.run = written;
            self.written_at = self.now();
            return Ok(());
        }
        Err(self.contended("write"))
    }

    /// Ends the execution with its last word. A run that does not go on sweeps first, so that the DLQ's
    /// depth is true; a stop, or whatever an operator asks, leaves what is left of that to the next sweep.
    async fn end(&mut self, event: Event, stop: &CancellationToken) -> Result<(), RedriveError> {
        self.write_down().await?;
        let given_up = self.now().plus(SWEEP_PATIENCE);
        let last = matches!(event, Event::Complete | Event::Trip(_));
        while last
            && self.run.desired.is_none()
            && !self.sweep_whole(stop).await?
            && self.now() < given_up
        {
            self.keep_lease().await?;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(SWEEP_PAUSE) => {}
            }
        }
        self.write(&event).await
    }

    /// Makes a pass; says whether it can have seen all. What another one holds is in flight meanwhile.
    async fn sweep_whole(&mut self, stop: &CancellationToken) -> Result<bool, RedriveError> {
        if self.sweep(Within::All, stop).await? == Swept::Busy {
            return Ok(false);
        }
        let dlq = self.redriver.sweeper.dlq();
        Ok(match self.redriver.insist(|| dlq.facts()).await {
            Ok(facts) => facts.depth.in_flight == 0,
            Err(error) => {
                tracing::warn!(%error, "whether the sweep saw all is not known");
                true
            }
        })
    }

    /// Makes a pass over the DLQ, which may take longer than a lease: it is extended meanwhile. A stop, or
    /// the loss of the run, ends the pass early, with what it holds given back.
    pub(super) async fn sweep(
        &mut self,
        within: Within,
        stop: &CancellationToken,
    ) -> Result<Swept, RedriveError> {
        let redriver = self.redriver;
        let stop = stop.child_token();
        let most = if within == Within::Budget { self.looks } else { u64::MAX };
        if most == 0 {
            self.swept_at = self.now();
            return Ok(Swept::Done);
        }
        let mut pass = pin!(redriver.sweeper.pass(most, &stop));
        let mut kept = Ok(());
        let swept = loop {
            tokio::select! {
                biased;
                swept = &mut pass => break swept,
                () = tokio::time::sleep(LISTEN_EVERY), if kept.is_ok() => {
                    kept = self.keep_lease().await;
                    if kept.is_ok() {
                        kept = self.listen().await;
                    }
                    if kept.is_err() || self.run.desired.is_some() {
                        stop.cancel();
                    }
                }
            }
        };
        kept?;
        self.swept_at = self.now();
        Ok(match swept {
            Ok(swept) => {
                self.looks = self.looks.saturating_sub(swept.kept);
                Swept::Done
            }
            Err(SweepError::Held { .. }) => Swept::Busy,
            Err(SweepError::Port(error)) => {
                tracing::warn!(%error, "the sweep failed: tokens of redriven records may remain");
                Swept::Failed
            }
        })
    }
}

/// How many messages a sweep may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    /// All.
    All,
    /// What is left of the run's budget for those that it looks at and keeps: each look costs requests, and
    /// while a run is under way most of its tokens are to stay. Those of another's consumer tell outcomes,
    /// and there the budget has no end.
    Budget,
}

/// The budget of a run of so many records: a tenth of them, and a few for a small run.
pub(super) fn looks(planned: usize, feedback: Feedback) -> u64 {
    match feedback {
        Feedback::Ledger => u64::try_from(planned / 10).unwrap_or(u64::MAX).saturating_add(100),
        Feedback::Queue => u64::MAX,
    }
}

/// Whether a sweep was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swept {
    /// It was.
    Done,
    /// It failed.
    Failed,
    /// Another one is under way.
    Busy,
}
