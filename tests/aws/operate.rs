//! Operators' commands: discard, restore, resolve, rescue, pause, set-rate, watch; their codes, their consent,
//! and the objects they leave.

use std::collections::HashMap;

use serde_json::Value;

use crate::harness::{HANG, World, config, output, pause};

const RAMP: &str = "[redriver]\ncanary = 1\nstart_rate = 1.0\nlease = \"5s\"\n";

/// A world with this many parked messages, whose handler succeeds once the file `fixed` is there.
fn world(parked: usize) -> (World, Vec<String>) {
    let script = "test -e fixed || exit 65";
    let world = World::new(&config(&["sh", "-c", script], "", RAMP));
    (0..parked).for_each(|n| world.send(&format!("body {n}"), HashMap::new()));
    let worker = world.worker();
    world.wait_for_empty_source();
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    let records = world.json_lines(&["--json", "ls"]);
    assert_eq!(records.len(), parked);
    let id = |record: &Value| record["record_id"].as_str().unwrap().to_owned();
    let ids = records.iter().map(id).collect();
    (world, ids)
}

/// The exit code, and the JSON of stdout; null if there is none.
fn ran(world: &World, args: &[&str]) -> (Option<i32>, Value) {
    let output = world.run(&[&["--json"], args].concat());
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

fn stderr(world: &World, args: &[&str]) -> String {
    String::from_utf8(output(world.redrive(args)).stderr).unwrap()
}

fn state(world: &World, id: &str) -> String {
    let shown = world.json(&["--json", "show", id]);
    shown["record"]["state"].as_str().unwrap().to_owned()
}

/// The audit objects of an act.
fn audited(world: &World, act: &str) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let credentials = aws_sdk_s3::config::Credentials::new("test", "test", None, None, "test");
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(aws_sdk_s3::config::BehaviorVersion::latest())
            .region(aws_sdk_s3::config::Region::new("us-east-1"))
            .endpoint_url(world.endpoint())
            .credentials_provider(credentials)
            .force_path_style(true)
            .build();
        let client = aws_sdk_s3::Client::from_conf(config);
        let listed = client.list_objects_v2().bucket("hooks-vault").prefix("audit/").send().await;
        let mut found = Vec::new();
        for object in listed.unwrap().contents() {
            let key = object.key().unwrap();
            if key.ends_with(&format!("-{act}.json")) {
                let got = client.get_object().bucket("hooks-vault").key(key).send().await.unwrap();
                let bytes = got.body.collect().await.unwrap().into_bytes();
                found.push(serde_json::from_slice(&bytes).unwrap());
            }
        }
        found
    })
}

#[test]
fn records_are_discarded_restored_and_resolved_with_an_object_each() {
    let (world, ids) = world(2);
    let (code, told) = ran(&world, &["discard", "--all", "--note", "test data"]);
    assert_eq!((code, &told["matched"], &told["moved"]), (Some(0), &2.into(), &0.into()));
    assert_eq!(state(&world, &ids[0]), "quarantined", "nothing without --execute");
    assert!(audited(&world, "discard").is_empty(), "and nothing written down");

    let all = ["discard", "--all", "--note", "test data", "--execute"];
    let (code, told) = ran(&world, &all);
    assert_eq!((code, &told["matched"], &told["moved"]), (Some(0), &2.into(), &2.into()));
    assert_eq!(told["refused"], Value::Array(vec![]));
    assert_eq!(state(&world, &ids[0]), "discarded");
    let [discard] = audited(&world, "discard").try_into().unwrap();
    assert_eq!((&discard["act"], &discard["note"]), (&"discard".into(), &"test data".into()));
    assert_eq!((&discard["queue"], &discard["counts"]["matched"]), (&"hooks".into(), &2.into()));
    assert!(discard["operator"].as_str().unwrap().starts_with("arn:aws:"), "{discard}");
    for field in ["at", "run_id", "plan_hash", "selection"] {
        assert!(discard.get(field).is_some(), "{field}: {discard}");
    }
    let (code, told) = ran(&world, &all);
    assert_eq!((code, &told["matched"]), (Some(0), &0.into()), "nothing to do");

    let prefix = &ids[0][..ids[0].len() - 1];
    let restore = ["restore", prefix, "--note", "needed", "--execute"];
    assert_eq!(ran(&world, &restore).0, Some(0));
    assert_eq!(state(&world, &ids[0]), "quarantined");
    world.succeed(&["sweep"]);
    let stats = world.json(&["--json", "stats"]);
    assert_eq!(stats["dlq"]["visible"], 1, "the restored one's token: {stats}");

    let both = ["restore", &ids[0], &ids[1], "--note", "needed", "--execute"];
    let (code, told) = ran(&world, &both);
    assert_eq!((code, &told["moved"]), (Some(1), &1.into()), "the other is there already: {told}");
    assert_eq!(told["refused"][0]["record_id"], ids[0].as_str());
    assert_eq!(told["refused"][0]["why"], "it is quarantined");
    let resolve = ["resolve", &ids[0], &ids[1], "--note", "by hand", "--execute"];
    assert_eq!(ran(&world, &resolve).0, Some(0));
    assert_eq!(state(&world, &ids[1]), "resolved");
}

