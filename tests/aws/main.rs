//! The built binary against the embedded AWS: hostile input, hostile handlers, wrong deployments.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::indexing_slicing, reason = "a test may panic")]
#![expect(clippy::disallowed_methods, reason = "another process is waited for in real time")]

#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

mod adopt;
mod demo;
mod deployment;
mod executor_kill;
mod health;
mod input;
mod operate;
mod redrive;
mod stop;
