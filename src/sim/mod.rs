//! In-memory ports, for tests and simulation.
//!
//! They keep every rule that the services keep and decisions rest on, and answer at once. A fault wrapper
//! goes around any of them ([`fault`]).

pub mod fault;
pub mod ledger;
pub mod vault;
