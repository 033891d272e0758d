//! The world of a storm: the binary's own, and a clean way into its AWS for whoever looks.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use redrive::aws::client::Aws;
use redrive::aws::dynamodb::AwsLedger;
use redrive::aws::s3::{AwsVault, Place};
use redrive::aws::sqs::AwsQueue;
use redrive::domain::envelope::Envelope;
use redrive::domain::id::{EnvelopeKey, QueueName, RecordId};
use redrive::domain::message::{MAX_BATCH_ENTRIES, Outgoing, Received};
use redrive::domain::record::Record;
use redrive::port::clock::Clock as _;
use redrive::port::ledger::Ledger as _;
use redrive::port::queue::{Depth, Queue as _};
use redrive::port::vault::Vault as _;
use redrive::system::SystemClock;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::harness::{self, HANG, Process, config, pause};
use crate::message::{HANDLER, Kind, Sent};

/// Handlers at once in each worker.
pub(crate) const CONCURRENCY: usize = 8;
/// Far above what a storm can use up: SQS's own policy is not what is tried.
const MAX_RECEIVE_COUNT: u32 = 10;
/// What all workers say.
pub(crate) const LOG: &str = "worker.log";

const TABLE: &str = "hooks-ledger";
const EXTRA: &str = r#"
[limits]
max_attempts = 4
crash_limit = 3
grace = "3s"

[retry]
base = "200ms"
cap = "1s"

[identity]
repeat_window = "1h"

[sweep]
every = "5s"

[telemetry]
metrics = "off"
"#;

/// An entry, as far as a proof needs it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) generation: String,
    pub(crate) origins: BTreeSet<String>,
}

/// One world.
pub(crate) struct World {
    own: harness::World,
    runtime: Runtime,
    source: AwsQueue,
    dlq: AwsQueue,
    vault: AwsVault,
    ledger: AwsLedger,
    table: aws_sdk_dynamodb::Client,
    clock: SystemClock,
}

impl World {
    pub(crate) fn new() -> Self {
        let source = format!("visibility_timeout = \"5s\"\nconcurrency = {CONCURRENCY}");
        let own = harness::World::new(&config(&["sh", "handler.sh"], &source, EXTRA));
        std::fs::write(own.path("handler.sh"), HANDLER).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let aws = Aws::embedded(own.endpoint());
        let queue = |name| runtime.block_on(AwsQueue::resolve(&aws, name)).unwrap();
        let (source, dlq) = (queue("hooks"), queue("hooks-dlq"));
        runtime.block_on(permit_receives(own.endpoint()));
        let place = Place {
            bucket: "hooks-vault".to_owned(),
            prefix: String::new(),
            expected_owner: None,
            kms_key_id: None,
        };
        let vault = AwsVault::new(&aws, place);
        let ledger = AwsLedger::new(&aws, TABLE, source.name().clone());
        let table = table(own.endpoint());
        Self { own, runtime, source, dlq, vault, ledger, table, clock: SystemClock::start() }
    }

    pub(crate) fn endpoint(&self) -> &str {
        self.own.endpoint()
    }

    pub(crate) fn queue(&self) -> &QueueName {
        self.source.name()
    }

    /// Starts a worker that reaches AWS at `endpoint`.
    pub(crate) fn worker(&self, endpoint: &str) -> Process {
        let mut command = self.own.redrive(&["worker"]);
        command.env("AWS_ENDPOINT_URL", endpoint);
        self.own.start_command(command, LOG)
    }

    /// Runs `redrive`.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.own.run(args)
    }

    pub(crate) fn stats(&self) -> Value {
        self.own.json(&["--json", "stats"])
    }

    pub(crate) fn read(&self, name: &str) -> String {
        self.own.read(name)
    }

    pub(crate) fn send(&self, messages: &[(Kind, String)]) -> Vec<Sent> {
        let mut sent = Vec::new();
        for batch in messages.chunks(MAX_BATCH_ENTRIES) {
            let outgoing =
                |(_, body): &(Kind, String)| Outgoing { body: body.clone(), ..Outgoing::default() };
            let outgoing: Vec<_> = batch.iter().map(outgoing).collect();
            let answers = self.runtime.block_on(self.source.send(&outgoing)).unwrap();
            for ((kind, body), answer) in batch.iter().zip(answers) {
                let id = answer.unwrap().into_inner().message_id;
                sent.push(Sent { id, kind: *kind, body: body.clone() });
            }
        }
        sent
    }

    pub(crate) fn source_depth(&self) -> Depth {
        self.runtime.block_on(self.source.facts()).unwrap().depth
    }

    /// Everything in view in the DLQ, hidden from now on.
    pub(crate) fn take_dead_letters(&self) -> Vec<Received> {
        let mut all = Vec::new();
        loop {
            let receive = self.dlq.receive(MAX_BATCH_ENTRIES, Duration::ZERO, Some(HANG));
            let got = self.runtime.block_on(receive).unwrap();
            if got.is_empty() {
                return all;
            }
            all.extend(got);
        }
    }

    pub(crate) fn record(&self, id: &RecordId) -> Record {
        let record = self.runtime.block_on(self.ledger.record(id, self.clock.wall()));
        record.unwrap().unwrap().into_inner()
    }

    pub(crate) fn envelope(&self, key: &EnvelopeKey) -> Envelope {
        Envelope::decode(&self.runtime.block_on(self.vault.get(key)).unwrap()).unwrap()
    }

    /// All entries by their keys, and the ids of all records.
    pub(crate) fn ledger(&self) -> (BTreeMap<String, Entry>, BTreeSet<String>) {
        let (mut entries, mut records) = (BTreeMap::new(), BTreeSet::new());
        let scan = self.table.scan().table_name(TABLE).consistent_read(true);
        let items = scan.into_paginator().items().send().collect::<Result<Vec<_>, _>>();
        for item in self.runtime.block_on(items).unwrap() {
            let mut key = item["pk"].as_s().unwrap().splitn(3, '#');
            match (key.next().unwrap(), key.last().unwrap()) {
                ("idem", id) => {
                    let generation = item["generation"].as_n().unwrap().clone();
                    let origins = item["commits"].as_m().unwrap().keys().cloned().collect();
                    entries.insert(id.to_owned(), Entry { generation, origins });
                }
                ("rec", id) => {
                    records.insert(id.to_owned());
                }
                _ => {}
            }
        }
        (entries, records)
    }
}

fn table(endpoint: &str) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::new("test", "test", None, None, "test"));
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

/// Lets the source hand out a message more often than `local` has it.
async fn permit_receives(endpoint: &str) {
    use aws_sdk_sqs::types::QueueAttributeName as Name;
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::new("test", "test", None, None, "test"));
    let client = aws_sdk_sqs::Client::from_conf(config.build());
    let url = client.get_queue_url().queue_name("hooks").send().await.unwrap().queue_url.unwrap();
    let asked = client.get_queue_attributes().queue_url(&url).attribute_names(Name::RedrivePolicy);
    let mut attributes = asked.send().await.unwrap().attributes.unwrap();
    let policy = attributes.remove(&Name::RedrivePolicy).unwrap();
    let mut policy: Value = serde_json::from_str(&policy).unwrap();
    policy["maxReceiveCount"] = json!(MAX_RECEIVE_COUNT.to_string());
    let set = client.set_queue_attributes().queue_url(&url);
    set.attributes(Name::RedrivePolicy, policy.to_string()).send().await.unwrap();
}

/// Waits for a condition.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < HANG, "no {what}");
        pause();
    }
}
