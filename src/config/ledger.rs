//! `[ledger]`: the DynamoDB table.

use super::error::ConfigError;
use super::name::TableName;
use super::section::Section;

/// The ledger's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// Its name.
    pub table: TableName,
    /// Whether writes of the happy path are put together.
    pub batch: bool,
}

impl Ledger {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let ledger =
            Self { table: s.or("table", TableName::default_name())?, batch: s.or("batch", false)? };
        s.finish()?;
        Ok(ledger)
    }
}
