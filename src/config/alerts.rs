//! `[alerts]`: who is told of each parking.

use super::error::ConfigError;
use super::name::TopicArn;
use super::section::Section;

/// Where alerts go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// The SNS topic, if any.
    pub sns_topic_arn: Option<TopicArn>,
}

impl Alerts {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let alerts = Self { sns_topic_arn: s.filled("sns_topic_arn")? };
        s.finish()?;
        Ok(alerts)
    }
}
