//! `[source]`: the queue whose messages are handled, and how fast.

use std::time::Duration;

use super::duration::{hours, secs};
use super::error::ConfigError;
use super::name::QueueRef;
use super::section::Section;

/// The visibility timeout of a source that `setup` creates, unless one is given.
pub const NEW_VISIBILITY_TIMEOUT: Duration = secs(60);

/// The source queue and its consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The queue.
    pub queue: QueueRef,
    /// Its dead-letter queue, if not the one its RedrivePolicy names.
    pub dlq: Option<QueueRef>,
    /// How long a poll waits for messages. Zero would be short polling: a request for every empty
    /// answer, so it is refused.
    pub wait: Duration,
    /// How long a received message stays hidden, if not the queue's own timeout.
    pub visibility_timeout: Option<Duration>,
    /// Handlers at once.
    pub concurrency: usize,
    /// Polls at once, at most.
    pub pollers_max: usize,
}

impl Source {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let source = Self {
            queue: s.required("queue")?,
            dlq: s.filled("dlq")?,
            wait: s.duration("wait", secs(20), secs(1)..=secs(20))?,
            visibility_timeout: s.optional_duration("visibility_timeout", secs(1)..=hours(12))?,
            concurrency: usize::from(s.number("concurrency", 16_u16, 1..=1_000)?),
            pollers_max: usize::from(s.number("pollers_max", 4_u16, 1..=100)?),
        };
        s.finish()?;
        if source.dlq.as_ref().is_some_and(|dlq| dlq.name() == source.queue.name()) {
            return Err(ConfigError::of_key("source.dlq", "must not be the source queue itself"));
        }
        Ok(source)
    }
}
