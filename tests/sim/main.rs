//! Workers and executors on in-memory ports and simulated time: faults, crashes, and what must hold after.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::panic, reason = "a test may panic")]
#![expect(clippy::indexing_slicing, reason = "a test may panic")]

mod bound;
mod breaker;
mod census;
mod executor;
mod fifo;
mod fifo_run;
mod foreign;
mod forgery;
mod hold;
mod lease;
mod operate;
mod park;
mod redrive;
mod spy;
mod strain;
mod sweep_adopt;
mod sweep_crash;
mod sweep_full;
mod takeover;
mod tenant;
mod trap;
mod trap_force;
mod trap_redrive;
mod trap_repeat;
mod trap_run;
mod trap_token;
mod work;
mod world;
