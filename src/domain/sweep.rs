//! The sweep's decision about one token in the DLQ.

use super::id::ParkToken;
use super::record::{Record, State};

/// What is to be done with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenVerdict {
    /// It stands for a quarantined record: give it back.
    Keep,
    /// It no longer counts: delete it.
    Delete,
    /// Its record is gone: rebuild it from the envelope, then keep the token.
    Rebuild,
}

/// Decides about a token of our own source.
#[must_use]
pub fn decide_token(park: &ParkToken, record: Option<&Record>) -> TokenVerdict {
    match record.map(|record| (record.state, record.park_token == *park)) {
        None => TokenVerdict::Rebuild,
        Some((State::Quarantined | State::Redriving, true)) => TokenVerdict::Keep,
        Some((State::Quarantined | State::Redriving, false))
        | Some((State::Redriven | State::Resolved | State::Discarded, _)) => TokenVerdict::Delete,
    }
}
