//! The visibility lease of one delivery: until when it is ours, when to extend it, when to stop.
//!
//! A lease is trusted until (start of the call that set it) + duration − margin; the one of a receive
//! from its answer, since a long poll may wait for most of its call. Extensions stop before SQS's twelve
//! hours from the receive.

use std::time::Duration;

use super::message::MAX_VISIBILITY_SECS;
use super::time::Mono;

/// How long before the twelve hours the last extension ends.
const CEILING_MARGIN: Duration = Duration::from_secs(60);

/// A visibility lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    received: Mono,
    set: Mono,
    duration: Duration,
    timeout: Duration,
}

impl Lease {
    /// The lease of a receive that was answered at `answered` with visibility `timeout`.
    #[must_use]
    pub const fn received(answered: Mono, timeout: Duration) -> Self {
        Self { received: answered, set: answered, duration: timeout, timeout }
    }

    /// Time since the receive.
    #[must_use]
    pub const fn elapsed(&self, now: Mono) -> Duration {
        now.since(self.received)
    }

    /// Until when the message is surely ours: a tenth of the lease is left for clocks and networks.
    #[must_use]
    pub fn trusted_until(&self) -> Mono {
        self.set.plus(self.duration).minus(self.duration.div_f64(10.0))
    }

    /// Whether the message is surely ours.
    #[must_use]
    pub fn is_trusted(&self, now: Mono) -> bool {
        now < self.trusted_until()
    }

    /// For how long from `now` the message is surely ours: the length of the ledger's lease, so that a
    /// redelivery finds it over, and not a moment of overlap.
    #[must_use]
    pub fn trust_left(&self, now: Mono) -> Duration {
        self.trusted_until().since(now)
    }

    /// The timeout that each extension sets anew.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When to extend: a third of the timeout after it was set.
    #[must_use]
    pub fn extend_at(&self) -> Mono {
        self.set.plus(self.timeout.div_f64(3.0))
    }

    /// For how long to extend at `now`; nothing once the twelve hours leave less than a third of the
    /// timeout.
    #[must_use]
    pub fn next_extension(&self, now: Mono) -> Option<Duration> {
        let most = Duration::from_secs(MAX_VISIBILITY_SECS).saturating_sub(CEILING_MARGIN);
        let left = most.saturating_sub(self.elapsed(now));
        let extension = self.timeout.min(left);
        (extension > self.timeout.div_f64(3.0)).then_some(extension)
    }

    /// The lease after an extension by `duration`, whose call began at `started`.
    #[must_use]
    pub const fn extended(self, started: Mono, duration: Duration) -> Self {
        Self { set: started, duration, ..self }
    }

    /// The lease once SQS said that the message is not ours any more: never trusted again.
    #[must_use]
    pub const fn lost(self) -> Self {
        Self { duration: Duration::ZERO, ..self }
    }

    /// When the message becomes visible to others, as far as we know.
    #[must_use]
    pub fn ends_at(&self) -> Mono {
        self.set.plus(self.duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Mono {
        Mono::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn trust_ends_before_the_lease_and_counts_from_the_start_of_the_call() {
        let lease = Lease::received(at(100), Duration::from_secs(60));
        assert!(lease.is_trusted(at(153)));
        assert!(!lease.is_trusted(at(154)));
        assert_eq!(lease.extend_at(), at(120));
        let lease = lease.extended(at(120), Duration::from_secs(60));
        assert!(lease.is_trusted(at(173)) && !lease.is_trusted(at(174)));
    }

    #[test]
    fn case_f2_time_that_is_over_is_not_time_without_end() {
        for timeout in [1, 10, 43_200].map(Duration::from_secs) {
            let lease = Lease::received(at(0), timeout);
            for now in [0, 1, 8, 9, 10, 11, 50_000].map(at) {
                let left = lease.trust_left(now);
                assert_eq!(lease.is_trusted(now), left > Duration::ZERO, "{timeout:?} {now:?}");
                assert!(left <= timeout);
            }
        }
        assert!(!Lease::received(at(5), Duration::ZERO).is_trusted(at(5)));
        assert!(!Lease::received(at(0), Duration::from_secs(60)).lost().is_trusted(at(0)));
    }

    #[test]
    fn extensions_stop_before_twelve_hours() {
        let timeout = Duration::from_secs(60);
        let mut lease = Lease::received(at(0), timeout);
        let mut now = at(0);
        while let Some(extension) = lease.next_extension(now) {
            lease = lease.extended(now, extension);
            now = lease.extend_at();
            assert!(lease.trusted_until() < at(MAX_VISIBILITY_SECS));
        }
        assert!(now >= at(MAX_VISIBILITY_SECS - 3 * 60));
    }
}