#[test]
fn mistakes_have_their_own_codes_and_change_nothing() {
    let (world, ids) = world(2);
    let common: String = {
        let same = ids[0].chars().zip(ids[1].chars()).take_while(|(a, b)| a == b);
        same.map(|(a, _)| a).collect()
    };
    for (args, code) in [
        (vec!["discard", "no-such-record", "--note", "n", "--execute"], 66),
        (vec!["discard", "--record", "no-such-record", "--note", "n", "--execute"], 66),
        (vec!["pause", "no-such-run"], 66),
        (vec!["pause"], 66),
        (vec!["discard", "--note", "n", "--execute"], 64),
        (vec!["discard", &ids[0], "--execute"], 64),
        (vec!["discard", &ids[0], "--note", " ", "--execute"], 64),
        (vec!["discard", &ids[0], "--all", "--note", "n", "--execute"], 64),
        (vec!["rescue", "--note", "n", "--execute"], 64),
        (vec!["set-rate", "0"], 64),
        (vec!["abort"], 64),
    ] {
        assert_eq!(world.run(&args).status.code(), Some(code), "{args:?}");
    }
    if !common.is_empty() {
        let args = ["discard", &common, "--note", "n", "--execute"];
        assert_eq!(world.run(&args).status.code(), Some(64), "an ambiguous prefix");
    }
    assert!(ids.iter().all(|id| state(&world, id) == "quarantined"));
}

#[test]
fn a_run_is_paused_slowed_watched_and_ended_and_its_records_are_rescued() {
    let (world, ids) = world(3);
    // No worker runs: the canary stays in doubt, the executor waits for its outcome.
    let mut executor = world.start(&["start", "--all", "--execute", "--note", "try"], "start.log");
    let status = || world.json(&["--json", "status"]);
    let started = std::time::Instant::now();
    while !world.json_lines(&["--json", "runs"]).iter().any(|run| run["sent"] == 1) {
        assert!(started.elapsed() < HANG, "{}", world.read("start.log"));
        pause();
    }
    let run = status()["run_id"].as_str().unwrap().to_owned();

    let second = ["start", "--all", "--execute"];
    assert_eq!(world.run(&second).status.code(), Some(75));
    let line = stderr(&world, &second);
    for part in [run.as_str(), "executes it", "started 2"] {
        assert!(line.contains(part), "{line}");
    }
    let redriven = ids.iter().find(|id| state(&world, id) == "redriven").unwrap();
    let discard = ["discard", redriven.as_str(), "--note", "n", "--execute"];
    let (code, told) = ran(&world, &discard);
    assert_eq!(code, Some(1), "{told}");
    assert!(told["refused"][0]["why"].as_str().unwrap().contains("rescue it first"));

    let (code, told) = ran(&world, &["set-rate", "0.5", "--note", "slowly"]);
    assert_eq!((code, &told["state"]), (Some(0), &"running".into()));
    let mut watch = world.start(&["watch"], "watch.log");
    let (code, told) = ran(&world, &["pause"]);
    assert_eq!((code, &told["state"]), (Some(0), &"paused".into()), "{told}");
    assert_eq!(executor.wait().code(), Some(1), "{}", world.read("start.log"));
    assert_eq!(watch.wait().code(), Some(1), "{}", world.read("watch.log"));
    assert_eq!(ran(&world, &["abort", "--note", "no use"]).0, Some(0));
    assert_eq!(status()["state"], "aborted");
    assert_eq!(ran(&world, &["pause"]).0, Some(1), "it is over");

    let rescue = ["rescue", "--older", "0s", "--note", "purged", "--execute"];
    let older = ["rescue", "--older", "6h", "--note", "purged", "--execute"];
    assert_eq!(ran(&world, &older).1["matched"], 0);
    let (code, told) = ran(&world, &rescue);
    assert_eq!((code, &told["moved"]), (Some(0), &1.into()), "{told}");
    assert_eq!(state(&world, redriven), "quarantined");
    for act in ["start", "set-rate", "pause", "abort"] {
        let objects = audited(&world, act);
        assert_eq!(objects[0]["run_id"], run.as_str(), "{act}");
        assert!(objects[0]["plan_hash"].is_string(), "{act}");
    }
    assert_eq!(audited(&world, "start")[0]["note"], "try");
    assert_eq!(audited(&world, "rescue")[0]["selection"]["silent_s"], 0);
}
