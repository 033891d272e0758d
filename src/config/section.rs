//! Reads one section, key by key: the one place that knows where a key may come from.
//!
//! A section's file names each key once, with its type, its default and its range. What the file holds
//! beyond the keys asked for is unknown, and an error that names the nearest one.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::{Table, Value};

use super::duration::Span;
use super::error::{ConfigError, Origin};
use super::nearest::nearest;
use super::setting::Setting;

/// What was given, before any key is understood. It holds the whole environment, so it has no `Debug`.
pub(super) struct Given {
    /// The environment.
    pub(super) environment: BTreeMap<String, String>,
    /// The file's path and its content, if there is a file.
    pub(super) file: Option<(PathBuf, Table)>,
    /// What to use where a key is given nowhere, instead of its default or of its being required.
    pub(super) fallback: Table,
}

/// One section being read.
pub(super) struct Section<'a> {
    name: &'static str,
    given: &'a Given,
    keys: Vec<&'static str>,
    found: bool,
}

type Found<T> = Option<(T, Origin)>;

impl Given {
    pub(super) fn file_origin(&self) -> Origin {
        self.file.as_ref().map_or(Origin::Nowhere, |(path, _)| Origin::File(path.clone()))
    }

    fn in_file(&self, section: &str) -> Option<&Value> {
        self.file.as_ref().and_then(|(_, table)| table.get(section))
    }

    pub(super) fn section(&self, name: &'static str) -> Result<Section<'_>, ConfigError> {
        match self.in_file(name) {
            Some(value) if !value.is_table() => {
                let problem = format!("must be a section: write [{name}]");
                Err(ConfigError::new(self.file_origin(), name, problem))
            }
            _ => Ok(Section { name, given: self, keys: Vec::new(), found: false }),
        }
    }

    /// A section whose keys are the user's own names.
    pub(super) fn names<T: Setting>(
        &self,
        section: &'static str,
    ) -> Result<BTreeMap<String, T>, ConfigError> {
        let variable = format!("REDRIVE_{}", section.to_ascii_uppercase());
        let read = match (self.environment.get(&variable), self.in_file(section)) {
            (Some(text), _) => BTreeMap::from_text(text),
            (None, Some(value)) => BTreeMap::from_value(value),
            (None, None) => return Ok(BTreeMap::new()),
        };
        let origin = if self.environment.contains_key(&variable) {
            Origin::Environment(variable)
        } else {
            self.file_origin()
        };
        read.map_err(|problem| ConfigError::new(origin, section, problem))
    }

    /// The tables of an array of tables, which only the file can hold.
    pub(super) fn tables(&self, name: &'static str) -> Result<Vec<&Table>, ConfigError> {
        let wrong = || {
            let problem = format!("must be a list of tables: write [[{name}]]");
            ConfigError::new(self.file_origin(), name, problem)
        };
        let Some(value) = self.in_file(name) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(wrong)?;
        items.iter().map(|item| item.as_table().ok_or_else(wrong)).collect()
    }

    pub(super) fn refuse_unknown_sections(&self, known: &[&str]) -> Result<(), ConfigError> {
        let Some((_, table)) = &self.file else { return Ok(()) };
        match table.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(unknown(self.file_origin(), key.clone(), "section", key, known)),
            None => Ok(()),
        }
    }
}

/// The error for a name that is none of those known.
pub(super) fn unknown(
    origin: Origin,
    path: String,
    what: &str,
    name: &str,
    known: &[&str],
) -> ConfigError {
    let problem = match nearest(name, known) {
        Some(near) => format!("unknown {what}; did you mean {near:?}?"),
        None => format!("unknown {what}; there are {}", known.join(", ")),
    };
    ConfigError::new(origin, path, problem)
}

