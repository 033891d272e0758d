//! Taking a run over: everything in memory is rebuilt from the vault and the ledger, and the batch that
//! an earlier executor had in hand is brought to its end, or given back.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::batch::Taken;
use super::executor::{Executor, Progress, Within, looks};
use super::strain::Strain;
use super::{RedriveError, Redriver};
use crate::domain::drain::Drain;
use crate::domain::id::RecordId;
use crate::domain::pacer::Pacer;
use crate::domain::ramp::{Ramp, Trip};
use crate::domain::record::{self, EarlierSend, Record, State as RecordState};
use crate::domain::run::{Event, Run, Standing, State};
use crate::port::evidence::Stored;
use crate::port::ledger::WriteError;

/// After how long without an executor a run is settled.
const UNATTENDED: Duration = Duration::from_secs(300);

/// What becomes of a run when its executor is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtStop {
    /// It is paused: an operator stopped it.
    Pause,
    /// It runs on: another executor takes it over.
    Leave,
}

impl Redriver {
    /// Takes a run over (or back), for this executor alone.
    ///
    /// # Errors
    /// The run is closed, or another executor holds it.
    pub async fn claim(&self, run: &Run) -> Result<Stored<Run>, RedriveError> {
        let next = self.next(run, &self.claiming())?;
        match self.insist(|| self.runs.put_run(run, &next)).await {
            Ok(stored) => Ok(stored),
            Err(WriteError::Lost(_)) => Err(RedriveError::Fenced(run.id.clone())),
            Err(WriteError::Unknown(e)) => Err(e.into()),
        }
    }

    pub(super) fn claiming(&self) -> Event {
        Event::Claim { owner: self.owner.clone(), lease: self.lease }
    }

