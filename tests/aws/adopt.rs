//! A DLQ that SQS filled itself: what the binary makes of it.

use std::collections::HashMap;

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;
use serde_json::json;

use crate::harness::{World, config};

/// Receives everything in `hooks` without deleting it, until the native policy has moved it.
fn let_the_policy_move_it(world: &World) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .endpoint_url(world.endpoint())
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .build();
        let client = aws_sdk_sqs::Client::from_conf(config);
        let url = client.get_queue_url().queue_name("hooks").send().await.unwrap();
        let url = url.queue_url().unwrap().to_owned();
        for receives in 0.. {
            let receive = client.receive_message().queue_url(&url).visibility_timeout(0);
            let answer = receive.max_number_of_messages(10).send().await.unwrap();
            if answer.messages().is_empty() {
                assert!(receives > 1, "there was something to receive");
                return;
            }
            assert!(receives < 100, "the policy moves nothing");
        }
    });
}

fn attributes() -> HashMap<String, MessageAttributeValue> {
    let number = MessageAttributeValue::builder().data_type("Number.int").string_value("007");
    let blob =
        MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new([0, 255]));
    [("n", number.build().unwrap()), ("b", blob.build().unwrap())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

#[test]
fn case_c9_a_dlq_that_sqs_filled_is_adopted_intact_and_resolved_once() {
    let script = "echo \"$REDRIVE_RECORD_ID $REDRIVE_ATTR_N $(cat)\" >> done.txt";
    let world = World::new(&config(&["sh", "-c", script], "", ""));
    world.send("moved \u{e9}", attributes());
    let_the_policy_move_it(&world);

    let swept = world.json(&["--json", "sweep"]);
    assert_eq!((&swept["adopted"], &swept["errors"]), (&json!(1), &json!([])), "{swept}");
    let records = world.json_lines(&["--json", "ls"]);
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!(
        (&record["state"], &record["reason"]),
        (&json!("quarantined"), &json!("receives_exhausted"))
    );
    let id = record["record_id"].as_str().unwrap();
    assert_eq!(world.succeed(&["payload", id]), "moved \u{e9}".as_bytes());
    let envelope = world.json(&["--json", "show", id])["envelope"].clone();
    let expected = json!({
        "n": { "type": "Number.int", "string": "007" },
        "b": { "type": "Binary", "base64": "AP8=" },
    });
    assert_eq!(envelope["attributes"], expected);

    let again = world.json(&["--json", "sweep", "--full"]);
    assert_eq!(
        (&again["kept"], &again["adopted"], &again["reissued"]),
        (&json!(1), &json!(0), &json!(0))
    );

    let worker = world.worker();
    let report = world.json(&["--json", "start", "--all", "--execute"]);
    assert_eq!(
        (&report["state"], &report["resolved"]),
        (&json!("completed"), &json!(1)),
        "{report}"
    );
    assert_eq!(worker.stop().code(), Some(0), "{}", world.read("worker.log"));
    assert_eq!(world.read("done.txt"), format!("{id} 007 moved \u{e9}\n"));
    let swept = world.json(&["--json", "sweep"]);
    assert_eq!(swept["kept"], json!(0), "{swept}");
    assert_eq!(world.json(&["--json", "stats"])["dlq"]["visible"], json!(0));
}
