//! A wrong deployment: one line that names what is wrong and the next step, with its exit code.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;

use crate::harness::{World, config, output};

/// The one line that a failed command leaves on stderr, and its exit code.
fn refusal(output: &Output) -> (String, Option<i32>) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("redrive: ")).collect();
    assert_eq!(lines.len(), 1, "one line: {stderr}");
    (lines[0].to_owned(), output.status.code())
}

/// Runs `redrive` with one variable more.
fn with(world: &World, args: &[&str], name: &str, value: &str) -> Output {
    let mut command = world.redrive(args);
    command.env(name, value);
    output(command)
}

fn world() -> World {
    World::new(&config(&["sh", "-c", "exit 0"], "", ""))
}

#[test]
fn a_wrong_queue_bucket_or_table_is_named_with_the_next_step() {
    let world = world();
    for (variable, name) in [
        ("REDRIVE_SOURCE_QUEUE", "no-such-queue"),
        ("REDRIVE_SOURCE_DLQ", "no-such-dlq"),
        ("REDRIVE_VAULT_BUCKET", "no-such-bucket"),
        ("REDRIVE_LEDGER_TABLE", "no-such-table"),
    ] {
        let (line, code) = refusal(&with(&world, &["worker"], variable, name));
        assert_eq!(code, Some(78), "{line}");
        assert!(line.contains(name), "{line}");
        assert!(line.contains("redrive setup"), "the next step: {line}");
    }
}

#[test]
fn a_handler_that_does_not_exist_is_refused_at_start() {
    let world = World::new(&config(&["./no-such-handler"], "", ""));
    let (line, code) = refusal(&world.run(&["worker"]));
    assert_eq!(code, Some(78), "{line}");
    assert!(line.contains("no-such-handler"), "{line}");
}

#[test]
fn case_c9_an_own_limit_above_the_native_one_is_refused() {
    let world = world();
    let output = with(&world, &["worker"], "REDRIVE_LIMITS_MAX_ATTEMPTS", "6");
    let (line, code) = refusal(&output);
    assert_eq!(code, Some(78), "{line}");
    assert!(line.contains("maxReceiveCount") && line.contains('5'), "{line}");
}

#[test]
fn another_identity_than_the_ledgers_is_refused_until_it_is_meant() {
    let world = world();
    let worker = world.worker();
    world.wait_for_log("worker.log", "worker started");
    assert_eq!(worker.stop().code(), Some(0));
    let changed = |args: &[&str]| with(&world, args, "REDRIVE_IDENTITY_KEY", "message-id");
    let (line, code) = refusal(&changed(&["worker"]));
    assert_eq!(code, Some(78), "{line}");
    assert!(line.contains("--change-identity"), "{line}");
    assert!(changed(&["setup", "--change-identity"]).status.success());
    let (line, code) = refusal(&world.run(&["worker"]));
    assert_eq!(code, Some(78), "now the old one is: {line}");
}

/// A service that answers every request with this status and JSON body, on a port of its own.
fn answering(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 65_536];
            // What is asked does not matter, nor whether the answer is still wanted.
            if stream.read(&mut request).is_ok() {
                let length = body.len();
                let head = "content-type: application/x-amz-json-1.0\r\nconnection: close";
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
                )
                .ok();
            }
        }
    });
    endpoint
}

#[test]
fn a_denied_table_is_named_with_exit_77() {
    let world = world();
    let denied = answering(
        "400 Bad Request",
        r#"{"__type":"com.amazon.coral.service#AccessDeniedException","message":"not authorized"}"#,
    );
    for args in [["worker"], ["stats"]] {
        let output =
            world.redrive(&args).env("AWS_ENDPOINT_URL_DYNAMODB", &denied).output().unwrap();
        let (line, code) = refusal(&output);
        assert_eq!(code, Some(77), "{line}");
        assert!(line.contains("hooks-ledger") && line.contains("AccessDenied"), "{line}");
    }
}

#[test]
fn an_empty_endpoint_variable_is_named() {
    let world = world();
    let (line, code) = refusal(&with(&world, &["stats"], "AWS_ENDPOINT_URL_SQS", ""));
    assert_eq!(code, Some(78), "{line}");
    assert!(line.contains("AWS_ENDPOINT_URL_SQS is set and empty"), "{line}");
}

