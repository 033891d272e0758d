//! The demo's story, told by doing it: every figure is read from the services, and held against what the
//! messages that were sent make it.
//!
//! | file | what |
//! | --- | --- |
//! | `line`, `catalogue` | what is sent |
//! | `handler` | what is done with it, in two versions |
//! | `place` | the embedded AWS, the adapters on it, workers |
//! | `failure`, `recovery`, `totals` | the steps |
//! | `census` | what became of each message |
//! | `step`, `teller`, `watch` | figures, and how they are told |
//!
//! Deliberately absent: configuration, the environment's AWS, files, results that were known before.

mod catalogue;
mod census;
mod failure;
mod handler;
mod line;
mod place;
mod recovery;
mod step;
mod teller;
mod totals;
mod watch;

use std::sync::Arc;

use self::handler::Book;
use self::teller::Teller;
use super::exit::{CliError, Exit};

/// Tells the story. With `json` only its outcome is printed, as one value.
///
/// # Errors
/// A step failed; the text says which one.
pub(super) async fn tell(json: bool) -> Result<Exit, CliError> {
    let mut teller = Teller::new(json);
    let told = story(&mut teller).await;
    let told = match told {
        Err(CliError::Output(error)) => return Err(CliError::Output(error)),
        told => told,
    };
    teller.close(told)
}

async fn story(teller: &mut Teller) -> Result<(), CliError> {
    let mut place = failure::set_up(teller).await?;
    let began = place.clock.mono();
    let sent = failure::produce(teller, &place).await?;
    let book = Arc::new(Book::default());
    let (worker, parked) = failure::work(teller, &mut place, &sent, &book).await?;
    failure::triage(teller, &place, &sent).await?;
    let tripped = recovery::redrive_too_soon(teller, &mut place, &parked).await?;
    let worker = recovery::fix(teller, &mut place, worker, &book).await?;
    let resumed = recovery::resume(teller, &place, tripped).await?;
    let draft = recovery::plan(teller, &place, &parked, &resumed).await?;
    recovery::redrive(teller, &mut place, &draft).await?;
    recovery::redrive_again(teller, &mut place, &draft).await?;
    recovery::sweep(teller, &place).await?;
    recovery::retire(worker).await?;
    let work = totals::Work { sent: &sent, book: &book, failed_again: resumed.failed_again, began };
    totals::prove(teller, &place, &work).await
}
