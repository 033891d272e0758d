//! The configuration: one file a section, and the only place that knows defaults and ranges.
//!
//! A key comes from the environment (`REDRIVE_<SECTION>_<KEY>`), else from the file, else it has its
//! default. Everything is checked here, once: whoever holds a [`Config`] holds valid values. AWS's own
//! settings (region, endpoint, credentials) are not here: they come from AWS's variables and profile.
//!
//! The file is read key by key rather than derived with serde, so that a key's name, type, default and
//! range stand in one line, and a problem can name its key and the allowed range.

mod alerts;
mod breaker;
mod classify;
mod duration;
mod error;
mod handler;
mod identity;
mod labels;
mod ledger;
mod limits;
mod name;
mod nearest;
mod payload;
mod redriver;
mod retry;
mod schema;
mod section;
mod setting;
mod source;
mod sweep;
mod telemetry;
mod vault;

use std::path::Path;

use toml::Table;

pub use alerts::Alerts;
pub use breaker::Breaker;
pub use classify::{As, Rule};
pub use duration::Span;
pub use error::{ConfigError, Origin};
pub use handler::{Handler, HeaderValue, Kind as HandlerKind, Mode as ExecMode};
pub use identity::Identity;
pub use labels::Labels;
pub use ledger::Ledger;
pub use limits::{Limits, NEW_MAX_RECEIVE_COUNT};
pub use name::{AccountId, BucketName, Prefix, QueueRef, TableName, TopicArn};
pub use payload::{From as PayloadFrom, Payload};
pub use redriver::{Feedback, Redriver};
pub use retry::Retry;
pub use schema::Schema;
use section::Given;
pub use source::{NEW_VISIBILITY_TIMEOUT, Source};
pub use sweep::Sweep;
pub use telemetry::{LogFormat, Metrics, Telemetry};
pub use vault::{ErrorText, Vault};

/// The file that is read where no other is named, if it is there.
pub const DEFAULT_FILE: &str = "redrive.toml";

/// What `redrive init` writes.
pub const SAMPLE: &str = include_str!("sample.toml");

const SECTIONS: [&str; 16] = [
    "source",
    "handler",
    "limits",
    "retry",
    "breaker",
    "identity",
    "payload",
    "ledger",
    "vault",
    "labels",
    "schema",
    "classify",
    "redriver",
    "sweep",
    "alerts",
    "telemetry",
];

/// A whole configuration, valid.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[source]`
    pub source: Source,
    /// `[handler]`, if any key of it is given
    pub handler: Option<Handler>,
    /// `[limits]`
    pub limits: Limits,
    /// `[retry]`
    pub retry: Retry,
    /// `[breaker]`
    pub breaker: Breaker,
    /// `[identity]`
    pub identity: Identity,
    /// `[payload]`
    pub payload: Payload,
    /// `[ledger]`
    pub ledger: Ledger,
    /// `[vault]`
    pub vault: Vault,
    /// `[labels]`
    pub labels: Labels,
    /// `[schema]`
    pub schema: Schema,
    /// `[[classify]]`
    pub classify: Vec<Rule>,
    /// `[redriver]`
    pub redriver: Redriver,
    /// `[sweep]`
    pub sweep: Sweep,
    /// `[alerts]`
    pub alerts: Alerts,
    /// `[telemetry]`
    pub telemetry: Telemetry,
}

impl Config {
    /// Reads the configuration from `environment` and a file: `named`, which must be there, or
    /// [`DEFAULT_FILE`], which need not.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(
        environment: impl IntoIterator<Item = (String, String)>,
        named: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        Self::read(&given(environment, named)?)
    }

    /// Like [`Config::load`], with the names of the embedded AWS where none are given.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load_or_local(
        environment: impl IntoIterator<Item = (String, String)>,
        named: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let mut given = given(environment, named)?;
        given.fallback = toml::toml! {
            [source]
            queue = "orders"
            [vault]
            bucket = "redrive-vault"
        };
        Self::read(&given)
    }

    fn read(given: &Given) -> Result<Self, ConfigError> {
        given.refuse_unknown_sections(&SECTIONS)?;
        Ok(Self {
            source: Source::read(given.section("source")?)?,
            handler: Handler::read(given.section("handler")?, given)?,
            limits: Limits::read(given.section("limits")?)?,
            retry: Retry::read(given.section("retry")?)?,
            breaker: Breaker::read(given.section("breaker")?)?,
            identity: Identity::read(given.section("identity")?)?,
            payload: Payload::read(given.section("payload")?)?,
            ledger: Ledger::read(given.section("ledger")?)?,
            vault: Vault::read(given.section("vault")?)?,
            labels: labels::read(given)?,
            schema: Schema::read(given.section("schema")?)?,
            classify: classify::read(given)?,
            redriver: Redriver::read(given.section("redriver")?)?,
            sweep: Sweep::read(given.section("sweep")?)?,
            alerts: Alerts::read(given.section("alerts")?)?,
            telemetry: Telemetry::read(given.section("telemetry")?)?,
        })
    }
}

/// The process's environment: the one place that reads it. What is not text is left out.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn given(
    environment: impl IntoIterator<Item = (String, String)>,
    named: Option<&Path>,
) -> Result<Given, ConfigError> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let wrong =
        |problem: String| ConfigError::new(Origin::File(path.to_owned()), String::new(), problem);
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(wrong(format!("cannot be read: {e}"))),
    };
    let table = text.map(|text| parse(&text)).transpose().map_err(wrong)?;
    Ok(Given {
        environment: environment.into_iter().collect(),
        file: table.map(|table| (path.to_owned(), table)),
        fallback: Table::new(),
    })
}

/// Reads TOML. The problem names the line and does not quote it, for it may hold a secret.
fn parse(text: &str) -> Result<Table, String> {
    text.parse::<Table>().map_err(|e| {
        let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        format!("line {}: {}", before.matches('\n').count() + 1, e.message())
    })
}

#[cfg(test)]
mod tests;
