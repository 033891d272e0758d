//! `[labels]`: what of a payload or its attributes goes into the record, to find it by.

use std::collections::BTreeMap;

use super::error::ConfigError;
use super::section::Given;
use super::setting::Setting;
use crate::domain::selector::{Selector, SelectorError};

/// The labels by name.
pub type Labels = BTreeMap<String, Selector>;

/// The most labels that a record takes: each is a cost of every parking.
const MAX_LABELS: usize = 20;

impl Setting for Selector {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|e: SelectorError| e.to_string())
    }
}

pub(super) fn read(given: &Given) -> Result<Labels, ConfigError> {
    let labels: Labels = given.names("labels")?;
    if labels.len() > MAX_LABELS {
        return Err(ConfigError::of_key("labels", format!("there can be at most {MAX_LABELS}")));
    }
    let is_plain = |name: &&String| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    };
    match labels.keys().find(|name| !is_plain(name)) {
        Some(name) => Err(ConfigError::of_key(
            "labels",
            format!("{name:?} is no label name: it must be 1 to 64 of A-Z a-z 0-9 _ . -"),
        )),
        None => Ok(labels),
    }
}
