//! The world in memory: ports that keep AWS's rules without AWS.

pub mod clock;
pub mod queue;
pub mod shared;
pub mod sqs;
