//! Whether a worker lives, and whether it is of use.
//!
//! The consumer says what it does; two pure judgements follow. *Healthy* is a worker that need not be
//! replaced: its polls end, well or not, or it has a reason not to poll. An outage of SQS does not make it
//! unhealthy, for another worker would fare no better. *Ready* is one that does useful work now.
//!
//! What the consumer calls, and when:
//!
//! | when | call |
//! | --- | --- |
//! | a poll begins | [`Health::polling`] |
//! | it is answered, with messages or without | [`Health::polled`] |
//! | it fails | [`Health::poll_failed`] |
//! | no poll is begun because no slot is free | [`Health::busy`] |
//! | a breaker opens or closes | [`Health::open`], with all that are open |
//! | a stop begins | [`Health::draining`] |

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::metric::{Gauge, Meter, number};
use crate::domain::time::Mono;
use crate::port::error::Target;

/// How much longer than its wait a poll may be under way, its pause after a failure included.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a worker says of its state. Clones share it.
#[derive(Debug, Clone)]
pub struct Health(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    meter: Meter,
    stale_after: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Since when the end of a poll has been waited for; none: no poll is due.
    due_since: Option<Mono>,
    last_poll: Option<Mono>,
    consecutive_poll_errors: u32,
    open: Vec<Target>,
    is_draining: bool,
}

/// The body of an answer.
#[derive(Serialize)]
struct Report<'a> {
    status: &'a str,
    last_poll_seconds: Option<u64>,
    consecutive_poll_errors: u32,
    breakers_open: Vec<String>,
    in_flight: serde_json::Number,
}

impl Health {
    /// The health of a worker that begins `now` and whose polls take `wait`. It shows what it knows in
    /// `meter`, too.
    #[must_use]
    pub fn new(meter: Meter, wait: Duration, now: Mono) -> Self {
        let state = State {
            due_since: Some(now),
            last_poll: None,
            consecutive_poll_errors: 0,
            open: Vec::new(),
            is_draining: false,
        };
        let stale_after = wait.saturating_add(PATIENCE);
        Self(Arc::new(Shared { meter, stale_after, state: Mutex::new(state) }))
    }

    /// A poll begins.
    pub fn polling(&self, now: Mono) {
        self.state().due_since.get_or_insert(now);
    }

    /// A poll was answered.
    pub fn polled(&self, now: Mono) {
        let mut state = self.state();
        state.completed(now);
        state.consecutive_poll_errors = 0;
    }

    /// A poll failed.
    pub fn poll_failed(&self, now: Mono) {
        let mut state = self.state();
        state.completed(now);
        state.consecutive_poll_errors = state.consecutive_poll_errors.saturating_add(1);
    }

    /// No poll is due: every slot is taken.
    pub fn busy(&self) {
        self.state().due_since = None;
    }

    /// The breakers of these targets are open, and no others.
    pub fn open(&self, targets: Vec<Target>) {
        let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
        self.0.meter.set(Gauge::BreakerOpen, f64::from(count));
        let mut state = self.state();
        // Polls begin anew: what was due before is not late.
        state.due_since = None;
        state.open = targets;
    }

    /// The worker receives no more.
    pub fn draining(&self) {
        self.state().is_draining = true;
    }

    /// Polls that failed in a row.
    #[must_use]
    pub fn consecutive_poll_errors(&self) -> u32 {
        self.state().consecutive_poll_errors
    }

    /// Whether the worker need not be replaced.
    ///
    /// # Errors
    /// It should be; the text says why.
    pub fn healthz(&self, now: Mono) -> Result<(), String> {
        self.state().healthz(self.0.stale_after, now)
    }

    /// Whether the worker does useful work.
    ///
    /// # Errors
    /// It does not; the text says why.
    pub fn readyz(&self, now: Mono) -> Result<(), String> {
        self.state().readyz(self.0.stale_after, now)
    }

