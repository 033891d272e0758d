//! The ledger's rules for an entry and a record in one transaction: both or none, and why not.

use redrive::domain::entry::{Entry, State};
use redrive::domain::record::Record;
use redrive::port::ledger::{Condition, Expect, TransactError, write_both};

use crate::item::{NOW, claimed, entry_write, id, is, key, parked, record_write};
use crate::ledger::{Subject, aws, sim};
use crate::on_both;

on_both!(
    both_are_written,
    neither_is_written_when_one_condition_fails,
    a_lost_answer_is_recognised_as_our_own_write,
);

async fn read(ledger: &Subject) -> (Option<Entry>, Option<Record>) {
    let entry = ledger.entry(&key(), NOW).await.unwrap();
    let record = ledger.record(&id("m-1"), NOW).await.unwrap();
    (entry.map(|e| e.get().clone()), record.map(|r| r.get().clone()))
}

/// What each condition came to: `None` if it held, else the item as it is.
type Verdict = (Option<Option<Entry>>, Option<Option<Record>>);

fn current<T: Clone>(condition: Condition<T>) -> Option<Option<T>> {
    match condition {
        Condition::Held => None,
        Condition::Lost(current) => Some(current.map(|stored| stored.get().clone())),
    }
}

async fn refused(ledger: &Subject, entry: Expect<Entry>, record: Expect<Record>) -> Verdict {
    let entry = entry_write(entry, &claimed("t-9", NOW));
    let record = record_write(&id("m-1"), record, &parked("p-9", NOW));
    match ledger.put_both(&entry, &record, NOW).await {
        Err(TransactError::Lost { entry, record }) => (current(entry), current(record)),
        other => panic!("{other:?}"),
    }
}

async fn both_are_written(ledger: &Subject) {
    let (entry, record) = (claimed("t-1", NOW), parked("p-1", NOW));
    let entry_put = entry_write(Expect::Absent, &entry);
    let record_put = record_write(&id("m-1"), Expect::Absent, &record);
    let (e, r) = ledger.put_both(&entry_put, &record_put, NOW).await.unwrap();
    assert_eq!((e.get(), r.get()), (&entry, &record));
    assert_eq!(read(ledger).await, (Some(entry), Some(record)));
}

async fn neither_is_written_when_one_condition_fails(ledger: &Subject) {
    let (entry, record) = (claimed("t-1", NOW), parked("p-1", NOW));
    let nothing = refused(ledger, is(&entry), Expect::Absent).await;
    assert_eq!(nothing, (Some(None), None));
    assert_eq!(read(ledger).await, (None, None));

    ledger.put_entry(&entry_write(Expect::Absent, &entry), NOW).await.unwrap().into_inner();
    let by_entry = refused(ledger, Expect::Absent, Expect::Absent).await;
    assert_eq!(by_entry, (Some(Some(entry.clone())), None));
    let by_record = refused(ledger, is(&entry), is(&record)).await;
    assert_eq!(by_record, (None, Some(None)));
    assert_eq!(read(ledger).await, (Some(entry.clone()), None));

    let write = record_write(&id("m-1"), Expect::Absent, &record);
    ledger.put_record(&write, NOW).await.unwrap().into_inner();
    let by_both = refused(ledger, Expect::Absent, Expect::Absent).await;
    assert_eq!(by_both, (Some(Some(entry.clone())), Some(Some(record.clone()))));
    assert_eq!(read(ledger).await, (Some(entry), Some(record)));
}

async fn a_lost_answer_is_recognised_as_our_own_write(ledger: &Subject) {
    let claim = claimed("t-1", NOW);
    ledger.put_entry(&entry_write(Expect::Absent, &claim), NOW).await.unwrap().into_inner();
    let entry = Entry { state: State::Parked, ..claim.clone() };
    let record = parked("p-1", NOW);
    let entry_put = entry_write(is(&claim), &entry);
    let record_put = record_write(&id("m-1"), Expect::Absent, &record);
    for _ in 0..2 {
        let (e, r) = write_both(&**ledger, &entry_put, &record_put, NOW).await.unwrap();
        assert_eq!((e.get(), r.get()), (&entry, &record));
    }
    let other = record_write(&id("m-1"), Expect::Absent, &parked("p-2", NOW));
    let answer = write_both(&**ledger, &entry_put, &other, NOW).await;
    assert!(matches!(answer, Err(TransactError::Lost { .. })), "{answer:?}");
}
