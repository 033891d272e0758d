//! The circuit breaker: when to stop receiving because a dependency is down, and when to try again.
//!
//! It opens when three outcomes in a row are dependency faults of one target, or when the share of faults of
//! one target among the outcomes of the window is too high. While it is open nothing is received but one
//! probe at a time, after 5 s, 10 s, … 60 s; a good probe closes it. Messages that were in hand when it
//! opened neither close it nor keep it open: only probes count then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::time::Mono;

/// How many dependency faults in a row open it.
const ROW: u32 = 3;
/// The longest wait before a probe.
const PROBE_CAP: Duration = Duration::from_secs(60);
/// Outcomes kept at most, so that a fast queue's window stays bounded.
const MAX_OUTCOMES: usize = 4_096;

/// The bounds of the breaker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// How far back outcomes count.
    pub window: Duration,
    /// How many outcomes there must be to judge by their share.
    pub min_outcomes: usize,
    /// The share of faults of one target that opens it.
    pub open_ratio: f64,
    /// The first wait before a probe; it doubles up to 60 s.
    pub probe_after: Duration,
}

/// What became of one try at a message, as far as targets are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Everything answered.
    Good,
    /// It says nothing of any target.
    Silent,
    /// A dependency failed: nobody's fault.
    Dependency(T),
    /// A transient failure of the target that ran the work.
    Transient(T),
}

impl<T> Outcome<T> {
    fn target(self) -> Option<T> {
        match self {
            Self::Good | Self::Silent => None,
            Self::Dependency(target) | Self::Transient(target) => Some(target),
        }
    }
}

/// Who reports an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reporter {
    /// A message received while all was well.
    Message,
    /// The message that was received to see whether all is well again, or one that is held until it is.
    Probe,
}

