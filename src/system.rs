//! The clocks and the chance of this machine: the only place that reads either.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rand::rand_core::TryRng as _;
use rand::rngs::SysRng;

use crate::domain::time::{Mono, Wall, millis};
use crate::port::clock::Clock;

/// This machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock adapter")]
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock adapter")]
    fn wall(&self) -> Wall {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Wall::from_ms(millis(since_epoch))
    }

    fn mono(&self) -> Mono {
        Mono::from_start(self.started.elapsed())
    }
}

/// A seed that nobody can guess, for the one generator of this process.
///
/// # Errors
/// The operating system gives no chance.
pub fn seed() -> Result<u64, rand::rngs::SysError> {
    SysRng.try_next_u64()
}
