//! What the process says of itself.

pub mod logs;
pub mod metric;

pub use metric::{Counter, Gauge, Meter};
