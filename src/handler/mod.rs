//! Handlers: the work, in any language, behind one outcome contract.
//!
//! [`report`] judges what an attempt left behind; the adapters only bring the job to the work and what
//! came of it back. No adapter logs a payload, an attribute's value or a handler's output.

pub mod exec;
pub mod report;

mod environment;
mod tail;
