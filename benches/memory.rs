//! How much memory a worker takes (G4), and whether it takes more the longer it works.
//!
//! The worker is this process: 1,000 handlers at once, bodies of 1 KiB. The embedded AWS is a process of its
//! own, so that what it keeps is not counted; whoever sends the messages is here, and is. Two bounds:
//!
//! - with 1,000 messages in hand, resident memory is below 100 MiB;
//! - from the first tenth of the messages to the last, it grows by less than 10 MiB.
//!
//! `cargo bench --bench memory -- [--messages N] [--json]`; exit 1 when a bound is broken. The rate that is
//! told is of the worker and the embedded AWS together, and no measure of either.

#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]
#![expect(clippy::indexing_slicing, reason = "a benchmark may panic")]
#![expect(clippy::print_stdout, reason = "the result is printed")]
#![expect(clippy::disallowed_methods, reason = "real time is measured")]

#[path = "../tests/harness/mod.rs"]
#[expect(dead_code, reason = "each binary uses its part of the harness")]
mod harness;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use clap::Parser as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use redrive::aws::client::Aws;
use redrive::aws::dynamodb::AwsLedger;
use redrive::aws::s3::{AwsVault, Place};
use redrive::aws::sqs::AwsQueue;
use redrive::domain::backoff::Backoff;
use redrive::domain::breaker::Bounds;
use redrive::domain::failure::Done;
use redrive::domain::identity::KeyStrategy;
use redrive::domain::message::{MAX_BATCH_ENTRIES, Outgoing};
use redrive::port::handler::{Handler, HandlerError, Job};
use redrive::port::queue::Queue as _;
use redrive::service::consumer::Ending;
use redrive::service::settings::{ErrorText, ExecuteRuns, Ports, Settings};
use redrive::service::shutdown::Stage;
use redrive::service::start::prepare;
use redrive::service::worker;
use redrive::system::SystemClock;
use serde_json::json;
use tokio::sync::watch;

use crate::harness::{HANG, World};

/// Messages in hand at once.
const CONCURRENCY: usize = 1_000;
const BODY_BYTES: usize = 1_024;
/// Messages sent and not yet done, at most.
const BACKLOG: u64 = 3_000;
/// Samples after the first.
const STEPS: u64 = 10;
const MIB: u64 = 1024 * 1024;
const IN_HAND_BOUND: u64 = 100 * MIB;
const GROWTH_BOUND: u64 = 10 * MIB;

#[derive(clap::Parser)]
struct Args {
    /// How many messages are handled.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    messages: u64,
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A handler that does nothing, as soon as it is let.
#[derive(Debug)]
struct Gate {
    is_open: watch::Sender<bool>,
    in_hand: watch::Sender<usize>,
    done: watch::Sender<u64>,
}

#[async_trait]
impl Handler for Gate {
    fn kind(&self) -> &'static str {
        "library"
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, _job: &Job, _limit: Duration) -> Result<Done, HandlerError> {
        self.in_hand.send_modify(|n| *n += 1);
        self.is_open.subscribe().wait_for(|is_open| *is_open).await.unwrap();
        self.in_hand.send_modify(|n| *n -= 1);
        self.done.send_modify(|n| *n += 1);
        Ok(Done::default())
    }
}

