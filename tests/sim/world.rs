//! One simulated world, and the invariants that hold at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use redrive::domain::backoff::Backoff;
use redrive::domain::breaker::Bounds;
use redrive::domain::entry::Entry;
use redrive::domain::envelope::Envelope;
use redrive::domain::failure::{Done, ErrorClass, Failure};
use redrive::domain::id::{MessageId, QueueName, RecordId};
use redrive::domain::identity::KeyStrategy;
use redrive::domain::message::{Attributes, Outgoing, Received};
use redrive::domain::record::{Record, State};
use redrive::domain::time::Wall;
use redrive::domain::token::{Carried, Marker, Token, recognise};
use redrive::port::clock::Clock as _;
use redrive::port::error::{PortError, Target};
use redrive::port::handler::{Handler, HandlerError, Job};
use redrive::port::queue::{Depth, Queue as _};
use redrive::service::consumer::{self, Ending};
use redrive::service::settings::{ErrorText, ExecuteRuns, Ports, Settings};
use redrive::service::shutdown::Stage;
use redrive::service::start::prepare;
use redrive::sim::clock::SimClock;
use redrive::sim::fault::{FaultLedger, FaultQueue, FaultRuns, FaultVault, Faults};
use redrive::sim::ledger::SimLedger;
use redrive::sim::queue::SimQueue;
use redrive::sim::shared::SharedEngine;
use redrive::sim::sqs::{Engine, ReceiveMessage, SendMessage};
use redrive::sim::vault::SimVault;
use redrive::telemetry::Telemetry;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::spy::Spy;

/// The longest a world may need, in simulated time.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);

/// One run of the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) idempotency_key: String,
    pub(crate) record_id: String,
    pub(crate) message_id: String,
    pub(crate) attempt: u32,
    pub(crate) body: String,
    pub(crate) receive_count: Option<u32>,
    pub(crate) at: tokio::time::Instant,
}

/// A handler that does what the body says: `bad…` fails for good, `flaky…` fails once a message,
/// `never…` fails always, `panic…` panics once, `slow…` takes 100 s; all else is done. In JSON, `do` says it.
#[derive(Debug, Default)]
pub(crate) struct Script {
    runs: Mutex<Vec<Run>>,
    fixed: Mutex<bool>,
    hard: Mutex<BTreeSet<String>>,
    takes: Mutex<Duration>,
    health: Mutex<Health>,
    running: Mutex<BTreeSet<String>>,
    overlaps: Mutex<usize>,
}

/// A run that has begun; dropped, it has ended.
struct Running<'a>(&'a Script, String);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().remove(&self.1);
    }
}

/// How the handler is, whatever the body says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Health {
    #[default]
    Well,
    /// Everything fails, and may succeed later.
    Sick,
    /// Nobody answers.
    Gone,
}

impl Script {
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// From now on everything is done, or not any more.
    pub(crate) fn set_fixed(&self, fixed: bool) {
        *self.fixed.lock().unwrap() = fixed;
    }

    /// These records are not helped by the fix.
    pub(crate) fn set_hard(&self, ids: impl IntoIterator<Item = RecordId>) {
        *self.hard.lock().unwrap() = ids.into_iter().map(|id| id.to_string()).collect();
    }

    /// From now on the handler is like this.
    pub(crate) fn set_health(&self, health: Health) {
        *self.health.lock().unwrap() = health;
    }

    /// From now on each run takes this long.
    pub(crate) fn set_takes(&self, takes: Duration) {
        *self.takes.lock().unwrap() = takes;
    }

    fn begin(&self, job: &Job) -> Running<'_> {
        let id = job.message_id.to_string();
        if !self.running.lock().unwrap().insert(id.clone()) {
            *self.overlaps.lock().unwrap() += 1;
        }
        Running(self, id)
    }

    /// How often a run of a message began before an earlier one of it had ended.
    pub(crate) fn overlaps(&self) -> usize {
        *self.overlaps.lock().unwrap()
    }

    fn note(&self, job: &Job) -> (String, usize) {
        let body = String::from_utf8(job.payload.to_vec()).unwrap();
        let mut runs = self.runs.lock().unwrap();
        let message_id = job.message_id.to_string();
        let before = runs.iter().filter(|run| run.message_id == message_id).count();
        runs.push(Run {
            idempotency_key: job.idempotency_key(),
            record_id: job.record_id.to_string(),
            message_id,
            attempt: job.attempt,
            body: body.clone(),
            receive_count: job.receive_count,
            at: tokio::time::Instant::now(),
        });
        (body, before)
    }
}

