//! Creates what a source needs, or checks that it is there: queues, bucket, table.
//!
//! For local use and tests; production uses templates. Every step may be repeated: what exists is left
//! as it is, but for the settings that evidence depends on, which are put again. Deliberately absent:
//! deleting, IAM, alarms.

use super::client::Aws;
use crate::domain::id::QueueName;
use crate::port::error::PortError;

mod bucket;
mod queue;
mod table;

/// What to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupSpec {
    /// The source queue; FIFO if its name ends in `.fifo`.
    pub queue: QueueName,
    /// Its dead-letter queue; FIFO if and only if the source is.
    pub dlq: QueueName,
    /// The source's `maxReceiveCount`.
    pub max_receive_count: u32,
    /// The source's default visibility timeout, in whole seconds.
    pub visibility_timeout: std::time::Duration,
    /// The vault's bucket.
    pub bucket: String,
    /// The ledger's table.
    pub table: String,
}

/// What was done, as `kind name`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SetupReport {
    /// What was created.
    pub created: Vec<String>,
    /// What was there.
    pub existing: Vec<String>,
    /// What the endpoint cannot do and is done without.
    pub notes: Vec<String>,
}

/// A setup that ended early. What was created stays.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A call failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A FIFO queue and a standard one do not go together.
    #[error("queue {queue} and dead-letter queue {dlq} must both be FIFO, or neither")]
    Mismatch {
        /// The source.
        queue: QueueName,
        /// Its dead-letter queue.
        dlq: QueueName,
    },
    /// The table exists in another form.
    #[error("table {table}: {what}")]
    Table {
        /// The table.
        table: String,
        /// What does not fit.
        what: String,
    },
}

/// Whether something was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Was {
    Created,
    Existing,
}

impl SetupReport {
    fn add(&mut self, was: Was, what: String) {
        match was {
            Was::Created => self.created.push(what),
            Was::Existing => self.existing.push(what),
        }
    }
}

/// Creates what is not there.
///
/// # Errors
/// See [`SetupError`].
pub async fn setup(aws: &Aws, spec: &SetupSpec) -> Result<SetupReport, SetupError> {
    if spec.queue.is_fifo() != spec.dlq.is_fifo() {
        return Err(SetupError::Mismatch { queue: spec.queue.clone(), dlq: spec.dlq.clone() });
    }
    let mut report = SetupReport::default();
    queue::ensure_both(aws, spec, &mut report).await?;
    bucket::ensure(aws, &spec.bucket, &mut report).await?;
    table::ensure(aws, &spec.table, &mut report).await?;
    Ok(report)
}
