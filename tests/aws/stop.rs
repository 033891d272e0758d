//! SIGTERM and SIGINT drain a worker.

use std::collections::HashMap;

use rustix::process::Signal;

use crate::harness::{World, config};

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
