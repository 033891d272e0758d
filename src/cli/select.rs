//! The flags that select records: the same for every command that takes a selection.

use std::str::FromStr as _;
use std::time::Duration;

use super::exit::CliError;
use crate::config::Span;
use crate::domain::failure::{ErrorCode, Reason};
use crate::domain::id::{RecordId, Sha256Hex};
use crate::domain::selection::Selection;
use crate::domain::time::Wall;
use crate::service::query::Parked;
use crate::service::scope::Scope;

/// Which records.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Selection")]
pub(super) struct Select {
    /// With this error code; may be repeated.
    #[arg(long, value_name = "CODE", value_parser = code)]
    code: Vec<ErrorCode>,
    /// Parked for this reason; may be repeated: validation, exception, low_confidence, receives_exhausted, unknown.
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Vec<Reason>,
    /// With this label; may be repeated, and then all must match.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// Parked at or after this time, or at most so long ago (RFC 3339, or an age like 2h).
    #[arg(long, value_name = "TIME", value_parser = when)]
    since: Option<When>,
    /// Parked before this time, or longer ago (RFC 3339, or an age like 2h).
    #[arg(long, value_name = "TIME", value_parser = when)]
    until: Option<When>,
    /// With this payload hash or entry key.
    #[arg(long, value_name = "SHA256", value_parser = key)]
    key: Option<Sha256Hex>,
    /// With this id, the original MessageId; may be repeated.
    #[arg(long, value_name = "ID", value_parser = record)]
    record: Vec<RecordId>,
    /// All of them.
    #[arg(
        long,
        conflicts_with_all = ["code", "reason", "label", "since", "until", "key", "record"]
    )]
    all: bool,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

/// A point in time, or how long ago it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    At(Wall),
    Ago(Duration),
}

impl When {
    fn before(self, now: Wall) -> Wall {
        match self {
            Self::At(at) => at,
            Self::Ago(age) => now.minus(age),
        }
    }
}

impl Select {
    /// Whether nothing is selected.
    pub(super) fn is_empty(&self) -> bool {
        self.selection().is_empty() && self.since.is_none() && self.until.is_none() && !self.all
    }

    /// Demands that something is selected.
    pub(super) fn needed(&self) -> Result<(), CliError> {
        if self.is_empty() {
            return Err(CliError::Usage(
                "nothing is selected: name --code, --reason, --label, --since, --until, --key or \
                 --record, or --all"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// What is selected, beside times and number.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            codes: self.code.clone(),
            reasons: self.reason.clone(),
            labels: self.label.clone(),
            key: self.key.clone(),
            records: self.record.clone(),
        }
    }

    /// When the selected records were parked.
    pub(super) fn parked(&self, now: Wall) -> Parked {
        let point = |when: Option<When>| when.map(|when| when.before(now));
        Parked { from: point(self.since), until: point(self.until) }
    }

    /// How many are selected at most.
    pub(super) fn limit(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX)
    }

    /// All of it.
    pub(super) fn scope(&self, now: Wall) -> Scope {
        let (selection, parked) = (self.selection(), self.parked(now));
        Scope { selection, parked, silent: None, limit: self.limit }
    }
}

fn code(text: &str) -> Result<ErrorCode, String> {
    let code = ErrorCode::normalize(text);
    if code.as_str() == text { Ok(code) } else { Err(format!("did you mean {code}?")) }
}

fn reason(text: &str) -> Result<Reason, String> {
    serde_json::from_value(text.into()).map_err(|_| {
        "there are validation, exception, low_confidence, receives_exhausted and unknown".to_owned()
    })
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn key(text: &str) -> Result<Sha256Hex, String> {
    Sha256Hex::new(text).map_err(|e| e.to_string())
}

fn record(text: &str) -> Result<RecordId, String> {
    RecordId::new(text).map_err(|e| e.to_string())
}

fn when(text: &str) -> Result<When, String> {
    if let Ok(Span(age)) = Span::from_str(text) {
        return Ok(When::Ago(age));
    }
    Wall::from_rfc3339(text)
        .map(When::At)
        .map_err(|_| "write 2026-11-30T16:00:00Z, or an age like 30m, 2h, 3d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_points_or_ages() {
        let now = Wall::from_ms(10_000_000);
        let before = |text| when(text).map(|when| when.before(now));
        assert_eq!(before("2h"), Ok(Wall::from_ms(2_800_000)));
        assert_eq!(before("1970-01-01T00:00:01Z"), Ok(Wall::from_ms(1_000)));
        assert!(before("yesterday").is_err());
    }

    #[test]
    fn codes_are_given_as_they_are_stored() {
        assert!(code("ISRC_MALFORMED").is_ok());
        assert_eq!(code("no such"), Err("did you mean NO_SUCH?".to_owned()));
    }

    #[test]
    fn every_reason_is_known() {
        for text in ["validation", "exception", "low_confidence", "receives_exhausted", "unknown"] {
            assert_eq!(reason(text).map(Reason::as_str), Ok(text));
        }
        assert!(reason("other").is_err());
    }
}
