//! What operators ask of a run: to pause, to end, to go faster or slower.
//!
//! A wish is written into the run's item, under the executor's own fence and lease; the executor reads the
//! item twice a second, and meets the wish at the latest when its own next write finds the item changed. Without
//! a live executor the asker acts itself: it takes the run over, and so can be refused, but never ignored.

use std::time::Duration;

use rand::Rng;

use super::executor::Executor;
use super::{RedriveError, Redriver};
use crate::domain::id::RunId;
use crate::domain::run::{Desired, Event, Run, RunError, State};
use crate::port::evidence::Stored;
use crate::port::ledger::WriteError;
use crate::service::audit::{Act, AuditError, By, Entry, Tally, Trail};
use crate::service::scope::Scope;

/// How often an executor reads its run's item: a pass of the sweep may take a second more to end.
pub(super) const LISTEN_EVERY: Duration = Duration::from_millis(500);
/// How often the asker looks whether it was heard.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long it waits: longer than a lease, so that it has heard or may act, and than a run's last sweep.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is asked of an open run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wish {
    /// Send nothing more for now.
    Pause,
    /// End it.
    Abort,
    /// Send so many a second at most.
    Rate(f64),
}

impl Wish {
    const fn act(self) -> Act {
        match self {
            Self::Pause => Act::Pause,
            Self::Abort => Act::Abort,
            Self::Rate(_) => Act::SetRate,
        }
    }
}

impl From<AuditError> for RedriveError {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Port(error) => Self::Port(error),
            AuditError::Key(_) | AuditError::Encoding(_) => {
                super::draft::unusable("audit object", &error)
            }
        }
    }
}

impl Redriver {
    /// Writes an act on a run down.
    pub(super) async fn audit(
        &self,
        act: Act,
        run: &Run,
        by: &By,
        scope: Option<&Scope>,
        rng: &mut impl Rng,
    ) -> Result<(), RedriveError> {
        let entry = Entry {
            act,
            by,
            run_id: Some(&run.id),
            plan_hash: Some(&run.plan_hash),
            selection: scope,
            counts: Tally::Run(run.counts),
            rate: (act == Act::SetRate).then_some(run.policy.max_rate),
        };
        let trail = Trail {
            vault: self.vault.as_ref(),
            clock: self.clock.as_ref(),
            prefix: &self.prefix,
            queue: self.queue(),
        };
        Ok(trail.put(&entry, rng).await?)
    }

