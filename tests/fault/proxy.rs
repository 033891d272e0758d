//! The built binary behind a proxy with faults.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::harness::{HANG, World, config};
use crate::wire::Wire;
use crate::wire::act::{Act, Reply};
use crate::wire::call::{Call, Service};
use crate::wire::proxy::Proxy;
use crate::wire::rule::Rule;

#[test]
fn a_built_worker_loses_nothing_when_a_tenth_of_all_answers_is_lost() {
    let script = "read line; echo $line >>notes; case $line in bad*) exit 65;; esac";
    let source = "visibility_timeout = \"5s\"";
    let world = World::new(&config(
        &["sh", "-c", script],
        source,
        "[retry]\nbase = \"1s\"\ncap = \"1s\"\n",
    ));
    let wire = Wire::new();
    let proxy = Proxy::start(&wire, world.endpoint());
    for n in 0..20 {
        let verb = if n % 4 == 0 { "bad" } else { "fine" };
        world.send(&format!("{verb} {n}\n"), HashMap::new());
    }
    // It starts in peace: what is asked once at a start is not what is tried here.
    let lost = Rule::all(Act::LoseAnswer).chance(0.1, 1);
    let received = |call: &Call| call.is(Service::Sqs, "ReceiveMessage");
    let mut begun = false;
    let lost = wire.add(lost.when(move |call| {
        begun |= received(call);
        begun
    }));
    let mut command = world.redrive(&["worker"]);
    command.env("AWS_ENDPOINT_URL", proxy.endpoint());
    let worker = world.start_command(command, "worker.log");
    world.wait_for_empty_source();
    assert!(wire.acted(lost) > 3, "{} answers were lost", wire.acted(lost));
    wire.remove(lost);
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    let records = world.json_lines(&["--json", "ls"]);
    assert_eq!(records.len(), 5, "{records:?}");
    let notes = world.read("notes");
    for n in (0..20).filter(|n| n % 4 != 0) {
        let line = format!("fine {n}");
        assert!(notes.lines().any(|noted| noted == line), "{line}: {notes}");
    }
    for record in &records {
        world.succeed(&["payload", record["record_id"].as_str().unwrap()]);
    }
}

/// All that comes back on a connection of its own for a ListQueues, up to its end.
fn answer_to(proxy: &Proxy) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(proxy.endpoint().trim_start_matches("http://"))?;
    let head = "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2";
    write!(stream, "{head}\r\nx-amz-target: AmazonSQS.ListQueues\r\n\r\n{{}}")?;
    stream.set_read_timeout(Some(HANG))?;
    let mut answer = Vec::new();
    // It may end by a reset; what came before counts.
    if let Err(end) = stream.read_to_end(&mut answer) {
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn the_proxy_ends_connections_without_a_byte_and_answers_in_a_services_place() {
    let world = World::new(&config(&["sh", "-c", "exit 0"], "", ""));
    let wire = Wire::new();
    let proxy = Proxy::start(&wire, world.endpoint());
    let whole = answer_to(&proxy).unwrap();
    assert!(whole.starts_with("HTTP/1.1 200") && whole.contains("hooks-dlq"), "{whole}");
    for act in [Act::Refuse, Act::ResetBefore, Act::LoseAnswer] {
        let rule = wire.add(Rule::of(Service::Sqs, act.clone()));
        assert_eq!(answer_to(&proxy).unwrap(), "", "{act:?}");
        assert_eq!(wire.acted(rule), 1, "{act:?}");
        wire.remove(rule);
    }
    let rule = wire.add(Rule::of(Service::Sqs, Act::BreakOff(3)));
    let part = answer_to(&proxy).unwrap();
    let (head, body) = part.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && body.len() == 3, "{part}");
    wire.remove(rule);
    wire.add(Rule::of(Service::Sqs, Act::Answer(Reply::over_limit())));
    let refused = answer_to(&proxy).unwrap();
    assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("OverLimit"), "{refused}");
    assert_eq!(wire.count(Service::Sqs, "ListQueues"), 6);
}
