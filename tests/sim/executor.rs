//! Executors of one world: plan, start, resume, crash, report.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use redrive::domain::dispatch::Dispatch;
use redrive::domain::id::{MessageId, RecordId, RunId};
use redrive::domain::ramp::RampPolicy;
use redrive::domain::record::{self, Event, State, Step};
use redrive::domain::run::Run;
use redrive::domain::selection::Selection;
use redrive::domain::time::Mono;
use redrive::port::clock::Clock as _;
use redrive::port::evidence::Stored;
use redrive::port::ledger::{Expect, Ledger as _, RecordWrite};
use redrive::service::query::Parked;
use redrive::service::redrive::{Draft, Opening, Progress, RedriveError, Redriver, Report};
use redrive::service::settings::{Ports, Settings};
use redrive::service::start::fit;
use redrive::service::sweeper::{NoHandler, Sweeper, Swept};
use redrive::sim::fault::{FaultLedger, FaultQueue, FaultRuns, FaultVault, Faults};
use redrive::sim::queue::SimQueue;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// How long an executor may be silent.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// The bounds that the configuration has by default.
pub(crate) fn policy() -> RampPolicy {
    RampPolicy {
        canary: 5,
        start_rate: 1.0,
        growth: 2.0,
        step: Duration::from_secs(30),
        max_rate: 50.0,
        max_in_doubt: 1_000,
        max_failure_ratio: 0.2,
        max_backlog: 10_000,
        outcome_timeout: Duration::from_secs(900),
    }
}

/// The same, but fast from the start, and nothing that fails stops it.
pub(crate) fn patient() -> RampPolicy {
    RampPolicy { start_rate: 50.0, max_failure_ratio: 1.0, ..policy() }
}

/// An executor at work.
pub(crate) struct Executing {
    task: JoinHandle<Result<Run, RedriveError>>,
    stop: CancellationToken,
    progress: Arc<Mutex<Vec<(Mono, Progress)>>>,
}

impl Executing {
    /// It ends without another word.
    pub(crate) async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.is_err_and(|e| e.is_cancelled()), "it had ended before");
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    pub(crate) fn progress(&self) -> Vec<(Mono, Progress)> {
        self.progress.lock().unwrap().clone()
    }

    /// As by Ctrl-C.
    pub(crate) async fn stop(self) -> Run {
        self.stop.cancel();
        self.end().await.unwrap()
    }

    pub(crate) async fn end(self) -> Result<Run, RedriveError> {
        self.task.await.unwrap()
    }
}

impl World {
    /// A redriver whose calls go through these faults.
    pub(crate) fn redriver(&self, faults: &Faults, owner: &str) -> Redriver {
        let vault = Arc::new(FaultVault::new(self.vault.clone(), faults.clone()));
        let ledger = Arc::new(FaultLedger::new(self.ledger.clone(), faults.clone()));
        let runs = Arc::new(FaultRuns::new(self.ledger.clone(), faults.clone()));
        let prefix = self.settings.prefix.clone();
        Redriver {
            source: Arc::new(FaultQueue::new(self.spy.clone(), faults.clone())),
            to: None,
            vault: vault.clone(),
            ledger: ledger.clone(),
            runs: runs.clone(),
            clock: self.hosts.clone(),
            prefix: prefix.clone(),
            owner: owner.to_owned(),
            max_message_bytes: 1_048_576,
            lease: LEASE,
            remember: self.settings.remember,
            sweeper: self.sweeper(faults, owner),
        }
    }

    /// A sweeper whose calls go through these faults.
    pub(crate) fn sweeper(&self, faults: &Faults, owner: &str) -> Sweeper {
        let ports = Ports {
            handler: Arc::new(NoHandler),
            clock: self.hosts.clone(),
            ..self.faulty(self.ports(), faults)
        };
        let settings = Settings { owner: owner.to_owned(), ..self.settings.clone() };
        let facts = |queue: &SimQueue| {
            let name = redrive::port::queue::Queue::name(queue).clone();
            self.engine.with(|engine, now| engine.facts(now, &name)).unwrap()
        };
        let context = fit(ports, settings, facts(&self.source), &facts(&self.dlq)).unwrap();
        Sweeper::new(context, self.rng())
    }

