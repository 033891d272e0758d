//! The ramp: how many copies may be in doubt, at which rate, and when to stop.
//!
//! First a canary: `canary` copies, and all their outcomes. Then never more in doubt than max(canary,
//! copies proven good), so that the window can double each round trip and a fix that does not work wastes
//! the canary alone (G5). Beside it the rate grows by `growth` each healthy `step`. Only outcomes that
//! prove something count: a duplicate was proven by another commit.

use std::collections::VecDeque;
use std::time::Duration;

use super::time::Mono;

/// How many outcomes the failure share is over.
const RECENT: usize = 50;

/// The bounds of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RampPolicy {
    /// Copies of the canary, at least 1.
    pub canary: u32,
    /// Sends a second at the start.
    pub start_rate: f64,
    /// What the rate is multiplied with each healthy step.
    pub growth: f64,
    /// The length of a step.
    pub step: Duration,
    /// Sends a second at most.
    pub max_rate: f64,
    /// Copies in doubt at most.
    pub max_in_doubt: u32,
    /// The share of failures that trips.
    pub max_failure_ratio: f64,
    /// The source's backlog above which the rate is held.
    pub max_backlog: u64,
    /// How long copies may be in doubt without any outcome.
    pub outcome_timeout: Duration,
}

/// What became of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and was committed: proof.
    Good,
    /// Its work was done already: no proof either way.
    Duplicate,
    /// It failed again.
    FailedAgain,
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The canary is out.
    Canary,
    /// The window and the rate grow.
    Ramp,
}

/// Why a run must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trip {
    /// Too large a share failed again.
    FailureRatio,
    /// No outcome came in time.
    NoOutcome,
    /// Nobody executed it for too long.
    Unattended,
}

impl Trip {
    /// Its name in every stored format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FailureRatio => "failure_ratio",
            Self::NoOutcome => "no_outcome",
            Self::Unattended => "unattended",
        }
    }

    /// The reason with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::FailureRatio, Self::NoOutcome, Self::Unattended]
            .into_iter()
            .find(|trip| trip.name() == name)
    }
}

/// The ramp of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ramp {
    policy: RampPolicy,
    canary_sent: u32,
    canary_back: u32,
    credit: u32,
    recent: VecDeque<Outcome>,
    rate: f64,
    step_began: Mono,
    held_since: Option<Mono>,
    waiting_since: Mono,
}

impl Ramp {
    /// A ramp that begins with its canary.
    #[must_use]
    pub fn new(policy: RampPolicy, now: Mono) -> Self {
        Self {
            policy,
            canary_sent: 0,
            canary_back: 0,
            credit: 0,
            recent: VecDeque::new(),
            rate: policy.start_rate.min(policy.max_rate),
            step_began: now,
            held_since: None,
            waiting_since: now,
        }
    }

