//! What the process says of itself: logs, metrics, health.
//!
//! The service counts and reports its state here; it does not know who reads it. It may import this
//! module, which knows ports and the domain alone.

pub mod emf;
pub mod health;
pub mod logs;
pub mod metric;
pub mod prometheus;
pub mod serve;

use std::time::Duration;

use crate::domain::id::QueueName;
use crate::domain::time::Mono;

pub use health::Health;
pub use metric::{Counter, Gauge, Meter};

/// The metrics and the health of one worker. Clones share them.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// Its metrics.
    pub meter: Meter,
    /// Its health.
    pub health: Health,
}

impl Telemetry {
    /// That of a worker of `queue` that begins `now` and whose polls take `wait`.
    #[must_use]
    pub fn new(queue: QueueName, wait: Duration, now: Mono) -> Self {
        let meter = Meter::new(queue);
        let health = Health::new(meter.clone(), wait, now);
        Self { meter, health }
    }
}
