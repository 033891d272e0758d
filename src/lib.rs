//! `redrive`: an SQS-native dead-letter worker and redriver.

pub mod aws;
pub mod domain;
pub mod handler;
pub mod port;
pub mod service;
pub mod sim;