    /// Where it is.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        if self.canary_back < self.policy.canary { Phase::Canary } else { Phase::Ramp }
    }

    /// Sends a second.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Sets the highest rate. A rate above it comes down at once; one below it grows as before.
    pub const fn set_max_rate(&mut self, max_rate: f64) {
        self.policy.max_rate = max_rate;
        self.rate = self.rate.min(max_rate);
    }

    /// How many copies may be in doubt.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.policy.max_in_doubt.min(self.policy.canary.max(self.credit))
    }

    /// How many copies may be sent while `in_doubt` are.
    #[must_use]
    pub fn allowance(&self, in_doubt: u32) -> u32 {
        let room = self.window().saturating_sub(in_doubt);
        match self.phase() {
            Phase::Canary => room.min(self.policy.canary.saturating_sub(self.canary_sent)),
            Phase::Ramp => room,
        }
    }

    /// Notes that copies were sent while `in_doubt` others were in doubt.
    pub fn sent(&mut self, count: u32, in_doubt: u32, now: Mono) {
        self.canary_sent = self.canary_sent.saturating_add(count);
        if in_doubt == 0 {
            self.waiting_since = now;
        }
    }

    /// Notes that copies of the canary will have no outcome: they were refused, or are nobody's any more.
    pub fn without_outcome(&mut self, count: u32) {
        self.canary_back = self.canary_back.saturating_add(count);
    }

    /// Notes that no outcome is due: silence counts from now.
    pub const fn heard(&mut self, now: Mono) {
        self.waiting_since = now;
    }

    /// Notes an outcome.
    pub fn outcome(&mut self, outcome: Outcome, now: Mono) {
        self.waiting_since = now;
        self.canary_back = self.canary_back.saturating_add(1);
        match outcome {
            Outcome::Good => self.credit = self.credit.saturating_add(1),
            Outcome::FailedAgain => self.credit /= 2,
            Outcome::Duplicate => return,
        }
        self.recent.push_back(outcome);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// Whether the run must stop, while `in_doubt` copies are.
    #[must_use]
    pub fn trip(&self, in_doubt: u32, now: Mono) -> Option<Trip> {
        let failed = self.recent.iter().filter(|o| **o == Outcome::FailedAgain).count();
        let (failed, all) = (count(failed), count(self.recent.len()));
        let enough = all >= self.policy.canary.min(count(RECENT));
        if enough && f64::from(failed) > f64::from(all) * self.policy.max_failure_ratio {
            return Some(Trip::FailureRatio);
        }
        let silent = now.since(self.waiting_since) >= self.policy.outcome_timeout;
        (in_doubt > 0 && silent).then_some(Trip::NoOutcome)
    }

    /// Grows the rate by the steps that are over, or holds and then halves it while the target is under
    /// `pressure`. Returns the rate.
    pub fn step(&mut self, pressure: Pressure, now: Mono) -> f64 {
        match pressure {
            Pressure::Under => {
                let since = *self.held_since.get_or_insert(now);
                if now.since(since) >= self.policy.step {
                    self.halve(now);
                }
                self.step_began = now;
            }
            Pressure::Throttled => {
                let is_new = self.held_since.is_none_or(|at| now.since(at) >= self.policy.step);
                if is_new {
                    self.halve(now);
                }
                self.step_began = now;
            }
            Pressure::None => {
                self.held_since = None;
                if self.phase() == Phase::Canary {
                    self.step_began = now;
                }
                if now.since(self.step_began) >= self.policy.step {
                    self.rate = (self.rate * self.policy.growth).min(self.policy.max_rate);
                    self.step_began = now;
                }
            }
        }
        self.rate
    }

    fn halve(&mut self, now: Mono) {
        self.rate = (self.rate / 2.0).max(self.floor());
        self.held_since = Some(now);
    }

    fn floor(&self) -> f64 {
        self.policy.start_rate.min(1.0).min(self.policy.max_rate)
    }
}

