//! Redrivers of one world, over its wire, and the handler after the fix.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use redrive::domain::dispatch::Dispatch;
use redrive::domain::failure::{Done, Failure};
use redrive::domain::message::{Attributes, Outgoing};
use redrive::domain::ramp::RampPolicy;
use redrive::domain::run::Run;
use redrive::domain::selection::Selection;
use redrive::port::evidence::Stored;
use redrive::port::handler::{Handler, HandlerError, Job};
use redrive::port::queue::Queue as _;
use redrive::service::query::Parked;
use redrive::service::redrive::{Draft, Opening, Progress, RedriveError, Redriver, Report};
use redrive::service::settings::{Ports, Settings};
use redrive::service::start::fit;
use redrive::service::sweeper::{NoHandler, Sweeper};
use redrive::sim::ledger::SimLedger;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::{Adapters, Worker, World};

/// How long an executor may be silent.
const LEASE: Duration = Duration::from_secs(15);

/// Fast from the start, and nothing that fails stops it.
pub(crate) fn patient() -> RampPolicy {
    RampPolicy {
        canary: 5,
        start_rate: 50.0,
        growth: 2.0,
        step: Duration::from_secs(30),
        max_rate: 50.0,
        max_in_doubt: 1_000,
        max_failure_ratio: 1.0,
        max_backlog: 10_000,
        outcome_timeout: Duration::from_secs(900),
    }
}

/// One attempt, after the fix.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) record_id: String,
    pub(crate) body: String,
    pub(crate) group_id: Option<String>,
    pub(crate) attributes: Attributes,
}

/// The handler after the fix: what is called hard fails all the same, what is called soft fails once a
/// message, all else is done.
#[derive(Debug, Default)]
pub(crate) struct Fixed {
    attempts: Mutex<Vec<Attempt>>,
    seen: Mutex<BTreeMap<String, usize>>,
}

impl Fixed {
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.attempts.lock().unwrap().clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.attempts().into_iter().map(|attempt| attempt.body).collect()
    }
}

#[async_trait]
impl Handler for Fixed {
    fn kind(&self) -> &'static str {
        "library"
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, job: &Job, _timeout: Duration) -> Result<Done, HandlerError> {
        let body = String::from_utf8(job.payload.to_vec()).unwrap();
        let before = {
            let mut seen = self.seen.lock().unwrap();
            let times = seen.entry(job.message_id.to_string()).or_default();
            *times += 1;
            *times - 1
        };
        self.attempts.lock().unwrap().push(Attempt {
            record_id: job.record_id.to_string(),
            body: body.clone(),
            group_id: job.group_id.clone(),
            attributes: job.attributes.clone(),
        });
        let failed = |failure| Err(HandlerError::Failed(Box::new(failure)));
        if body.contains("hard") {
            return failed(Failure::permanent("HARD", "still bad"));
        }
        if body.contains("soft") && before == 0 {
            return failed(Failure::transient("SOFT", "once more"));
        }
        Ok(Done::default())
    }
}

/// An executor at work.
pub(crate) struct Executing {
    task: JoinHandle<Result<Run, RedriveError>>,
    progress: Arc<Mutex<Vec<Progress>>>,
}

impl Executing {
    /// It ends without another word.
    pub(crate) async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.is_err_and(|e| e.is_cancelled()), "it had ended before");
    }

    pub(crate) fn rates(&self) -> Vec<f64> {
        self.progress.lock().unwrap().iter().map(|progress| progress.rate).collect()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    pub(crate) async fn end(self) -> Result<Run, RedriveError> {
        self.task.await.unwrap()
    }
}

impl World {
    fn ports_by(&self, by: &Adapters, handler: Arc<dyn Handler>) -> Ports {
        let ledger = Arc::new(by.ledger.clone());
        Ports {
            source: Arc::new(by.source.clone()),
            dlq: Arc::new(by.dlq.clone()),
            vault: Arc::new(by.vault.clone()),
            ledger: ledger.clone(),
            runs: ledger,
            handler,
            clock: self.clock.clone(),
        }
    }

    /// A redriver whose calls go over the wire.
    pub(crate) async fn redriver(&self) -> Redriver {
        self.redriver_with(|ports| ports).await
    }

    /// The same with some of its ports replaced.
    pub(crate) async fn redriver_with(&self, replace: impl FnOnce(Ports) -> Ports) -> Redriver {
        let ports = replace(self.ports_by(&self.faulty, Arc::new(NoHandler)));
        let facts = self.clean.source.facts().await.unwrap();
        let dlq = self.clean.dlq.facts().await.unwrap();
        let settings = Settings { owner: "executor".into(), ..self.settings.clone() };
        let max_message_bytes = facts.max_message_bytes;
        let context = fit(ports.clone(), settings, facts, &dlq).unwrap();
        Redriver {
            source: ports.source,
            to: None,
            vault: ports.vault,
            ledger: ports.ledger,
            runs: ports.runs,
            clock: ports.clock,
            prefix: self.settings.prefix.clone(),
            owner: "executor".into(),
            max_message_bytes,
            lease: LEASE,
            remember: self.settings.remember,
            sweeper: Sweeper::new(context, StdRng::seed_from_u64(7)),
        }
    }

