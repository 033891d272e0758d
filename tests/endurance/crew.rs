//! The workers: processes that die and are replaced at once.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rand::rngs::StdRng;
use rand::{Rng, RngExt as _};
use rustix::process::Signal;

use crate::harness::Process;
use crate::wire::proxy::Proxy;
use crate::world::{LOG, World};

/// Workers at once.
const WORKERS: usize = 3;

/// How workers ended so far.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// By SIGKILL.
    pub(crate) killed: usize,
    /// By SIGTERM.
    pub(crate) stopped: usize,
    /// By themselves, since a start met a fault that it does not outwait.
    pub(crate) unstarted: usize,
}

impl fmt::Display for Fates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { killed, stopped, unstarted } = self;
        write!(f, "{killed} workers killed, {stopped} stopped, {unstarted} not started")
    }
}

/// All workers of a storm.
pub(crate) struct Crew<'a> {
    world: &'a World,
    proxy: &'a Proxy,
    at_work: Vec<Process>,
    /// Told to stop, and not yet seen to have ended.
    leaving: Vec<Process>,
    fates: Fates,
}

impl<'a> Crew<'a> {
    pub(crate) fn new(world: &'a World, proxy: &'a Proxy) -> Self {
        let (at_work, leaving) = (Vec::new(), Vec::new());
        let mut crew = Self { world, proxy, at_work, leaving, fates: Fates::default() };
        crew.fill_up();
        crew
    }

    fn fill_up(&mut self) {
        while self.at_work.len() < WORKERS {
            self.at_work.push(self.world.worker(self.proxy.endpoint()));
        }
    }

    /// Replaces who has ended unasked, and sees off who has left.
    pub(crate) fn tend(&mut self) {
        for mut ended in self.at_work.extract_if(.., |worker| !worker.runs()) {
            let status = ended.wait();
            assert!(may_fail_to_start(status), "a worker ended: {status}, see {LOG}");
            self.fates.unstarted += 1;
        }
        for mut left in self.leaving.extract_if(.., |worker| !worker.runs()) {
            assert_left(left.wait());
        }
        self.fill_up();
    }

    /// A blow: a worker is killed or told to stop, and replaced at once.
    pub(crate) fn strike(&mut self, rng: &mut StdRng) {
        let mut struck = self.at_work.swap_remove(rng.random_range(..self.at_work.len()));
        if rng.next_u32().is_multiple_of(2) {
            struck.kill_9();
            self.fates.killed += 1;
        } else {
            struck.signal(Signal::TERM);
            self.leaving.push(struck);
            self.fates.stopped += 1;
        }
        self.fill_up();
    }

    /// Everybody stops. With nothing in hand, that is a clean end.
    pub(crate) fn dismiss(mut self) -> Fates {
        self.tend();
        self.leaving.into_iter().for_each(|mut worker| assert_left(worker.wait()));
        for worker in self.at_work {
            assert_eq!(worker.stop().code(), Some(0));
        }
        self.fates
    }
}

/// Whether a worker may end so by itself: unreachable for too long, or a call that a start makes once.
fn may_fail_to_start(status: ExitStatus) -> bool {
    matches!(status.code(), Some(69 | 75))
}

/// After SIGTERM: drained, or the grace ran out, or the signal came before the worker listened to it.
fn assert_left(status: ExitStatus) {
    let unheard = status.signal() == Some(Signal::TERM.as_raw());
    assert!(matches!(status.code(), Some(0 | 75)) || unheard, "a stop ended with {status}");
}
