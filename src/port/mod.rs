//! What the service needs of the world, in domain words: traits, their errors, and evidence.
//!
//! `aws` and `sim` implement these. A port never decides: it does one call, and says what came of it,
//! entry by entry.

pub mod clock;
pub mod error;
pub mod evidence;
pub mod handler;
pub mod index;
pub mod ledger;
pub mod queue;
pub mod runs;
pub mod vault;