    /// A worker with the handler after the fix.
    pub(crate) async fn fixed_worker(&self) -> (Worker, Arc<Fixed>) {
        let handler = Arc::<Fixed>::default();
        let with = handler.clone();
        (self.worker_with(|ports| Ports { handler: with, ..ports }).await, handler)
    }

    /// The same, on a clean way to AWS: its requests are not counted. The ledger is in memory.
    pub(crate) async fn clean_worker(&self, ledger: &Arc<SimLedger>) -> Worker {
        let ports = self.ports_by(&self.clean, Arc::<Fixed>::default());
        self.worker_with(|_| in_memory(ledger)(ports)).await
    }

    /// Parks so many messages, in a ledger that is in memory: a run of many is shown sooner.
    pub(crate) async fn park_in_memory(&self, count: usize) -> Arc<SimLedger> {
        let ledger = Arc::new(SimLedger::new());
        self.send_all((0..count).map(|n| message(format!("bad {n}"))).collect()).await;
        let ports = self.ports_by(&self.clean, self.handler.clone());
        let worker = self.worker_with(|_| in_memory(&ledger)(ports)).await;
        self.wait_for_empty_source().await;
        worker.stop().await;
        assert_eq!(ledger.records().len(), count);
        ledger
    }

    /// Parks these bodies with the handler as it is: each begins with `bad`.
    pub(crate) async fn park(&self, messages: Vec<Outgoing>) -> Vec<redrive::domain::id::RecordId> {
        let ids = self.send_all(messages).await;
        self.work().await;
        let records = self.records().await;
        let ids: Vec<_> = ids.iter().map(redrive::domain::id::RecordId::from).collect();
        assert!(ids.iter().all(|id| records.contains_key(id)), "not all are parked");
        ids
    }

    /// Takes the open run over, once its executor's lease is over.
    pub(crate) async fn take_over(&self, redriver: &Redriver) -> Executing {
        crate::script::pass(LEASE).await;
        let run = redriver.find(None).await.unwrap().unwrap();
        execute(redriver.clone(), redriver.claim(run.get()).await.unwrap())
    }

    /// Runs a whole run over all that is quarantined, with a fixed worker beside it.
    pub(crate) async fn redrive(&self, policy: RampPolicy) -> (Report, Arc<Fixed>) {
        let redriver = self.redriver().await;
        let (worker, handler) = self.fixed_worker().await;
        let run = start(&redriver, policy).await.end().await.unwrap();
        worker.stop().await;
        (redriver.report(&run).await.unwrap(), handler)
    }
}

/// Puts this ledger in the place of the one in AWS.
pub(crate) fn in_memory(ledger: &Arc<SimLedger>) -> impl FnOnce(Ports) -> Ports {
    let ledger = ledger.clone();
    move |ports| Ports { ledger: ledger.clone(), runs: ledger, ..ports }
}

/// A message of this body.
pub(crate) fn message(body: impl Into<String>) -> Outgoing {
    Outgoing { body: body.into(), ..Outgoing::default() }
}

/// All that is quarantined.
pub(crate) async fn plan_all(redriver: &Redriver) -> Draft {
    redriver.draft(&Selection::default(), Parked::default(), u64::MAX, 3).await.unwrap()
}

/// Opens a run of a plan.
pub(crate) async fn open(
    redriver: &Redriver,
    draft: &Draft,
    policy: RampPolicy,
) -> Result<Stored<Run>, RedriveError> {
    let opening = Opening {
        note: None,
        operator: "operator".into(),
        policy,
        dispatch: Dispatch::default(),
        max_redrives: 3,
        plan_hash: None,
    };
    redriver.open(draft, opening, &mut StdRng::seed_from_u64(draft.cutoff.as_ms())).await
}

/// Starts a run over all that is quarantined.
pub(crate) async fn start(redriver: &Redriver, policy: RampPolicy) -> Executing {
    let draft = plan_all(redriver).await;
    execute(redriver.clone(), open(redriver, &draft, policy).await.unwrap())
}

/// Executes a run in a task of its own.
pub(crate) fn execute(redriver: Redriver, run: Stored<Run>) -> Executing {
    let progress = Arc::<Mutex<Vec<Progress>>>::default();
    let seen = progress.clone();
    let task = tokio::spawn(async move {
        let mut watch = |now: Progress| seen.lock().unwrap().push(now);
        redriver.execute(run, &CancellationToken::new(), &mut watch).await
    });
    Executing { task, progress }
}
