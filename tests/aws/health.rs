//! What a running worker says of itself: health and metrics over HTTP, metrics on stdout.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use redrive::telemetry::metric;
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{HANG, Process, World, config, output, pause};

/// Starts a worker with `--listen` on a free port; the address that it took. stdout and log are apart.
fn listening_worker(world: &World) -> (Process, String) {
    let script = r#"exec "$0" worker --listen 127.0.0.1:0 >metrics.log 2>worker.log"#;
    let mut command = world.command("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_redrive")]);
    let worker = world.start_command(command, "shell.log");
    world.wait_for_log("worker.log", "serving /healthz");
    let log = world.read("worker.log");
    let line = log.lines().find(|line| line.contains("serving /healthz")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    (worker, line["address"].as_str().unwrap().to_owned())
}

/// The status and the body of an answer.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// `DuplicatesSkipped` as `_duplicates_skipped`.
fn snake(name: &str) -> String {
    let letters = name.chars().map(|letter| {
        let lower = letter.to_ascii_lowercase();
        if lower == letter { lower.to_string() } else { format!("_{lower}") }
    });
    letters.collect()
}

#[test]
fn a_worker_serves_its_health_and_metrics_and_prints_them_when_it_stops() {
    let script = "touch started; until test -e go; do sleep 0.1; done";
    let world = World::new(&config(&["sh", "-c", script], "", "[limits]\ngrace = \"150s\"\n"));
    world.send("line", std::collections::HashMap::new());
    let (mut worker, address) = listening_worker(&world);
    world.wait_for_file("started");

    let (status, body) = get(&address, "/healthz");
    let report: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &report["status"]), (200, &"ok".into()), "{report}");
    for key in ["last_poll_seconds", "consecutive_poll_errors", "breakers_open", "in_flight"] {
        assert!(report.get(key).is_some(), "{key}: {report}");
    }
    let (status, text) = get(&address, "/metrics");
    assert_eq!(status, 200);
    for metric in metric::all() {
        let kind = format!("# TYPE redrive{}", snake(metric.name));
        assert!(text.contains(&kind), "{kind}: {text}");
    }
    assert_eq!(get(&address, "/payload").0, 404);
    assert!(text.contains("redrive_received_total{queue=\"hooks\"} 1"), "{text}");
    assert!(text.contains("redrive_in_flight{queue=\"hooks\"} 1"), "{text}");
    assert!(text.contains("redrive_breaker_open{queue=\"hooks\"} 0"), "{text}");
    assert_eq!(get(&address, "/readyz").0, 200, "its poll was answered");

    // A handler is at work: the stop drains, and says so.
    worker.signal(Signal::TERM);
    let started = Instant::now();
    let draining = loop {
        let (status, body) = get(&address, "/readyz");
        if body.contains("draining") {
            break status;
        }
        assert!(started.elapsed() < HANG, "{status} {body}");
        pause();
    };
    assert_eq!((draining, get(&address, "/healthz").0), (503, 200));
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(worker.wait().code(), Some(0), "{}", world.read("worker.log"));

    let lines = world.read("metrics.log");
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let sum = |name: &str| lines.iter().filter_map(|line| line[name].as_u64()).sum::<u64>();
    assert_eq!((sum("Received"), sum("Committed")), (1, 1), "{lines:?}");
    for line in lines {
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Redrive", "{line}");
        assert_eq!(line["Queue"], "hooks");
        assert!(line["Received"].is_u64() && line["InFlight"].is_u64(), "{line}");
    }
}

#[test]
fn an_address_that_is_taken_ends_the_start_with_its_name() {
    let world = World::new(&config(&["true"], "", ""));
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let refused = output(world.redrive(&["worker", "--listen", &address]));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(78), "{said}");
    assert!(said.contains(&format!("cannot listen on {address}: ")), "{said}");
    assert!(refused.stdout.is_empty());
}

#[test]
fn without_metrics_stdout_is_empty_and_the_flag_wins_over_the_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let key = taken.local_addr().unwrap();
    let extra = format!("[telemetry]\nmetrics = \"off\"\nlisten = \"{key}\"\n");
    let world = World::new(&config(&["true"], "", &extra));
    let (worker, address) = listening_worker(&world);
    assert_ne!(address, key.to_string());
    world.wait_for_log("worker.log", "worker started");
    assert_eq!(get(&address, "/metrics").0, 200);
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    assert_eq!(world.read("metrics.log"), "");
}
