//! SIGTERM and SIGINT drain a worker; SIGKILL costs no message.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Process, World, config};

#[test]
fn a_signal_lets_the_handler_finish_and_deletes_its_message() {
    for signal in [Signal::TERM, Signal::INT] {
        let script = "touch started; read line; sleep 1; echo done >>notes";
        let world = World::new(&config(&["sh", "-c", script], "", ""));
        world.send("line", HashMap::new());
        let mut worker = world.worker();
        world.wait_for_file("started");
        worker.signal(signal);
        assert_eq!(worker.wait().code(), Some(0), "{}", world.read("worker.log"));
        assert_eq!(world.read("notes"), "done\n");
        let stats = world.json(&["--json", "stats"]);
        assert_eq!(
            (&stats["source"]["visible"], &stats["source"]["in_flight"]),
            (&0.into(), &0.into())
        );
    }
}

#[test]
fn when_the_grace_runs_out_the_message_is_released_with_exit_75() {
    let script = "touch started; sleep 1000";
    let extra = "[limits]\ngrace = \"1s\"\n";
    let world = World::new(&config(&["sh", "-c", script], "", extra));
    world.send("line", HashMap::new());
    let worker = world.worker();
    world.wait_for_file("started");
    assert_eq!(worker.stop().code(), Some(75), "{}", world.read("worker.log"));
    let stats = world.json(&["--json", "stats"]);
    assert_eq!(stats["source"]["visible"], 1, "{stats}");
    assert_eq!(stats["states"]["quarantined"], 0, "{stats}");
}

/// The wait of a poll is a second: an idle worker has nothing else to wait for.
const SOON: Duration = Duration::from_secs(10);

/// Ten messages in the hands of a worker whose handlers have all begun and take so long.
fn ten_in_hand(seconds: &str) -> (World, Process) {
    let script = format!("read line; echo $line >>started; sleep {seconds}; echo $line >>done");
    let world = World::new(&config(&["sh", "-c", &script], "", ""));
    world.append_config("[source]", "concurrency = 10");
    for n in 0..10 {
        world.send(&format!("line {n}\n"), HashMap::new());
    }
    let worker = world.worker();
    world.wait_for("ten runs", |_| world.read("started").lines().count() == 10);
    (world, worker)
}

/// All ten are given back, and nothing was parked.
fn assert_given_back(world: &World) {
    let stats = world.json(&["--json", "stats"]);
    let (source, dlq) = (&stats["source"], &stats["dlq"]);
    assert_eq!((&source["visible"], &source["in_flight"]), (&10.into(), &0.into()), "{stats}");
    assert_eq!((&dlq["visible"], &dlq["in_flight"]), (&0.into(), &0.into()), "{stats}");
    assert_eq!(stats["states"]["quarantined"], 0, "{stats}");
    assert_eq!(world.read("done"), "");
}

#[test]
fn case_j3_an_idle_worker_is_drained_as_soon_as_its_poll_is_over() {
    for signal in [Signal::TERM, Signal::INT] {
        let world = World::new(&config(&["sh", "-c", "exit 0"], "", ""));
        let mut worker = world.worker();
        world.wait_for_log("worker.log", "worker started");
        let signalled = Instant::now();
        worker.signal(signal);
        assert_eq!(worker.wait().code(), Some(0), "{}", world.read("worker.log"));
        assert!(signalled.elapsed() < SOON, "{:?}", signalled.elapsed());
        let log = world.read("worker.log");
        let last = log.lines().rfind(|line| line.contains("worker stopped")).unwrap();
        assert!(last.to_lowercase().contains("drained"), "{log}");
    }
}

#[test]
fn case_j2_a_stop_while_busy_finishes_and_deletes_all_ten() {
    let (world, worker) = ten_in_hand("3");
    let signalled = Instant::now();
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    assert!(signalled.elapsed() < Duration::from_secs(25), "within the grace");
    assert_eq!(world.read("done").lines().count(), 10);
    let stats = world.json(&["--json", "stats"]);
    let (source, dlq) = (&stats["source"], &stats["dlq"]);
    assert_eq!((&source["visible"], &source["in_flight"]), (&0.into(), &0.into()), "{stats}");
    assert_eq!((&dlq["visible"], &dlq["in_flight"]), (&0.into(), &0.into()), "{stats}");
}

#[test]
fn case_j2_a_second_signal_gives_everything_back_at_once() {
    let (world, mut worker) = ten_in_hand("1000");
    worker.signal(Signal::TERM);
    world.wait_for_log("worker.log", "Draining");
    assert!(worker.runs(), "it waits for its handlers");
    let signalled = Instant::now();
    worker.signal(Signal::INT);
    assert_eq!(worker.wait().code(), Some(75), "{}", world.read("worker.log"));
    assert!(signalled.elapsed() < SOON, "{:?}", signalled.elapsed());
    assert_given_back(&world);
}

#[test]
fn case_j2_what_was_given_back_is_done_by_the_next_worker_as_its_first_attempt() {
    let (world, worker) =
        ten_in_hand("$(cat takes || echo 1000); echo $REDRIVE_ATTEMPT >>attempts");
    worker.signal(Signal::TERM);
    world.wait_for_log("worker.log", "Draining");
    assert_eq!(worker.stop().code(), Some(75), "{}", world.read("worker.log"));
    assert_given_back(&world);
    std::fs::write(world.path("takes"), "0").unwrap();
    let worker = world.worker();
    world.wait_for_empty_source();
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    assert_eq!(world.read("attempts"), "1\n".repeat(10));
    assert_eq!(world.json(&["--json", "stats"])["states"]["quarantined"], 0);
}

#[test]
fn case_a11_a_worker_that_is_killed_in_the_middle_of_its_work_loses_nothing() {
    let script = "read line; echo $line >>started; sleep 2; echo $line >>done";
    let source = "visibility_timeout = \"5s\"\nconcurrency = 20";
    let world = World::new(&config(&["sh", "-c", script], source, ""));
    for n in 0..20 {
        world.send(&format!("line {n}\n"), HashMap::new());
    }
    let mut worker = world.worker();
    world.wait_for_file("started");
    worker.kill_9();
    let stats = world.json(&["--json", "stats"]);
    let (visible, in_flight) = (&stats["source"]["visible"], &stats["source"]["in_flight"]);
    let left = visible.as_u64().unwrap() + in_flight.as_u64().unwrap();
    assert_eq!(left, 20, "nothing is deleted before it is done: {stats}");
    let worker = world.worker();
    world.wait_for_empty_source();
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    let done = world.read("done");
    for n in 0..20 {
        let line = format!("line {n}");
        assert!(done.lines().any(|done| done == line), "{line}: {done}");
    }
    let stats = world.json(&["--json", "stats"]);
    assert_eq!(stats["states"]["quarantined"], 0, "{stats}");
    assert_eq!((&stats["dlq"]["visible"], &stats["dlq"]["in_flight"]), (&0.into(), &0.into()));
}
