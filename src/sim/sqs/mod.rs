//! The rules of SQS, written once: a pure, synchronous engine.
//!
//! The simulation, the model and the embedded AWS all run on it. It takes `now` and a seed and knows
//! neither tokio nor HTTP; waiting is done by [`super::shared`], the wire by `local`. Where AWS leaves a
//! choice (order of standard queues, size of an answer, stale handles) the engine makes one and keeps to it.

mod attribute;
mod batch;
mod content;
mod engine;
mod error;
mod fifo;
mod in_flight;
mod move_task;
#[cfg(test)]
mod property;
mod queue;
mod receipt;
mod receive;
mod redrive;
mod send;
#[cfg(test)]
mod testing;

pub use attribute::AttributeMap;
pub use batch::Entries;
pub use engine::{ACCOUNT, Engine, REGION};
pub use error::SqsError;
pub use move_task::{MoveStatus, MoveTask};
pub use receive::{MAX_IN_FLIGHT, ReceiveMessage};
pub use send::{SendMessage, Sent};
