//! `[limits]`: when a message has had enough.

use std::time::Duration;

use super::duration::{hours, secs};
use super::error::ConfigError;
use super::section::Section;

/// The `maxReceiveCount` of a source that `setup` creates.
pub const NEW_MAX_RECEIVE_COUNT: u32 = 5;

/// Bounds on attempts, redrives and stopping.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Attempts before a message is parked, if not the source's `maxReceiveCount`.
    pub max_attempts: Option<u32>,
    /// Redrives before a record is discarded.
    pub max_redrives: u32,
    /// Crashes of the worker before a message is parked.
    pub crash_limit: u32,
    /// The least confidence that counts as done, in 0..1.
    pub confidence_floor: f64,
    /// How long handlers may go on after the signal to stop.
    pub grace: Duration,
}

impl Limits {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let limits = Self {
            max_attempts: s.optional_number("max_attempts", 1..=1_000)?,
            max_redrives: s.number("max_redrives", 3, 0..=1_000)?,
            crash_limit: s.number("crash_limit", 3, 1..=1_000)?,
            confidence_floor: s.fraction("confidence_floor", 0.75, 0.0..=1.0)?,
            grace: s.duration("grace", secs(25), secs(0)..=hours(1))?,
        };
        s.finish()?;
        Ok(limits)
    }
}
