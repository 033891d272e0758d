//! `redrive`: an SQS-native dead-letter worker and redriver.

pub mod domain;
#[cfg(feature = "local")]
pub mod local;
pub mod port;
pub mod sim;
