//! What operators are told before a redrive, what is refused, and AWS's own button.

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};

use crate::harness::{World, config, output};

/// Calls SQS as any other tool would.
fn with_sqs<T>(world: &World, calls: impl AsyncFnOnce(aws_sdk_sqs::Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(world.endpoint())
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .build();
    runtime.block_on(calls(aws_sdk_sqs::Client::from_conf(config)))
}

async fn url(client: &aws_sdk_sqs::Client, queue: &str) -> String {
    let answer = client.get_queue_url().queue_name(queue).send().await.unwrap();
    answer.queue_url().unwrap().to_owned()
}

/// Works until the source is empty; the worker must end well.
fn work(world: &World) {
    let worker = world.worker();
    world.wait_for_empty_source();
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
}

fn quarantined(world: &World) -> usize {
    world.json_lines(&["--json", "ls"]).len()
}

const SCRIPT: &str =
    "read line; case $line in bad*) test -e fixed || exit 65;; esac; echo $line >> notes";

#[test]
fn case_h3_operators_are_told_that_groups_have_gone_on_and_types_are_not_mixed() {
    let text = config(&["sh", "-c", SCRIPT], "", "").replace("\"hooks\"", "\"hooks.fifo\"");
    let world = World::new(&text.replace("\"hooks-dlq\"", "\"hooks-dlq.fifo\""));
    with_sqs(&world, async |client| {
        let url = url(&client, "hooks.fifo").await;
        for body in ["bad 1", "fine 2", "fine 3"] {
            let send = client.send_message().queue_url(&url).message_body(format!("{body}\n"));
            let id = body.replace(' ', "-");
            send.message_group_id("g").message_deduplication_id(id).send().await.unwrap();
        }
        client.create_queue().queue_name("plain").send().await.unwrap();
        let fifo = client.create_queue().queue_name("other.fifo");
        fifo.attributes(QueueAttributeName::FifoQueue, "true").send().await.unwrap();
    });
    work(&world);
    assert_eq!(quarantined(&world), 1);
    let plan = world.json(&["--json", "plan", "--all"]);
    assert_eq!((&plan["planned"], &plan["groups"]), (&json!(1), &json!(1)), "{plan}");
    let told = String::from_utf8(world.succeed(&["plan", "--all"])).unwrap();
    assert!(told.contains("have gone on meanwhile (1 groups)"), "{told}");

    let start = ["start", "--all", "--execute", "--to"];
    for (rest, part) in [
        (vec!["other.fifo"], "--allow-other-queue"),
        (vec!["plain", "--allow-other-queue"], "is a standard queue"),
        (vec!["hooks-dlq.fifo", "--allow-other-queue"], "is the DLQ"),
    ] {
        let refused = output(world.redrive(&[&start[..], &rest].concat()));
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(64), "{said}");
        assert!(said.contains(part), "{said}");
    }
    assert_eq!((quarantined(&world), world.json_lines(&["--json", "runs"]).len()), (1, 0));

    std::fs::write(world.path("fixed"), "").unwrap();
    let worker = world.worker();
    let started = output(world.redrive(&["--json", "start", "--all", "--execute"]));
    let said = String::from_utf8(started.stderr).unwrap();
    assert_eq!(started.status.code(), Some(0), "{said}");
    assert!(said.contains("have gone on meanwhile (1 groups)"), "{said}");
    let report: Value = serde_json::from_slice(&started.stdout).unwrap();
    assert_eq!((&report["resolved"], &report["assumed"]), (&json!(1), &json!(0)), "{report}");
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    assert_eq!(world.read("notes").lines().collect::<Vec<_>>(), ["fine 2", "fine 3", "bad 1"]);
}

#[test]
fn case_e3_two_sources_of_one_vault_share_no_object() {
    let text = config(&["sh", "-c", SCRIPT], "", "[redriver]\nstart_rate = 50.0\n");
    let world = World::new(&text);
    let other = text.replace("\"hooks\"", "\"others\"").replace("\"hooks-dlq\"", "\"others-dlq\"");
    std::fs::write(world.path("other.toml"), other).unwrap();
    world.succeed(&["--config", "other.toml", "setup"]);
    with_sqs(&world, async |client| {
        for queue in ["hooks", "others"] {
            let url = url(&client, queue).await;
            client.send_message().queue_url(&url).message_body("bad twin").send().await.unwrap();
        }
    });
    work(&world);
    let ls = || world.json_lines(&["--config", "other.toml", "--json", "ls", "--state", "any"]);
    let worker = world.start(&["--config", "other.toml", "worker"], "other.log");
    let started = std::time::Instant::now();
    while ls().is_empty() {
        assert!(started.elapsed() < crate::harness::HANG, "{}", world.read("other.log"));
        crate::harness::pause();
    }
    let (mine, theirs) = (world.json_lines(&["--json", "ls"]), ls());
    assert_eq!((mine.len(), theirs.len()), (1, 1));
    assert_eq!(mine[0]["payload_sha256"], theirs[0]["payload_sha256"]);
    assert_ne!(mine[0]["envelope"], theirs[0]["envelope"]);
    // One is redriven to its end; the other's evidence is whole, and goes the same way.
    std::fs::write(world.path("fixed"), "").unwrap();
    let mine_worker = world.worker();
    world.succeed(&["start", "--all", "--execute"]);
    let id = theirs[0]["record_id"].as_str().unwrap();
    let payload = world.succeed(&["--config", "other.toml", "payload", id]);
    assert_eq!(payload, b"bad twin");
    world.succeed(&["--config", "other.toml", "start", "--all", "--execute"]);
    for worker in [worker, mine_worker] {
        assert_eq!(worker.stop().code(), Some(0));
    }
    assert_eq!(ls()[0]["state"], "resolved");
}

#[test]
fn awss_own_button_on_our_dlq_gives_the_worker_what_it_recognises() {
    let world = World::new(&config(&["sh", "-c", SCRIPT], "", ""));
    for n in 0..3 {
        world.send(&format!("bad {n}\n"), Default::default());
    }
    work(&world);
    let parked = world.json_lines(&["--json", "ls"]);
    assert_eq!(parked.len(), 3);
    std::fs::write(world.path("fixed"), "").unwrap();
    let arn = |queue: &str| format!("arn:aws:sqs:us-east-1:000000000000:{queue}");
    with_sqs(&world, async |client| {
        let task = client.start_message_move_task().source_arn(arn("hooks-dlq"));
        task.destination_arn(arn("hooks")).send().await.unwrap();
    });
    let resolved = |stats: &Value| stats["states"]["resolved"] == 3;
    let worker = world.worker();
    world.wait_for("three resolved records", resolved);
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    let mut notes: Vec<String> = world.read("notes").lines().map(str::to_owned).collect();
    notes.sort();
    assert_eq!(notes, ["bad 0", "bad 1", "bad 2"], "each once");
    let after = world.json_lines(&["--json", "ls", "--state", "any"]);
    let ids = |records: &[Value]| -> std::collections::BTreeSet<String> {
        records.iter().map(|record| record["record_id"].to_string()).collect()
    };
    assert_eq!(ids(&after), ids(&parked), "no record is invented for the moved ones");
}
