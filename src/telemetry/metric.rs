//! Every metric: its name, unit and meaning, and the [`Meter`] that holds the values.
//!
//! Names are those of the CloudWatch namespace `Redrive`; Prometheus has them in snake case. All are by
//! queue, `Parked` also by error code. A meter only ever grows: whoever needs what happened since takes
//! the difference of two snapshots. Durations are kept as a histogram of fixed buckets, so memory and
//! output are bounded however many messages there are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::domain::failure::ErrorCode;
use crate::domain::id::QueueName;

/// A unit, in CloudWatch's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// A ratio.
    None,
}

impl Unit {
    /// CloudWatch's name of it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Seconds => "Seconds",
            Self::None => "None",
        }
    }
}

/// What is to be known of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name in CloudWatch.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// What it counts or measures.
    pub meaning: &'static str,
}

/// Declares metrics of one kind: the documentation of each is its meaning.
macro_rules! metrics {
    ($(#[$of_kind:meta])+ $kind:ident { $(#[doc = $meaning:literal] $name:ident: $unit:ident,)+ }) => {
        $(#[$of_kind])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind { $(#[doc = $meaning] $name,)+ }

        impl $kind {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
            const COUNT: usize = Self::ALL.len();

            /// Its name, unit and meaning.
            #[must_use]
            pub fn metric(self) -> Metric {
                match self {
                    $(Self::$name => Metric {
                        name: stringify!($name),
                        unit: Unit::$unit,
                        meaning: $meaning.trim(),
                    },)+
                }
            }
        }
    };
}

metrics! {
    /// What only grows.
    Counter {
        /// Messages received from the source.
        Received: Count,
        /// Messages whose work was committed.
        Committed: Count,
        /// Messages given back to be tried again.
        Retried: Count,
        /// Messages parked.
        Parked: Count,
        /// Messages whose work was done before, deleted without a run.
        DuplicatesSkipped: Count,
        /// Parkings that did not finish; the message stays in the source.
        ParkFailed: Count,
        /// Handlers whose lease was lost to another worker or ran out.
        LeaseLost: Count,
        /// Messages that are done and could not be deleted; they come back and are skipped.
        DeleteFailed: Count,
        /// Records sent back to the source by runs.
        RunSent: Count,
        /// Records of runs whose work was then committed.
        RunResolved: Count,
        /// Records of runs that failed again.
        RunFailedAgain: Count,
        /// Runs that stopped by themselves.
        RunTripped: Count,
    }
}

metrics! {
    /// What goes up and down. One that was never set is not shown.
    Gauge {
        /// Dependencies whose breaker is open.
        BreakerOpen: Count,
        /// Messages in hand.
        InFlight: Count,
        /// Records in quarantine.
        Quarantined: Count,
        /// Time since the oldest parking still in quarantine.
        OldestQuarantinedSeconds: Seconds,
        /// Time until SQS drops the first message of the DLQ.
        SecondsToExpiry: Seconds,
        /// Resolved records of all records held, 0 to 1.
        DlqResolutionRate: None,
    }
}

/// The one histogram: how long handlers ran.
pub const HANDLER_SECONDS: Metric = Metric {
    name: "HandlerSeconds",
    unit: Unit::Seconds,
    meaning: "How long each run of the handler took.",
};

/// Every metric.
pub fn all() -> impl Iterator<Item = Metric> {
    let counters = Counter::ALL.iter().map(|counter| counter.metric());
    let gauges = Gauge::ALL.iter().map(|gauge| gauge.metric());
    counters.chain(gauges).chain([HANDLER_SECONDS])
}

/// Codes that are counted apart; further ones count as [`OTHER`]. Each is a custom metric that is paid for.
pub const MAX_CODES: usize = 100;

/// The code of parkings beyond [`MAX_CODES`].
pub const OTHER: &str = "OTHER";

/// Upper bounds of the histogram's buckets, in milliseconds: six a decade, up to the 12 h that SQS allows.
/// CloudWatch takes 100 values.
pub const BOUNDS_MS: [u64; 47] = [
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000,
    3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 50_000, 70_000, 100_000, 150_000, 200_000,
    300_000, 500_000, 700_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000, 5_000_000, 7_000_000,
    10_000_000, 15_000_000, 20_000_000, 30_000_000, 40_000_000, 43_200_000,
];

/// Holds the values of one queue's metrics. Clones share them.
#[derive(Debug, Clone)]
pub struct Meter(Arc<Values>);

#[derive(Debug)]
struct Values {
    queue: QueueName,
    counters: [AtomicU64; Counter::COUNT],
    /// Bits of `f64`; not a number: never set.
    gauges: [AtomicU64; Gauge::COUNT],
    parked: Mutex<BTreeMap<ErrorCode, u64>>,
    took: [AtomicU64; BOUNDS_MS.len()],
    took_us: AtomicU64,
}

/// The values at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The queue that all is about.
    pub queue: QueueName,
    /// The counters, in the order of [`Counter::ALL`].
    pub counters: Vec<(Counter, u64)>,
    /// `Parked` by error code.
    pub parked: BTreeMap<ErrorCode, u64>,
    /// The gauges that are set.
    pub gauges: BTreeMap<Gauge, f64>,
    /// Runs of the handler by bucket: its upper bound in milliseconds, and how many.
    pub took: Vec<(u64, u64)>,
    /// How long they took together.
    pub took_sum: Duration,
}

impl Meter {
    /// A meter that has counted nothing.
    #[must_use]
    pub fn new(queue: QueueName) -> Self {
        Self(Arc::new(Values {
            queue,
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            gauges: std::array::from_fn(|_| AtomicU64::new(f64::NAN.to_bits())),
            parked: Mutex::default(),
            took: std::array::from_fn(|_| AtomicU64::new(0)),
            took_us: AtomicU64::new(0),
        }))
    }

    /// Counts `n` more. Parkings are counted by [`Meter::parked`], which knows their code.
    pub fn add(&self, counter: Counter, n: u64) {
        if let Some(cell) = self.0.counters.get(counter as usize) {
            cell.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Counts a parking, and its code.
    pub fn parked(&self, code: &ErrorCode) {
        self.add(Counter::Parked, 1);
        let mut codes = self.codes();
        let is_other = codes.len() >= MAX_CODES && !codes.contains_key(code);
        let code = if is_other { ErrorCode::from(OTHER) } else { code.clone() };
        *codes.entry(code).or_default() += 1;
    }

    /// Sets a gauge. What is not finite cannot be shown and clears it.
    pub fn set(&self, gauge: Gauge, value: f64) {
        let value = if value.is_finite() { value } else { f64::NAN };
        if let Some(cell) = self.0.gauges.get(gauge as usize) {
            cell.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    /// Makes a gauge one that was never set.
    pub fn clear(&self, gauge: Gauge) {
        self.set(gauge, f64::NAN);
    }

    /// Counts a run of the handler.
    pub fn handler_took(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // A run past the last bound is one that no message can have.
        let bucket = BOUNDS_MS.partition_point(|bound| bound.saturating_mul(1_000) < us);
        if let Some(cell) = self.0.took.get(bucket.min(BOUNDS_MS.len() - 1)) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
        self.0.took_us.fetch_add(us, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        self.0.counters.get(counter as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// How many were parked so far, whatever their code.
    #[must_use]
    pub fn parked_total(&self) -> u64 {
        self.value(Counter::Parked)
    }

    /// What a gauge was set to, if it was.
    #[must_use]
    pub fn gauge(&self, gauge: Gauge) -> Option<f64> {
        let cell = self.0.gauges.get(gauge as usize)?;
        Some(f64::from_bits(cell.load(Ordering::Relaxed))).filter(|value| value.is_finite())
    }

    /// All values now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let buckets = BOUNDS_MS.iter().zip(&self.0.took);
        Snapshot {
            queue: self.0.queue.clone(),
            counters: Counter::ALL.iter().map(|&counter| (counter, self.value(counter))).collect(),
            parked: self.codes().clone(),
            gauges: Gauge::ALL
                .iter()
                .filter_map(|&gauge| Some((gauge, self.gauge(gauge)?)))
                .collect(),
            took: buckets.map(|(bound, cell)| (*bound, cell.load(Ordering::Relaxed))).collect(),
            took_sum: Duration::from_micros(self.0.took_us.load(Ordering::Relaxed)),
        }
    }

    fn codes(&self) -> MutexGuard<'_, BTreeMap<ErrorCode, u64>> {
        // Every change of the map is whole, also when a thread dies after it.
        self.0.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Snapshot {
    /// What was counted since `earlier`, and the gauges as they are now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counters = self.counters.iter().zip(&earlier.counters);
        let took = self.took.iter().zip(&earlier.took);
        let parked = self.parked.iter().map(|(code, count)| {
            let before = earlier.parked.get(code).copied().unwrap_or(0);
            (code.clone(), count.saturating_sub(before))
        });
        Self {
            queue: self.queue.clone(),
            counters: counters.map(|(now, was)| (now.0, now.1.saturating_sub(was.1))).collect(),
            parked: parked.filter(|(_, count)| *count > 0).collect(),
            gauges: self.gauges.clone(),
            took: took.map(|(now, was)| (now.0, now.1.saturating_sub(was.1))).collect(),
            took_sum: self.took_sum.saturating_sub(earlier.took_sum),
        }
    }
}

/// A value as JSON, whole numbers without a fraction.
pub(super) fn number(value: f64) -> serde_json::Number {
    value.to_string().parse().unwrap_or_else(|_| 0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> Meter {
        Meter::new(QueueName::new("orders").unwrap())
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = all().map(|metric| metric.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn clones_share_their_values() {
        let meter = meter();
        meter.clone().add(Counter::Received, 3);
        meter.add(Counter::Received, 4);
        assert_eq!((meter.value(Counter::Received), meter.value(Counter::Committed)), (7, 0));
    }

    #[test]
    fn a_flood_of_codes_is_counted_as_other() {
        let meter = meter();
        for i in 0..1_000 {
            meter.parked(&ErrorCode::from(format!("CODE_{i}")));
        }
        meter.parked(&ErrorCode::from("CODE_7"));
        let parked = meter.snapshot().parked;
        assert_eq!(parked.len(), MAX_CODES + 1);
        assert_eq!(parked.get(&ErrorCode::from("CODE_7")), Some(&2));
        assert_eq!(parked.get(&ErrorCode::from(OTHER)), Some(&900));
        assert_eq!((parked.values().sum::<u64>(), meter.parked_total()), (1_001, 1_001));
    }

    #[test]
    fn a_gauge_is_shown_from_when_it_is_set_until_it_is_cleared() {
        let meter = meter();
        assert_eq!(meter.gauge(Gauge::Quarantined), None);
        meter.set(Gauge::Quarantined, 0.0);
        assert_eq!(meter.snapshot().gauges, BTreeMap::from([(Gauge::Quarantined, 0.0)]));
        meter.clear(Gauge::Quarantined);
        meter.set(Gauge::DlqResolutionRate, f64::NAN);
        assert!(meter.snapshot().gauges.is_empty());
    }

    #[test]
    fn a_run_is_in_the_first_bucket_that_it_fits() {
        for (took, bound) in [
            (Duration::ZERO, 1),
            (Duration::from_millis(1), 1),
            (Duration::from_micros(1_001), 2),
            (Duration::from_millis(1_000), 1_000),
            (Duration::MAX, 43_200_000),
        ] {
            let meter = meter();
            meter.handler_took(took);
            let taken: Vec<_> =
                meter.snapshot().took.into_iter().filter(|(_, count)| *count > 0).collect();
            assert_eq!(taken, [(bound, 1)], "{took:?}");
        }
        assert!(BOUNDS_MS.is_sorted());
    }

    #[test]
    fn a_difference_holds_what_was_counted_since() {
        let meter = meter();
        meter.add(Counter::Retried, 2);
        meter.parked(&ErrorCode::from("OLD"));
        meter.handler_took(Duration::from_millis(4));
        let earlier = meter.snapshot();
        meter.add(Counter::Retried, 5);
        meter.parked(&ErrorCode::from("NEW"));
        meter.handler_took(Duration::from_millis(6));
        let since = meter.snapshot().since(&earlier);
        assert!(since.counters.contains(&(Counter::Retried, 5)));
        assert_eq!(since.parked, BTreeMap::from([(ErrorCode::from("NEW"), 1)]));
        let taken: Vec<_> = since.took.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!((taken, since.took_sum), (vec![&(7, 1)], Duration::from_millis(6)));
        assert_eq!(earlier.since(&earlier).parked, BTreeMap::new());
    }
}
