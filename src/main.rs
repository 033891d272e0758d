//! Picks the command.

fn main() {}
