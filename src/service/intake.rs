//! What may be received now: free slots, pollers, the breaker and the pause after a failed poll.
//!
//! Pure: every method takes `now`. A poll reserves the slots that it asks for, so that nothing is received
//! that cannot be worked on at once. Ten messages cost one request, so a poll waits a moment for ten slots.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::domain::backoff::Backoff;
use crate::domain::breaker::{Admission, Bounds, Breaker, Outcome, Reporter};
use crate::domain::message::MAX_BATCH_ENTRIES;
use crate::domain::time::Mono;
use crate::port::error::Target;

/// Back-off of polls that fail: between half of it and all of it.
const POLL_BACKOFF: Backoff =
    Backoff { base: Duration::from_secs(2), cap: Duration::from_secs(30) };
/// How long a poll waits for ten free slots.
const LINGER: Duration = Duration::from_millis(200);

/// A poll to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Poll {
    /// Messages asked for.
    pub max: usize,
    /// What they are.
    pub by: Reporter,
}

/// What is to be done about polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    /// Begin this one, then ask again.
    Poll(Poll),
    /// Nothing, until then or until something happens.
    Wait(Option<Mono>),
}

/// Decides about polls.
#[derive(Debug)]
pub(crate) struct Gate {
    slots: usize,
    pollers_max: usize,
    in_hand: usize,
    reserved: usize,
    polls: usize,
    /// How many polls may be in flight: more while they come back full, one when one comes back empty.
    pollers: usize,
    failed: u32,
    paused_until: Option<Mono>,
    /// Since when there are free slots, though fewer than a whole batch.
    free_since: Option<Mono>,
    breaker: Breaker<Target>,
}

impl Gate {
    pub(crate) fn new(slots: usize, pollers_max: usize, bounds: Bounds) -> Self {
        Self {
            slots,
            pollers_max,
            in_hand: 0,
            reserved: 0,
            polls: 0,
            pollers: 1,
            failed: 0,
            paused_until: None,
            free_since: None,
            breaker: Breaker::new(bounds),
        }
    }

    /// Messages in hand.
    pub(crate) const fn in_hand(&self) -> usize {
        self.in_hand
    }

    /// Polls in flight.
    pub(crate) const fn polls(&self) -> usize {
        self.polls
    }

    /// Polls that failed in a row.
    pub(crate) const fn failed_polls(&self) -> u32 {
        self.failed
    }

    /// The targets for which the breaker is open.
    pub(crate) fn open_targets(&self) -> Vec<Target> {
        self.breaker.open_targets().collect()
    }

    /// What is to be done about polls now.
    pub(crate) fn next(&mut self, now: Mono) -> Intake {
        if let Some(until) = self.paused_until.filter(|until| now < *until) {
            return Intake::Wait(Some(until));
        }
        let free = self.slots.saturating_sub(self.in_hand).saturating_sub(self.reserved);
        if free == 0 || self.polls >= self.pollers {
            self.free_since = None;
            return Intake::Wait(None);
        }
        match self.breaker.admit(now) {
            Admission::Nothing { until } => Intake::Wait(until),
            Admission::Probe if self.polls > 0 => Intake::Wait(None),
            Admission::Probe => {
                self.breaker.probe_began();
                self.begin(1, Reporter::Probe)
            }
            Admission::All => {
                let whole = self.slots.min(MAX_BATCH_ENTRIES);
                let due = self.free_since.get_or_insert(now).plus(LINGER);
                if free < whole && now < due {
                    return Intake::Wait(Some(due));
                }
                self.begin(free.min(MAX_BATCH_ENTRIES), Reporter::Message)
            }
        }
    }

    fn begin(&mut self, max: usize, by: Reporter) -> Intake {
        self.free_since = None;
        self.polls = self.polls.saturating_add(1);
        self.reserved = self.reserved.saturating_add(max);
        Intake::Poll(Poll { max, by })
    }

    /// A poll was answered with so many messages, which are in hand now.
    pub(crate) fn answered(&mut self, poll: Poll, messages: usize, now: Mono) {
        self.end(poll);
        (self.failed, self.paused_until) = (0, None);
        self.in_hand = self.in_hand.saturating_add(messages);
        if messages == 0 {
            self.pollers = 1;
            if poll.by == Reporter::Probe {
                self.breaker.probe_came_back_empty(now);
            }
        } else if messages >= poll.max {
            self.pollers = self.pollers.saturating_add(1).min(self.pollers_max);
        }
    }

    /// A poll failed; the next waits for this.
    pub(crate) fn failed(&mut self, poll: Poll, now: Mono, rng: &mut StdRng) -> Duration {
        self.end(poll);
        self.pollers = 1;
        self.failed = self.failed.saturating_add(1);
        if poll.by == Reporter::Probe {
            self.breaker.probe_came_back_empty(now);
        }
        let share = 0.5 + rng.random::<f64>() / 2.0;
        let pause = POLL_BACKOFF.ceiling(self.failed).mul_f64(share);
        self.paused_until = Some(now.plus(pause));
        pause
    }

    fn end(&mut self, poll: Poll) {
        self.polls = self.polls.saturating_sub(1);
        self.reserved = self.reserved.saturating_sub(poll.max);
    }

