//! What the adapters make of answers that no well-behaved server gives: written out as they come over
//! the wire, so that a change of protocol or SDK shows here first.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use redrive::aws::client::Aws;
use redrive::aws::dynamodb::AwsLedger;
use redrive::aws::s3::{AwsVault, Place};
use redrive::aws::sqs::AwsQueue;
use redrive::domain::failure::ErrorClass as C;
use redrive::domain::id::{EnvelopeKey, QueueName};
use redrive::domain::message::Outgoing;
use redrive::port::ledger::{Expect, Ledger, TransactError, WriteError};
use redrive::port::queue::Queue;
use redrive::port::vault::Vault;

use crate::item::{NOW, claimed, entry_write, id, parked, record_write};

#[derive(Clone)]
struct Answer {
    status: u16,
    header: (&'static str, &'static str),
    body: String,
}

fn json(status: u16, body: impl Into<String>) -> Answer {
    Answer { status, header: ("content-type", "application/x-amz-json-1.0"), body: body.into() }
}

fn xml(status: u16, body: &str) -> Answer {
    Answer { status, header: ("content-type", "application/xml"), body: body.to_owned() }
}

/// A server that gives these answers in turn, the last one for ever, and the requests it got.
struct Wire {
    aws: Aws,
    requests: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
}

