//! `[schema]`: which versions of the payload's schema the handler knows.

use super::error::ConfigError;
use super::section::Section;
use crate::domain::selector::Selector;

/// Where a message's schema version is, and which are supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Where the version is found.
    pub version: Option<Selector>,
    /// The versions that are handled; empty: all.
    pub supported: Vec<String>,
}

impl Schema {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let schema =
            Self { version: s.filled("version")?, supported: s.or("supported", Vec::new())? };
        s.finish()?;
        if schema.version.is_none() && !schema.supported.is_empty() {
            let problem = "required with schema.supported: where is the version found?";
            return Err(ConfigError::of_key("schema.version", problem));
        }
        Ok(schema)
    }
}
