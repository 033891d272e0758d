//! A clock that runs on tokio's time, so that a test with paused time is deterministic.
//!
//! `Mono` is tokio's time since the clock was made. `Wall` is that on top of a base, plus an offset which a
//! test may set at any time: a step of the wall clock, which `Mono` does not see. Long polls that sleep
//! while the offset is set do not notice; [`super::shared::SharedEngine::wake_all`] makes them look.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::time::{Mono, Wall};
use crate::port::clock::Clock;

/// The clock of a simulation.
#[derive(Debug)]
pub struct SimClock {
    base: Wall,
    started: Instant,
    offset_ms: AtomicI64,
}

impl SimClock {
    /// A clock that shows `base` now. It must be made inside a tokio runtime.
    #[must_use]
    pub fn starting_at(base: Wall) -> Self {
        Self { base, started: Instant::now(), offset_ms: AtomicI64::new(0) }
    }

    /// Sets how far the wall clock is ahead of (or, negative, behind) where it would be, in milliseconds.
    pub fn set_offset_ms(&self, offset_ms: i64) {
        self.offset_ms.store(offset_ms, Ordering::SeqCst);
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Clock for SimClock {
    fn wall(&self) -> Wall {
        let wall = self.base.plus(self.elapsed());
        let offset_ms = self.offset_ms.load(Ordering::SeqCst);
        let step = Duration::from_millis(offset_ms.unsigned_abs());
        if offset_ms < 0 { wall.minus(step) } else { wall.plus(step) }
    }

    fn mono(&self) -> Mono {
        Mono::from_start(self.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn both_clocks_follow_tokio_and_only_the_wall_clock_steps() {
        let clock = SimClock::starting_at(Wall::from_ms(10_000));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(clock.wall(), Wall::from_ms(12_000));
        clock.set_offset_ms(-3_000);
        assert_eq!(clock.wall(), Wall::from_ms(9_000));
        assert_eq!(clock.mono(), Mono::from_start(Duration::from_secs(2)));
    }
}