async fn wire(answers: Vec<Answer>) -> Wire {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let answer = move |headers: HeaderMap, body: Bytes| {
        let mut seen = seen.lock().unwrap();
        let answer = answers[seen.len().min(answers.len() - 1)].clone();
        seen.push((headers, body));
        let status = StatusCode::from_u16(answer.status).unwrap();
        async move { (status, [answer.header], answer.body) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    Wire { aws: Aws::embedded(&endpoint), requests }
}

impl Wire {
    fn ledger(&self) -> AwsLedger {
        AwsLedger::new(&self.aws, "ledger", QueueName::new("orders").unwrap())
    }

    fn vault(&self) -> AwsVault {
        let place = Place {
            bucket: "vault".to_owned(),
            prefix: String::new(),
            expected_owner: Some("000000000000".to_owned()),
            kms_key_id: Some("key-1".to_owned()),
        };
        AwsVault::new(&self.aws, place)
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn key() -> EnvelopeKey {
    EnvelopeKey::new("envelopes/v1/orders/x.json").unwrap()
}

#[tokio::test]
async fn a_missing_queue_is_not_found_in_both_protocols() {
    let both = json(400, r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"SECRET"}"#);
    let query = ("x-amzn-query-error", "AWS.SimpleQueueService.NonExistentQueue;Sender");
    let plain = json(400, r#"{"__type":"AWS.SimpleQueueService.NonExistentQueue"}"#);
    for answer in [both.clone(), Answer { header: query, ..both }, plain] {
        let wire = wire(vec![answer]).await;
        let error = AwsQueue::resolve(&wire.aws, "orders").await.unwrap_err();
        assert_eq!(error.class(), C::NotFound, "{error}");
        assert!(!error.to_string().contains("SECRET"));
    }
}

#[tokio::test]
async fn denied_and_over_limit_are_told_apart() {
    for (status, code, class) in [
        (403, "com.amazonaws.sqs#OverLimit", C::Throttled),
        (400, "com.amazonaws.sqs#KmsAccessDenied", C::Denied),
        (400, "KMS.AccessDeniedException", C::Denied),
        (403, "AccessDeniedException", C::Denied),
    ] {
        let wire = wire(vec![json(status, format!(r#"{{"__type":"{code}"}}"#))]).await;
        let error = AwsQueue::resolve(&wire.aws, "orders").await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
    }
}

#[tokio::test]
async fn an_entry_that_no_list_names_has_not_succeeded() {
    let url = json(200, r#"{"QueueUrl":"http://127.0.0.1/000000000000/orders"}"#);
    let md5 = "9dd4e461268c8034f5c8564e155c67a6";
    let answer = format!(
        r#"{{"Successful":[{{"Id":"2","MessageId":"m-2","MD5OfMessageBody":"{md5}"}}],
            "Failed":[{{"Id":"0","Code":"InternalError","SenderFault":false,"Message":"SECRET"}}]}}"#
    );
    let wire = wire(vec![url, json(200, answer)]).await;
    let queue = AwsQueue::resolve(&wire.aws, "orders").await.unwrap();
    let message = Outgoing { body: "x".to_owned(), ..Outgoing::default() };
    let answers = queue.send(&vec![message; 3]).await.unwrap();
    let codes = answers.iter().map(|answer| answer.as_ref().err().map(|e| e.code.as_str()));
    let expected = [Some("InternalError"), Some("MissingFromAnswer"), None];
    assert_eq!(codes.collect::<Vec<_>>(), expected);
}

fn cancelled(entry: &str, record: &str) -> Answer {
    let reasons = format!(r#"[{{"Code":"{entry}"}},{{"Code":"{record}"}}]"#);
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    json(400, format!(r#"{{"__type":"{kind}","CancellationReasons":{reasons}}}"#))
}

#[tokio::test]
async fn a_conflict_beside_a_failed_condition_is_unknown() {
    for (entry, record, class) in [
        ("None", "TransactionConflict", C::Transient),
        ("ConditionalCheckFailed", "TransactionConflict", C::Transient),
        ("ThrottlingError", "ConditionalCheckFailed", C::Throttled),
        ("None", "ValidationError", C::Invalid),
    ] {
        let wire = wire(vec![cancelled(entry, record)]).await;
        let entry = entry_write(Expect::Absent, &claimed("t-1", NOW));
        let record = record_write(&id("m-1"), Expect::Absent, &parked("p-1", NOW));
        match wire.ledger().put_both(&entry, &record, NOW).await {
            Err(TransactError::Unknown(error)) => assert_eq!(error.class(), class, "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn no_error_but_a_failed_condition_is_a_verdict() {
    for (status, code, class) in [
        (400, "ProvisionedThroughputExceededException", C::Throttled),
        (400, "ThrottlingException", C::Throttled),
        (400, "RequestLimitExceeded", C::Throttled),
        (400, "TransactionConflictException", C::Transient),
        (400, "ResourceNotFoundException", C::NotFound),
        (500, "InternalServerError", C::Transient),
    ] {
        let wire = wire(vec![json(status, format!(r#"{{"__type":"{code}"}}"#))]).await;
        let write = entry_write(Expect::Absent, &claimed("t-1", NOW));
        match wire.ledger().put_entry(&write, NOW).await {
            Err(WriteError::Unknown(error)) => assert_eq!(error.class(), class, "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_failed_condition_without_its_item_is_read_after() {
    let lost = json(400, r#"{"__type":"ConditionalCheckFailedException"}"#);
    let wire = wire(vec![lost, json(200, "{}")]).await;
    let write = entry_write(Expect::Absent, &claimed("t-1", NOW));
    let answer = wire.ledger().put_entry(&write, NOW).await;
    assert!(matches!(answer, Err(WriteError::Lost(None))), "{answer:?}");
    assert_eq!(wire.count(), 2);
    assert_eq!(wire.requests.lock().unwrap()[1].0["x-amz-target"], "DynamoDB_20120810.GetItem");
}

#[tokio::test]
async fn an_item_that_cannot_be_read_is_a_bug_that_names_it() {
    let item = r#"{"Item":{"pk":{"S":"idem#orders#x"},"state":{"S":"SECRET"}}}"#;
    let wire = wire(vec![json(200, item)]).await;
    let error = wire.ledger().entry(&crate::item::key(), NOW).await.unwrap_err();
    assert_eq!(error.class(), C::Bug);
    assert!(error.to_string().contains("idem#orders#x: attribute state"), "{error}");
    assert!(!error.to_string().contains("SECRET"));
}

#[tokio::test]
async fn a_put_carries_its_conditions_and_its_hash_and_no_chunks() {
    let wire = wire(vec![xml(200, "")]).await;
    wire.vault().put(&key(), Bytes::from_static(b"{}")).await.unwrap().into_inner();
    let requests = wire.requests.lock().unwrap();
    let (headers, body) = &requests[0];
    for (name, value) in [
        ("if-none-match", "*"),
        ("x-amz-checksum-sha256", "RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o="),
        ("x-amz-expected-bucket-owner", "000000000000"),
        ("x-amz-server-side-encryption", "aws:kms"),
        ("x-amz-server-side-encryption-aws-kms-key-id", "key-1"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(!headers.contains_key("content-encoding"));
    assert!(headers.keys().all(|name| !name.as_str().starts_with("x-amz-meta-")));
    assert_eq!(body, &b"{}"[..]);
}

#[tokio::test]
async fn a_put_that_races_is_tried_again_and_one_that_lost_to_itself_is_success() {
    let race = xml(409, "<Error><Code>ConditionalRequestConflict</Code></Error>");
    let own = xml(412, "<Error><Code>PreconditionFailed</Code></Error>");
    let wire_once = wire(vec![race.clone(), own]).await;
    wire_once.vault().put(&key(), Bytes::from_static(b"{}")).await.unwrap().into_inner();
    assert_eq!(wire_once.count(), 2);
    let wire_always = wire(vec![race]).await;
    let error = wire_always.vault().put(&key(), Bytes::from_static(b"{}")).await.unwrap_err();
    assert_eq!((error.class(), wire_always.count()), (C::Transient, 4));
}

#[tokio::test]
async fn slow_down_is_throttled_also_with_status_200() {
    let slow = "<?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code></Error>";
    for status in [200, 503] {
        let wire = wire(vec![xml(status, slow)]).await;
        let error = wire.vault().get(&key()).await.unwrap_err();
        assert_eq!((error.class(), error.code()), (C::Throttled, "SlowDown"), "{status}");
    }
}

#[tokio::test]
async fn a_store_that_refuses_checksums_is_transient_and_named() {
    let body = "<Error><Code>XAmzContentSHA256Mismatch</Code><Message>SECRET</Message></Error>";
    let wire = wire(vec![xml(400, body)]).await;
    let error = wire.vault().put(&key(), Bytes::from_static(b"{}")).await.unwrap_err();
    assert_eq!(error.class(), C::Transient);
    let text = error.to_string();
    assert!(text.contains(key().as_str()) && text.contains("XAmzContentSHA256Mismatch"), "{text}");
    assert!(!text.contains("SECRET"));
}
