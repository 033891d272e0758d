//! The whole worker on in-memory ports and simulated time: faults, crashes, and what must hold after.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::panic, reason = "a test may panic")]

mod park;
mod trap;
mod work;
mod world;
