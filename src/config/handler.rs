//! `[handler]`: what does the work. Only `worker` and `lambda` need it.
//!
//! Header values and the user part of a URL may be secret. A header's value is never shown; a URL with
//! a user part is refused, so that the URL can be.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::duration::{hours, ms, secs};
use super::error::ConfigError;
use super::section::{Given, Section};
use super::setting::choice;

/// The handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// What it is.
    pub kind: Kind,
    /// The longest an attempt may take. Heartbeats carry the visibility past its timeout.
    pub timeout: Duration,
}

/// What a handler is, with what only that kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A process.
    Exec {
        /// Program and arguments; never empty.
        command: Vec<String>,
        /// How it is run.
        mode: Mode,
        /// Exit codes that say that the same input will fail again.
        permanent_exit_codes: Vec<i32>,
    },
    /// An HTTP endpoint.
    Http {
        /// Where to post to.
        url: String,
        /// Headers to add.
        headers: BTreeMap<String, HeaderValue>,
    },
    /// A Lambda function.
    Lambda {
        /// Its name or ARN.
        function: String,
    },
}

choice! {
    KindName { Exec = "exec", Http = "http", Lambda = "lambda" }
}

choice! {
    /// How a process is run.
    pub Mode {
        /// One process for each attempt.
        Once = "once",
        /// One process that takes job after job.
        Stream = "stream",
    }
}

/// A header's value: given in the file, or as `env:NAME`, taken from the environment.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderValue(Result<String, String>);

impl HeaderValue {
    /// The value, for the request that needs it and nothing else.
    ///
    /// # Errors
    /// The environment variable that should hold it is not set.
    pub fn expose(&self) -> Result<&str, ConfigError> {
        self.0.as_deref().map_err(|variable| {
            let problem = format!("the environment variable {variable} is not set");
            ConfigError::of_key("handler.headers", problem)
        })
    }
}

impl fmt::Debug for HeaderValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderValue(..)")
    }
}

impl Handler {
    pub(super) fn read(mut s: Section<'_>, given: &Given) -> Result<Option<Self>, ConfigError> {
        let kind = s.or("kind", KindName::Exec)?;
        let timeout = s.duration("timeout", secs(50), ms(100)..=hours(11))?;
        let command: Option<Vec<String>> = s.optional("command")?;
        let mode = s.optional("mode")?;
        let codes: Option<Vec<i64>> = s.optional("permanent_exit_codes")?;
        let url: Option<String> = s.optional("url")?;
        let headers: Option<BTreeMap<String, String>> = s.optional("headers")?;
        let function: Option<String> = s.optional("function")?;
        let found = s.found();
        s.finish()?;
        if !found {
            return Ok(None);
        }
        let owners = [
            ("command", KindName::Exec, command.is_some()),
            ("mode", KindName::Exec, mode.is_some()),
            ("permanent_exit_codes", KindName::Exec, codes.is_some()),
            ("url", KindName::Http, url.is_some()),
            ("headers", KindName::Http, headers.is_some()),
            ("function", KindName::Lambda, function.is_some()),
        ];
        if let Some((key, ..)) = owners.iter().find(|(_, owner, given)| *given && *owner != kind) {
            let problem = "belongs to another handler.kind than the one given";
            return Err(ConfigError::of_key(&format!("handler.{key}"), problem));
        }
        let kind = match kind {
            KindName::Exec => Kind::Exec {
                command: command_of(command)?,
                mode: mode.unwrap_or(Mode::Once),
                permanent_exit_codes: exit_codes(codes)?,
            },
            KindName::Http => Kind::Http {
                url: url_of(url)?,
                headers: headers
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(name, value)| header(name, value, given))
                    .collect::<Result<_, _>>()?,
            },
            KindName::Lambda => Kind::Lambda { function: named("function", function)? },
        };
        Ok(Some(Self { kind, timeout }))
    }
}

fn named(key: &str, text: Option<String>) -> Result<String, ConfigError> {
    text.filter(|text| !text.is_empty()).ok_or_else(|| {
        ConfigError::of_key(&format!("handler.{key}"), "required for this handler.kind")
    })
}

fn command_of(command: Option<Vec<String>>) -> Result<Vec<String>, ConfigError> {
    match command {
        Some(command) if command.first().is_some_and(|program| !program.is_empty()) => Ok(command),
        _ => Err(ConfigError::of_key(
            "handler.command",
            "required for kind = \"exec\": a list of the program and its arguments",
        )),
    }
}

fn exit_codes(codes: Option<Vec<i64>>) -> Result<Vec<i32>, ConfigError> {
    codes
        .unwrap_or_else(|| vec![65])
        .into_iter()
        .map(|code| match u8::try_from(code) {
            Ok(byte @ 1..) => Ok(i32::from(byte)),
            _ => Err(ConfigError::of_key(
                "handler.permanent_exit_codes",
                format!("{code} is outside 1..255"),
            )),
        })
        .collect()
}

fn url_of(url: Option<String>) -> Result<String, ConfigError> {
    let url = named("url", url)?;
    let problem = |problem: &str| ConfigError::of_key("handler.url", problem);
    let parsed = reqwest::Url::parse(&url).map_err(|_| problem("must be a URL"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(problem("must begin with http:// or https://"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(problem("must not hold credentials: use handler.headers with \"env:NAME\""));
    }
    Ok(url)
}

fn header(
    name: String,
    value: String,
    given: &Given,
) -> Result<(String, HeaderValue), ConfigError> {
    let valid = reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok();
    if !valid || value.contains(['\r', '\n', '\0']) {
        let problem = format!("{name:?} must be a header's name, with its value on one line");
        return Err(ConfigError::of_key("handler.headers", problem));
    }
    let value = match value.strip_prefix("env:") {
        Some(variable) => {
            given.environment.get(variable).cloned().ok_or_else(|| variable.to_owned())
        }
        None => Ok(value),
    };
    Ok((name, HeaderValue(value)))
}