    /// So many messages are not in hand any more.
    pub(crate) const fn settled(&mut self, messages: usize) {
        self.in_hand = self.in_hand.saturating_sub(messages);
    }

    /// A message that was a probe ended without a word.
    pub(crate) fn probe_ended(&mut self, now: Mono) {
        if self.breaker.admit(now) == (Admission::Nothing { until: None }) {
            self.breaker.probe_came_back_empty(now);
        }
    }

    /// Takes in what a try at a message says of the targets.
    pub(crate) fn record(&mut self, outcome: Outcome<Target>, by: Reporter, now: Mono) {
        self.breaker.record(outcome, by, now);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        window: Duration::from_secs(30),
        min_outcomes: 20,
        open_ratio: 0.5,
        probe_after: Duration::from_secs(5),
    };

    fn at(ms: u64) -> Mono {
        Mono::from_start(Duration::from_millis(ms))
    }

    fn polls(gate: &mut Gate, now: Mono) -> Vec<Poll> {
        let mut polls = Vec::new();
        while let Intake::Poll(poll) = gate.next(now) {
            polls.push(poll);
        }
        polls
    }

    fn max(polls: &[Poll]) -> Vec<usize> {
        polls.iter().map(|poll| poll.max).collect()
    }

    #[test]
    fn polls_grow_while_they_come_back_full_and_shrink_when_one_is_empty() {
        let mut gate = Gate::new(100, 3, BOUNDS);
        let first = polls(&mut gate, at(0));
        assert_eq!(max(&first), [10]);
        gate.answered(first[0], 10, at(1));
        let two = polls(&mut gate, at(1));
        assert_eq!(max(&two), [10, 10]);
        gate.answered(two[0], 10, at(2));
        gate.answered(two[1], 10, at(2));
        let three = polls(&mut gate, at(2));
        assert_eq!(max(&three), [10, 10, 10], "pollers_max is the most");
        gate.answered(three[0], 0, at(3));
        assert_eq!(max(&polls(&mut gate, at(3))), [0_usize; 0]);
    }

    #[test]
    fn a_poll_asks_for_no_more_than_what_is_free_and_not_reserved() {
        let mut gate = Gate::new(16, 4, BOUNDS);
        let first = polls(&mut gate, at(0));
        gate.answered(first[0], 10, at(1));
        assert_eq!(
            gate.next(at(1)),
            Intake::Wait(Some(at(201))),
            "six free slots wait for company"
        );
        assert_eq!(max(&polls(&mut gate, at(201))), [6]);
        gate.settled(4);
        assert_eq!(max(&polls(&mut gate, at(402))), [0_usize; 0], "the second poller waits too");
        assert_eq!(max(&polls(&mut gate, at(602))), [4]);
        assert_eq!(gate.next(at(900)), Intake::Wait(None));
    }

    #[test]
    fn fewer_slots_than_ten_are_a_whole_batch() {
        let mut gate = Gate::new(1, 4, BOUNDS);
        assert_eq!(max(&polls(&mut gate, at(0))), [1]);
    }

    #[test]
    fn failed_polls_wait_longer_each_time_up_to_half_a_minute() {
        let mut gate = Gate::new(16, 4, BOUNDS);
        let mut rng = StdRng::seed_from_u64(7);
        let mut now = at(0);
        let mut attempts = 0;
        while now < at(30_000) {
            let polls = polls(&mut gate, now);
            assert_eq!(polls.len(), 1);
            attempts += 1;
            let pause = gate.failed(polls[0], now, &mut rng);
            assert!(pause >= Duration::from_secs(1) && pause <= Duration::from_secs(30));
            now = now.plus(pause);
        }
        assert!((3..=8).contains(&attempts), "{attempts}");
        for _ in 0..20 {
            let polls = polls(&mut gate, now);
            now = now.plus(gate.failed(polls[0], now, &mut rng));
        }
        let poll = polls(&mut gate, now);
        gate.answered(poll[0], 0, now);
        assert_eq!(gate.failed_polls(), 0);
        assert_eq!(max(&polls(&mut gate, now)), [10], "one answer, and all is well");
    }

    #[test]
    fn an_open_breaker_lets_one_message_through_at_a_time() {
        let mut gate = Gate::new(16, 4, BOUNDS);
        let first = polls(&mut gate, at(0));
        gate.answered(first[0], 3, at(1));
        for _ in 0..3 {
            gate.record(Outcome::Dependency(Target::DynamoDb), Reporter::Message, at(10));
            gate.settled(1);
        }
        assert_eq!(gate.open_targets(), [Target::DynamoDb]);
        assert_eq!(gate.next(at(10)), Intake::Wait(Some(at(5_010))));
        let probe = polls(&mut gate, at(5_010));
        assert_eq!(probe, [Poll { max: 1, by: Reporter::Probe }]);
        gate.answered(probe[0], 1, at(5_020));
        assert_eq!(gate.next(at(5_020)), Intake::Wait(None));
        gate.record(Outcome::Good, Reporter::Probe, at(5_030));
        assert_eq!(max(&polls(&mut gate, at(5_530))), [10]);
    }
}