    /// Executes a run that is ours until it is completed, trips, or is stopped (then it is paused).
    ///
    /// # Errors
    /// A dependency failed, another executor has taken over, or the run's copies go elsewhere than this
    /// redriver's; the run can be resumed.
    pub async fn execute(
        &self,
        run: Stored<Run>,
        stop: &CancellationToken,
        watch: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Run, RedriveError> {
        self.execute_until(run, AtStop::Pause, stop, watch).await
    }

    /// The same, and says what becomes of the run at a stop.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub(crate) async fn execute_until(
        &self,
        run: Stored<Run>,
        at_stop: AtStop,
        stop: &CancellationToken,
        watch: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Run, RedriveError> {
        let (id, to) = (&run.get().id, &run.get().dispatch.to);
        if *to != self.to {
            return Err(RedriveError::Elsewhere { id: id.clone(), to: to.clone() });
        }
        let mut executor = self.executor(run).await?;
        // First what is in hand: a sweep extends the lease, and a write of the run ends its batch.
        executor.send_in_hand().await?;
        executor.sweep(Within::Budget, stop).await?;
        executor.work(at_stop, stop, watch).await
    }

    /// Leaves a run that is ours to any executor: its lease is over at once, its batch in hand empty.
    ///
    /// # Errors
    /// The ledger did not answer, or another executor has taken over.
    pub async fn leave(&self, run: Stored<Run>) -> Result<Run, RedriveError> {
        let next = self.next(run.get(), &Event::Extend { lease: Duration::ZERO })?;
        match self.insist(|| self.runs.put_run(run.get(), &next)).await {
            Ok(stored) => Ok(stored.into_inner()),
            Err(WriteError::Lost(_)) => Err(RedriveError::Fenced(run.get().id.clone())),
            Err(WriteError::Unknown(e)) => Err(e.into()),
        }
    }

    /// Settles the open run if nobody has executed it for five minutes: its batch in hand goes back to
    /// quarantine, and it is tripped, so that it does not hold its source for ever. Says which.
    ///
    /// Taking it over comes first, under its fence: an executor that wakes finds itself fenced before it can
    /// take anything more.
    ///
    /// # Errors
    /// A dependency failed; the next one tries again.
    pub async fn settle_unattended(&self) -> Result<Option<Run>, RedriveError> {
        let Some(run) = self.unattended(UNATTENDED).await? else { return Ok(None) };
        let run = match self.claim(&run).await {
            Ok(run) => run,
            Err(RedriveError::Fenced(_) | RedriveError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut executor = self.executor(run).await?;
        executor.give_back().await?;
        executor.write(&Event::Trip(Trip::Unattended)).await?;
        Ok(Some(executor.run))
    }

    /// The open run, if it runs and its lease has been over for so long.
    pub(super) async fn unattended(&self, time: Duration) -> Result<Option<Run>, RedriveError> {
        let Some(id) = self.insist(|| self.runs.open_run()).await? else { return Ok(None) };
        let Some(run) = self.insist(|| self.runs.run(&id)).await? else { return Ok(None) };
        let run = run.into_inner();
        let over =
            run.lease.as_ref().is_none_or(|lease| lease.until.plus(time) <= self.clock.wall());
        Ok((run.state == State::Running && over).then_some(run))
    }

    /// Ends a run that is ours: its batch in hand goes back to quarantine, what is known is written down,
    /// and nothing more is sent. Copies that are out stay in doubt.
    ///
    /// # Errors
    /// A dependency failed, or another executor has taken over.
    pub async fn abort(&self, run: Stored<Run>) -> Result<Run, RedriveError> {
        let mut executor = self.executor(run).await?;
        executor.give_back().await?;
        executor.write(&Event::Abort).await?;
        Ok(executor.run)
    }

    /// An executor of a run that is ours, with everything that is known of it.
    async fn executor(&self, run: Stored<Run>) -> Result<Executor<'_>, RedriveError> {
        let run = run.into_inner();
        // The lease was given before this: what is read now is read on its time.
        let now = self.clock.mono();
        let (mut tracked, objects) = self.track(&run).await?;
        let place = usize::try_from(run.place).unwrap_or(usize::MAX).min(tracked.len());
        // What lies ahead is judged when its turn comes: it may have moved on by then.
        for ahead in tracked.iter_mut().skip(place).filter(|t| !t.is_written) {
            (ahead.standing, ahead.sent) = (Standing::NotSent, false);
        }
        let in_doubt = tracked.iter().enumerate();
        let in_doubt = in_doubt.filter(|(_, t)| t.standing == Standing::InDoubt);
        Ok(Executor {
            redriver: self,
            doubt: in_doubt.map(|(i, _)| i).collect(),
            place,
            ramp: Ramp::new(run.policy, now),
            pacer: Pacer::new(run.policy.start_rate, now),
            strain: Strain::default(),
            drain: Drain::default(),
            looks: looks(tracked.len(), run.dispatch.feedback),
            read_at: None,
            written_at: now,
            swept_at: now,
            heard_at: now,
            tracked,
            run: Run { outcome_objects: objects, ..run },
        })
    }
}

impl Executor<'_> {
    /// Gives the batch in hand back to quarantine, and writes down what is known.
    async fn give_back(&mut self) -> Result<(), RedriveError> {
        for (index, id, record) in self.in_hand().await? {
            self.settle(index, &id, &record).await?;
        }
        self.read_outcomes().await?;
        self.write_down().await?;
        Ok(())
    }

    /// The records of the batch that an earlier executor had in hand, as far as they are not confirmed.
    async fn in_hand(&self) -> Result<Vec<(usize, RecordId, Record)>, RedriveError> {
        let batch: BTreeSet<RecordId> = self.run.batch.iter().cloned().collect();
        let indices = self.doubt.iter().copied();
        let in_hand: Vec<(usize, RecordId)> = indices
            .filter_map(|index| Some((index, self.id(index)?)))
            .filter(|(_, id)| batch.contains(id))
            .collect();
        let ids: Vec<RecordId> = in_hand.iter().map(|(_, id)| id.clone()).collect();
        let records = self.redriver.read_records(&ids).await?;
        let unconfirmed = |record: &Record| {
            record.run_id.as_ref() == Some(&self.run.id) && record.state == RecordState::Redriving
        };
        let records = in_hand.into_iter().zip(records);
        let records = records.filter_map(|((index, id), record)| {
            Some((index, id, record?.into_inner())).filter(|(_, _, record)| unconfirmed(record))
        });
        Ok(records.collect())
    }

    /// Sends the batch in hand again. A record whose envelope has become unreadable is settled instead: a
    /// copy of it that is out will tell by itself.
    async fn send_in_hand(&mut self) -> Result<(), RedriveError> {
        let mut taken = Vec::new();
        for (index, id, record) in self.in_hand().await? {
            match self.redriver.original(&id, &record).await? {
                Some(envelope) => {
                    let copy = self.redriver.copy(&self.run, &id, &record, &envelope)?;
                    taken.push(Taken { index, id, record, copy });
                }
                None => self.settle(index, &id, &record).await?,
            }
        }
        let (before, now) = (self.in_doubt(), self.now());
        self.ramp.sent(before, 0, now);
        self.pacer.sent(taken.len(), now);
        self.send_and_settle(&taken, EarlierSend::Unknown).await
    }

    /// Gives a record of the batch in hand back to quarantine.
    async fn settle(
        &mut self,
        index: usize,
        id: &RecordId,
        record: &Record,
    ) -> Result<(), RedriveError> {
        let event = record::Event::Settled { run: self.run.id.clone() };
        if self.redriver.move_record(id, record, &event).await?.is_some() {
            self.learn(index, Standing::Errored, false);
        }
        Ok(())
    }
}
