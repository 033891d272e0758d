//! `redrive`: an SQS-native dead-letter worker and redriver.

pub mod domain;
pub mod port;
pub mod sim;
