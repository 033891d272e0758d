//! The items of a source's two locks: of its open run, and of its sweep.
//!
//! The first is there exactly while a run is open and has no time of its own; the second is a lease.

use super::{Item, LEASE_UNTIL, OWNER, PK, RUN_ID, Reader, Undecodable, item, text, time};
use crate::domain::id::{QueueName, RunId};
use crate::domain::time::Wall;

/// The key of the lock of the open run.
pub(in crate::aws) fn run_lock_pk(queue: &QueueName) -> String {
    format!("lock#{queue}")
}

/// The key of the sweep's lock.
pub(in crate::aws) fn sweep_lock_pk(queue: &QueueName) -> String {
    format!("lock#{queue}#sweep")
}

pub(in crate::aws) fn run_lock(queue: &QueueName, run: &RunId, since: Wall) -> Item {
    item([
        (PK, Some(text(run_lock_pk(queue)))),
        (RUN_ID, Some(text(run.clone()))),
        ("since_ms", Some(time(since))),
    ])
}

/// The run that a lock names.
pub(in crate::aws) fn locked_by(item: &Item) -> Result<RunId, Undecodable> {
    Reader::of_item(item).needed(RUN_ID)
}

pub(in crate::aws) fn sweep_lock(queue: &QueueName, owner: &str, until: Wall) -> Item {
    item([
        (PK, Some(text(sweep_lock_pk(queue)))),
        (OWNER, Some(text(owner))),
        (LEASE_UNTIL, Some(time(until))),
    ])
}

/// Who has the sweep's lock, and until when.
pub(in crate::aws) fn swept_by(item: &Item) -> Result<(String, Wall), Undecodable> {
    let reader = Reader::of_item(item);
    Ok((reader.needed_text(OWNER)?.to_owned(), reader.needed_time(LEASE_UNTIL)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_come_back_and_have_no_expiry() {
        let queue = QueueName::new("orders").unwrap();
        let (run, at) = (RunId::new("run-1").unwrap(), Wall::from_ms(1_700_000_000_123));
        let lock = run_lock(&queue, &run, at);
        assert_eq!(locked_by(&lock), Ok(run));
        assert_eq!(lock.get(PK), Some(&text("lock#orders")));
        let sweep = sweep_lock(&queue, "worker-1", at);
        assert_eq!(swept_by(&sweep), Ok(("worker-1".to_owned(), at)));
        assert_eq!(sweep.get(PK), Some(&text("lock#orders#sweep")));
        assert!([lock, sweep].iter().all(|item| !item.contains_key(super::super::EXPIRES_AT)));
    }
}
