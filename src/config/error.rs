//! What is wrong with a configuration, in one line that names the place, the key and what is allowed.
//!
//! Values that may be secret are never repeated: see [`super::handler`].

use std::fmt;
use std::path::PathBuf;

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// Neither: the key is missing, or a default does not fit the other keys.
    Nowhere,
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    origin: Origin,
    key: String,
    problem: String,
}

impl ConfigError {
    pub(super) fn new(origin: Origin, key: impl Into<String>, problem: impl fmt::Display) -> Self {
        // Some parsers explain themselves over several lines.
        let problem = problem.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { origin, key: key.into(), problem }
    }

    /// A key, or a combination of keys, that no single place is to blame for.
    #[must_use]
    pub fn of_key(key: &str, problem: impl fmt::Display) -> Self {
        Self::new(Origin::Nowhere, key, problem)
    }

    /// The key, as `section.key`; empty if the file as a whole is meant.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, key, problem } = self;
        match origin {
            Origin::File(path) if key.is_empty() => write!(f, "{}: {problem}", path.display()),
            Origin::File(path) => write!(f, "{}: {key}: {problem}", path.display()),
            Origin::Environment(variable) => write!(f, "{variable}: {key}: {problem}"),
            Origin::Nowhere => write!(f, "configuration: {key}: {problem}"),
        }
    }
}

impl std::error::Error for ConfigError {}
