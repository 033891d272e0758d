//! Which calls go wrong.

use std::fmt;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::act::Act;
use super::call::{Call, Service};

/// Names a rule of one wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RuleId(pub(super) u64);

type Predicate = Box<dyn FnMut(&Call) -> bool + Send>;

/// A fault, and the calls that it befalls: all that match, unless it is told which of them.
pub(crate) struct Rule {
    service: Option<Service>,
    operation: Option<String>,
    condition: Option<Predicate>,
    which: Which,
    act: Act,
    matched: u64,
    acted: u64,
}

/// Which of the calls that match, counted from 1.
enum Which {
    Every,
    Range(u64, u64),
    EveryNth(u64),
    Chance(f64, Box<StdRng>),
}

impl Rule {
    /// Befalls every operation of a service.
    pub(crate) fn of(service: Service, act: Act) -> Self {
        Self { service: Some(service), ..Self::all(act) }
    }

    /// Befalls one operation.
    pub(crate) fn on(service: Service, operation: &str, act: Act) -> Self {
        Self { operation: Some(operation.to_owned()), ..Self::of(service, act) }
    }

    /// Befalls everything.
    pub(crate) fn all(act: Act) -> Self {
        Self {
            service: None,
            operation: None,
            condition: None,
            which: Which::Every,
            act,
            matched: 0,
            acted: 0,
        }
    }

    /// Only what meets a condition matches, and is counted.
    pub(crate) fn when(self, condition: impl FnMut(&Call) -> bool + Send + 'static) -> Self {
        Self { condition: Some(Box::new(condition)), ..self }
    }

    /// The n-th alone.
    pub(crate) fn nth(self, n: u64) -> Self {
        self.between(n, n)
    }

    /// The first n.
    pub(crate) fn first(self, n: u64) -> Self {
        self.between(1, n)
    }

    /// From one to another, both included.
    pub(crate) fn between(self, from: u64, to: u64) -> Self {
        Self { which: Which::Range(from, to), ..self }
    }

    /// Every k-th.
    pub(crate) fn every_nth(self, k: u64) -> Self {
        Self { which: Which::EveryNth(k), ..self }
    }

    /// Each with this probability, the same ones for the same seed.
    pub(crate) fn chance(self, probability: f64, seed: u64) -> Self {
        let rng = Box::new(StdRng::seed_from_u64(seed));
        Self { which: Which::Chance(probability, rng), ..self }
    }

    /// Counts a call, and says whether it is one of those that go wrong.
    pub(super) fn chooses(&mut self, call: &Call) -> bool {
        let matches = self.service.is_none_or(|service| service == call.service)
            && self.operation.as_ref().is_none_or(|operation| *operation == call.operation)
            && self.condition.as_mut().is_none_or(|condition| condition(call));
        if !matches {
            return false;
        }
        self.matched += 1;
        match &mut self.which {
            Which::Every => true,
            Which::Range(from, to) => (*from..=*to).contains(&self.matched),
            Which::EveryNth(k) => self.matched.is_multiple_of(*k),
            Which::Chance(probability, rng) => rng.random_bool(*probability),
        }
    }

    /// What befalls the call just chosen.
    pub(super) fn act(&mut self) -> Act {
        self.acted += 1;
        self.act.clone()
    }

    pub(super) const fn acted(&self) -> u64 {
        self.acted
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("service", &self.service)
            .field("operation", &self.operation)
            .field("act", &self.act)
            .field("matched", &self.matched)
            .finish_non_exhaustive()
    }
}