    /// Takes a run over for an operator who wants it to go on.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub async fn resume(
        &self,
        run: &Run,
        by: &By,
        rng: &mut impl Rng,
    ) -> Result<Stored<Run>, RedriveError> {
        self.next(run, &self.claiming())?;
        self.audit(Act::Resume, run, by, None, rng).await?;
        self.claim(run).await
    }

    /// Asks something of an open run and waits until it is so: by its executor, or by ourselves if nobody
    /// executes it. Returns the run as it is then. A run that stopped or ended meanwhile is paused enough.
    ///
    /// # Errors
    /// The run is closed, nobody heard in time, or a call failed.
    pub async fn ask(
        &self,
        run: &Run,
        wish: Wish,
        by: &By,
        rng: &mut impl Rng,
    ) -> Result<Run, RedriveError> {
        let asked = match wish {
            Wish::Rate(most) => self.next(run, &Event::SetRate(most))?,
            Wish::Pause | Wish::Abort => run.clone(),
        };
        self.audit(wish.act(), &asked, by, None, rng).await?;
        match wish {
            Wish::Pause => self.have(&run.id, Desired::Pause).await,
            Wish::Abort => self.have(&run.id, Desired::Abort).await,
            Wish::Rate(most) => self.set_rate(&run.id, most).await,
        }
    }

    /// Writes the highest rate down: an executor adopts it, now or when the run is resumed.
    async fn set_rate(&self, id: &RunId, most: f64) -> Result<Run, RedriveError> {
        let given_up = self.clock.mono().plus(PATIENCE);
        loop {
            let run = self.reread(id).await?;
            if let Some(written) = self.write_run(&run, &Event::SetRate(most)).await? {
                return Ok(written);
            }
            self.wait(id, given_up).await?;
        }
    }

    /// Brings a run to what is desired.
    async fn have(&self, id: &RunId, desired: Desired) -> Result<Run, RedriveError> {
        let given_up = self.clock.mono().plus(PATIENCE);
        loop {
            let run = self.reread(id).await?;
            if is_so(&run, desired) {
                return Ok(run);
            }
            if run.held_by(self.clock.wall()).is_none() {
                match self.act(&run, desired).await {
                    // Somebody else has just taken it: that one is asked.
                    Err(
                        RedriveError::Fenced(_)
                        | RedriveError::Refused { why: RunError::Held { .. }, .. },
                    ) => {}
                    acted => return acted,
                }
            } else if run.desired.is_none_or(|before| before < desired) {
                self.write_run(&run, &Event::Ask(desired)).await?;
            }
            self.wait(id, given_up).await?;
        }
    }

    /// Does what is desired of a run that nobody executes. Its batch in hand stays what it is for a pause:
    /// whoever resumes the run brings it to its end.
    async fn act(&self, run: &Run, desired: Desired) -> Result<Run, RedriveError> {
        let ours = self.claim(run).await?;
        match desired {
            Desired::Abort => self.abort(ours).await,
            Desired::Pause => {
                let paused = self.write_run(ours.get(), &Event::Pause).await?;
                paused.ok_or_else(|| RedriveError::Fenced(run.id.clone()))
            }
        }
    }

    async fn reread(&self, id: &RunId) -> Result<Run, RedriveError> {
        let run = self.insist(|| self.runs.run(id)).await?;
        run.map(Stored::into_inner).ok_or_else(|| RedriveError::NoRun(id.clone()))
    }

    /// Writes what an event makes of a run; `None` if it has changed meanwhile.
    async fn write_run(&self, run: &Run, event: &Event) -> Result<Option<Run>, RedriveError> {
        let next = self.next(run, event)?;
        match self.insist(|| self.runs.put_run(run, &next)).await {
            Ok(stored) => Ok(Some(stored.into_inner())),
            Err(WriteError::Lost(_)) => Ok(None),
            Err(WriteError::Unknown(e)) => Err(e.into()),
        }
    }

    pub(super) fn next(&self, run: &Run, event: &Event) -> Result<Run, RedriveError> {
        let refused = |why| RedriveError::Refused { id: run.id.clone(), why };
        run.apply(event, self.clock.wall()).map_err(refused)
    }

    async fn wait(
        &self,
        id: &RunId,
        given_up: crate::domain::time::Mono,
    ) -> Result<(), RedriveError> {
        if self.clock.mono() >= given_up {
            return Err(RedriveError::Unheard(id.clone()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }
}

/// Whether a run is as desired: a pause wants nothing sent, and an end wants it closed.
fn is_so(run: &Run, desired: Desired) -> bool {
    match desired {
        Desired::Pause => run.state != State::Running,
        Desired::Abort => !run.state.is_open(),
    }
}

impl Executor<'_> {
    /// Reads what operators ask, at most that often.
    pub(super) async fn listen(&mut self) -> Result<(), RedriveError> {
        let now = self.now();
        if now.since(self.heard_at) < LISTEN_EVERY {
            return Ok(());
        }
        self.heard_at = now;
        let runs = &self.redriver.runs;
        let current = self.redriver.insist(|| runs.run(&self.run.id)).await?;
        self.heed(current.map(Stored::into_inner))
    }

    /// Takes over what was asked since our last write. A run that is not ours any more ends us.
    pub(super) fn heed(&mut self, current: Option<Run>) -> Result<(), RedriveError> {
        let ours = |run: &Run| run.fence == self.run.fence && run.state == State::Running;
        let Some(Run { rev, desired, policy, .. }) = current.filter(ours) else {
            return Err(RedriveError::Fenced(self.run.id.clone()));
        };
        (self.run.rev, self.run.desired) = (rev, desired);
        self.run.policy.max_rate = policy.max_rate;
        self.ramp.set_max_rate(policy.max_rate);
        Ok(())
    }
}
