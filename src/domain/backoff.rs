//! How long a failed message waits: full jitter under a growing cap.
//!
//! Source: AWS Architecture Blog, "Exponential Backoff And Jitter".

use std::time::Duration;

use rand::{Rng, RngExt as _};

use super::message::MAX_VISIBILITY_SECS;

/// The bounds of the back-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The cap of the first retry.
    pub base: Duration,
    /// The cap of all.
    pub cap: Duration,
}

impl Backoff {
    /// The largest delay after attempt `attempt` (from 1): min(cap, base·2^(attempt−1)).
    #[must_use]
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// A delay after attempt `attempt`: uniform between zero and the ceiling, or what the handler asked
    /// for; never so long that the message would pass SQS's twelve hours, of which `elapsed` are over.
    #[must_use]
    pub fn next_delay(
        &self,
        attempt: u32,
        retry_after: Option<Duration>,
        elapsed: Duration,
        rng: &mut impl Rng,
    ) -> Duration {
        // In whole seconds, SQS's unit: rounding up must not pass the limit.
        let most = Duration::from_secs(MAX_VISIBILITY_SECS).saturating_sub(elapsed).as_secs();
        let delay =
            retry_after.unwrap_or_else(|| self.ceiling(attempt).mul_f64(rng.random::<f64>()));
        delay.min(Duration::from_secs(most))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    const BACKOFF: Backoff =
        Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(900) };

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let ceilings: Vec<u64> = (1..=12).map(|n| BACKOFF.ceiling(n).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(BACKOFF.ceiling(u32::MAX), BACKOFF.cap);
    }

    proptest! {
        #[test]
        fn every_delay_is_within_its_bounds(attempt in 0_u32.., elapsed in 0_u64..50_000, seed: u64, asked in proptest::option::of(0_u64..100_000)) {
            let mut rng = StdRng::seed_from_u64(seed);
            let elapsed = Duration::from_secs(elapsed);
            let delay = BACKOFF.next_delay(attempt, asked.map(Duration::from_secs), elapsed, &mut rng);
            prop_assert!(delay + elapsed <= Duration::from_secs(43_200).max(elapsed));
            if asked.is_none() {
                prop_assert!(delay <= BACKOFF.ceiling(attempt));
            }
        }
    }
}
