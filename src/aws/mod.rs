//! AWS itself: the only place that imports its SDKs.
//!
//! Each file implements one port on one service. Errors are mapped in `error` and nowhere else;
//! time-outs and retries are set in `client` and nowhere else. Region, endpoint and credentials come
//! from AWS's own variables and profile.

mod batch;
pub mod client;
mod condition;
pub mod dynamodb;
mod error;
mod item;
mod message;
mod runs;
pub mod s3;
pub mod setup;
pub mod sqs;
mod table;
