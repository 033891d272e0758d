//! One world: an embedded AWS, a worker of this process that reaches it over a wire with faults, and a
//! clean way there for whoever looks. All of it runs on tokio's paused time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use redrive::aws::client::Aws;
use redrive::aws::dynamodb::AwsLedger;
use redrive::aws::s3::{AwsVault, Place};
use redrive::aws::setup::{SetupSpec, setup};
use redrive::aws::sqs::AwsQueue;
use redrive::domain::backoff::Backoff;
use redrive::domain::breaker::Bounds;
use redrive::domain::envelope::Envelope;
use redrive::domain::id::{MessageId, QueueName, RecordId};
use redrive::domain::identity::KeyStrategy;
use redrive::domain::message::{MAX_BATCH_ENTRIES, Outgoing, Received};
use redrive::domain::record::{Record, State};
use redrive::domain::time::Wall;
use redrive::domain::token::{Carried, Marker, Token, recognise};
use redrive::local::LocalAws;
use redrive::port::clock::Clock as _;
use redrive::port::ledger::Ledger as _;
use redrive::port::queue::{Depth, Queue as _};
use redrive::port::vault::Vault as _;
use redrive::service::consumer::Ending;
use redrive::service::settings::{ErrorText, ExecuteRuns, Ports, Settings};
use redrive::service::shutdown::Stage;
use redrive::service::start::prepare;
use redrive::service::worker;
use redrive::sim::clock::SimClock;
use redrive::telemetry::Telemetry;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script::{Script, pass};
use crate::wire::Wire;
use crate::wire::client::client;

const TABLE: &str = "ledger";
const BUCKET: &str = "vault";
/// The longest a world may need, in its own time.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);

/// What is made for a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) visibility: Duration,
    pub(crate) max_receive_count: u32,
}

/// The kind of its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Standard,
    Fifo,
}

impl Default for Spec {
    fn default() -> Self {
        let visibility = Duration::from_secs(30);
        Self { kind: Kind::Standard, visibility, max_receive_count: 5 }
    }
}

/// The adapters, by one way to AWS.
pub(crate) struct Adapters {
    pub(crate) source: AwsQueue,
    pub(crate) dlq: AwsQueue,
    pub(crate) vault: AwsVault,
    pub(crate) ledger: AwsLedger,
}

impl Adapters {
    async fn new(aws: &Aws, spec: &SetupSpec) -> Self {
        let place = Place {
            bucket: BUCKET.to_owned(),
            prefix: String::new(),
            expected_owner: None,
            kms_key_id: None,
        };
        Self {
            source: AwsQueue::resolve(aws, spec.queue.as_str()).await.unwrap(),
            dlq: AwsQueue::resolve(aws, spec.dlq.as_str()).await.unwrap(),
            vault: AwsVault::new(aws, place),
            ledger: AwsLedger::new(aws, TABLE, spec.queue.clone()),
        }
    }

    fn ports(&self, handler: Arc<Script>, clock: Arc<SimClock>) -> Ports {
        Ports {
            source: Arc::new(self.source.clone()),
            dlq: Arc::new(self.dlq.clone()),
            vault: Arc::new(self.vault.clone()),
            ledger: Arc::new(self.ledger.clone()),
            runs: Arc::new(self.ledger.clone()),
            handler,
            clock,
        }
    }
}

