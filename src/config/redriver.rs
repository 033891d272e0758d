//! `[redriver]`: how runs send, and when they stop by themselves.

use std::time::Duration;

use super::duration::{days, hours, mins, secs};
use super::error::ConfigError;
use super::section::Section;
use super::setting::choice;

choice! {
    /// Where the outcome of a copy is read.
    pub Feedback {
        /// In the ledger, which our own workers write.
        Ledger = "ledger",
        /// In the queues, when the source's consumer is another's.
        Queue = "queue",
    }
}

/// The ramp of a run and its limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Redriver {
    /// Whether a worker executes runs too.
    pub enabled: bool,
    /// How long an executor holds a run without a sign of life.
    pub lease: Duration,
    /// Copies that go first.
    pub canary: u32,
    /// Messages per second at first.
    pub start_rate: f64,
    /// By what the rate grows in each healthy step.
    pub growth: f64,
    /// How long a step is.
    pub step: Duration,
    /// Messages per second at most.
    pub max_rate: f64,
    /// Copies in doubt at most.
    pub max_in_doubt: u32,
    /// The share of copies that failed again which stops the run, in 0..1.
    pub max_failure_ratio: f64,
    /// Messages waiting in the source which hold the run.
    pub max_backlog: u64,
    /// How long an outcome may be awaited.
    pub outcome_timeout: Duration,
    /// Where outcomes are read.
    pub feedback: Feedback,
}

impl Redriver {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let redriver = Self {
            enabled: s.or("enabled", false)?,
            lease: s.duration("lease", secs(15), secs(1)..=mins(5))?,
            canary: s.number("canary", 5, 1..=1_000)?,
            start_rate: s.fraction("start_rate", 1.0, 0.01..=10_000.0)?,
            growth: s.fraction("growth", 2.0, 1.0..=100.0)?,
            step: s.duration("step", secs(30), secs(1)..=hours(1))?,
            max_rate: s.fraction("max_rate", 50.0, 0.01..=10_000.0)?,
            max_in_doubt: s.number("max_in_doubt", 1_000, 1..=100_000)?,
            max_failure_ratio: s.fraction("max_failure_ratio", 0.2, 0.0..=1.0)?,
            max_backlog: s.number("max_backlog", 10_000, 0..=1_000_000_000)?,
            outcome_timeout: s.duration("outcome_timeout", mins(15), secs(1)..=days(14))?,
            feedback: s.or("feedback", Feedback::Ledger)?,
        };
        s.finish()?;
        if redriver.max_rate < redriver.start_rate {
            let problem = "must not be lower than redriver.start_rate";
            return Err(ConfigError::of_key("redriver.max_rate", problem));
        }
        Ok(redriver)
    }
}
