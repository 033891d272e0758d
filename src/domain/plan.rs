//! The plan of a run: which records, in which order, frozen before anything is sent.
//!
//! Stored as JSON Lines, one record a line, in plan order. Its hash is over the record ids alone, so that
//! `plan` and `start` can be compared whatever else is said of a record.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::failure::ErrorCode;
use super::id::{RecordId, Sha256Hex};
use super::ramp::RampPolicy;
use super::record::Record;

/// One record of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// The record.
    pub record_id: RecordId,
    /// Why it was parked when the plan was made.
    pub error_code: ErrorCode,
}

/// A frozen plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan(Vec<Planned>);

impl Plan {
    /// A plan of these records, in this order.
    #[must_use]
    pub const fn new(records: Vec<Planned>) -> Self {
        Self(records)
    }

    /// Its records.
    #[must_use]
    pub fn records(&self) -> &[Planned] {
        &self.0
    }

    /// SHA-256 over the record ids in plan order, a newline after each.
    #[must_use]
    pub fn hash(&self) -> Sha256Hex {
        let mut digest = Sha256::new();
        for planned in &self.0 {
            digest.update(planned.record_id.as_str());
            digest.update(b"\n");
        }
        Sha256Hex::from_digest(digest)
    }

    /// The bytes to store.
    ///
    /// # Errors
    /// Never for the types at hand; the error is the library's.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut lines = Vec::new();
        for planned in &self.0 {
            serde_json::to_writer(&mut lines, planned)?;
            lines.push(b'\n');
        }
        Ok(lines)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// A line is no planned record.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(serde_json::from_slice)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Whether a record has been sent back as often as it may be.
#[must_use]
pub const fn is_at_cap(record: &Record, max_redrives: u32) -> bool {
    record.redrive_count >= max_redrives
}

/// How long a run of `count` records takes at least: the ramp's rates, with outcomes that come at once.
#[must_use]
pub fn estimate(count: usize, policy: &RampPolicy) -> Duration {
    let mut left = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let canary = f64::from(policy.canary).min(left);
    let mut rate = policy.start_rate.min(policy.max_rate);
    let mut secs = canary / rate;
    left -= canary;
    while left > 0.0 && rate < policy.max_rate {
        let step = rate * policy.step.as_secs_f64();
        if step >= left {
            break;
        }
        left -= step;
        secs += policy.step.as_secs_f64();
        let next = (rate * policy.growth).min(policy.max_rate);
        if next <= rate {
            break;
        }
        rate = next;
    }
    Duration::try_from_secs_f64(secs + left / rate).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(ids: &[&str]) -> Plan {
        let planned = |id: &&str| Planned {
            record_id: RecordId::new(*id).unwrap(),
            error_code: ErrorCode::normalize("BAD"),
        };
        Plan::new(ids.iter().map(planned).collect())
    }

    #[test]
    fn the_hash_is_over_the_ids_in_order() {
        assert_eq!(plan(&["a", "b"]).hash(), Sha256Hex::of(b"a\nb\n"));
        assert_ne!(plan(&["a", "b"]).hash(), plan(&["b", "a"]).hash());
        assert_eq!(plan(&[]).hash(), Sha256Hex::of(b""));
    }

    #[test]
    fn a_plan_comes_back_as_it_was_stored() {
        let plan = plan(&["a", "b"]);
        let bytes = plan.encode().unwrap();
        let line = "{\"record_id\":\"a\",\"error_code\":\"BAD\"}\n";
        assert!(bytes.starts_with(line.as_bytes()));
        assert_eq!(Plan::decode(&bytes).unwrap(), plan);
        assert!(Plan::decode(b"<Error/>").is_err());
    }

    #[test]
    fn the_estimate_follows_the_ramp() {
        let policy = RampPolicy {
            canary: 5,
            start_rate: 1.0,
            growth: 2.0,
            step: Duration::from_secs(30),
            max_rate: 4.0,
            max_in_doubt: 1_000,
            max_failure_ratio: 0.2,
            max_backlog: 10_000,
            outcome_timeout: Duration::from_secs(900),
        };
        let secs = |count| estimate(count, &policy).as_secs();
        assert_eq!(secs(0), 0);
        assert_eq!(secs(5), 5);
        assert_eq!(secs(5 + 30 + 60), 5 + 30 + 30);
        assert_eq!(secs(5 + 30 + 60 + 400), 5 + 30 + 30 + 100);
    }
}
