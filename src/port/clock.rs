//! Time. Waiting is tokio's; only reading a clock goes through here.

use crate::domain::time::{Mono, Wall};

/// The two clocks of this process.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The wall clock, for what is stored and shown.
    fn wall(&self) -> Wall;
    /// The monotonic clock, for leases and pacing.
    fn mono(&self) -> Mono;
}
