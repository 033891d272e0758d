//! The embedded AWS through AWS's own SDK: one round trip of each service, and its ends.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::types::ChecksumAlgorithm;
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, MessageSystemAttributeName};

use super::LocalAws;
use crate::domain::time::Wall;
use crate::sim::clock::SimClock;

async fn start() -> LocalAws {
    let clock = Arc::new(SimClock::starting_at(Wall::from_ms(1_796_000_000_000)));
    LocalAws::start(0, clock, 1).await.unwrap()
}

async fn config(aws: &LocalAws, key: &str) -> aws_config::SdkConfig {
    aws_config::defaults(aws_config::BehaviorVersion::latest())
        .endpoint_url(aws.endpoint())
        .region("us-east-1")
        .credentials_provider(Credentials::new(key, "test", None, None, "test"))
        .load()
        .await
}

fn s3(config: &aws_config::SdkConfig) -> aws_sdk_s3::Client {
    let config = aws_sdk_s3::config::Builder::from(config).force_path_style(true).build();
    aws_sdk_s3::Client::from_conf(config)
}

#[tokio::test]
async fn a_message_goes_out_and_comes_back_byte_for_byte() {
    let aws = start().await;
    let sqs = aws_sdk_sqs::Client::new(&config(&aws, "test").await);
    let missing = sqs.get_queue_url().queue_name("q").send().await.unwrap_err();
    assert!(missing.into_service_error().is_queue_does_not_exist());
    let url = sqs.create_queue().queue_name("q").send().await.unwrap().queue_url.unwrap();
    let blob = MessageAttributeValue::builder()
        .data_type("Binary.x")
        .binary_value(Blob::new([0, 255, 1]))
        .build()
        .unwrap();
    let send = sqs.send_message().queue_url(&url).message_body("héllo\r\n");
    // The SDK itself compares the MD5s of what it sends and receives.
    let sent = send.message_attributes("blob", blob.clone()).send().await.unwrap();
    let receive = sqs.receive_message().queue_url(&url).message_attribute_names("All");
    let received = receive
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .send()
        .await
        .unwrap();
    let message = &received.messages()[0];
    assert_eq!(message.message_id, sent.message_id);
    assert_eq!(message.body(), Some("héllo\r\n"));
    assert_eq!(message.message_attributes().unwrap()["blob"], blob);
    let count =
        &message.attributes().unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount];
    assert_eq!(count, "1");
    let handle = message.receipt_handle().unwrap();
    sqs.delete_message().queue_url(&url).receipt_handle(handle).send().await.unwrap();
    aws.stop().await;
}

#[tokio::test]
async fn an_object_is_put_once_with_its_checksum() {
    let aws = start().await;
    let s3 = s3(&config(&aws, "test").await);
    s3.create_bucket().bucket("vault").send().await.unwrap();
    let put = || {
        s3.put_object()
            .bucket("vault")
            .key("a/b=c.json")
            .body(b"{}".to_vec().into())
            .checksum_algorithm(ChecksumAlgorithm::Sha256)
            .expected_bucket_owner("000000000000")
            .if_none_match("*")
            .send()
    };
    assert!(put().await.unwrap().checksum_sha256.is_some());
    assert_eq!(put().await.unwrap_err().into_service_error().code(), Some("PreconditionFailed"));
    let got = s3.get_object().bucket("vault").key("a/b=c.json").send().await.unwrap();
    assert_eq!(got.body.collect().await.unwrap().into_bytes(), "{}");
    let missing = s3.get_object().bucket("vault").key("no").send().await.unwrap_err();
    assert!(missing.into_service_error().is_no_such_key());
    aws.stop().await;
}

#[tokio::test]
async fn an_unknown_key_is_told_which_to_use() {
    let aws = start().await;
    let refused = s3(&config(&aws, "AKIA").await).list_buckets().send().await.unwrap_err();
    let error = refused.into_service_error();
    assert_eq!(error.code(), Some("InvalidAccessKeyId"));
    assert!(error.message().unwrap().contains("AWS_ACCESS_KEY_ID=test"));
}

#[tokio::test]
async fn an_item_is_written_on_a_condition() {
    let aws = start().await;
    let ddb = aws_sdk_dynamodb::Client::new(&config(&aws, "test").await);
    ddb.create_table()
        .table_name("ledger")
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(
            AttributeDefinition::builder()
                .attribute_name("pk")
                .attribute_type(ScalarAttributeType::S)
                .build()
                .unwrap(),
        )
        .key_schema(
            KeySchemaElement::builder()
                .attribute_name("pk")
                .key_type(KeyType::Hash)
                .build()
                .unwrap(),
        )
        .send()
        .await
        .unwrap();
    let put = || {
        ddb.put_item()
            .table_name("ledger")
            .item("pk", AttributeValue::S("1".into()))
            .condition_expression("attribute_not_exists(pk)")
            .send()
    };
    put().await.unwrap();
    let lost = put().await.unwrap_err().into_service_error();
    assert!(lost.is_conditional_check_failed_exception());
    aws.stop().await;
}

#[tokio::test]
async fn the_caller_is_the_local_user_and_other_calls_are_refused() {
    let aws = start().await;
    let sts = aws_sdk_sts::Client::new(&config(&aws, "test").await);
    let caller = sts.get_caller_identity().send().await.unwrap();
    assert_eq!(caller.account(), Some("000000000000"));
    assert_eq!(caller.arn(), Some("arn:aws:iam::000000000000:user/local"));
    let refused = sts.get_session_token().send().await.unwrap_err().into_service_error();
    assert_eq!(refused.code(), Some("InvalidAction"));
    aws.stop().await;
}

#[tokio::test]
async fn a_stop_ends_long_polls_at_once() {
    let aws = start().await;
    let sqs = aws_sdk_sqs::Client::new(&config(&aws, "test").await);
    let url = sqs.create_queue().queue_name("q").send().await.unwrap().queue_url.unwrap();
    let poll = tokio::spawn(sqs.receive_message().queue_url(url).wait_time_seconds(20).send());
    while !aws.engine().is_polled("q") {
        tokio::task::yield_now().await;
    }
    let stop = tokio::time::timeout(Duration::from_secs(10), aws.stop());
    assert!(stop.await.is_ok());
    assert!(poll.await.unwrap().unwrap().messages().is_empty());
}
