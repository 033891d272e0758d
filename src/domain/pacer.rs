//! The pacer: how many sends a rate allows now.
//!
//! A token bucket on the monotonic clock, so that a step of the wall clock releases nothing. Its capacity
//! is 1 + a tenth of the rate: with the refill of one second, no window of 1 s holds more than
//! rate × 1.1 + 1 sends. The rate may be changed at any time; what was saved up shrinks with it.

use std::time::Duration;

use super::time::Mono;

/// Paces sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pacer {
    rate: f64,
    saved: f64,
    at: Mono,
}

impl Pacer {
    /// A pacer of `rate` sends a second that may send one at once.
    #[must_use]
    pub fn new(rate: f64, now: Mono) -> Self {
        Self { rate: valid(rate), saved: 1.0, at: now }
    }

    /// The rate, in sends a second.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Changes the rate.
    pub fn set_rate(&mut self, rate: f64, now: Mono) {
        self.refill(now);
        self.rate = valid(rate);
        self.saved = self.saved.min(self.capacity());
    }

    /// How many may be sent at `now`.
    #[must_use]
    pub fn allowed(&mut self, now: Mono) -> usize {
        self.refill(now);
        whole(self.saved)
    }

    /// Notes that `count` were sent.
    pub fn sent(&mut self, count: usize, now: Mono) {
        self.refill(now);
        // Never above what was allowed, so the precision of f64 is plenty.
        self.saved -= f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// How long from `now` until `count` may be sent, or as many as the capacity ever allows.
    #[must_use]
    pub fn wait_for(&mut self, count: usize, now: Mono) -> Duration {
        self.refill(now);
        let wanted = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let wanted = wanted.min(self.capacity().floor());
        let missing = (wanted - self.saved).max(0.0);
        Duration::try_from_secs_f64(missing / self.rate).unwrap_or(Duration::MAX)
    }

    fn capacity(&self) -> f64 {
        self.rate.mul_add(0.1, 1.0)
    }

    fn refill(&mut self, now: Mono) {
        let earned = now.since(self.at).as_secs_f64() * self.rate;
        self.saved = (self.saved + earned).min(self.capacity());
        self.at = self.at.max(now);
    }
}

/// The smallest rate: one send in a thousand seconds.
const MIN_RATE: f64 = 0.001;

fn valid(rate: f64) -> f64 {
    if rate.is_finite() { rate.max(MIN_RATE) } else { MIN_RATE }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and the value is at most a tenth of a rate"
)]
fn whole(value: f64) -> usize {
    // What is short of one by rounding alone counts as one.
    (value + 1e-9).floor() as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Mono {
        Mono::from_start(Duration::from_millis(ms))
    }

    /// Sends greedily at the times given; returns each send's time in ms.
    fn greedy(rate: f64, steps: &[u64]) -> Vec<u64> {
        let mut pacer = Pacer::new(rate, at(0));
        let mut now = 0;
        let mut sends = Vec::new();
        for step in steps {
            now += step;
            let allowed = pacer.allowed(at(now));
            pacer.sent(allowed, at(now));
            sends.extend(std::iter::repeat_n(now, allowed));
        }
        sends
    }

    #[test]
    fn the_rate_is_reached_and_not_passed() {
        for (rate, expected) in [(1.0, 100), (7.5, 750), (50.0, 5_000), (2_000.0, 200_000)] {
            let sends = greedy(rate, &vec![10; 10_000]).len();
            assert!(sends.abs_diff(expected) <= expected / 50 + 1, "{rate}: {sends}");
        }
    }

    #[test]
    fn waiting_as_told_is_enough() {
        let mut pacer = Pacer::new(0.5, at(0));
        pacer.sent(1, at(0));
        let wait = pacer.wait_for(10, at(0));
        assert_eq!(wait, Duration::from_secs(2));
        assert_eq!(pacer.allowed(at(2_000)), 1);
    }

    #[test]
    fn a_lower_rate_takes_what_was_saved() {
        let mut pacer = Pacer::new(1_000.0, at(0));
        assert_eq!(pacer.allowed(at(10_000)), 101);
        pacer.set_rate(1.0, at(10_000));
        assert_eq!(pacer.allowed(at(10_000)), 1);
    }

    proptest! {
        #[test]
        fn no_window_of_one_second_holds_more_than_its_bound(
            rate in 0.1_f64..500.0,
            steps in proptest::collection::vec(0_u64..700, 1..200),
        ) {
            let sends = greedy(rate, &steps);
            for (i, first) in sends.iter().enumerate() {
                let within = sends[i..].iter().take_while(|t| **t < first + 1_000).count();
                prop_assert!((within as f64) <= rate * 1.1 + 1.0 + 1e-6, "{} at rate {}", within, rate);
            }
        }
    }
}
