//! What the demo's producer sends: royalty lines, of which some are broken, and change orders whose
//! amounts are written as in Europe. The same every time.
//!
//! Amounts are in cents; shares are in whole percent.

use serde::{Deserialize, Serialize};

use super::catalogue::{CATALOGUE, Recording};

/// Royalty lines.
const LINES: usize = 64;
/// Change orders.
const CHANGE_ORDERS: usize = 20;
/// Where lines come from in turn. None of the broken ones is from Japan.
const TERRITORIES: [&str; 8] = ["DE", "FR", "GB", "US", "SE", "NL", "BR", "AT"];

/// What is wrong with a message, as version 1 of the handler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flaw {
    /// The ISRC lost its end.
    IsrcMalformed,
    /// The shares are more than the whole.
    SplitSumInvalid,
    /// A territory that nobody told the handler of.
    TerritoryUnknown,
    /// A decimal comma.
    AmountFormat,
}

impl Flaw {
    /// Its error code.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::IsrcMalformed => "ISRC_MALFORMED",
            Self::SplitSumInvalid => "SPLIT_SUM_INVALID",
            Self::TerritoryUnknown => "TERRITORY_UNKNOWN",
            Self::AmountFormat => "AMOUNT_FORMAT",
        }
    }
}

/// One writer's share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Split {
    /// The writer's IPI name number.
    pub(super) ipi: String,
    /// The share.
    pub(super) percent: u32,
}

/// A body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Body {
    /// What one use of one recording earned.
    RoyaltyLine {
        /// The streaming service's own number.
        dsp_transaction_id: String,
        /// The recording.
        isrc: String,
        /// Its title.
        title: String,
        /// The month.
        reporting_period: String,
        /// Where.
        territory_code: String,
        /// How much, in euros.
        amount: String,
        /// Who gets it.
        splits: Vec<Split>,
    },
    /// A correction of an earlier payment.
    ChangeOrder {
        /// Its number.
        change_order_id: String,
        /// The recording.
        isrc: String,
        /// The month.
        reporting_period: String,
        /// Where.
        territory_code: String,
        /// How much, in euros.
        amount: String,
        /// Why.
        reason: String,
    },
}

/// A message of the producer, with what is to come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    /// The SQS body.
    pub(super) body: String,
    /// What is wrong with it.
    pub(super) flaw: Option<Flaw>,
    /// Whether its first attempt meets an outage.
    pub(super) is_retried: bool,
    /// What it is worth, in cents.
    pub(super) cents: u64,
}

/// All messages in the order of sending. One more is sent at the end: the first one again.
pub(super) fn samples() -> Result<Vec<Sample>, serde_json::Error> {
    let recordings = CATALOGUE.iter().cycle();
    let places = TERRITORIES.iter().cycle();
    let lines = recordings.clone().zip(places.clone()).enumerate().take(LINES);
    let orders = recordings.zip(places).enumerate().take(CHANGE_ORDERS);
    lines
        .map(|(i, (recording, place))| line(i, recording, place))
        .chain(orders.map(|(i, (recording, place))| order(i, recording, place)))
        .collect()
}

fn line(i: usize, recording: &Recording, place: &str) -> Result<Sample, serde_json::Error> {
    let flaw = match i % 16 {
        2 | 9 => Some(Flaw::IsrcMalformed),
        4 | 11 | 14 => Some(Flaw::SplitSumInvalid),
        6 | 13 => Some(Flaw::TerritoryUnknown),
        _ => None,
    };
    let is_retried = i % 32 == 7;
    let cents = cents(i, 1_999);
    let isrc = match flaw {
        // The last two or three characters are lost.
        Some(Flaw::IsrcMalformed) => recording.isrc.chars().take(9 + i % 2).collect(),
        _ => recording.isrc.to_owned(),
    };
    let shares = match flaw {
        Some(Flaw::SplitSumInvalid) => [80, 60],
        _ => [60, 40],
    };
    let territory = match flaw {
        Some(Flaw::TerritoryUnknown) => "XK",
        _ if is_retried => "JP",
        _ => place,
    };
    let writers = recording.writers.iter().zip(shares);
    let body = Body::RoyaltyLine {
        dsp_transaction_id: format!("DSP-202610-{:06}", 481_300 + i * 7),
        isrc,
        title: recording.title.to_owned(),
        reporting_period: "2026-10".to_owned(),
        territory_code: territory.to_owned(),
        amount: format!("{}.{:02}", cents / 100, cents % 100),
        splits: writers.map(|(ipi, percent)| Split { ipi: (*ipi).to_owned(), percent }).collect(),
    };
    Ok(Sample { body: serde_json::to_string(&body)?, flaw, is_retried, cents })
}

fn order(i: usize, recording: &Recording, place: &str) -> Result<Sample, serde_json::Error> {
    let cents = 100_000 + cents(i, 899_999);
    let euros = cents / 100;
    let body = Body::ChangeOrder {
        change_order_id: format!("CO-2026-{:04}", 411 + i),
        isrc: recording.isrc.to_owned(),
        reporting_period: "2026-09".to_owned(),
        territory_code: place.to_owned(),
        amount: format!("{}.{:03},{:02}", euros / 1_000, euros % 1_000, cents % 100),
        reason: "late usage report".to_owned(),
    };
    let flaw = Some(Flaw::AmountFormat);
    Ok(Sample { body: serde_json::to_string(&body)?, flaw, is_retried: false, cents })
}

/// An amount from 1 to `most` cents that looks like any.
fn cents(i: usize, most: u64) -> u64 {
    let i = u64::try_from(i).unwrap_or(u64::MAX);
    i.wrapping_add(1).wrapping_mul(2_654_435_761) % most + 1
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn samples_differ_and_every_flaw_is_there() {
        let samples = samples().unwrap();
        let bodies: BTreeSet<&str> = samples.iter().map(|sample| sample.body.as_str()).collect();
        assert_eq!(bodies.len(), LINES + CHANGE_ORDERS);
        let mut flaws = BTreeMap::new();
        for sample in &samples {
            *flaws.entry(sample.flaw).or_insert(0) += 1;
        }
        let of = |flaw| flaws.get(&flaw).copied();
        assert_eq!(of(Some(Flaw::IsrcMalformed)), Some(8));
        assert_eq!(of(Some(Flaw::SplitSumInvalid)), Some(12));
        assert_eq!(of(Some(Flaw::TerritoryUnknown)), Some(8));
        assert_eq!(of(Some(Flaw::AmountFormat)), Some(20));
        assert_eq!(of(None), Some(36));
        let retried: Vec<&Sample> = samples.iter().filter(|sample| sample.is_retried).collect();
        assert_eq!(retried.len(), 2);
        assert!(retried.iter().all(|sample| sample.flaw.is_none()));
        assert_eq!(samples[0].flaw, None, "what is sent twice is sound");
    }
}
