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

mod case_a;
mod case_a_delete;
mod case_b;
mod case_c;
mod case_d10;
mod case_e;
mod case_f;
mod case_g;
mod case_h;
mod case_j;
mod cost;
mod cost_redrive;
mod log;
mod proxy;
mod receipt;
mod redriving;
mod script;
mod seeds;
mod selftest;
mod world;