    /// All that is quarantined.
    pub(crate) async fn plan_all(&self, redriver: &Redriver) -> Result<Draft, RedriveError> {
        redriver.draft(&Selection::default(), Parked::default(), u64::MAX, 3).await
    }

    /// Opens a run over all that is quarantined.
    pub(crate) async fn open(
        &self,
        redriver: &Redriver,
        policy: RampPolicy,
    ) -> Result<Stored<Run>, RedriveError> {
        let dispatch = Dispatch::default();
        open_selected(redriver, &Selection::default(), policy, dispatch, self.rng()).await
    }

    /// Starts a run over all that is quarantined.
    pub(crate) async fn start(&self, redriver: &Redriver, policy: RampPolicy) -> Executing {
        let run = self.open(redriver, policy).await.unwrap();
        execute(redriver.clone(), run)
    }

    /// Runs a whole run, with a worker beside it.
    pub(crate) async fn redrive(&self, policy: RampPolicy) -> Report {
        let redriver = self.redriver(&Faults::new(), "executor");
        let worker = self.worker(&Faults::new()).await;
        let run = self.start(&redriver, policy).await.end().await.unwrap();
        worker.stop().await;
        redriver.report(&run).await.unwrap()
    }

    /// Runs a whole run of one record, with a worker beside it.
    pub(crate) async fn redrive_of(&self, id: &RecordId, policy: RampPolicy) -> Report {
        let redriver = self.redriver(&Faults::new(), "executor");
        let selection = Selection { records: vec![id.clone()], ..Selection::default() };
        let worker = self.worker(&Faults::new()).await;
        let dispatch = Dispatch::default();
        let run = open_selected(&redriver, &selection, policy, dispatch, self.rng()).await.unwrap();
        let run = execute(redriver.clone(), run).end().await.unwrap();
        worker.stop().await;
        redriver.report(&run).await.unwrap()
    }

    /// Starts a run over all that is quarantined, its copies sent so.
    pub(crate) async fn start_as(
        &self,
        redriver: &Redriver,
        policy: RampPolicy,
        dispatch: Dispatch,
    ) -> Executing {
        let all = Selection::default();
        let run = open_selected(redriver, &all, policy, dispatch, self.rng()).await.unwrap();
        execute(redriver.clone(), run)
    }

    /// Takes the open run over, once its executor's lease is over.
    pub(crate) async fn resume(&self, redriver: &Redriver) -> Executing {
        tokio::time::advance(LEASE).await;
        let run = redriver.find(None).await.unwrap().unwrap();
        let run = redriver.claim(run.get()).await.unwrap();
        execute(redriver.clone(), run)
    }

    pub(crate) async fn report(&self, id: &RunId) -> Report {
        let redriver = self.redriver(&Faults::new(), "reader");
        let run = redriver.find(Some(id)).await.unwrap().unwrap();
        let report = redriver.report(run.get()).await.unwrap();
        assert!(report.is_balanced(), "{:?}", report.counts);
        report
    }

    /// One pass over the DLQ, once every lock and every hold is over.
    pub(crate) async fn sweep(&self) -> Swept {
        tokio::time::advance(Duration::from_secs(61)).await;
        self.sweep_now(&Faults::new()).await
    }

    /// One pass over the DLQ, through these faults.
    pub(crate) async fn sweep_now(&self, faults: &Faults) -> Swept {
        let sweeper = self.sweeper(faults, "sweeper");
        sweeper.pass(u64::MAX, &CancellationToken::new()).await.unwrap()
    }

    /// A full sweep, once every lock and every hold is over.
    pub(crate) async fn sweep_full(&self) -> Swept {
        tokio::time::advance(Duration::from_secs(61)).await;
        let sweeper = self.sweeper(&Faults::new(), "sweeper");
        sweeper.full(&CancellationToken::new()).await.unwrap()
    }

