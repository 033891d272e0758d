//! `setup`: what it makes, that it may be repeated, and what it refuses.

use std::time::Duration;

use redrive::aws::client::Aws;
use redrive::aws::setup::{SetupError, setup};
use redrive::aws::sqs::AwsQueue;
use redrive::domain::failure::ErrorClass;
use redrive::port::error::Reached;
use redrive::port::queue::Queue;

use crate::embedded::{Embedded, spec};

const ALL: [&str; 4] = ["queue orders-dlq", "queue orders", "bucket vault", "table ledger"];

#[tokio::test]
async fn everything_is_created_once() {
    let embedded = Embedded::start().await;
    assert_eq!(embedded.report().created, ALL);
    assert!(embedded.report().existing.is_empty());
    let again = setup(embedded.aws(), embedded.spec()).await.unwrap();
    assert_eq!(again.existing, ALL);
    assert!(again.created.is_empty());
}

#[tokio::test]
async fn the_dead_letter_queue_keeps_its_messages_longest() {
    let embedded = Embedded::start().await;
    let dlq = embedded.dlq().await.facts().await.unwrap();
    assert_eq!(dlq.retention, Duration::from_secs(14 * 86_400));
    let policy = embedded.queue().await.facts().await.unwrap().redrive_policy.unwrap();
    assert_eq!((policy.target, policy.max_receive_count), (dlq.arn, 3));
}

#[tokio::test]
async fn fifo_and_standard_do_not_go_together() {
    let embedded = Embedded::start().await;
    let mixed = spec("orders.fifo", "orders-dlq");
    let error = setup(embedded.aws(), &mixed).await.unwrap_err();
    assert!(matches!(error, SetupError::Mismatch { .. }), "{error}");
}

#[tokio::test]
async fn a_queue_is_found_by_name_url_or_arn_and_a_missing_one_is_not() {
    let embedded = Embedded::start().await;
    let arn = embedded.queue().await.facts().await.unwrap().arn;
    let url = "http://sqs.us-east-1.localhost/000000000000/orders";
    for named in ["orders", url, arn.as_str()] {
        let queue = AwsQueue::resolve(embedded.aws(), named).await.unwrap();
        assert_eq!(queue.name().as_str(), "orders", "{named}");
    }
    let missing = AwsQueue::resolve(embedded.aws(), "missing").await.unwrap_err();
    assert_eq!(missing.class(), ErrorClass::NotFound);
    let nonsense = AwsQueue::resolve(embedded.aws(), "no queue").await.unwrap_err();
    assert_eq!(nonsense.class(), ErrorClass::Invalid);
}

#[tokio::test]
async fn the_caller_is_told() {
    let caller = Embedded::start().await.aws().caller().await.unwrap();
    assert_eq!(caller.account, "000000000000");
    assert_eq!(caller.arn, "arn:aws:iam::000000000000:user/local");
}

#[tokio::test]
async fn an_unreachable_endpoint_gives_no_answer() {
    // Bound and closed again: nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let aws = Aws::embedded(&endpoint);
    let error = aws.caller().await.unwrap_err();
    assert_eq!((error.class(), error.reached()), (ErrorClass::Transient, Reached::NoAnswer));
    assert_eq!(error.code(), "connection refused");
}
