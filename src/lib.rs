//! `redrive`: an SQS-native dead-letter worker and redriver.
//!
//! A worker runs a handler for each message of an SQS queue, and parks what cannot succeed with full
//! evidence: an envelope in S3, a record in DynamoDB, a message in the dead-letter queue. A redriver sends
//! records back after the fix: a canary first, then a ramp. What they promise:
//!
//! - **G1 nothing lost.** A message leaves the source only with proof: its work is committed, or its envelope
//!   and record are durable and its DLQ message was accepted. Per batch entry, never per batch.
//! - **G2 one effect.** The work of an entry's generation is committed at most once, across redeliveries and
//!   redrives. Every ledger write after a claim is conditional on the claim's lease token.
//! - **G3 exact evidence.** Body and attributes come back byte for byte. The vault never overwrites.
//! - **G4 bounded.** Attempts, batches, memory and concurrency are bounded; nothing loops for ever.
//! - **G5 blast radius.** A redrive never has more copies in doubt than it has proven good.
//! - **G6 dependency faults are nobody's fault.** An outage never makes a message permanent and never counts
//!   as an attempt.
//! - **G7 attributable.** Every operator act leaves an audit object.
//!
//! Deliberately absent so far: the audit objects of G7, FIFO sources, adopting what SQS's own policy moved.
//!
//! Imports go one way: `main → cli → service → port → domain`; `aws`, `handler` and `sim` implement ports;
//! `local` serves `sim`'s queue engine, an S3 store and DynamoDB over HTTP.

pub mod aws;
pub mod cli;
pub mod config;
pub mod domain;
pub mod handler;
#[cfg(feature = "local")]
pub mod local;
pub mod port;
pub mod service;
pub mod sim;
pub mod system;
pub mod telemetry;
