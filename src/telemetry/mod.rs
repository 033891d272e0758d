//! What the process says of itself.

pub mod logs;
