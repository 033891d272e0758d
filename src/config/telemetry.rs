//! `[telemetry]`: what the worker says of itself, and where.

use std::net::SocketAddr;

use super::error::ConfigError;
use super::section::Section;
use super::setting::{Setting, choice};

choice! {
    /// Whether metrics are printed.
    pub Metrics {
        /// As CloudWatch EMF lines on stdout.
        Emf = "emf",
        /// Not at all.
        Off = "off",
    }
}

choice! {
    /// The form of log lines.
    pub LogFormat {
        /// One JSON object a line.
        Json = "json",
        /// Text for people.
        Text = "text",
    }
}

/// Metrics, health and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telemetry {
    /// Whether metrics are printed.
    pub metrics: Metrics,
    /// Where `/healthz`, `/readyz` and `/metrics` are served, if anywhere.
    pub listen: Option<SocketAddr>,
    /// The form of log lines; none: text on a terminal, else JSON.
    pub log: Option<LogFormat>,
}

impl Setting for SocketAddr {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text:?} must be an address and port like 127.0.0.1:9464"))
    }
}

impl Telemetry {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let telemetry = Self {
            metrics: s.or("metrics", Metrics::Emf)?,
            listen: s.filled("listen")?,
            log: s.optional("log")?,
        };
        s.finish()?;
        Ok(telemetry)
    }
}
