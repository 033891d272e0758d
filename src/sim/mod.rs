//! The world in memory: ports that keep AWS's rules without AWS.
//!
//! They answer at once. A fault wrapper goes around any of them ([`fault`]).

pub mod clock;
pub mod fault;
pub mod ledger;
pub mod queue;
pub mod shared;
pub mod sqs;
pub mod vault;
