//! A call whose fate may be unknown, made again until there is a verdict.
//!
//! Every call that goes through here is safe to repeat: a read, or a conditional write that recognises
//! its own earlier try.

use std::time::Duration;

use crate::domain::time::Mono;
use crate::port::clock::Clock;
use crate::port::error::PortError;
use crate::port::ledger::{TransactError, WriteError};
use crate::port::runs::{OpenError, TakeError};

/// How often a call is made at most.
const TRIES: u32 = 4;
/// The pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// An error that may be no verdict.
pub(crate) trait Verdict {
    /// Whether what the call did is unknown.
    fn is_unknown(&self) -> bool;
}

impl Verdict for PortError {
    fn is_unknown(&self) -> bool {
        true
    }
}

impl<T: std::fmt::Debug> Verdict for WriteError<T> {
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl Verdict for TransactError {
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl Verdict for OpenError {
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl Verdict for TakeError {
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

/// Makes a call until there is a verdict, the next try would begin after `until`, or the tries are used up.
/// `until` is asked anew for each try: a lease may have been extended since.
pub(crate) async fn insist<T, E, F>(
    clock: &dyn Clock,
    until: impl Fn() -> Mono,
    mut call: impl FnMut() -> F,
) -> Result<T, E>
where
    E: Verdict,
    F: Future<Output = Result<T, E>>,
{
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match call().await {
            Err(e) if e.is_unknown() && clock.mono().plus(pause) < until() => {
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2);
            }
            verdict => return verdict,
        }
    }
    call().await
}