/// Whether the source can take more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// It can.
    None,
    /// Its backlog is above the limit: the rate is held for a step, then halved.
    Under,
    /// SQS asked for fewer calls: the rate is halved at once, and again with each step that it lasts.
    Throttled,
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy() -> RampPolicy {
        RampPolicy {
            canary: 5,
            start_rate: 1.0,
            growth: 2.0,
            step: Duration::from_secs(30),
            max_rate: 50.0,
            max_in_doubt: 1_000,
            max_failure_ratio: 0.2,
            max_backlog: 10_000,
            outcome_timeout: Duration::from_secs(900),
        }
    }

    fn at(secs: u64) -> Mono {
        Mono::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn a_broken_fix_wastes_the_canary_alone() {
        let mut ramp = Ramp::new(policy(), at(0));
        let mut sent = 0;
        for _ in 0..10 {
            let now = ramp.allowance(0);
            ramp.sent(now, 0, at(0));
            sent += now;
            for _ in 0..now {
                ramp.outcome(Outcome::FailedAgain, at(1));
            }
            if ramp.trip(0, at(1)).is_some() {
                break;
            }
        }
        assert_eq!(sent, 5);
        assert_eq!(ramp.trip(0, at(1)), Some(Trip::FailureRatio));
    }

    #[test]
    fn the_canary_waits_for_all_its_outcomes() {
        let mut ramp = Ramp::new(policy(), at(0));
        ramp.sent(5, 0, at(0));
        for back in 0..5 {
            assert_eq!(ramp.phase(), Phase::Canary);
            assert_eq!(ramp.allowance(5 - back), 0);
            ramp.outcome(Outcome::Good, at(1));
        }
        assert_eq!((ramp.phase(), ramp.allowance(0)), (Phase::Ramp, 5));
    }

    #[test]
    fn the_window_doubles_each_round_trip_of_good_copies() {
        let mut ramp = Ramp::new(policy(), at(0));
        let mut windows = Vec::new();
        for _ in 0..6 {
            let now = ramp.allowance(0);
            windows.push(now);
            ramp.sent(now, 0, at(0));
            (0..now).for_each(|_| ramp.outcome(Outcome::Good, at(0)));
        }
        assert_eq!(windows, [5, 5, 10, 20, 40, 80]);
    }

    #[test]
    fn trap_33_duplicates_give_no_credit_and_do_not_trip() {
        let mut ramp = Ramp::new(policy(), at(0));
        for _ in 0..1_000 {
            ramp.sent(1, 0, at(0));
            ramp.outcome(Outcome::Duplicate, at(0));
        }
        assert_eq!((ramp.window(), ramp.trip(0, at(0))), (5, None));
        assert_eq!((ramp.phase(), ramp.allowance(0)), (Phase::Ramp, 5));
    }

    #[test]
    fn silence_trips_only_while_something_is_in_doubt() {
        let mut ramp = Ramp::new(policy(), at(0));
        assert_eq!(ramp.trip(0, at(10_000)), None);
        ramp.sent(5, 0, at(10_000));
        assert_eq!(ramp.trip(5, at(10_899)), None);
        assert_eq!(ramp.trip(5, at(10_900)), Some(Trip::NoOutcome));
    }

    #[test]
    fn the_rate_grows_each_healthy_step_and_halves_under_pressure() {
        let mut ramp = Ramp::new(policy(), at(0));
        assert!(
            (ramp.step(Pressure::None, at(100)) - 1.0).abs() < 1e-9,
            "not before the canary is back"
        );
        (0..5).for_each(|_| ramp.outcome(Outcome::Good, at(100)));
        let rates: Vec<f64> =
            (1..=7).map(|i| ramp.step(Pressure::None, at(100 + 30 * i))).collect();
        assert_eq!(rates, [2.0, 4.0, 8.0, 16.0, 32.0, 50.0, 50.0]);
        assert!((ramp.step(Pressure::Under, at(320)) - 50.0).abs() < 1e-9, "held");
        assert!((ramp.step(Pressure::Under, at(350)) - 25.0).abs() < 1e-9, "then halved");
        assert!((ramp.step(Pressure::None, at(380)) - 50.0).abs() < 1e-9, "and climbs again");
        let halved: Vec<f64> =
            [380, 390, 410].iter().map(|s| ramp.step(Pressure::Throttled, at(*s))).collect();
        assert_eq!(halved, vec![25.0, 25.0, 12.5], "at once, and again with each step");
    }

    proptest! {
        #[test]
        fn doubt_never_passes_the_canary_or_what_is_proven(
            moves in proptest::collection::vec((0_u32..3, 0_u32..20), 0..400),
        ) {
            let mut ramp = Ramp::new(policy(), at(0));
            let (mut in_doubt, mut good) = (0_u32, 0_u32);
            for (kind, n) in moves {
                let sent = n.min(ramp.allowance(in_doubt));
                ramp.sent(sent, in_doubt, at(0));
                in_doubt += sent;
                prop_assert!(in_doubt <= 5.max(good), "{} in doubt, {} proven", in_doubt, good);
                if in_doubt > 0 {
                    in_doubt -= 1;
                    let outcome = match kind {
                        0 => Outcome::Good,
                        1 => Outcome::Duplicate,
                        _ => Outcome::FailedAgain,
                    };
                    good += u32::from(outcome == Outcome::Good);
                    ramp.outcome(outcome, at(0));
                }
            }
        }
    }
}