#[async_trait]
impl Handler for Script {
    fn kind(&self) -> &'static str {
        "library"
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, job: &Job, _timeout: Duration) -> Result<Done, HandlerError> {
        if *self.health.lock().unwrap() == Health::Gone {
            let target = Target::Handler;
            let error = PortError::new(ErrorClass::Transient, target, "call", "handler", "refused");
            return Err(HandlerError::Unreachable(error));
        }
        let (body, before) = self.note(job);
        let _running = self.begin(job);
        let verb = body.split_once(r#""do":""#).map_or(body.as_str(), |(_, verb)| verb);
        if verb.starts_with("slow") {
            tokio::time::timeout(Duration::from_secs(100), std::future::pending::<()>())
                .await
                .unwrap_err();
        }
        let takes = *self.takes.lock().unwrap();
        if !takes.is_zero() {
            // An interval, since its first tick is at once.
            let mut tick = tokio::time::interval(takes);
            tick.tick().await;
            tick.tick().await;
        }
        let failed = |failure| Err(HandlerError::Failed(Box::new(failure)));
        let hard = self.hard.lock().unwrap().contains(job.record_id.as_str());
        let fixed = *self.fixed.lock().unwrap() && !hard;
        let is_sick = *self.health.lock().unwrap() == Health::Sick;
        match verb.get(..3) {
            _ if is_sick => failed(Failure::transient("SICK", "try later")),
            _ if fixed => Ok(Done::default()),
            Some("bad") => failed(Failure::permanent("BAD", "text with \u{0} and \u{1b}[31m")),
            Some("nev") => failed(Failure::transient("NEVER", "try later")),
            Some("fla") if before == 0 => failed(Failure::transient("FLAKY", "try later")),
            Some("pan") if before == 0 => panic!("the handler panics"),
            _ => Ok(Done::default()),
        }
    }
}

pub(crate) struct World {
    /// SQS's clock.
    pub(crate) clock: Arc<SimClock>,
    /// The clock of workers and executors: the same until a test moves it.
    pub(crate) hosts: Arc<SimClock>,
    pub(crate) engine: Arc<SharedEngine>,
    pub(crate) ledger: Arc<SimLedger>,
    pub(crate) vault: Arc<SimVault>,
    pub(crate) handler: Arc<Script>,
    pub(crate) settings: Settings,
    pub(crate) source: SimQueue,
    pub(crate) dlq: SimQueue,
    /// The source as executors reach it.
    pub(crate) spy: Arc<Spy>,
    seed: Mutex<u64>,
}

/// A running worker.
pub(crate) struct Worker {
    task: JoinHandle<Ending>,
    stop: watch::Sender<Stage>,
    pub(crate) telemetry: Telemetry,
}

impl Worker {
    /// It ends without another word.
    pub(crate) async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    pub(crate) fn signal(&self, stage: Stage) {
        self.stop.send_replace(stage);
    }

    pub(crate) async fn stop(self) -> Ending {
        self.signal(Stage::Draining);
        self.end().await
    }

    pub(crate) async fn end(self) -> Ending {
        self.task.await.unwrap()
    }
}

