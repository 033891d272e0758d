//! The plan of a run: which records, in which order, frozen before anything is sent.
//!
//! Stored as JSON Lines, one record a line, in plan order. Its hash is over the record ids alone, so that
//! `plan` and `start` can be compared whatever else is said of a record.
//!
//! A plan is held in memory whole: some 200 bytes a record, and while a FIFO plan is put in order some 200
//! more. Evidence is never part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::failure::ErrorCode;
use super::id::{RecordId, Sha256Hex};
use super::ramp::RampPolicy;
use super::record::Record;
use super::time::Wall;

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

/// A selected record, as far as a plan is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its line of the plan.
    pub planned: Planned,
    /// Whether it would be discarded rather than sent.
    pub is_at_cap: bool,
    /// When its DLQ message was accepted, if it was.
    pub token_sent: Option<Wall>,
    group_id: Option<String>,
    /// 20 decimal digits do not fit 64 bits.
    sequence: Option<u128>,
}

impl Candidate {
    /// What a plan needs of a record.
    #[must_use]
    pub fn new(record_id: RecordId, record: Record, max_redrives: u32) -> Self {
        Self {
            is_at_cap: is_at_cap(&record, max_redrives),
            token_sent: record.token_sent,
            sequence: record.sequence.as_deref().and_then(|digits| digits.parse().ok()),
            group_id: record.group_id,
            planned: Planned { record_id, error_code: record.error_code },
        }
    }
}

/// Puts what is in parked order in the order of FIFO groups: the groups by the first of each, within a
/// group by `sequence` as a number. What has none keeps its place behind those of its group that have one.
#[must_use]
pub fn in_group_order(parked: Vec<Candidate>) -> Vec<Candidate> {
    let mut places: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<Candidate>> = Vec::new();
    for candidate in parked {
        let place = *places.entry(candidate.group_id.clone()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(candidate),
            None => groups.push(vec![candidate]),
        }
    }
    for group in &mut groups {
        group.sort_by_key(|candidate| (candidate.sequence.is_none(), candidate.sequence));
    }
    groups.into_iter().flatten().collect()
}

/// How many message groups these are of.
#[must_use]
pub fn count_groups(candidates: &[Candidate]) -> usize {
    let groups = candidates.iter().filter_map(|candidate| candidate.group_id.as_deref());
    groups.collect::<BTreeSet<_>>().len()
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

    fn candidate(id: &str, group: Option<&str>, sequence: Option<&str>) -> Candidate {
        let planned = plan(&[id]).records()[0].clone();
        Candidate {
            planned,
            is_at_cap: false,
            token_sent: None,
            group_id: group.map(str::to_owned),
            sequence: sequence.map(|digits| digits.parse().unwrap()),
        }
    }

    fn ordered(parked: &[Candidate]) -> Vec<String> {
        let ordered = in_group_order(parked.to_vec()).into_iter();
        ordered.map(|candidate| candidate.planned.record_id.to_string()).collect()
    }

    #[test]
    fn case_g1_groups_come_by_their_first_and_each_in_sequence() {
        let parked = [
            candidate("h2", Some("h"), Some("00000000000000000009")),
            candidate("g3", Some("g"), Some("18446744073709551617")),
            candidate("g1", Some("g"), Some("18446744073709551615")),
            candidate("h1", Some("h"), Some("8")),
            candidate("g2", Some("g"), Some("18446744073709551616")),
        ];
        assert_eq!(ordered(&parked), ["h1", "h2", "g1", "g2", "g3"]);
        assert_eq!(count_groups(&parked), 2);
    }

    #[test]
    fn what_has_no_sequence_goes_last_in_its_group_in_parked_order() {
        let parked = [
            candidate("g8", Some("g"), None),
            candidate("g9", Some("g"), None),
            candidate("g1", Some("g"), Some("1")),
            candidate("x", None, Some("0")),
        ];
        assert_eq!(ordered(&parked), ["g1", "g8", "g9", "x"]);
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
