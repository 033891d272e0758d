//! The 329 public webhook payloads: sent, parked, fixed, sent back; in peace and under kills.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use crate::harness::{Process, World, config, repository};

/// One payload as it was sent.
struct Sent {
    body: String,
    event: String,
}

fn world(source: &str, extra: &str) -> World {
    World::new(&config(&["python3", "-S", "-E", "handler.py"], source, extra))
}

fn ran(mut command: Command, what: &str) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{what} cannot be run: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {} {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn send_all(world: &World) -> Vec<Sent> {
    ran(Command::new(repository("examples/webhooks/fetch")), "fetch");
    let send = repository("examples/webhooks/send.py");
    let mut dump = world.command("python3");
    dump.arg(&send).arg("--dump").arg(world.path("sent.jsonl"));
    ran(dump, "send.py --dump");
    let mut sent = world.command("python3");
    sent.arg(&send).arg("hooks");
    ran(sent, "send.py (needs boto3)");
    let sent: Vec<Sent> = world
        .read("sent.jsonl")
        .lines()
        .map(|line| {
            let message: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| message[name].as_str().unwrap().to_owned();
            Sent { body: text("body"), event: text("event") }
        })
        .collect();
    assert_eq!(sent.len(), 329);
    sent
}

fn worker(world: &World) -> Process {
    worker_with(world, "handler1.py")
}

/// A worker with this version of the handler.
fn worker_with(world: &World, handler: &str) -> Process {
    let handler = repository(&format!("examples/webhooks/{handler}"));
    let command = serde_json::json!(["python3", "-S", "-E", handler]).to_string();
    let mut worker = world.redrive(&["worker"]);
    worker.env("WEBHOOK_NOTES", world.path("notes")).env("REDRIVE_HANDLER_COMMAND", command);
    world.start_command(worker, "worker.log")
}

fn fails(sent: &Sent) -> bool {
    let body: Value = serde_json::from_str(&sent.body).unwrap();
    !body["repository"]["full_name"].is_string()
}

/// What must be true at the end, whatever happened on the way.
fn assert_totals(world: &World, sent: &[Sent]) {
    let stats = world.json(&["--json", "stats"]);
    assert_eq!(stats["states"]["quarantined"], 49, "{stats}");
    for state in ["redriving", "redriven", "resolved", "discarded"] {
        assert_eq!(stats["states"][state], 0, "{stats}");
    }
    assert_eq!(stats["by_code"][0]["error_code"], "REPOSITORY_MISSING");
    assert_eq!(stats["by_code"][0]["count"], 49);
    assert_eq!(stats["by_code"].as_array().unwrap().len(), 1);
    for (queue, depth) in [("source", 0), ("dlq", 49)] {
        assert_eq!(stats[queue]["visible"], depth, "{queue}: {stats}");
        assert_eq!(stats[queue]["in_flight"], 0, "{queue}: {stats}");
    }
    assert_envelopes(world, sent);
    let notes = world.read("notes");
    let once: BTreeSet<&str> = notes.lines().collect();
    assert_eq!((notes.lines().count(), once.len()), (280, 280), "each run is noted once");
    assert_eq!(count_committed(world), 280);
}

fn assert_envelopes(world: &World, sent: &[Sent]) {
    let mut expected: BTreeMap<(String, String), u32> = BTreeMap::new();
    for sent in sent.iter().filter(|sent| fails(sent)) {
        *expected.entry((sent.body.clone(), sent.event.clone())).or_default() += 1;
    }
    let mut found: BTreeMap<(String, String), u32> = BTreeMap::new();
    for line in world.json_lines(&["--json", "ls"]) {
        let id = line["record_id"].as_str().unwrap();
        let body = String::from_utf8(world.succeed(&["payload", id])).unwrap();
        let shown = world.json(&["--json", "show", id]);
        let envelope = &shown["envelope"];
        assert_eq!(envelope["payload"]["body"].as_str(), Some(body.as_str()));
        assert_eq!(envelope["error_code"], "REPOSITORY_MISSING");
        assert_eq!(envelope["reason"], "validation");
        let attributes = envelope["attributes"].as_object().unwrap();
        assert_eq!(attributes.len(), 1, "{attributes:?}");
        assert_eq!(attributes["event"]["type"], "String");
        let event = attributes["event"]["string"].as_str().unwrap().to_owned();
        *found.entry((body, event)).or_default() += 1;
    }
    assert_eq!(found, expected, "every body comes back byte for byte");
}

fn aws(world: &World, args: &[&str]) -> Value {
    let mut command = world.command("aws");
    command.args(["--endpoint-url", world.endpoint(), "--output", "json"]).args(args);
    serde_json::from_str(&ran(command, "aws (the AWS CLI)")).unwrap()
}

fn count_committed(world: &World) -> usize {
    let filter = ["--filter-expression", "#s = :c", "--expression-attribute-names"];
    let mut args = vec!["dynamodb", "scan", "--table-name", "hooks-ledger"];
    args.extend(filter);
    args.extend([r##"{"#s":"state"}"##, "--expression-attribute-values"]);
    args.push(r#"{":c":{"S":"committed"}}"#);
    let scan = aws(world, &args);
    scan["Items"].as_array().unwrap().len()
}

/// The AWS CLI sees the same.
fn assert_aws_cli_agrees(world: &World) {
    let depth = |queue: &str| {
        let url = aws(world, &["sqs", "get-queue-url", "--queue-name", queue]);
        let url = url["QueueUrl"].as_str().unwrap();
        let names = ["--attribute-names", "ApproximateNumberOfMessages"];
        let mut args = vec!["sqs", "get-queue-attributes", "--queue-url", url];
        args.extend(names);
        let attributes = aws(world, &args);
        attributes["Attributes"]["ApproximateNumberOfMessages"].as_str().unwrap().to_owned()
    };
    assert_eq!((depth("hooks").as_str(), depth("hooks-dlq").as_str()), ("0", "49"));
    let objects = aws(world, &["s3api", "list-objects-v2", "--bucket", "hooks-vault"]);
    assert!(objects["Contents"].as_array().unwrap().len() >= 49, "{objects}");
    let keys: BTreeSet<String> = objects["Contents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| object["Key"].as_str().unwrap().to_owned())
        .collect();
    for line in world.json_lines(&["--json", "ls"]) {
        assert!(keys.contains(line["envelope"].as_str().unwrap()), "{line}");
    }
}

#[test]
fn real_webhooks_end_as_280_commits_and_49_records() {
    let world = world("visibility_timeout = \"5s\"", "");
    let sent = send_all(&world);
    let worker = worker(&world);
    world.wait_for_empty_source();
    assert_eq!(worker.stop().code(), Some(0));
    assert_totals(&world, &sent);
    assert_aws_cli_agrees(&world);
}

#[test]
fn real_webhooks_survive_ten_kills() {
    let seed = redrive::system::seed().unwrap();
    eprintln!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let world = world(
        "visibility_timeout = \"3s\"",
        "[limits]\ncrash_limit = 20\n\n[sweep]\nevery = \"1s\"\n",
    );
    let url = aws(&world, &["sqs", "get-queue-url", "--queue-name", "hooks"]);
    let dlq = "arn:aws:sqs:us-east-1:000000000000:hooks-dlq";
    let policy = format!(r#"{{"deadLetterTargetArn":"{dlq}","maxReceiveCount":"20"}}"#);
    let attributes = serde_json::json!({ "RedrivePolicy": policy }).to_string();
    let mut set = world.command("aws");
    set.args(["--endpoint-url", world.endpoint(), "sqs", "set-queue-attributes", "--queue-url"]);
    set.args([url["QueueUrl"].as_str().unwrap(), "--attributes", &attributes]);
    ran(set, "aws sqs set-queue-attributes");
    let sent = send_all(&world);
    for _ in 0..10 {
        let mut victim = worker(&world);
        let millis = rng.random_range(100..1_500);
        std::thread::park_timeout(std::time::Duration::from_millis(millis));
        assert!(victim.runs(), "killed while it works");
        victim.kill_9();
    }
    let worker = worker(&world);
    world.wait_for_empty_source();
    // A crash between a token and its message's delete leaves a token that no longer counts.
    world.wait_for("swept DLQ", |stats| {
        stats["dlq"]["visible"] == 49 && stats["dlq"]["in_flight"] == 0
    });
    assert_eq!(worker.stop().code(), Some(0));
    assert_totals(&world, &sent);
}

/// A fast ramp: the whole run in seconds.
const FAST: [&str; 6] = ["--start-rate", "20", "--max-rate", "100", "--step", "1s"];

/// The 49 parked, as the tests above prove it.
fn parked() -> (World, Vec<Sent>) {
    let extra = "[sweep]\nevery = \"1s\"\n\n[redriver]\nlease = \"1s\"\n";
    let world = world("visibility_timeout = \"5s\"", extra);
    let sent = send_all(&world);
    let worker = worker(&world);
    world.wait_for_empty_source();
    assert_eq!(worker.stop().code(), Some(0));
    (world, sent)
}

fn start(world: &World) -> (Value, Option<i32>) {
    let mut args = vec!["--json", "start", "--all", "--execute"];
    args.extend(FAST);
    let output = world.run(&args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    (report, output.status.code())
}

/// All 49 resolved, five of them as duplicates; the notes hold each of the 324 payloads once.
fn assert_resolved(world: &World) {
    let output = world.run(&["--json", "report"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, count) in [
        ("planned", 49),
        ("sent", 49),
        ("resolved", 49),
        ("duplicates", 5),
        ("in_doubt", 0),
        ("failed_again", 0),
        ("errored", 0),
        ("not_sent", 0),
    ] {
        assert_eq!(report[name], count, "{name}: {report}");
    }
    assert_eq!((&report["state"], &report["balanced"]), (&"completed".into(), &true.into()));
    let stats = world.json(&["--json", "stats"]);
    assert_eq!(stats["states"]["resolved"], 49, "{stats}");
    for queue in ["source", "dlq"] {
        assert_eq!(stats[queue]["visible"], 0, "{queue}: {stats}");
        assert_eq!(stats[queue]["in_flight"], 0, "{queue}: {stats}");
    }
    let notes = world.read("notes");
    let once: BTreeSet<&str> = notes.lines().collect();
    assert_eq!((notes.lines().count(), once.len()), (324, 324), "each payload is noted once");
}

#[test]
fn real_webhooks_go_back_after_the_fix_and_a_second_redrive_finds_nothing() {
    let (world, _) = parked();
    let worker = worker_with(&world, "handler2.py");
    let (report, code) = start(&world);
    assert_eq!(code, Some(0), "{report}");
    assert_resolved(&world);
    let (again, code) = start(&world);
    assert_eq!(code, Some(0), "{again}");
    assert_eq!((&again["run_id"], &again["planned"]), (&Value::Null, &0.into()));
    assert_eq!(worker.stop().code(), Some(0));
}

#[test]
fn a_broken_fix_wastes_the_canary_alone() {
    let (world, sent) = parked();
    let worker = worker(&world);
    let (report, code) = start(&world);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["state"], "tripped");
    assert_eq!((&report["sent"], &report["failed_again"]), (&5.into(), &5.into()), "{report}");
    assert_eq!(report["not_sent"], 44, "{report}");
    assert_eq!(report["balanced"], true);
    world.wait_for("swept DLQ", |stats| {
        stats["dlq"]["visible"] == 49 && stats["dlq"]["in_flight"] == 0
    });
    assert_eq!(worker.stop().code(), Some(0));
    assert_totals(&world, &sent);
}

#[test]
fn a_redrive_survives_ten_kills() {
    let seed = redrive::system::seed().unwrap();
    eprintln!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (world, _) = parked();
    let worker = worker_with(&world, "handler2.py");
    let mut args = vec!["start", "--all", "--execute", "--start-rate", "2", "--max-rate", "8"];
    args.extend(["--step", "1s"]);
    let mut kills = 0;
    let mut codes = Vec::new();
    while kills < 10 {
        let mut victim = world.start(&args, "start.log");
        args = vec!["resume"];
        std::thread::park_timeout(std::time::Duration::from_millis(rng.random_range(500..4_000)));
        if victim.runs() {
            victim.kill_9();
            kills += 1;
            continue;
        }
        codes.push(victim.wait().code());
        assert!(codes.len() < 1_000, "{codes:?}");
        if codes.last() == Some(&Some(0)) {
            break;
        }
    }
    // Until the last executor's lease is over the run is held: exit 75. A run that is done is not resumed.
    while !completed(&world) {
        codes.push(world.run(&["resume"]).status.code());
        assert!(codes.len() < 1_000, "{codes:?}");
    }
    assert!(codes.iter().all(|code| [Some(0), Some(75)].contains(code)), "{codes:?}");
    assert_resolved(&world);
    let resent = world.read("worker.log").matches("done already").count();
    eprintln!(
        "{kills} kills, {resent} copies found their work done, 5 of them payloads that occur twice"
    );
    assert!(resent <= 5 + 10 * kills, "at most one batch is sent again a kill");
    assert_eq!(worker.stop().code(), Some(0));
}

fn completed(world: &World) -> bool {
    world.json(&["--json", "status"])["state"] == "completed"
}
