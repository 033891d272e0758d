//! The protocol checked against its own tables, and searched.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::indexing_slicing, reason = "a test may panic")]
#![expect(clippy::print_stderr, reason = "a search shows how much it saw")]

mod canon;
mod core;
mod entry_table;
mod executor;
mod finding;
mod invariant;
mod lift;
mod limit;
mod mixer;
mod mutation;
mod park;
mod protocol;
mod ramp;
mod record_table;
mod run_table;
mod search;
mod step;
mod sweep;
mod worker;
mod world;
mod write;
