//! `[identity]`: what makes two messages the same work.

use std::time::Duration;

use super::duration::{days, hours, mins, secs};
use super::error::ConfigError;
use super::section::Section;
use super::setting::Setting;
use crate::domain::identity::{KeyStrategy, KeyStrategyError};

/// How keys are made, and how long they are remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The strategy.
    pub key: KeyStrategy,
    /// How far apart two equal messages may be sent and still be one.
    pub repeat_window: Duration,
    /// How long entries and resolved records are kept. The worker also holds it against the retentions
    /// of both queues, which are known only then.
    pub remember: Duration,
}

impl Setting for KeyStrategy {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|e: KeyStrategyError| e.to_string())
    }
}

impl Identity {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let identity = Self {
            key: s.or("key", KeyStrategy::Payload)?,
            repeat_window: s.duration("repeat_window", mins(5), secs(0)..=days(3_650))?,
            remember: s.duration("remember", days(30), hours(26)..=days(3_650))?,
        };
        s.finish()?;
        if identity.repeat_window > identity.remember {
            let problem = "must not be longer than identity.remember";
            return Err(ConfigError::of_key("identity.repeat_window", problem));
        }
        Ok(identity)
    }
}
