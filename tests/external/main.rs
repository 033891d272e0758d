//! Real input through the built binary: needs npm, and boto3 and the AWS CLI from PyPI. Fails where one
//! is missing.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::indexing_slicing, reason = "a test may panic")]
#![expect(clippy::panic, reason = "a test may panic")]
#![expect(clippy::disallowed_methods, reason = "another process is waited for in real time")]

#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;
mod readme;
mod webhooks;
