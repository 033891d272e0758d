//! The command line from outside: help, output and exit codes, the sample configuration, and what every
//! source file must keep to.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod commands;
mod metrics;
mod tidy;