/// What may be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// As many messages as there are free slots.
    All,
    /// One message, as a probe.
    Probe,
    /// Nothing yet.
    Nothing {
        /// When the next probe is due; none while one is under way.
        until: Option<Mono>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probing {
    /// The next probe is due then.
    Due(Mono),
    /// One is under way.
    UnderWay,
}

#[derive(Debug, Clone)]
struct Open<T> {
    targets: BTreeSet<T>,
    wait: Duration,
    probing: Probing,
}

/// A breaker over targets.
#[derive(Debug, Clone)]
pub struct Breaker<T> {
    bounds: Bounds,
    outcomes: VecDeque<(Mono, Option<T>)>,
    rows: BTreeMap<T, u32>,
    open: Option<Open<T>>,
}

impl<T: Copy + Ord> Breaker<T> {
    /// A closed breaker.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, outcomes: VecDeque::new(), rows: BTreeMap::new(), open: None }
    }

    /// The targets for which it is open; none when it is closed.
    pub fn open_targets(&self) -> impl Iterator<Item = T> + '_ {
        self.open.iter().flat_map(|open| open.targets.iter().copied())
    }

    /// What may be received now.
    #[must_use]
    pub fn admit(&self, now: Mono) -> Admission {
        match self.open.as_ref().map(|open| open.probing) {
            None => Admission::All,
            Some(Probing::UnderWay) => Admission::Nothing { until: None },
            Some(Probing::Due(at)) if now < at => Admission::Nothing { until: Some(at) },
            Some(Probing::Due(_)) => Admission::Probe,
        }
    }

    /// A probe is received.
    pub const fn probe_began(&mut self) {
        if let Some(open) = &mut self.open {
            open.probing = Probing::UnderWay;
        }
    }

    /// No message came to be a probe: the next may begin at once.
    pub const fn probe_came_back_empty(&mut self, now: Mono) {
        if let Some(open) = &mut self.open {
            open.probing = Probing::Due(now);
        }
    }

    /// Takes an outcome in.
    pub fn record(&mut self, outcome: Outcome<T>, by: Reporter, now: Mono) {
        match (self.open.as_mut(), by) {
            (None, _) => self.record_closed(outcome, now),
            (Some(_), Reporter::Message) => {}
            (Some(open), Reporter::Probe) => match outcome {
                Outcome::Good => self.close(),
                Outcome::Silent => open.probing = Probing::Due(now),
                Outcome::Dependency(target) | Outcome::Transient(target) => {
                    open.targets.insert(target);
                    open.wait = open.wait.saturating_mul(2).min(PROBE_CAP);
                    open.probing = Probing::Due(now.plus(open.wait));
                }
            },
        }
    }

    fn record_closed(&mut self, outcome: Outcome<T>, now: Mono) {
        match outcome {
            Outcome::Silent => return,
            Outcome::Good | Outcome::Transient(_) => self.rows.clear(),
            Outcome::Dependency(target) => {
                let row = self.rows.entry(target).or_default();
                *row = row.saturating_add(1);
            }
        }
        let forgotten = now.minus(self.bounds.window);
        self.outcomes.push_back((now, outcome.target()));
        while self.outcomes.front().is_some_and(|(at, _)| *at < forgotten)
            || self.outcomes.len() > MAX_OUTCOMES
        {
            self.outcomes.pop_front();
        }
        if let Some(target) = outcome.target()
            && (self.rows.get(&target).is_some_and(|row| *row >= ROW) || self.is_too_bad(target))
        {
            let wait = self.bounds.probe_after;
            let probing = Probing::Due(now.plus(wait));
            self.open = Some(Open { targets: BTreeSet::from([target]), wait, probing });
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share of a few thousand outcomes")]
    fn is_too_bad(&self, target: T) -> bool {
        let all = self.outcomes.len();
        let faults = self.outcomes.iter().filter(|(_, fault)| *fault == Some(target)).count();
        all >= self.bounds.min_outcomes && faults as f64 >= all as f64 * self.bounds.open_ratio
    }

    fn close(&mut self) {
        self.open = None;
        self.rows.clear();
        self.outcomes.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Outcome::{Dependency, Good, Silent, Transient};
    use super::*;

    const BOUNDS: Bounds = Bounds {
        window: Duration::from_secs(30),
        min_outcomes: 20,
        open_ratio: 0.5,
        probe_after: Duration::from_secs(5),
    };

    fn at(secs: u64) -> Mono {
        Mono::from_start(Duration::from_secs(secs))
    }

    fn after(outcomes: &[Outcome<char>]) -> Breaker<char> {
        let mut breaker = Breaker::new(BOUNDS);
        for outcome in outcomes {
            breaker.record(*outcome, Reporter::Message, at(100));
        }
        breaker
    }

    fn is_open(outcomes: &[Outcome<char>]) -> bool {
        after(outcomes).open_targets().count() > 0
    }

    #[test]
    fn three_dependency_faults_of_one_target_in_a_row_open_it() {
        assert!(!is_open(&[Dependency('d'); 2]));
        assert!(is_open(&[Dependency('d'); 3]));
        assert!(!is_open(&[Dependency('d'), Dependency('d'), Good, Dependency('d')]));
        assert!(!is_open(&[Dependency('d'), Dependency('s'), Dependency('d')]));
        assert!(is_open(&[
            Dependency('d'),
            Dependency('s'),
            Silent,
            Dependency('d'),
            Dependency('d')
        ]));
    }

    #[test]
    fn half_of_twenty_outcomes_open_it_and_fewer_or_older_ones_do_not() {
        let mixed = |n: usize| -> Vec<_> {
            (0..n).map(|i| if i % 2 == 0 { Good } else { Transient('h') }).collect()
        };
        assert!(!is_open(&mixed(19)));
        assert!(is_open(&mixed(20)));
        let mut third = mixed(18);
        third.extend([Good; 12]);
        assert!(!is_open(&third));

        let mut breaker = after(&mixed(19));
        breaker.record(Transient('h'), Reporter::Message, at(131));
        assert_eq!(breaker.open_targets().count(), 0, "what is older than the window is forgotten");
    }

    #[test]
    fn probes_wait_twice_as_long_each_up_to_a_minute_and_a_good_one_closes_it() {
        let mut breaker = after(&[Dependency('d'); 3]);
        let mut now = at(100);
        for wait in [5, 10, 20, 40, 60, 60] {
            let due = now.plus(Duration::from_secs(wait));
            assert_eq!(breaker.admit(now), Admission::Nothing { until: Some(due) });
            assert_eq!(breaker.admit(due), Admission::Probe);
            breaker.probe_began();
            assert_eq!(breaker.admit(due), Admission::Nothing { until: None });
            breaker.record(Dependency('d'), Reporter::Probe, due);
            now = due;
        }
        breaker.record(Good, Reporter::Message, now);
        assert_ne!(breaker.admit(now), Admission::All, "what was in hand proves nothing");
        breaker.record(Good, Reporter::Probe, now);
        assert_eq!(breaker.admit(now), Admission::All);
    }

    #[test]
    fn a_probe_that_says_nothing_is_followed_by_another_at_once() {
        let mut breaker = after(&[Dependency('d'); 3]);
        for tell in [Breaker::probe_came_back_empty, |b: &mut Breaker<char>, now| {
            b.record(Silent, Reporter::Probe, now)
        }] {
            breaker.probe_began();
            tell(&mut breaker, at(105));
            assert_eq!(breaker.admit(at(105)), Admission::Probe);
        }
    }

    proptest! {
        /// Whatever happens, an open breaker is never stuck: once the probe under way has reported, the
        /// next is due within a minute.
        #[test]
        fn it_is_never_stuck(steps in proptest::collection::vec((0_u8..6, 0_u64..100), 0..200)) {
            let mut breaker = Breaker::new(BOUNDS);
            let mut now = at(0);
            for (what, secs) in steps {
                now = now.plus(Duration::from_secs(secs));
                let by = if breaker.admit(now) == Admission::Probe {
                    breaker.probe_began();
                    Reporter::Probe
                } else {
                    Reporter::Message
                };
                let outcome = match what {
                    0 => Good,
                    1 => Silent,
                    2 | 3 => Dependency('d'),
                    _ => Transient('h'),
                };
                breaker.record(outcome, by, now);
                prop_assert_ne!(breaker.admit(now), Admission::Nothing { until: None });
                prop_assert_ne!(
                    matches!(breaker.admit(now.plus(PROBE_CAP)), Admission::Nothing { .. }),
                    true
                );
            }
        }
    }
}