/// One world.
pub(crate) struct World {
    /// The time of everybody.
    pub(crate) clock: Arc<SimClock>,
    /// What the workers' requests go over.
    pub(crate) wire: Wire,
    pub(crate) handler: Arc<Script>,
    pub(crate) settings: Settings,
    /// AWS as it is.
    pub(crate) clean: Adapters,
    /// AWS as the workers reach it.
    pub(crate) faulty: Adapters,
    table: aws_sdk_dynamodb::Client,
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

fn table(local: &Arc<LocalAws>) -> aws_sdk_dynamodb::Client {
    let credentials =
        aws_sdk_dynamodb::config::Credentials::new("test", "test", None, None, "test");
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
        .region(aws_sdk_dynamodb::config::Region::new("us-east-1"))
        .endpoint_url(local.endpoint())
        .credentials_provider(credentials)
        .http_client(client(&Wire::new(), local));
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Spec::default()).await
    }

    pub(crate) async fn with(spec: Spec) -> Self {
        let clock = Arc::new(SimClock::starting_at(Wall::from_ms(1_764_000_000_000)));
        let local = Arc::new(LocalAws::start(0, clock.clone(), 1).await.unwrap());
        let wire = Wire::new();
        let reach = |wire| Aws::embedded_through(&local.endpoint(), client(wire, &local));
        let (clean, faulty) = (reach(&Wire::new()), reach(&wire));
        let [queue, dlq] = match spec.kind {
            Kind::Standard => ["orders", "orders-dlq"],
            Kind::Fifo => ["orders.fifo", "orders-dlq.fifo"],
        };
        let spec = SetupSpec {
            queue: QueueName::new(queue).unwrap(),
            dlq: QueueName::new(dlq).unwrap(),
            max_receive_count: spec.max_receive_count,
            visibility_timeout: spec.visibility,
            bucket: BUCKET.to_owned(),
            table: TABLE.to_owned(),
        };
        setup(&clean, &spec).await.unwrap();
        let faulty = Adapters::new(&faulty, &spec).await;
        wire.clear_log();
        Self {
            clean: Adapters::new(&clean, &spec).await,
            faulty,
            table: table(&local),
            clock,
            wire,
            handler: Arc::default(),
            settings: settings(),
            seed: Mutex::new(0),
        }
    }

    /// Sends one message; to a FIFO queue, in a group of its own.
    pub(crate) async fn send(&self, body: &str) -> MessageId {
        let own = self.clean.source.name().is_fifo().then(|| body.to_owned());
        let message = Outgoing {
            body: body.into(),
            group_id: own.clone(),
            deduplication_id: own,
            ..Outgoing::default()
        };
        self.send_all(vec![message]).await.remove(0)
    }

    /// Sends messages in full batches.
    pub(crate) async fn send_all(&self, messages: Vec<Outgoing>) -> Vec<MessageId> {
        let mut ids = Vec::new();
        for batch in messages.chunks(MAX_BATCH_ENTRIES) {
            for sent in self.clean.source.send(batch).await.unwrap() {
                ids.push(sent.unwrap().into_inner().message_id);
            }
        }
        ids
    }

    /// Starts a worker whose calls go over the wire, from its first receive on: what it asks for at its
    /// start is answered and not counted.
    pub(crate) async fn worker(&self) -> Worker {
        self.worker_with(|ports| ports).await
    }

    /// The same with some of its ports replaced.
    pub(crate) async fn worker_with(&self, replace: impl FnOnce(Ports) -> Ports) -> Worker {
        let ports = |by: &Adapters| by.ports(self.handler.clone(), self.clock.clone());
        let context = prepare(ports(&self.clean), self.settings.clone()).await.unwrap();
        let context = context.with_ports(replace(ports(&self.faulty)));
        let (stop, stages) = watch::channel(Stage::Running);
        let telemetry = context.telemetry().clone();
        Worker { task: tokio::spawn(worker::run(context, stages, self.rng())), stop, telemetry }
    }

    /// Chance: another for each use, the same in each run.
    fn rng(&self) -> StdRng {
        let mut seed = self.seed.lock().unwrap();
        *seed += 1;
        StdRng::seed_from_u64(*seed)
    }

    /// Runs a worker until the source is empty. How it ends then is told, since a fault of the last poll
    /// may outlast the grace.
    pub(crate) async fn work(&self) -> Ending {
        let worker = self.worker().await;
        self.wait_for_empty_source().await;
        worker.stop().await
    }

    pub(crate) async fn wait_for_empty_source(&self) {
        self.wait_until("an empty source", async || {
            self.depth(&self.clean.source).await == Depth::default()
        })
        .await;
    }

    /// Lets time pass until a condition holds.
    pub(crate) async fn wait_until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let started = self.clock.mono();
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        while !condition().await {
            tick.tick().await;
            assert!(self.clock.mono().since(started) < PATIENCE, "no {what}");
        }
    }

    pub(crate) async fn source_depth(&self) -> Depth {
        self.depth(&self.clean.source).await
    }

    pub(crate) async fn dlq_depth(&self) -> Depth {
        self.depth(&self.clean.dlq).await
    }

    async fn depth(&self, queue: &AwsQueue) -> Depth {
        queue.facts().await.unwrap().depth
    }

    /// All items of the table whose key begins so, by the rest of their key.
    async fn items(&self, kind: &str) -> BTreeMap<String, HashMap<String, AttributeValue>> {
        let beginning = format!("{kind}#{}#", self.clean.source.name());
        let mut pages = self.table.scan().table_name(TABLE).consistent_read(true);
        let mut found = BTreeMap::new();
        loop {
            let page = pages.clone().send().await.unwrap();
            for item in page.items.unwrap_or_default() {
                let key = item["pk"].as_s().unwrap();
                if let Some(rest) = key.strip_prefix(&beginning) {
                    found.insert(rest.to_owned(), item);
                }
            }
            let Some(last) = page.last_evaluated_key else { return found };
            pages = pages.set_exclusive_start_key(Some(last));
        }
    }

    /// The entries as they are stored.
    pub(crate) async fn entry_items(&self) -> Vec<HashMap<String, AttributeValue>> {
        self.items("idem").await.into_values().collect()
    }

    /// The origins of all commits, by entry.
    pub(crate) async fn commits(&self) -> BTreeMap<String, BTreeSet<RecordId>> {
        let origins = |item: &HashMap<String, AttributeValue>| {
            let commits = item.get("commits").map(|commits| commits.as_m().unwrap());
            let ids = commits.into_iter().flat_map(HashMap::keys);
            ids.map(|id| RecordId::new(id.clone()).unwrap()).collect()
        };
        let items = self.items("idem").await;
        items.iter().map(|(key, item)| (key.clone(), origins(item))).collect()
    }

    /// All records.
    pub(crate) async fn records(&self) -> BTreeMap<RecordId, Record> {
        let mut records = BTreeMap::new();
        for id in self.items("rec").await.into_keys() {
            let id = RecordId::new(id).unwrap();
            if let Some(record) = self.clean.ledger.record(&id, self.clock.wall()).await.unwrap() {
                records.insert(id, record.into_inner());
            }
        }
        records
    }

    pub(crate) async fn record(&self, id: &MessageId) -> Record {
        self.records().await.remove(&RecordId::from(id)).unwrap()
    }

    pub(crate) async fn envelope(&self, record: &Record) -> Envelope {
        Envelope::decode(&self.clean.vault.get(&record.envelope).await.unwrap()).unwrap()
    }

    /// Everything in the DLQ, hidden for a second.
    pub(crate) async fn dead_letters(&self) -> Vec<Received> {
        let mut all: Vec<Received> = Vec::new();
        loop {
            let hidden = Some(Duration::from_secs(1));
            let got = self.clean.dlq.receive(10, Duration::ZERO, hidden).await.unwrap();
            if got.is_empty() {
                return all;
            }
            all.extend(got);
        }
    }

    /// The token that a DLQ message is, if it is one of this source's.
    pub(crate) fn token(&self, message: &Received) -> Option<Token> {
        match recognise(&message.body, &message.attributes, self.clean.source.name()) {
            Some(Carried::Inline(Marker::Token(t)) | Carried::Pointer(Marker::Token(t))) => Some(t),
            _ => None,
        }
    }

    /// Takes what is left in the source, also what is hidden, once it shows.
    async fn take_source(&self) -> BTreeSet<MessageId> {
        let mut taken = BTreeSet::new();
        let started = self.clock.mono();
        loop {
            let hidden = Some(Duration::from_secs(12 * 3_600));
            let got = self.clean.source.receive(10, Duration::ZERO, hidden).await.unwrap();
            let is_over = got.is_empty();
            taken.extend(got.into_iter().map(|message| message.message_id));
            let Depth { visible, in_flight, delayed } = self.source_depth().await;
            if is_over && visible + in_flight + delayed <= taken.len() as u64 {
                return taken;
            }
            if is_over {
                pass(Duration::from_secs(1)).await;
            }
            assert!(self.clock.mono().since(started) < PATIENCE, "the source never shows all");
        }
    }

    /// G1 at the end of a world: every message is in the source, or committed, or in the DLQ as SQS itself
    /// moved it, or quarantined with a readable envelope of its own body and a token that counts. Takes
    /// whatever is left in the source.
    pub(crate) async fn assert_nothing_lost(&self, sent: &[MessageId]) {
        let left = self.take_source().await;
        // A sweep may have hidden some.
        self.wait_until("a DLQ in view", async || self.dlq_depth().await.in_flight == 0).await;
        let dead = self.dead_letters().await;
        let bare: BTreeSet<MessageId> = dead.iter().map(|dead| dead.message_id.clone()).collect();
        let tokens: Vec<Token> = dead.iter().filter_map(|dead| self.token(dead)).collect();
        let commits = self.commits().await;
        let committed: BTreeSet<&RecordId> = commits.values().flatten().collect();
        let records = self.records().await;
        for id in sent {
            let record_id = RecordId::from(id);
            let Some(record) = records.get(&record_id) else {
                let kept = left.contains(id) || bare.contains(id) || committed.contains(&record_id);
                assert!(kept, "{id} is lost");
                continue;
            };
            self.envelope(record).await;
            let counts = |token: &Token| token.park == record.park_token;
            let kept = left.contains(id) || tokens.iter().any(counts);
            assert!(kept || record.state != State::Quarantined, "{id} has no token that counts");
        }
    }

    /// G2: each of these is committed, in one entry.
    pub(crate) async fn assert_committed_once(&self, sent: &[MessageId]) {
        let mut times: BTreeMap<RecordId, usize> = BTreeMap::new();
        for origin in self.commits().await.into_values().flatten() {
            *times.entry(origin).or_default() += 1;
        }
        for id in sent {
            let times = times.get(&RecordId::from(id)).copied().unwrap_or_default();
            assert_eq!(times, 1, "{id} is committed {times} times");
        }
    }
}
