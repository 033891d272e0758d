//! kill -9 of the executor at random moments: everything is resolved once, and little is sent twice.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::harness::{World, config};

const RECORDS: usize = 500;
/// How many kills there are, unless this variable says more.
const KILLS: usize = 10;
const KILLS_VARIABLE: &str = "REDRIVE_EXECUTOR_KILLS";
/// Copies of one batch.
const BATCH: usize = 10;

const SCRIPT: &str = "read line; test -e fixed || exit 65; echo $line >>notes";

/// A world with 500 parked records and a handler that is fixed.
fn parked() -> World {
    let extra = "[redriver]\nlease = \"1s\"\n";
    let text = config(&["sh", "-c", SCRIPT], "concurrency = 32", extra);
    let world = World::new(&text);
    world.send_many((0..RECORDS).map(|n| format!("record {n}\n")));
    let worker = world.worker();
    world.wait_for("all parked", |stats| stats["states"]["quarantined"] == RECORDS);
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    std::fs::write(world.path("fixed"), "").unwrap();
    world
}

fn status(world: &World) -> serde_json::Value {
    world.json(&["--json", "status"])
}

#[test]
fn an_executor_that_is_killed_again_and_again_resolves_all_once() {
    let kills: usize = std::env::var(KILLS_VARIABLE).map_or(KILLS, |n| n.parse().unwrap());
    let seed = redrive::system::seed().unwrap();
    eprintln!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let world = parked();
    let worker = world.start(&["worker"], "second.log");
    // Slow enough that all kills fall into the run.
    let rate = (RECORDS / (kills * 3)).max(3).to_string();
    let mut args = vec!["start", "--all", "--execute", "--start-rate", "3", "--step", "1s"];
    args.extend(["--max-rate", &rate]);
    let (mut killed, mut codes) = (0, Vec::new());
    while killed < kills {
        let mut victim = world.start(&args, "start.log");
        args = vec!["resume"];
        std::thread::park_timeout(std::time::Duration::from_millis(rng.random_range(300..3_000)));
        if victim.runs() {
            victim.kill_9();
            killed += 1;
            continue;
        }
        codes.push(victim.wait().code());
        assert!(codes.len() < 1_000, "{codes:?}");
        if codes.last() == Some(&Some(0)) {
            break;
        }
    }
    // Until the last executor's lease is over the run is held: exit 75.
    while status(&world)["state"] != "completed" {
        codes.push(world.run(&["resume"]).status.code());
        assert!(codes.len() < 1_000, "{codes:?}");
    }
    assert!(codes.iter().all(|code| [Some(0), Some(75)].contains(code)), "{codes:?}");
    let report = world.json(&["--json", "report"]);
    assert_eq!((&report["planned"], &report["resolved"]), (&RECORDS.into(), &RECORDS.into()));
    assert_eq!((&report["failed_again"], &report["errored"]), (&0.into(), &0.into()), "{report}");
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("second.log"));
    let mut notes: Vec<String> = world.read("notes").lines().map(str::to_owned).collect();
    let effects = notes.len();
    notes.sort();
    notes.dedup();
    assert_eq!((notes.len(), effects), (RECORDS, RECORDS), "each once");
    let resent = world.read("second.log").matches("done already").count();
    eprintln!("{killed} kills, {resent} copies found their work done");
    assert!(resent <= BATCH * killed, "at most one batch is sent again a kill: {resent}");
    let stats = world.json(&["--json", "stats"]);
    assert_eq!((&stats["dlq"]["visible"], &stats["source"]["visible"]), (&0.into(), &0.into()));
}
