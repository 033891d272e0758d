//! Hostile input and hostile handlers: parked or retried with a clear reason, never lost, never a crash.

use std::collections::HashMap;

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;
use serde_json::Value;

use crate::harness::{World, config};

/// A world whose handler is this shell script.
fn world(script: &str, source: &str, extra: &str) -> World {
    World::new(&config(&["sh", "-c", script], source, extra))
}

/// Works until the source is empty; the worker must end well. The records, oldest first.
fn work(world: &World) -> Vec<Value> {
    let worker = world.worker();
    world.wait_for_empty_source();
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    world.json_lines(&["--json", "ls"])
}

fn only(records: &[Value]) -> &Value {
    assert_eq!(records.len(), 1, "{records:?}");
    &records[0]
}

fn payload(world: &World, record: &Value) -> Vec<u8> {
    world.succeed(&["payload", record["record_id"].as_str().unwrap()])
}

fn envelope(world: &World, record: &Value) -> Value {
    world.json(&["--json", "show", record["record_id"].as_str().unwrap()])["envelope"].clone()
}

#[test]
fn odd_bodies_are_parked_byte_for_byte() {
    let world = world("exit 65", "", "");
    let bodies = [
        " ".to_owned(),
        "0".to_owned(),
        "null".to_owned(),
        "&lt;a&gt; &apos; &quot; &amp;amp;".to_owned(),
        "Toolbox – reset \u{1F600} \r\n  ".to_owned(),
        "+%2B%20".to_owned(),
        "e\u{301}".to_owned(),
        "\u{e9}".to_owned(),
        "x".repeat(1_048_576),
        "é".repeat(524_288),
    ];
    bodies.iter().for_each(|body| world.send(body, HashMap::new()));
    let records = work(&world);
    let mut found: Vec<Vec<u8>> = records.iter().map(|record| payload(&world, record)).collect();
    let mut sent: Vec<Vec<u8>> = bodies.iter().map(|body| body.clone().into_bytes()).collect();
    found.sort();
    sent.sort();
    assert!(found == sent, "every body comes back");
    assert!(records.iter().all(|record| record["error_code"] == "EXIT_65"));
}

#[test]
fn a_body_that_is_not_json_where_json_is_needed_has_no_identity() {
    let world = world("exit 0", "", "[identity]\nkey = \"json:/id\"\n");
    for body in ["not json", "{\"id\":null}", "[]", " "] {
        world.send(body, HashMap::new());
    }
    world.send("{\"id\":7}", HashMap::new());
    let records = work(&world);
    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!(record["error_code"], "IDENTITY_MISSING");
        assert_eq!(record["key"], record["payload_sha256"]);
    }
}

#[test]
fn ten_attributes_come_back_with_their_labels_and_bytes() {
    let world = world("exit 65", "", "");
    let attribute = |kind: &str, text: &str| {
        MessageAttributeValue::builder().data_type(kind).string_value(text).build().unwrap()
    };
    let mut attributes: HashMap<String, MessageAttributeValue> =
        (0..8).map(|i| (format!("a-{i}.x"), attribute("String.custom", "é✓ "))).collect();
    attributes.insert("n".into(), attribute("Number.java.lang.Long", "12345678901234567890.01"));
    let bytes = Blob::new([0x00, 0xff, 0x1e, 0x7f, 0x80]);
    let blob = MessageAttributeValue::builder().data_type("Binary.gzip").binary_value(bytes);
    attributes.insert("b".into(), blob.build().unwrap());
    world.send("ten", attributes);
    let records = work(&world);
    let envelope = envelope(&world, only(&records));
    let found = envelope["attributes"].as_object().unwrap();
    assert_eq!(found.len(), 10);
    assert_eq!(found["n"]["type"], "Number.java.lang.Long");
    assert_eq!(found["n"]["string"], "12345678901234567890.01");
    assert_eq!(found["b"]["type"], "Binary.gzip");
    assert_eq!(found["b"]["base64"], "AP8ef4A=");
    assert_eq!(found["a-3.x"]["string"], "é✓ ");
    assert_eq!(payload(&world, only(&records)), b"ten");
}

#[test]
fn control_characters_in_an_error_text_reach_the_evidence_and_not_the_terminal() {
    let script = r#"printf '{"error_code":"bad code\\u0000","message":"a\\u0000b\\u001b[31mred\\nline"}'; exit 65"#;
    let world = world(script, "", "");
    world.send("x", HashMap::new());
    let records = work(&world);
    assert_eq!(only(&records)["error_code"], "BAD_CODE_");
    let text = "a\u{0}b\u{1b}[31mred\nline";
    assert_eq!(envelope(&world, only(&records))["error_message"], text);
    for args in
        [vec!["ls"], vec!["stats"], vec!["show", only(&records)["record_id"].as_str().unwrap()]]
    {
        let shown = world.succeed(&args);
        assert!(!shown.contains(&0x1b) && !shown.contains(&0), "{args:?}");
    }
}

#[test]
fn a_handler_that_prints_ten_megabytes_is_heard() {
    let script = "head -c 10000000 /dev/zero | tr '\\0' x; head -c 10000000 /dev/zero >&2; echo; echo '{\"error_code\":\"LOUD\"}'; exit 65";
    let world = world(script, "", "");
    world.send("x", HashMap::new());
    let records = work(&world);
    assert_eq!(only(&records)["error_code"], "LOUD");
    let envelope = envelope(&world, only(&records));
    assert!(envelope["exception"]["traceback"].as_str().unwrap().len() <= 65_536);
}

#[test]
fn a_handler_that_never_ends_is_stopped_and_its_message_parked() {
    let source = "visibility_timeout = \"5s\"";
    let world = world(
        "sleep 1000 & sleep 1000",
        source,
        "[retry]\nbase = \"1ms\"\ncap = \"1ms\"\n\n[limits]\nmax_attempts = 2\n",
    );
    world.append_config("[handler]", "timeout = \"1s\"");
    world.send("x", HashMap::new());
    let records = work(&world);
    assert_eq!(only(&records)["error_code"], "HANDLER_TIMEOUT");
    assert_eq!(only(&records)["reason"], "exception");
    assert_eq!(only(&records)["attempts_total"], 2);
}

#[test]
fn a_huge_label_is_cut_and_neither_parking_nor_tables_fail() {
    let world = world("exit 65", "", "[labels]\nid = \"/id\"\n");
    let body = format!("{{\"id\":\"{}\"}}", "M".repeat(420_000));
    world.send(&body, HashMap::new());
    let records = work(&world);
    assert_eq!(only(&records)["labels"]["id"].as_str().unwrap().len(), 256);
    assert_eq!(payload(&world, only(&records)), body.into_bytes());
    world.succeed(&["stats"]);
    world.succeed(&["ls"]);
}

#[test]
fn case_k8_payloads_and_credentials_do_not_reach_the_log() {
    let script = r#"printf '{"error_code":"E","message":"card 4111111111111111"}'; exit 65"#;
    let world = world(script, "", "");
    world.append_config("[vault]", "error_text = \"vault\"");
    world.send(r#"{"card":"4111111111111111","token":"SECRET-XYZ"}"#, HashMap::new());
    let records = work(&world);
    let log = world.read("worker.log");
    for secret in ["4111111111111111", "SECRET-XYZ"] {
        assert!(!log.contains(secret), "{log}");
        assert!(!only(&records).to_string().contains(secret), "the ledger keeps the code alone");
    }
    assert_eq!(envelope(&world, only(&records))["error_message"], "card 4111111111111111");
}
