//! The JSON that commands print. Fields may be added, never renamed; times are RFC 3339 UTC with
//! milliseconds, or null.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::domain::id::{QueueName, RecordId};
use crate::domain::record::{Blocked, Record, State};
use crate::domain::time::Wall;
use crate::port::queue::Depth;
use crate::service::stats::Stats;

/// One record, as `ls` prints it.
#[derive(Debug, Serialize)]
pub(super) struct RecordShape<'a> {
    record_id: &'a str,
    key: &'a str,
    payload_sha256: &'a str,
    state: &'static str,
    error_code: &'a str,
    reason: &'static str,
    disposition: &'static str,
    error_message: &'a str,
    attempts_total: u32,
    redrive_count: u32,
    first_seen: String,
    parked_at: String,
    labels: &'a BTreeMap<String, String>,
    envelope: &'a str,
    run_id: Option<&'a str>,
    blocked: Option<&'static str>,
    redriven_at: Option<String>,
    resolved_at: Option<String>,
    duplicate_of: Option<&'a str>,
}

impl<'a> RecordShape<'a> {
    pub(super) fn new(id: &'a RecordId, record: &'a Record) -> Self {
        Self {
            record_id: id.as_str(),
            key: record.key.as_str(),
            payload_sha256: record.payload_sha256.as_str(),
            state: record.state.name(),
            error_code: record.error_code.as_str(),
            reason: record.reason.as_str(),
            disposition: record.disposition.as_str(),
            error_message: &record.error_message,
            attempts_total: record.attempts_total,
            redrive_count: record.redrive_count,
            first_seen: record.first_seen.to_rfc3339(),
            parked_at: record.parked_at.to_rfc3339(),
            labels: &record.labels,
            envelope: record.envelope.as_str(),
            run_id: record.run_id.as_ref().map(|run| run.as_str()),
            blocked: record.blocked.map(Blocked::name),
            redriven_at: record.redriven_at.map(Wall::to_rfc3339),
            resolved_at: record.resolved_at.map(Wall::to_rfc3339),
            duplicate_of: record.duplicate_of.as_ref().map(RecordId::as_str),
        }
    }
}

/// What `stats` prints.
#[derive(Debug, Serialize)]
pub(super) struct StatsShape<'a> {
    queue: &'a str,
    states: StatesShape,
    by_code: Vec<CodeShape<'a>>,
    by_label: &'a BTreeMap<String, BTreeMap<String, u64>>,
    source: DepthShape,
    dlq: Option<DepthShape>,
    first_expiry: Option<String>,
    silent: u64,
    resolution_rate: Option<f64>,
}

#[derive(Debug, Serialize)]
struct StatesShape {
    quarantined: u64,
    redriving: u64,
    redriven: u64,
    resolved: u64,
    discarded: u64,
}

#[derive(Debug, Serialize)]
struct CodeShape<'a> {
    error_code: &'a str,
    reason: &'static str,
    count: u64,
    oldest_parked_at: String,
}

#[derive(Debug, Serialize)]
struct DepthShape {
    visible: u64,
    in_flight: u64,
    delayed: u64,
    in_flight_saturated: bool,
}

impl DepthShape {
    fn new((name, depth): (&QueueName, Depth)) -> Self {
        let Depth { visible, in_flight, delayed } = depth;
        Self { visible, in_flight, delayed, in_flight_saturated: depth.is_saturated(name) }
    }
}

impl<'a> StatsShape<'a> {
    pub(super) fn new(
        stats: &'a Stats,
        source: (&'a QueueName, Depth),
        dlq: Option<(&'a QueueName, Depth)>,
        first_expiry: Option<Wall>,
    ) -> Self {
        let by_code = stats.by_code.iter().map(|((code, reason), parkings)| CodeShape {
            error_code: code.as_str(),
            reason: reason.as_str(),
            count: parkings.count,
            oldest_parked_at: parkings.oldest.to_rfc3339(),
        });
        let mut by_code: Vec<_> = by_code.collect();
        by_code.sort_by_key(|code| std::cmp::Reverse(code.count));
        Self {
            queue: source.0.as_str(),
            states: StatesShape {
                quarantined: stats.of(State::Quarantined),
                redriving: stats.of(State::Redriving),
                redriven: stats.of(State::Redriven),
                resolved: stats.of(State::Resolved),
                discarded: stats.of(State::Discarded),
            },
            by_code,
            by_label: &stats.by_label,
            source: DepthShape::new(source),
            dlq: dlq.map(DepthShape::new),
            first_expiry: first_expiry.map(Wall::to_rfc3339),
            silent: stats.silent,
            resolution_rate: stats.resolution_rate(),
        }
    }
}
