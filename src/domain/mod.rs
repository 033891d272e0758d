//! The pure core: plain data in, values and decisions out.
//!
//! Nothing here is async, reads a clock or the environment, logs, or knows AWS. `now` and chance are
//! arguments. Times that are stored are [`time::Wall`]; times that pace are [`time::Mono`].

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::wildcard_enum_match_arm,
        clippy::indexing_slicing
    )
)]

pub mod backoff;
pub mod batch;
pub mod breaker;
pub mod delivery;
pub mod dispatch;
pub mod drain;
pub mod entry;
pub mod envelope;
pub mod failure;
pub mod id;
pub mod identity;
pub mod lease;
pub mod message;
pub mod pacer;
pub mod plan;
pub mod ramp;
pub mod record;
pub mod run;
pub mod selection;
pub mod selector;
pub mod sweep;
pub mod time;
pub mod token;
