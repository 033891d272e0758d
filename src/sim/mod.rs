//! In-memory ports, for tests and simulation: AWS's rules without AWS.
//!
//! They keep every rule that the services keep and decisions rest on, and answer at once. A fault wrapper
//! goes around any of them ([`fault`]).

pub mod clock;
pub mod fault;
pub mod ledger;
pub mod queue;
mod runs;
pub mod shared;
pub mod sqs;
pub mod vault;
