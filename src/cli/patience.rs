//! Waits for an endpoint that does not answer yet, for 30 s.
//!
//! Only calls that change nothing, or may be repeated, go through here.

use std::time::Duration;

use crate::domain::failure::ErrorClass;
use crate::port::error::PortError;

/// How long an endpoint may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Calls until there is an answer, be it an error, or patience is at its end.
pub(super) async fn until_answered<T>(
    mut call: impl AsyncFnMut() -> Result<T, PortError>,
) -> Result<T, PortError> {
    let mut silent = None;
    let tries = async {
        loop {
            match call().await {
                Err(error) if may_pass(&error) => {
                    if silent.replace(error.clone()).is_none() {
                        tracing::warn!(%error, "no answer yet: going on trying for 30 s");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                answered => return answered,
            }
        }
    };
    match tokio::time::timeout(PATIENCE, tries).await {
        Ok(answered) => answered,
        Err(_) => match silent {
            Some(error) => Err(error),
            // The first call outlasted all patience: its own time-out ends it.
            None => call().await,
        },
    }
}

/// Whether the same call may be answered soon: nothing came, or the service failed or asked for patience.
fn may_pass(error: &PortError) -> bool {
    matches!(error.class(), ErrorClass::Transient | ErrorClass::Throttled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::error::{Reached, Target};

    fn silence() -> PortError {
        PortError::new(ErrorClass::Transient, Target::Sqs, "GetQueueUrl", "orders", "refused")
            .with_reached(Reached::NoAnswer)
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_comes_up_is_reached() {
        let mut left = 5;
        let answer = until_answered(async || {
            left -= 1;
            if left > 0 { Err(silence()) } else { Ok("up") }
        });
        assert_eq!(answer.await, Ok("up"));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends() {
        let started = tokio::time::Instant::now();
        let answer: Result<(), _> = until_answered(async || Err(silence())).await;
        assert_eq!(answer, Err(silence()));
        assert_eq!(started.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_an_answer() {
        let denied = PortError::new(
            ErrorClass::Denied,
            Target::Sqs,
            "GetQueueUrl",
            "orders",
            "AccessDenied",
        );
        let mut calls = 0;
        let answer: Result<(), _> = until_answered(async || {
            calls += 1;
            Err(denied.clone())
        })
        .await;
        assert_eq!((answer, calls), (Err(denied), 1));
    }
}
