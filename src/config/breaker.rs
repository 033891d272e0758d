//! `[breaker]`: when to stop receiving because a dependency is down.

use std::time::Duration;

use super::duration::{hours, mins, ms, secs};
use super::error::ConfigError;
use super::section::Section;

/// Bounds of the circuit breaker.
#[derive(Debug, Clone, PartialEq)]
pub struct Breaker {
    /// How far back outcomes count.
    pub window: Duration,
    /// How many outcomes there must be to judge by their share.
    pub min_outcomes: u32,
    /// The share of faults of one target that opens it, in 0..1.
    pub open_ratio: f64,
    /// The first wait before a probe; doubled to 60 s.
    pub probe_after: Duration,
}

impl Breaker {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let breaker = Self {
            window: s.duration("window", secs(30), secs(1)..=hours(1))?,
            min_outcomes: s.number("min_outcomes", 20, 1..=100_000)?,
            open_ratio: s.fraction("open_ratio", 0.5, 0.01..=1.0)?,
            probe_after: s.duration("probe_after", secs(5), ms(100)..=mins(1))?,
        };
        s.finish()?;
        Ok(breaker)
    }
}