#[test]
fn an_endpoint_that_is_not_there_ends_with_exit_69() {
    let world = world();
    let output = with(&world, &["stats"], "AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    let (line, code) = refusal(&output);
    assert_eq!(code, Some(69), "{line}");
}

#[test]
fn records_that_do_not_exist_and_wrong_words_have_their_own_codes() {
    let world = world();
    for (args, code) in [
        (vec!["show", "no-such-record"], 66),
        (vec!["payload", "no-such-record"], 66),
        (vec!["show"], 64),
        (vec!["no-such-command"], 64),
        (vec!["ls", "--label", "novalue"], 64),
        (vec!["--config", "no-such-file.toml", "stats"], 78),
    ] {
        let output = world.run(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

/// Turns the TTL of this world's table to another attribute.
async fn turn_ttl(world: &World, attribute: &str) {
    use aws_sdk_dynamodb::types::TimeToLiveSpecification;
    let keys = aws_sdk_dynamodb::config::Credentials::new("test", "test", None, None, "test");
    let client = aws_sdk_dynamodb::Client::from_conf(
        aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
            .region(aws_sdk_dynamodb::config::Region::new("us-east-1"))
            .endpoint_url(world.endpoint())
            .credentials_provider(keys)
            .build(),
    );
    for (enabled, name) in [(false, "expires_at"), (true, attribute)] {
        let ttl = TimeToLiveSpecification::builder().enabled(enabled).attribute_name(name);
        let request = client.update_time_to_live().table_name("hooks-ledger");
        request.time_to_live_specification(ttl.build().unwrap()).send().await.unwrap();
    }
}

#[tokio::test]
async fn case_f11_a_ttl_on_another_attribute_is_named_and_does_not_stop_the_worker() {
    let world = world();
    turn_ttl(&world, "expires").await;
    let worker = world.worker();
    world.wait_for_log("worker.log", "worker started");
    let log = world.read("worker.log");
    assert!(log.contains("expires_at") && log.contains("expires\""), "{log}");
    assert_eq!(worker.stop().code(), Some(0));
}

#[tokio::test]
async fn case_c4_a_limit_of_one_receive_is_warned_of() {
    let world = world();
    let keys = aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "test");
    let client = aws_sdk_sqs::Client::from_conf(
        aws_sdk_sqs::Config::builder()
            .behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest())
            .region(aws_sdk_sqs::config::Region::new("us-east-1"))
            .endpoint_url(world.endpoint())
            .credentials_provider(keys)
            .build(),
    );
    let url = client.get_queue_url().queue_name("hooks").send().await.unwrap().queue_url.unwrap();
    for (limit, warned) in [(5, false), (1, true)] {
        let arn = "arn:aws:sqs:us-east-1:000000000000:hooks-dlq";
        let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{limit}}}"#);
        let name = aws_sdk_sqs::types::QueueAttributeName::RedrivePolicy;
        let request = client.set_queue_attributes().queue_url(&url).attributes(name, policy);
        request.send().await.unwrap();
        let log = format!("worker-{limit}.log");
        let worker = world.start(&["worker"], &log);
        world.wait_for_log(&log, "worker started");
        assert_eq!(world.read(&log).contains("maxReceiveCount is 1"), warned, "{limit}");
        assert_eq!(worker.stop().code(), Some(0));
    }
}

#[test]
fn case_c10_looking_changes_nothing() {
    let world = World::new(&config(&["sh", "-c", "exit 65"], "", ""));
    for n in 0..5 {
        world.send(&format!("bad {n}"), std::collections::HashMap::new());
    }
    let worker = world.worker();
    world.wait_for("five parked", |stats| stats["states"]["quarantined"] == 5);
    worker.stop();
    for n in 0..3 {
        world.send(&format!("waiting {n}"), std::collections::HashMap::new());
    }
    let before = world.json(&["--json", "stats"]);
    let id = world.json_lines(&["--json", "ls"])[0]["record_id"].as_str().unwrap().to_owned();
    for _ in 0..10 {
        for args in [&["stats"][..], &["ls"], &["show", &id], &["payload", &id], &["plan", "--all"]]
        {
            world.succeed(args);
        }
    }
    world.succeed(&["sweep"]);
    let after = world.json(&["--json", "stats"]);
    assert_eq!((&before["source"], &before["dlq"]), (&after["source"], &after["dlq"]));
    assert_eq!(after["dlq"]["visible"], 5, "a sweep gives back what it looked at");
    assert_eq!(after["source"]["visible"], 3, "nobody received from the source");
}
