//! The imperative shell: it asks the ports, lets the domain decide, and carries the decision out.
//!
//! One task a message (`process`), one owner of what is in hand (`consumer`), one of deletes
//! (`deleter`). Nothing here knows AWS; nothing here decides what the domain can.

pub mod audit;
pub mod consumer;
pub mod operate;
pub mod query;
pub mod redrive;
pub mod scope;
pub mod settings;
pub mod shutdown;
pub mod start;
pub mod stats;
pub mod sweeper;
pub mod worker;

mod census;
mod claim;
mod commit;
mod deleter;
mod evidence;
mod heartbeat;
mod held;
mod hold;
mod insist;
mod intake;
mod keeper;
mod line;
mod original;
mod park;
mod process;
mod token;
mod work;
