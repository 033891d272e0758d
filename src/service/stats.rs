//! Counts what the ledger holds.
//!
//! One walk over the index; memory grows with the number of codes and label values, not of records.

use std::collections::BTreeMap;
use std::time::Duration;

use super::query::{Parked, Records};
use crate::domain::failure::{ErrorCode, Reason};
use crate::domain::record::{Record, State};
use crate::domain::time::Wall;
use crate::port::error::PortError;
use crate::port::ledger::Ledger;

/// How long a redriven record may be without a word before it counts as silent.
pub const SILENT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// What there is. All but `states` and `silent` is about quarantined records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Records by state.
    pub states: BTreeMap<State, u64>,
    /// Records by code and reason.
    pub by_code: BTreeMap<(ErrorCode, Reason), Parkings>,
    /// Records by label and value.
    pub by_label: BTreeMap<String, BTreeMap<String, u64>>,
    /// When the oldest DLQ message that counts was sent.
    pub oldest_token: Option<Wall>,
    /// Redriven records without a word for [`SILENT_AFTER`].
    pub silent: u64,
}

/// Parkings with the same code and reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parkings {
    /// How many.
    pub count: u64,
    /// The oldest.
    pub oldest: Wall,
}

impl Stats {
    /// Counts everything.
    ///
    /// # Errors
    /// A page could not be read.
    pub async fn gather(ledger: &dyn Ledger, now: Wall) -> Result<Self, PortError> {
        Self::of_states(ledger, &State::ALL, usize::MAX, now).await
    }

    /// Counts records of these states, the first `most` in parked order.
    ///
    /// # Errors
    /// A page could not be read.
    pub async fn of_states(
        ledger: &dyn Ledger,
        states: &[State],
        most: usize,
        now: Wall,
    ) -> Result<Self, PortError> {
        let mut stats = Self::default();
        let mut records = Records::new(ledger, states, Parked::default());
        for _ in 0..most {
            let Some((_, record)) = records.next().await? else { break };
            if !record.is_expired(now) {
                stats.count(&record, now);
            }
        }
        Ok(stats)
    }

    /// When the oldest quarantined record was parked.
    #[must_use]
    pub fn oldest_parked(&self) -> Option<Wall> {
        self.by_code.values().map(|parkings| parkings.oldest).min()
    }

    /// Records in a state.
    #[must_use]
    pub fn of(&self, state: State) -> u64 {
        self.states.get(&state).copied().unwrap_or(0)
    }

    /// The share of all records that are resolved; none if there are no records.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
    pub fn resolution_rate(&self) -> Option<f64> {
        let all: u64 = self.states.values().sum();
        (all > 0).then(|| self.of(State::Resolved) as f64 / all as f64)
    }

    fn count(&mut self, record: &Record, now: Wall) {
        *self.states.entry(record.state).or_default() += 1;
        match record.state {
            State::Quarantined => self.count_quarantined(record),
            State::Redriven => {
                let silent = record.redriven_at.is_some_and(|at| now.since(at) > SILENT_AFTER);
                self.silent += u64::from(silent);
            }
            State::Redriving | State::Resolved | State::Discarded => {}
        }
    }

    fn count_quarantined(&mut self, record: &Record) {
        let parked_at = record.parked_at;
        self.by_code
            .entry((record.error_code.clone(), record.reason))
            .and_modify(|parkings| {
                parkings.count += 1;
                parkings.oldest = parkings.oldest.min(parked_at);
            })
            .or_insert(Parkings { count: 1, oldest: parked_at });
        for (name, value) in &record.labels {
            *self.by_label.entry(name.clone()).or_default().entry(value.clone()).or_default() += 1;
        }
        self.oldest_token = match (self.oldest_token, record.token_sent) {
            (Some(oldest), Some(sent)) => Some(oldest.min(sent)),
            (oldest, sent) => oldest.or(sent),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::query::tests::{NOW, put, record};
    use crate::sim::ledger::SimLedger;

    #[tokio::test]
    async fn everything_is_counted_once() {
        let ledger = SimLedger::new();
        for (n, code) in ["A", "A", "B"].into_iter().enumerate() {
            let mut record = record("body", code, 100 + n as u64);
            record.token_sent = Some(Wall::from_ms(200 - n as u64));
            put(&ledger, &format!("parked-{n}"), record).await;
        }
        let of = |state, redriven_at| {
            let mut record = record("body", "A", 1);
            (record.state, record.redriven_at) = (state, redriven_at);
            record
        };
        let day_ago = NOW.minus(SILENT_AFTER);
        put(&ledger, "heard", of(State::Redriven, Some(day_ago))).await;
        let longer_ago = Some(day_ago.minus(Duration::from_millis(1)));
        put(&ledger, "silent", of(State::Redriven, longer_ago)).await;
        put(&ledger, "resolved", of(State::Resolved, None)).await;
        let mut expired = of(State::Resolved, None);
        expired.expires_at_secs = Some(NOW.as_secs());
        put(&ledger, "expired", expired).await;

        let stats = Stats::gather(&ledger, NOW).await.unwrap();
        let states = State::ALL.map(|state| stats.of(state));
        assert_eq!(states, [3, 0, 2, 1, 0]);
        assert_eq!(stats.silent, 1);
        let parkings = stats.by_code[&("A".into(), Reason::Validation)];
        assert_eq!(parkings, Parkings { count: 2, oldest: Wall::from_ms(100) });
        assert_eq!(stats.by_label["territory"]["DE"], 3);
        assert_eq!(stats.oldest_token, Some(Wall::from_ms(198)));
        assert_eq!(stats.resolution_rate(), Some(1.0 / 6.0));
        assert_eq!(Stats::default().resolution_rate(), None);
        assert_eq!(stats.oldest_parked(), Some(Wall::from_ms(100)));
        let two = Stats::of_states(&ledger, &[State::Quarantined], 2, NOW).await.unwrap();
        assert_eq!((two.of(State::Quarantined), two.of(State::Resolved)), (2, 0));
    }
}