fn settings() -> Settings {
    Settings {
        wait: Duration::from_secs(1),
        visibility: Some(Duration::from_secs(60)),
        concurrency: CONCURRENCY,
        pollers_max: 8,
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

async fn ports(world: &World, handler: Arc<Gate>) -> Ports {
    let aws = Aws::embedded(world.endpoint());
    let source = AwsQueue::resolve(&aws, "orders").await.unwrap();
    let ledger = Arc::new(AwsLedger::new(&aws, "redrive-ledger", source.name().clone()));
    let place = Place {
        bucket: "redrive-vault".to_owned(),
        prefix: String::new(),
        expected_owner: None,
        kms_key_id: None,
    };
    Ports {
        dlq: Arc::new(AwsQueue::resolve(&aws, "orders-dlq").await.unwrap()),
        source: Arc::new(source),
        vault: Arc::new(AwsVault::new(&aws, place)),
        runs: ledger.clone(),
        ledger,
        handler,
        clock: Arc::new(SystemClock::start()),
    }
}

/// Sends all messages, no two of them alike, never far ahead of what is done.
async fn send(ports: Ports, messages: u64, mut done: watch::Receiver<u64>) {
    let mut sent = 0;
    while sent < messages {
        done.wait_for(|done| sent < done + BACKLOG).await.unwrap();
        let last = messages.min(sent + MAX_BATCH_ENTRIES as u64);
        let body = |n| Outgoing { body: format!("{n:0>BODY_BYTES$}"), ..Outgoing::default() };
        let batch: Vec<_> = (sent..last).map(body).collect();
        let answers = ports.source.send(&batch).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "the source takes all");
        sent = last;
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// What was measured, in bytes.
struct Measured {
    idle: u64,
    in_hand: u64,
    /// By the messages done so far.
    samples: Vec<(u64, u64)>,
    took: Duration,
}

async fn measure(world: &World, messages: u64) -> Measured {
    let gate = Arc::new(Gate {
        is_open: watch::Sender::new(false),
        in_hand: watch::Sender::new(0),
        done: watch::Sender::new(0),
    });
    let ports = ports(world, gate.clone()).await;
    let context = prepare(ports.clone(), settings()).await.unwrap();
    let idle = resident();
    let (stop, stages) = watch::channel(Stage::Running);
    let worker = tokio::spawn(worker::run(context, stages, StdRng::seed_from_u64(1)));
    let mut done = gate.done.subscribe();
    let sender = tokio::spawn(send(ports, messages, done.clone()));
    let mut hands = gate.in_hand.subscribe();
    let full = hands.wait_for(|n| *n == CONCURRENCY);
    drop(tokio::time::timeout(HANG, full).await.unwrap().unwrap());
    let in_hand = resident();
    let started = Instant::now();
    gate.is_open.send_replace(true);
    let mut samples = Vec::new();
    for step in 1..=STEPS {
        let at = messages * step / STEPS;
        let reached = done.wait_for(|done| *done >= at);
        drop(tokio::time::timeout(HANG * 10, reached).await.unwrap().unwrap());
        samples.push((at, resident()));
    }
    let took = started.elapsed();
    sender.await.unwrap();
    stop.send_replace(Stage::Draining);
    assert_eq!(worker.await.unwrap(), Ending::Drained);
    Measured { idle, in_hand, samples, took }
}

impl Measured {
    fn growth(&self) -> u64 {
        self.samples[self.samples.len() - 1].1.saturating_sub(self.samples[0].1)
    }

    const fn is_in_hand_bounded(&self) -> bool {
        self.in_hand < IN_HAND_BOUND
    }

    fn is_growth_bounded(&self) -> bool {
        self.growth() < GROWTH_BOUND
    }

    fn rate(&self) -> f64 {
        self.samples[self.samples.len() - 1].0 as f64 / self.took.as_secs_f64()
    }

    fn table(&self) {
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        let told = |holds: bool| if holds { "ok" } else { "BROKEN" };
        println!("{:<28} {:>9}  BOUND", "", "MIB");
        println!("{:<28} {:>9.1}", "idle", mib(self.idle));
        let (bound, holds) = (mib(IN_HAND_BOUND), told(self.is_in_hand_bounded()));
        let name = format!("{CONCURRENCY} messages in hand");
        println!("{name:<28} {:>9.1}  {bound:.0} {holds}", mib(self.in_hand));
        for (done, bytes) in &self.samples {
            println!("{:<28} {:>9.1}", format!("after {done}"), mib(*bytes));
        }
        let (bound, holds) = (mib(GROWTH_BOUND), told(self.is_growth_bounded()));
        println!("{:<28} {:>9.1}  {bound:.0} {holds}", "growth, first to last", mib(self.growth()));
        println!("{:.0} messages/s", self.rate());
    }

    fn json(&self) {
        let sample = |(done, bytes): &(u64, u64)| json!({ "done": done, "rss_bytes": bytes });
        let json = json!({
            "concurrency": CONCURRENCY,
            "body_bytes": BODY_BYTES,
            "idle_rss_bytes": self.idle,
            "in_hand": {
                "rss_bytes": self.in_hand,
                "bound_bytes": IN_HAND_BOUND,
                "ok": self.is_in_hand_bounded(),
            },
            "growth": {
                "bytes": self.growth(),
                "bound_bytes": GROWTH_BOUND,
                "ok": self.is_growth_bounded(),
            },
            "samples": self.samples.iter().map(sample).collect::<Vec<_>>(),
            "messages_per_s": self.rate(),
        });
        println!("{json}");
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let world = World::bare();
    let measured = measure(&world, args.messages).await;
    if args.json {
        measured.json();
    } else {
        measured.table();
    }
    ExitCode::from(u8::from(!(measured.is_in_hand_bounded() && measured.is_growth_bounded())))
}
