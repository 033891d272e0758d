//! Whether a queue has stayed drained: all that tells of copies whose consumer writes no ledger.
//!
//! SQS's numbers are approximate and lag by a minute or so, and between two looks a message may come and go.
//! So a queue counts as drained only after it has been empty at each look for as long as an outcome may take.

use std::time::Duration;

use super::time::Mono;

/// How many looks there are within the time that is waited.
const LOOKS: f64 = 10.0;
/// The longest time between two of them.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// What was seen of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drain {
    looked_at: Option<Mono>,
    empty_since: Option<Mono>,
}

impl Drain {
    /// Notes that a message was sent: what was seen before says nothing of it.
    pub const fn disturb(&mut self) {
        self.empty_since = None;
    }

    /// Whether it is time to look, where the queue must stay drained for `wanted`.
    #[must_use]
    pub fn is_due(&self, wanted: Duration, now: Mono) -> bool {
        let every = wanted.div_f64(LOOKS).min(LOOK_EVERY);
        self.looked_at.is_none_or(|at| now.since(at) >= every)
    }

    /// Notes how many messages the queue had, whatever their state. Says how long it has been empty now;
    /// nothing if it is not.
    pub fn look(&mut self, messages: u64, now: Mono) -> Option<Duration> {
        self.looked_at = Some(now);
        self.empty_since = (messages == 0).then(|| self.empty_since.unwrap_or(now));
        self.empty_since.map(|since| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Mono {
        Mono::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn only_an_unbroken_emptiness_counts() {
        let mut drain = Drain::default();
        let secs = |drain: &mut Drain, messages, now| {
            drain.look(messages, at(now)).map(|empty| empty.as_secs())
        };
        assert_eq!(secs(&mut drain, 1, 0), None);
        assert_eq!(secs(&mut drain, 0, 10), Some(0));
        assert_eq!(secs(&mut drain, 0, 40), Some(30));
        assert_eq!(secs(&mut drain, 1, 50), None);
        assert_eq!(secs(&mut drain, 0, 60), Some(0));
        drain.disturb();
        assert_eq!(secs(&mut drain, 0, 90), Some(0));
    }

    #[test]
    fn looks_are_rare() {
        let mut drain = Drain::default();
        let (short, long) = (Duration::from_secs(20), Duration::from_secs(900));
        assert!(drain.is_due(long, at(0)));
        drain.look(0, at(0));
        assert!(!drain.is_due(long, at(29)) && drain.is_due(long, at(30)));
        assert!(!drain.is_due(short, at(1)) && drain.is_due(short, at(2)));
    }
}