impl Section<'_> {
    fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn table(&self) -> Option<&Table> {
        self.given.in_file(self.name).and_then(Value::as_table)
    }

    fn find<T: Setting>(&mut self, key: &'static str) -> Result<Found<T>, ConfigError> {
        self.keys.push(key);
        let (read, origin) = {
            let variable = format!("REDRIVE_{}_{key}", self.name).to_ascii_uppercase();
            if let Some(text) = self.given.environment.get(&variable) {
                (T::from_text(text), Origin::Environment(variable))
            } else if let Some(value) = self.table().and_then(|table| table.get(key)) {
                (T::from_value(value), self.given.file_origin())
            } else if let Some(value) =
                self.given.fallback.get(self.name).and_then(|section| section.get(key))
            {
                (T::from_value(value), Origin::Nowhere)
            } else {
                return Ok(None);
            }
        };
        self.found = true;
        match read {
            Ok(value) => Ok(Some((value, origin))),
            Err(problem) => Err(ConfigError::new(origin, self.path(key), problem)),
        }
    }

    /// A key that may be left out.
    pub(super) fn optional<T: Setting>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, ConfigError> {
        Ok(self.find(key)?.map(|(value, _)| value))
    }

    /// A key with a default.
    pub(super) fn or<T: Setting>(
        &mut self,
        key: &'static str,
        default: T,
    ) -> Result<T, ConfigError> {
        Ok(self.optional(key)?.unwrap_or(default))
    }

    /// A key that must be given. One that is nearly there is a typing mistake.
    pub(super) fn required<T: Setting>(&mut self, key: &'static str) -> Result<T, ConfigError> {
        if let Some(value) = self.optional(key)? {
            return Ok(value);
        }
        let there: Vec<&str> =
            self.table().into_iter().flat_map(Table::keys).map(String::as_str).collect();
        if let Some(near) = nearest(key, &there) {
            let origin = self.given.file_origin();
            return Err(unknown(origin, self.path(near), "key", near, &[key]));
        }
        let variable = format!("REDRIVE_{}_{key}", self.name).to_ascii_uppercase();
        let problem = format!(
            "required: set {key} in [{}] of redrive.toml, or {variable}; `redrive init` writes a file",
            self.name
        );
        Err(ConfigError::of_key(&self.path(key), problem))
    }

    /// A key whose empty text means that it is not given.
    pub(super) fn filled<T: Setting>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, ConfigError> {
        match self.find::<String>(key)? {
            Some((text, origin)) if !text.is_empty() => T::from_text(&text)
                .map(Some)
                .map_err(|problem| ConfigError::new(origin, self.path(key), problem)),
            _ => Ok(None),
        }
    }

    fn checked<T: Setting>(
        &mut self,
        key: &'static str,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Result<Option<T>, ConfigError> {
        let Some((value, origin)) = self.find(key)? else { return Ok(None) };
        match check(&value) {
            Ok(()) => Ok(Some(value)),
            Err(problem) => Err(ConfigError::new(origin, self.path(key), problem)),
        }
    }

    /// A duration in a range, which may be left out.
    pub(super) fn optional_duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Result<Option<Duration>, ConfigError> {
        let (start, end) = range.into_inner();
        self.checked(key, |value| within(Span(*value), Span(start)..=Span(end)))
    }

    /// A duration in a range.
    pub(super) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Result<Duration, ConfigError> {
        Ok(self.optional_duration(key, range)?.unwrap_or(default))
    }

    /// A whole number in a range, which may be left out.
    pub(super) fn optional_number<N>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<N>,
    ) -> Result<Option<N>, ConfigError>
    where
        N: TryFrom<i64> + PartialOrd + Display + Copy,
    {
        let Some((value, origin)) = self.find::<i64>(key)? else { return Ok(None) };
        match N::try_from(value).ok().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(ConfigError::new(origin, self.path(key), outside(value, &range))),
        }
    }

    /// A whole number in a range.
    pub(super) fn number<N>(
        &mut self,
        key: &'static str,
        default: N,
        range: RangeInclusive<N>,
    ) -> Result<N, ConfigError>
    where
        N: TryFrom<i64> + PartialOrd + Display + Copy,
    {
        Ok(self.optional_number(key, range)?.unwrap_or(default))
    }

    /// A number with a fraction, in a range. Not a number is in no range.
    pub(super) fn fraction(
        &mut self,
        key: &'static str,
        default: f64,
        range: RangeInclusive<f64>,
    ) -> Result<f64, ConfigError> {
        Ok(self.checked(key, |value| within(*value, range))?.unwrap_or(default))
    }

    /// Whether any key of this section was given.
    pub(super) const fn found(&self) -> bool {
        self.found
    }

    /// Ends the section: whatever else the file holds in it is unknown.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let strange = self
            .table()
            .and_then(|table| table.keys().find(|key| !self.keys.contains(&key.as_str())));
        match strange {
            Some(key) => {
                Err(unknown(self.given.file_origin(), self.path(key), "key", key, &self.keys))
            }
            None => Ok(()),
        }
    }
}

fn within<T: PartialOrd + Display>(value: T, range: RangeInclusive<T>) -> Result<(), String> {
    if range.contains(&value) { Ok(()) } else { Err(outside(value, &range)) }
}

fn outside<T: Display>(value: impl Display, range: &RangeInclusive<T>) -> String {
    format!("{value} is outside {}..{}", range.start(), range.end())
}