    /// A judgement and what it rests on, as JSON.
    #[must_use]
    pub fn report(&self, judgement: &Result<(), String>, now: Mono) -> String {
        let state = self.state();
        let report = Report {
            status: judgement.as_ref().map_or_else(String::as_str, |()| "ok"),
            last_poll_seconds: state.last_poll.map(|last| now.since(last).as_secs()),
            consecutive_poll_errors: state.consecutive_poll_errors,
            breakers_open: state.names(),
            in_flight: number(self.0.meter.gauge(Gauge::InFlight).unwrap_or(0.0)),
        };
        serde_json::to_string(&report).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole, also when a thread dies after it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn completed(&mut self, now: Mono) {
        self.due_since = Some(now);
        self.last_poll = Some(now);
    }

    fn names(&self) -> Vec<String> {
        self.open.iter().map(ToString::to_string).collect()
    }

    fn healthz(&self, stale_after: Duration, now: Mono) -> Result<(), String> {
        match self.due_since {
            Some(since)
                if now.since(since) > stale_after && self.open.is_empty() && !self.is_draining =>
            {
                Err(format!("no poll has ended for {} s", now.since(since).as_secs()))
            }
            _ => Ok(()),
        }
    }

    fn readyz(&self, stale_after: Duration, now: Mono) -> Result<(), String> {
        if self.is_draining {
            return Err("draining".to_owned());
        }
        if !self.open.is_empty() {
            return Err(format!("breaker open: {}", self.names().join(", ")));
        }
        match (self.consecutive_poll_errors, self.last_poll) {
            (0, None) => Err("no poll has been answered yet".to_owned()),
            (0, Some(_)) => self.healthz(stale_after, now),
            (1, _) => Err("the last poll failed".to_owned()),
            (errors, _) => Err(format!("the last {errors} polls failed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::id::QueueName;

    const WAIT: Duration = Duration::from_secs(20);

    fn at(seconds: u64) -> Mono {
        Mono::from_start(Duration::from_secs(seconds))
    }

    /// A worker that began at 0.
    fn health() -> Health {
        Health::new(Meter::new(QueueName::new("orders").unwrap()), WAIT, at(0))
    }

    #[test]
    fn a_worker_is_ready_from_its_first_answered_poll() {
        let health = health();
        health.polling(at(0));
        assert_eq!(health.healthz(at(1)), Ok(()));
        assert_eq!(health.readyz(at(1)), Err("no poll has been answered yet".to_owned()));
        health.polled(at(20));
        assert_eq!((health.healthz(at(20)), health.readyz(at(20))), (Ok(()), Ok(())));
    }

    #[test]
    fn a_worker_that_never_polls_is_unhealthy_in_the_end() {
        let health = health();
        assert_eq!(health.healthz(at(80)), Ok(()));
        assert_eq!(health.healthz(at(81)), Err("no poll has ended for 81 s".to_owned()));
    }

    #[test]
    fn a_poll_that_hangs_makes_unhealthy_and_not_ready() {
        let health = health();
        health.polled(at(100));
        health.polling(at(100));
        assert_eq!((health.healthz(at(180)), health.readyz(at(180))), (Ok(()), Ok(())));
        assert!(health.healthz(at(181)).is_err() && health.readyz(at(181)).is_err());
    }

    #[test]
    fn an_outage_of_sqs_leaves_the_worker_healthy_and_not_ready() {
        let health = health();
        for failures in 1..=10_u32 {
            let now = at(u64::from(failures) * 30);
            health.polling(now);
            health.poll_failed(now);
            assert_eq!(health.consecutive_poll_errors(), failures);
            assert_eq!(health.healthz(now), Ok(()));
            assert!(health.readyz(now).is_err());
        }
        health.polled(at(301));
        assert_eq!((health.consecutive_poll_errors(), health.readyz(at(301))), (0, Ok(())));
    }

    #[test]
    fn a_worker_with_all_slots_taken_may_wait_for_its_handlers() {
        let health = health();
        health.polled(at(10));
        health.busy();
        assert_eq!((health.healthz(at(10_000)), health.readyz(at(10_000))), (Ok(()), Ok(())));
        health.polling(at(10_000));
        assert!(health.healthz(at(10_080)).is_ok() && health.healthz(at(10_081)).is_err());
    }

    #[test]
    fn an_open_breaker_is_healthy_and_not_ready_and_is_measured() {
        let health = health();
        health.polled(at(10));
        health.open(vec![Target::DynamoDb, Target::S3]);
        assert_eq!(health.healthz(at(10_000)), Ok(()));
        assert_eq!(health.readyz(at(10)), Err("breaker open: DynamoDB, S3".to_owned()));
        assert_eq!(health.0.meter.gauge(Gauge::BreakerOpen), Some(2.0));
        health.open(Vec::new());
        assert_eq!((health.healthz(at(10_000)), health.readyz(at(10_000))), (Ok(()), Ok(())));
        assert_eq!(health.0.meter.gauge(Gauge::BreakerOpen), Some(0.0));
    }

    #[test]
    fn a_draining_worker_is_healthy_and_not_ready() {
        let health = health();
        health.polled(at(10));
        health.draining();
        assert_eq!(health.healthz(at(10_000)), Ok(()));
        assert_eq!(health.readyz(at(10)), Err("draining".to_owned()));
    }

    #[test]
    fn a_report_says_what_the_judgement_rests_on() {
        let health = health();
        let report = health.report(&health.readyz(at(0)), at(0));
        let expected = r#"{"status":"no poll has been answered yet","last_poll_seconds":null,"consecutive_poll_errors":0,"breakers_open":[],"in_flight":0}"#;
        assert_eq!(report, expected);
        health.polled(at(5));
        health.open(vec![Target::Handler]);
        health.0.meter.set(Gauge::InFlight, 3.0);
        let report = health.report(&health.healthz(at(8)), at(8));
        let expected = r#"{"status":"ok","last_poll_seconds":3,"consecutive_poll_errors":0,"breakers_open":["handler"],"in_flight":3}"#;
        assert_eq!(report, expected);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Polling,
        Polled,
        PollFailed,
        Busy,
        Open,
        Close,
        Drain,
    }

    proptest! {
        /// Whatever happened: who is ready is healthy, and silence alone never makes ready.
        #[test]
        fn ready_is_more_than_healthy(
            acts in prop::collection::vec((0..200_u64, prop::sample::select(vec![
                Act::Polling, Act::Polled, Act::PollFailed, Act::Busy, Act::Open, Act::Close, Act::Drain,
            ])), 0..30),
            silence in 0..200_u64,
        ) {
            let (health, mut seconds) = (health(), 0);
            for (later, act) in acts {
                seconds += later;
                match act {
                    Act::Polling => health.polling(at(seconds)),
                    Act::Polled => health.polled(at(seconds)),
                    Act::PollFailed => health.poll_failed(at(seconds)),
                    Act::Busy => health.busy(),
                    Act::Open => health.open(vec![Target::Sqs]),
                    Act::Close => health.open(Vec::new()),
                    Act::Drain => health.draining(),
                }
            }
            let was_ready = health.readyz(at(seconds)).is_ok();
            let (healthy, ready) =
                (health.healthz(at(seconds + silence)).is_ok(), health.readyz(at(seconds + silence)).is_ok());
            prop_assert!(healthy || !ready);
            prop_assert!(was_ready || !ready);
        }
    }
}
