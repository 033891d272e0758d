//! The real ramp, replayed from what an executor knows: how many copies it sent and what became of them.
//!
//! Canary 1. Two records are too few for the order of outcomes to matter.

use std::time::Duration;

use redrive::domain::ramp::{Outcome, Ramp, RampPolicy};
use redrive::domain::time::Mono;

use crate::mixer::Map;
use crate::world::Fate;

/// The canary.
pub(crate) const CANARY: u8 = 1;

pub(crate) const fn policy(max_failure_ratio: f64) -> RampPolicy {
    RampPolicy {
        canary: CANARY as u32,
        start_rate: 1.0,
        growth: 2.0,
        step: Duration::from_secs(30),
        max_rate: 50.0,
        max_in_doubt: 1_000,
        max_failure_ratio,
        max_backlog: 1_000,
        outcome_timeout: Duration::from_secs(900),
    }
}

/// What a ramp allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) copies: u32,
    pub(crate) trips: bool,
}

/// The ramps, remembered.
pub(crate) struct Ramps {
    policy: RampPolicy,
    memory: Map<(u8, [Option<Fate>; 2], u8), Allowed>,
}

impl Ramps {
    pub(crate) fn new(max_failure_ratio: f64) -> Self {
        Self { policy: policy(max_failure_ratio), memory: Map::default() }
    }

    /// What may be sent while `in_doubt` copies are: after `sent` sends with these `outcomes`.
    pub(crate) fn allowed(
        &mut self,
        sent: u8,
        outcomes: [Option<Fate>; 2],
        in_doubt: u8,
    ) -> Allowed {
        let key = (sent, outcomes, in_doubt);
        if let Some(allowed) = self.memory.get(&key) {
            return *allowed;
        }
        let now = Mono::from_start(Duration::ZERO);
        let mut ramp = Ramp::new(self.policy, now);
        ramp.sent(u32::from(sent), 0, now);
        for fate in outcomes.into_iter().flatten() {
            match fate {
                Fate::Resolved => ramp.outcome(Outcome::Good, now),
                Fate::Duplicate => ramp.outcome(Outcome::Duplicate, now),
                Fate::FailedAgain => ramp.outcome(Outcome::FailedAgain, now),
                Fate::NotSent | Fate::InDoubt | Fate::Out => ramp.without_outcome(1),
            }
        }
        let allowed = Allowed {
            copies: ramp.allowance(u32::from(in_doubt)),
            trips: ramp.trip(u32::from(in_doubt), now).is_some(),
        };
        self.memory.insert(key, allowed);
        allowed
    }
}
