//! The embedded AWS, set up for one source.

use std::sync::Arc;
use std::time::Duration;

use redrive::aws::client::Aws;
use redrive::aws::dynamodb::AwsLedger;
use redrive::aws::s3::{AwsVault, Place};
use redrive::aws::setup::{SetupReport, SetupSpec, setup};
use redrive::aws::sqs::AwsQueue;
use redrive::domain::id::QueueName;
use redrive::local::LocalAws;
use redrive::sim::clock::SimClock;

use crate::item::NOW;

/// A running embedded AWS with one source's queues, bucket and table. It stops when dropped.
pub(crate) struct Embedded {
    aws: Aws,
    spec: SetupSpec,
    report: SetupReport,
    _running: LocalAws,
}

/// What `setup` makes for a source of this name.
pub(crate) fn spec(queue: &str, dlq: &str) -> SetupSpec {
    SetupSpec {
        queue: QueueName::new(queue).unwrap(),
        dlq: QueueName::new(dlq).unwrap(),
        max_receive_count: 3,
        visibility_timeout: Duration::from_secs(60),
        bucket: "vault".to_owned(),
        table: "ledger".to_owned(),
    }
}

impl Embedded {
    pub(crate) async fn start() -> Self {
        Self::start_with(spec("orders", "orders-dlq")).await
    }

    pub(crate) async fn start_with(spec: SetupSpec) -> Self {
        let clock = Arc::new(SimClock::starting_at(NOW));
        let running = LocalAws::start(0, clock, 1).await.unwrap();
        let aws = Aws::embedded(&running.endpoint());
        let report = setup(&aws, &spec).await.unwrap();
        Self { aws, spec, report, _running: running }
    }

    pub(crate) fn aws(&self) -> &Aws {
        &self.aws
    }

    pub(crate) fn spec(&self) -> &SetupSpec {
        &self.spec
    }

    pub(crate) fn report(&self) -> &SetupReport {
        &self.report
    }

    pub(crate) fn ledger(&self) -> AwsLedger {
        self.ledger_of(self.spec.queue.as_str())
    }

    /// The part of the same table that is another source's.
    pub(crate) fn ledger_of(&self, queue: &str) -> AwsLedger {
        AwsLedger::new(&self.aws, &self.spec.table, QueueName::new(queue).unwrap())
    }

    pub(crate) fn vault(&self, prefix: &str) -> AwsVault {
        let place = Place {
            bucket: self.spec.bucket.clone(),
            prefix: prefix.to_owned(),
            expected_owner: Some("000000000000".to_owned()),
            kms_key_id: None,
        };
        AwsVault::new(&self.aws, place)
    }

    pub(crate) async fn queue(&self) -> AwsQueue {
        AwsQueue::resolve(&self.aws, self.spec.queue.as_str()).await.unwrap()
    }

    pub(crate) async fn dlq(&self) -> AwsQueue {
        AwsQueue::resolve(&self.aws, self.spec.dlq.as_str()).await.unwrap()
    }
}
