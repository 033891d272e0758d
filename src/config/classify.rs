//! `[[classify]]`: rules that say what a failure means, in order; the first that matches decides.

use regex::Regex;
use toml::{Table, Value};

use super::error::ConfigError;
use super::section::{Given, unknown};
use super::setting::{Setting, choice};
use crate::domain::failure::ErrorCode;

choice! {
    /// What a matching failure is.
    pub As {
        /// The same input will fail again.
        Permanent = "permanent",
        /// It may succeed later.
        Transient = "transient",
    }
}

/// One rule. Every matcher that is given must match, and at least one is.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The HTTP status.
    pub status: Option<u16>,
    /// The exit code.
    pub exit_code: Option<i32>,
    /// The error code.
    pub code: Option<ErrorCode>,
    /// Somewhere in the message.
    pub message: Option<Regex>,
    /// What it then is.
    pub becomes: As,
    /// The error code it then has, if another.
    pub error_code: Option<ErrorCode>,
}

pub(super) fn read(given: &Given) -> Result<Vec<Rule>, ConfigError> {
    let tables = given.tables("classify")?;
    tables
        .into_iter()
        .enumerate()
        .map(|(i, table)| Reader { given, index: i }.rule(table))
        .collect()
}

struct Reader<'a> {
    given: &'a Given,
    index: usize,
}

impl Reader<'_> {
    fn rule(&self, table: &Table) -> Result<Rule, ConfigError> {
        self.refuse_unknown(table, "", &["match", "as", "error_code"])?;
        let matchers = match table.get("match") {
            Some(Value::Table(matchers)) if !matchers.is_empty() => matchers,
            _ => return Err(self.error("match", "must be a table with at least one matcher")),
        };
        self.refuse_unknown(matchers, "match.", &["status", "exit_code", "error_code", "message"])?;
        let Some(becomes) = self.get(table, "as")? else {
            return Err(self.error("as", "required: \"permanent\" or \"transient\""));
        };
        let pattern: Option<String> = self.get(matchers, "message")?;
        let code: Option<String> = self.get(matchers, "error_code")?;
        let error_code: Option<String> = self.get(table, "error_code")?;
        Ok(Rule {
            status: self.number(matchers, "status")?,
            exit_code: self.number(matchers, "exit_code")?,
            code: code.map(ErrorCode::from),
            message: pattern
                .map(|pattern| Regex::new(&pattern))
                .transpose()
                .map_err(|problem| self.error("match.message", &problem.to_string()))?,
            becomes,
            error_code: error_code.map(ErrorCode::from),
        })
    }

    fn error(&self, key: &str, problem: &str) -> ConfigError {
        let path = format!("classify[{}].{key}", self.index);
        ConfigError::new(self.given.file_origin(), path, problem)
    }

    fn get<T: Setting>(&self, table: &Table, key: &str) -> Result<Option<T>, ConfigError> {
        let Some(value) = table.get(key) else { return Ok(None) };
        T::from_value(value).map(Some).map_err(|problem| self.error(key, &problem))
    }

    fn number<N: TryFrom<i64>>(&self, table: &Table, key: &str) -> Result<Option<N>, ConfigError> {
        let Some(number) = self.get::<i64>(table, key)? else { return Ok(None) };
        let out_of_range = |_| self.error(key, &format!("{number} is out of range"));
        N::try_from(number).map(Some).map_err(out_of_range)
    }

    fn refuse_unknown(&self, table: &Table, at: &str, known: &[&str]) -> Result<(), ConfigError> {
        match table.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                let path = format!("classify[{}].{at}{key}", self.index);
                Err(unknown(self.given.file_origin(), path, "key", key, known))
            }
            None => Ok(()),
        }
    }
}
