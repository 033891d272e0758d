//! One suite over each port, run on the ports in memory and on the AWS adapters over the embedded AWS.
//!
//! A rule that decisions rest on is written here once, so that a simulation proves something about AWS.
//! Deliberately absent: rules that only AWS keeps, which are tested where the adapter is.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#![expect(clippy::indexing_slicing, reason = "a test may panic")]

mod embedded;
mod fifo;
mod index;
mod item;
mod ledger;
mod queue;
mod runs;
mod setup;
mod source;
mod take;
mod transaction;
mod vault;
mod wire;

/// Makes each rule a test on both implementations: `sim()` and `aws()` give the port under test.
macro_rules! on_both {
    ($($rule:ident),+ $(,)?) => {
        mod sim {
            $(#[tokio::test]
            async fn $rule() {
                super::$rule(&super::sim().await).await;
            })+
        }
        mod aws {
            $(#[tokio::test]
            async fn $rule() {
                let (_running, port) = super::aws().await;
                super::$rule(&port).await;
            })+
        }
    };
}
pub(crate) use on_both;