fn settings() -> Settings {
    Settings {
        wait: Duration::from_secs(20),
        visibility: None,
        concurrency: 16,
        pollers_max: 4,
        breaker: Bounds {
            window: Duration::from_secs(30),
            min_outcomes: 20,
            open_ratio: 0.5,
            probe_after: Duration::from_secs(5),
        },
        handler_timeout: Duration::from_secs(600),
        max_attempts: None,
        crash_limit: 3,
        confidence_floor: 0.75,
        grace: Duration::from_secs(25),
        retry: Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(900) },
        strategy: KeyStrategy::Payload,
        repeat_window: Duration::from_secs(300),
        remember: Duration::from_secs(30 * 86_400),
        labels: vec![],
        schema: None,
        prefix: String::new(),
        error_text: ErrorText::Ledger,
        sweep_every: Duration::from_secs(300),
        sweep_full_every: Duration::from_secs(86_400),
        run_lease: Duration::from_secs(15),
        runs: ExecuteRuns::No,
        owner: "worker".into(),
        host: "host".into(),
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_limits(5, 1_048_576)
    }

    /// A world whose source has this maxReceiveCount and whose DLQ this MaximumMessageSize.
    pub(crate) fn with_limits(max_receive_count: u32, dlq_bytes: usize) -> Self {
        Self::build(["orders", "orders-dlq"], max_receive_count, dlq_bytes)
    }

    /// A world whose queues are FIFO.
    pub(crate) fn fifo() -> Self {
        Self::build(["orders.fifo", "orders-dlq.fifo"], 5, 1_048_576)
    }

    /// The same with this maxReceiveCount.
    pub(crate) fn fifo_with_limit(max_receive_count: u32) -> Self {
        Self::build(["orders.fifo", "orders-dlq.fifo"], max_receive_count, 1_048_576)
    }

    fn build(names: [&str; 2], max_receive_count: u32, dlq_bytes: usize) -> Self {
        let base = Wall::from_ms(1_764_000_000_000);
        let clock = Arc::new(SimClock::starting_at(base));
        let engine = Arc::new(SharedEngine::new(Engine::new(1), clock.clone()));
        let create = |name: &str, attributes: &[(&str, &str)]| {
            let fifo = name.ends_with(".fifo").then_some(("FifoQueue", "true"));
            let attributes = attributes.iter().copied().chain(fifo);
            let attributes = attributes.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            engine
                .with(|e, now| e.create_queue(now, name, &attributes, BTreeMap::default()))
                .unwrap()
        };
        let dlq = create(
            names[1],
            &[
                ("MessageRetentionPeriod", "1209600"),
                ("MaximumMessageSize", &dlq_bytes.to_string()),
            ],
        );
        let arn = engine.with(|e, now| e.facts(now, &dlq)).unwrap().arn;
        let policy =
            format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{max_receive_count}}}"#);
        let source = create(names[0], &[("RedrivePolicy", &policy)]);
        let queue = |name: QueueName| SimQueue::new(engine.clone(), name);
        let (source, ledger) = (queue(source), Arc::new(SimLedger::new()));
        Self {
            spy: Arc::new(Spy::new(source.clone(), ledger.clone(), clock.clone())),
            source,
            dlq: queue(dlq),
            ledger,
            hosts: Arc::new(SimClock::starting_at(base)),
            vault: Arc::new(SimVault::new()),
            handler: Arc::new(Script::default()),
            settings: settings(),
            seed: Mutex::new(0),
            clock,
            engine,
        }
    }

    pub(crate) async fn send(&self, body: &str) -> MessageId {
        self.send_with(body, Attributes::new()).await
    }

    pub(crate) async fn send_with(&self, body: &str, attributes: Attributes) -> MessageId {
        let message = Outgoing { body: body.into(), attributes, ..Outgoing::default() };
        self.send_message(message).await
    }

    pub(crate) async fn send_message(&self, message: Outgoing) -> MessageId {
        let mut answer = self.source.send(&[message]).await.unwrap();
        answer.remove(0).unwrap().into_inner().message_id
    }

    /// Receives what is in the source so many times and works on none of it.
    pub(crate) async fn receive_in_vain(&self, times: usize) {
        let name = self.source.name().clone();
        let visibility = Some(Duration::from_secs(1));
        for _ in 0..times {
            let request = ReceiveMessage { max: 10, visibility, ..ReceiveMessage::default() };
            self.engine.with(|e, now| e.receive(now, &name, &request)).unwrap();
            tokio::time::advance(Duration::from_secs(2)).await;
        }
    }

    /// Sends a message so many times that shows only after a while.
    pub(crate) fn flood(&self, message: &Outgoing, count: usize, delay: Duration) {
        let name = self.source.name().clone();
        for n in 0..count {
            let message = Outgoing { body: format!("{} {n}", message.body), ..message.clone() };
            let request = SendMessage { message, delay_secs: Some(delay.as_secs()) };
            self.engine.with(|e, now| e.send(now, &name, request)).unwrap();
        }
    }

    /// Sets the source's maxReceiveCount.
    pub(crate) fn set_limit(&self, max_receive_count: u32) {
        let name = self.source.name().clone();
        let arn = self.engine.with(|e, now| e.facts(now, self.dlq.name())).unwrap().arn;
        let policy =
            format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{max_receive_count}}}"#);
        let attributes = BTreeMap::from([("RedrivePolicy".to_owned(), policy)]);
        self.engine.with(|e, now| e.set_attributes(now, &name, &attributes)).unwrap();
    }

    /// Starts a worker whose calls go through these faults, counted from its first receive.
    pub(crate) async fn worker(&self, faults: &Faults) -> Worker {
        self.worker_on(&self.hosts, faults).await
    }

    /// A worker that sweeps on its period, too, and executes runs if it is asked to.
    pub(crate) async fn whole_worker(&self, faults: &Faults) -> Worker {
        let plain = Ports { source: self.spy.clone(), ..self.ports() };
        let ports = self.faulty(plain.clone(), faults);
        let context = prepare(plain, self.settings.clone()).await.unwrap().with_ports(ports);
        let (stop, stages) = watch::channel(Stage::Running);
        let telemetry = context.telemetry().clone();
        let task = tokio::spawn(redrive::service::worker::run(context, stages, self.rng()));
        Worker { task, stop, telemetry }
    }

    /// The same on a clock of its own.
    pub(crate) async fn worker_on(&self, clock: &Arc<SimClock>, faults: &Faults) -> Worker {
        let plain = Ports { clock: clock.clone(), ..self.ports() };
        let ports = self.faulty(plain.clone(), faults);
        let context = prepare(plain, self.settings.clone()).await.unwrap().with_ports(ports);
        let (stop, stages) = watch::channel(Stage::Running);
        let telemetry = context.telemetry().clone();
        Worker { task: tokio::spawn(consumer::run(context, stages, self.rng())), stop, telemetry }
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports {
            source: Arc::new(self.source.clone()),
            dlq: Arc::new(self.dlq.clone()),
            vault: self.vault.clone(),
            ledger: self.ledger.clone(),
            runs: self.ledger.clone(),
            handler: self.handler.clone(),
            clock: self.hosts.clone(),
        }
    }

    /// The same ports behind these faults.
    pub(crate) fn faulty(&self, plain: Ports, faults: &Faults) -> Ports {
        Ports {
            source: Arc::new(FaultQueue::new(plain.source, faults.clone())),
            dlq: Arc::new(FaultQueue::new(plain.dlq, faults.clone())),
            vault: Arc::new(FaultVault::new(plain.vault, faults.clone())),
            ledger: Arc::new(FaultLedger::new(plain.ledger, faults.clone())),
            runs: Arc::new(FaultRuns::new(plain.runs, faults.clone())),
            ..plain
        }
    }

    /// Chance: another for each use, the same in each run.
    pub(crate) fn rng(&self) -> StdRng {
        let mut seed = self.seed.lock().unwrap();
        *seed += 1;
        StdRng::seed_from_u64(*seed)
    }

    /// Runs a worker until the source is empty.
    pub(crate) async fn work(&self, faults: &Faults) {
        let worker = self.worker(faults).await;
        self.wait_until("an empty source", || self.depth(&self.source) == Depth::default()).await;
        assert_eq!(worker.stop().await, Ending::Drained);
    }

    /// Lets simulated time pass until a condition holds.
    pub(crate) async fn wait_until(&self, what: &str, condition: impl Fn() -> bool) {
        let started = self.clock.mono();
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        while !condition() {
            tick.tick().await;
            assert!(self.clock.mono().since(started) < PATIENCE, "no {what}");
        }
    }

    pub(crate) fn depth(&self, queue: &SimQueue) -> Depth {
        self.engine
            .with(|e, now| e.facts(now, redrive::port::queue::Queue::name(queue)))
            .unwrap()
            .depth
    }

    /// Everything in the DLQ, left there.
    pub(crate) fn dead_letters(&self) -> Vec<Received> {
        let name = redrive::port::queue::Queue::name(&self.dlq).clone();
        let request = ReceiveMessage {
            max: 10,
            visibility: Some(Duration::from_secs(1)),
            ..ReceiveMessage::default()
        };
        let mut all = Vec::new();
        loop {
            let got = self.engine.with(|e, now| e.receive(now, &name, &request)).unwrap();
            if got.is_empty() {
                return all;
            }
            all.extend(got);
        }
    }

    /// Everything in the DLQ, once an earlier look is over.
    pub(crate) async fn dead_letters_after_a_second(&self) -> Vec<Received> {
        tokio::time::advance(Duration::from_secs(2)).await;
        self.dead_letters()
    }

    pub(crate) fn tokens(&self) -> Vec<Token> {
        let queue = redrive::port::queue::Queue::name(&self.source);
        let token = |m: Received| match recognise(&m.body, &m.attributes, queue) {
            Some(Carried::Inline(Marker::Token(t)) | Carried::Pointer(Marker::Token(t))) => Some(t),
            _ => None,
        };
        self.dead_letters().into_iter().filter_map(token).collect()
    }

    pub(crate) fn record(&self, id: &MessageId) -> Record {
        self.ledger.records().remove(&RecordId::from(id)).unwrap()
    }

    pub(crate) fn envelope(&self, record: &Record) -> Envelope {
        Envelope::decode(self.vault.objects().get(&record.envelope).unwrap()).unwrap()
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.ledger.entries().into_values().collect()
    }

    /// G1 and G2 at a quiescent moment: every message is in the source, or committed, or quarantined with
    /// a readable envelope and a token that counts; no origin is committed twice.
    pub(crate) fn assert_nothing_lost(&self, sent: &[MessageId]) {
        let committed: BTreeSet<RecordId> =
            self.entries().iter().flat_map(|entry| entry.commits.keys().cloned()).collect();
        let tokens = self.tokens();
        for id in sent {
            let record = self.ledger.records().remove(&RecordId::from(id));
            match record {
                None => assert!(committed.contains(&RecordId::from(id)), "{id} is lost"),
                Some(record) => {
                    self.envelope(&record);
                    let counts = |t: &Token| t.park == record.park_token;
                    if record.state == State::Quarantined {
                        assert!(tokens.iter().any(counts), "{id} has no token that counts");
                    }
                }
            }
        }
    }
}