    /// Parks these bodies, with the handler as it is.
    pub(crate) async fn park(&self, bodies: &[&str]) -> Vec<RecordId> {
        let mut sent = Vec::new();
        for body in bodies {
            sent.push(self.send(body).await);
        }
        self.work(&Faults::new()).await;
        assert!(sent.iter().all(|id| self.record(id).state == State::Quarantined));
        sent.iter().map(RecordId::from).collect()
    }

    /// Parks `count` different messages.
    pub(crate) async fn park_many(&self, count: usize) -> Vec<RecordId> {
        let bodies: Vec<String> = (0..count).map(|i| format!("bad {i}")).collect();
        self.park(&bodies.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// What an operator does to a record: the transition, written.
    pub(crate) async fn act(&self, id: &RecordId, event: Event, remember: Duration) {
        let now = self.hosts.wall();
        let before = self.ledger.records()[id].clone();
        let Ok(Step::Write(next)) = record::apply(Some(&before), &event, remember, now) else {
            panic!("{event:?} of a record that is {:?}", before.state);
        };
        let expect = Expect::Is(Box::new(before));
        let write = RecordWrite { id: id.clone(), expect, next: *next };
        assert!(self.ledger.put_record(&write, now).await.is_ok(), "it had changed");
    }

    /// How often the handler ran for this record.
    pub(crate) fn runs_of(&self, id: &RecordId) -> usize {
        self.handler.runs().iter().filter(|run| run.record_id == id.as_str()).count()
    }

    /// How many commits there are, and that none is twice: an origin commits once.
    pub(crate) fn commits(&self) -> usize {
        self.entries().iter().map(|entry| entry.commits.len()).sum()
    }

    /// The states of these records.
    pub(crate) fn states(&self, ids: &[RecordId]) -> Vec<State> {
        let records = self.ledger.records();
        ids.iter().map(|id| records[id].state).collect()
    }

    /// G1 for these records.
    pub(crate) async fn assert_none_lost(&self, ids: &[RecordId]) {
        tokio::time::advance(Duration::from_secs(61)).await;
        let ids: Vec<MessageId> =
            ids.iter().map(|id| MessageId::new(id.as_str()).unwrap()).collect();
        self.assert_nothing_lost(&ids);
    }
}

async fn open_selected(
    redriver: &Redriver,
    selection: &Selection,
    policy: RampPolicy,
    dispatch: Dispatch,
    mut rng: StdRng,
) -> Result<Stored<Run>, RedriveError> {
    let draft = redriver.draft(selection, Parked::default(), u64::MAX, 3).await?;
    let opening = Opening {
        note: None,
        operator: "operator".into(),
        policy,
        dispatch,
        max_redrives: 3,
        plan_hash: None,
    };
    redriver.open(&draft, opening, &mut rng).await
}

/// Executes a run in a task of its own.
pub(crate) fn execute(redriver: Redriver, run: Stored<Run>) -> Executing {
    let (stop, progress) = (CancellationToken::new(), Arc::<Mutex<Vec<_>>>::default());
    let (token, seen) = (stop.clone(), progress.clone());
    let task = tokio::spawn(async move {
        let clock = redriver.clock.clone();
        let mut watch = |now: Progress| seen.lock().unwrap().push((clock.mono(), now));
        redriver.execute(run, &token, &mut watch).await
    });
    Executing { task, stop, progress }
}

/// Plans, opens and executes: one executor's whole life in one task.
pub(crate) fn live(redriver: Redriver, policy: RampPolicy, rng: StdRng) -> Executing {
    let (stop, token) = (CancellationToken::new(), CancellationToken::new());
    let task = tokio::spawn(async move {
        let (all, dispatch) = (Selection::default(), Dispatch::default());
        let run = open_selected(&redriver, &all, policy, dispatch, rng).await?;
        redriver.execute(run, &token, &mut |_| {}).await
    });
    Executing { task, stop, progress: Arc::default() }
}
