//! The two queues: the dead-letter queue keeps messages longest and lets the source in by name.

use std::collections::HashMap;

use aws_sdk_sqs::operation::RequestId as _;
use aws_sdk_sqs::types::QueueAttributeName as Q;
use serde_json::json;

use super::{SetupReport, SetupSpec, Was};
use crate::aws::client::Aws;
use crate::aws::error::Call;
use crate::domain::failure::ErrorClass;
use crate::domain::id::QueueName;
use crate::port::error::{PortError, Target};

/// 14 days, SQS's longest: what waits for a person must not expire first.
const DLQ_RETENTION_SECS: u32 = 1_209_600;
/// 4 days, SQS's default.
const SOURCE_RETENTION_SECS: u32 = 345_600;

type Attributes = HashMap<Q, String>;

struct Ensured {
    url: String,
    arn: String,
}

pub(super) async fn ensure_both(
    aws: &Aws,
    spec: &SetupSpec,
    report: &mut SetupReport,
) -> Result<(), PortError> {
    let dlq = ensure(aws, &spec.dlq, common(&spec.dlq, DLQ_RETENTION_SECS), report).await?;
    let mut attributes = common(&spec.queue, SOURCE_RETENTION_SECS);
    let visibility = spec.visibility_timeout.as_secs().to_string();
    attributes.insert(Q::VisibilityTimeout, visibility);
    let source = ensure(aws, &spec.queue, attributes, report).await?;

    let policy = json!({
        "deadLetterTargetArn": dlq.arn,
        "maxReceiveCount": spec.max_receive_count.to_string(),
    });
    set(aws, &spec.queue, &source.url, [(Q::RedrivePolicy, policy.to_string())].into()).await?;
    let allow = json!({ "redrivePermission": "byQueue", "sourceQueueArns": [source.arn] });
    let allow = Attributes::from([
        (Q::RedriveAllowPolicy, allow.to_string()),
        (Q::MessageRetentionPeriod, DLQ_RETENTION_SECS.to_string()),
    ]);
    set(aws, &spec.dlq, &dlq.url, allow).await
}

fn common(name: &QueueName, retention_secs: u32) -> Attributes {
    let mut attributes = Attributes::from([
        (Q::MessageRetentionPeriod, retention_secs.to_string()),
        (Q::SqsManagedSseEnabled, "true".to_owned()),
    ]);
    if name.is_fifo() {
        attributes.insert(Q::FifoQueue, "true".to_owned());
    }
    attributes
}

async fn ensure(
    aws: &Aws,
    name: &QueueName,
    attributes: Attributes,
    report: &mut SetupReport,
) -> Result<Ensured, PortError> {
    let (was, url) = match find(aws, name).await? {
        Some(url) => (Was::Existing, url),
        None => (Was::Created, create(aws, name, attributes).await?),
    };
    report.add(was, format!("queue {name}"));
    let arn = arn(aws, name, &url).await?;
    Ok(Ensured { url, arn })
}

async fn find(aws: &Aws, name: &QueueName) -> Result<Option<String>, PortError> {
    let call = Call::new(Target::Sqs, "GetQueueUrl", name.as_str());
    match aws.sqs.get_queue_url().queue_name(name.as_str()).send().await {
        Ok(answer) => Ok(answer.queue_url),
        Err(error) => match call.failed(&error) {
            missing if missing.class() == ErrorClass::NotFound => Ok(None),
            failed => Err(failed),
        },
    }
}

async fn create(aws: &Aws, name: &QueueName, attributes: Attributes) -> Result<String, PortError> {
    let call = Call::new(Target::Sqs, "CreateQueue", name.as_str());
    let request = aws.sqs.create_queue().queue_name(name.as_str());
    let answer = request.set_attributes(Some(attributes)).send().await;
    let answer = answer.map_err(|e| call.failed(&e))?;
    let request_id = answer.request_id().map(Into::into);
    let missing = || call.nonsense("answer without URL").with_request_id(request_id);
    answer.queue_url.ok_or_else(missing)
}

async fn arn(aws: &Aws, name: &QueueName, url: &str) -> Result<String, PortError> {
    let call = Call::new(Target::Sqs, "GetQueueAttributes", name.as_str());
    let request = aws.sqs.get_queue_attributes().queue_url(url).attribute_names(Q::QueueArn);
    let answer = request.send().await.map_err(|e| call.failed(&e))?;
    let arn = answer.attributes.and_then(|mut attributes| attributes.remove(&Q::QueueArn));
    arn.ok_or_else(|| call.nonsense("answer without QueueArn"))
}

async fn set(
    aws: &Aws,
    name: &QueueName,
    url: &str,
    attributes: Attributes,
) -> Result<(), PortError> {
    let call = Call::new(Target::Sqs, "SetQueueAttributes", name.as_str());
    let request = aws.sqs.set_queue_attributes().queue_url(url).set_attributes(Some(attributes));
    request.send().await.map(|_| ()).map_err(|e| call.failed(&e))
}
