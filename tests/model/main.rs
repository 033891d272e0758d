//! The protocol checked against its own tables.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod entry_table;
mod record_table;
