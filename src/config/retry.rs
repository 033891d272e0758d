//! `[retry]`: how long a failed message waits.

use std::time::Duration;

use super::duration::{hours, mins, ms, secs};
use super::error::ConfigError;
use super::section::Section;

/// Full jitter: uniform in 0 to min(`cap`, `base` · 2^(attempt − 1)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The bound after the first attempt.
    pub base: Duration,
    /// The largest bound.
    pub cap: Duration,
}

impl Retry {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let retry = Self {
            base: s.duration("base", secs(1), ms(1)..=hours(12))?,
            cap: s.duration("cap", mins(15), ms(1)..=hours(12))?,
        };
        s.finish()?;
        if retry.cap < retry.base {
            return Err(ConfigError::of_key("retry.cap", "must not be shorter than retry.base"));
        }
        Ok(retry)
    }
}
