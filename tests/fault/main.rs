//! Whole workers on the real adapters and the embedded AWS, with a wire between that loses, breaks and
//! counts their requests.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::panic, reason = "a test may panic")]
#![expect(clippy::indexing_slicing, reason = "a test may panic")]
#![expect(clippy::disallowed_methods, reason = "another process is waited for in real time")]

#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;
#[path = "../harness/wire/mod.rs"]
mod wire;

mod case_d10;
mod case_e;
mod case_g;
mod cost;
mod cost_redrive;
mod proxy;
mod redriving;
mod script;
mod selftest;
mod world;
