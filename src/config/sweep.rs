//! `[sweep]`: how often the DLQ and the ledger are reconciled.

use std::time::Duration;

use super::duration::{days, hours, mins, secs};
use super::error::ConfigError;
use super::section::Section;

/// The two intervals of the sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Between two passes.
    pub every: Duration,
    /// Between two full sweeps.
    pub full_every: Duration,
}

impl Sweep {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let sweep = Self {
            every: s.duration("every", mins(5), secs(1)..=days(1))?,
            full_every: s.duration("full_every", hours(24), mins(1)..=days(2))?,
        };
        s.finish()?;
        Ok(sweep)
    }
}
