//! The rules of a batch: taken with its run or not at all, and why not; read in the order asked.

use std::sync::Arc;

use redrive::domain::id::{RecordId, RunId};
use redrive::domain::record::{Record, State};
use redrive::domain::run::Run;
use redrive::domain::time::Wall;
use redrive::port::evidence::Stored;
use redrive::port::ledger::{Condition, Expect, RecordWrite};
use redrive::port::runs::{MAX_READ, Runs, TakeError};
use redrive::sim::fault::{Fault, FaultRuns, Faults};

use crate::item::{NOW, id, is, parked, record_write, started, written};
use crate::on_both;
use crate::runs::{Subject, aws, sim};

on_both!(
    a_batch_is_taken_with_its_run,
    nothing_is_taken_when_a_record_has_moved,
    nothing_is_taken_when_the_run_has_moved,
    a_take_whose_answer_was_lost_is_recognised,
    records_come_in_the_order_asked,
    many_records_are_read_at_once,
);

/// A batch: the run before, the run after, and the writes of its records.
type Batch = (Run, Run, Vec<RecordWrite>);

fn taking(id: &RecordId, expect: &Record, run: &RunId) -> RecordWrite {
    let next = Record {
        state: State::Redriving,
        redrive_count: expect.redrive_count + 1,
        run_id: Some(run.clone()),
        ..expect.clone()
    };
    record_write(id, is(expect), &next)
}

async fn put(s: &Subject, id: &RecordId, record: &Record) {
    let write = record_write(id, Expect::Absent, record);
    s.ledger.put_record(&write, NOW).await.unwrap().into_inner();
}

/// An open run, and ten quarantined records that it is about to take.
async fn ready(s: &Subject) -> Batch {
    let run = started("run-1");
    s.runs.open(&run).await.unwrap().into_inner();
    let mut writes = Vec::new();
    for n in 0..10 {
        let (id, record) = (id(&format!("m-{n}")), parked(&format!("p-{n}"), NOW));
        put(s, &id, &record).await;
        writes.push(taking(&id, &record, &run.id));
    }
    let batch = writes.iter().map(|write| write.id.clone()).collect();
    (run.clone(), Run { batch, place: 10, ..written(&run) }, writes)
}

/// What the table has of a batch.
async fn there(s: &Subject, (run, _, writes): &Batch) -> (Run, Vec<Option<Record>>) {
    let ids: Vec<_> = writes.iter().map(|write| write.id.clone()).collect();
    let run = s.runs.run(&run.id).await.unwrap().unwrap().into_inner();
    (run, read(s, &ids, NOW).await)
}

async fn read(s: &Subject, ids: &[RecordId], now: Wall) -> Vec<Option<Record>> {
    let records = s.runs.records(ids, now).await.unwrap();
    records.into_iter().map(|record| record.map(Stored::into_inner)).collect()
}

fn afterwards((_, next, writes): &Batch) -> (Run, Vec<Option<Record>>) {
    (next.clone(), writes.iter().map(|write| Some(write.next.clone())).collect())
}

async fn take(s: &Subject, (read, next, writes): &Batch) -> (Run, Vec<Option<Record>>) {
    let (run, records) = s.runs.take(read, next, writes, NOW).await.unwrap();
    (run.into_inner(), records.into_iter().map(|record| Some(record.into_inner())).collect())
}

/// What each condition came to: `None` if it held, else the item as it is.
type Verdict = (Option<Option<Run>>, Vec<Option<Option<Record>>>);

async fn refused(s: &Subject, (read, next, writes): &Batch) -> Verdict {
    match s.runs.take(read, next, writes, NOW).await {
        Err(TakeError::Lost { run, records }) => {
            (current(run), records.into_iter().map(current).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn current<T>(condition: Condition<T>) -> Option<Option<T>> {
    match condition {
        Condition::Held => None,
        Condition::Lost(current) => Some(current.map(|stored| stored.into_inner())),
    }
}

async fn a_batch_is_taken_with_its_run(s: &Subject) {
    let batch = ready(s).await;
    assert_eq!(take(s, &batch).await, afterwards(&batch));
    assert_eq!(there(s, &batch).await, afterwards(&batch));
}

async fn nothing_is_taken_when_a_record_has_moved(s: &Subject) {
    let mut batch = ready(s).await;
    let read = parked("p-3", NOW);
    let moved = Record { state: State::Resolved, ..read.clone() };
    let write = record_write(&id("m-3"), is(&read), &moved);
    s.ledger.put_record(&write, NOW).await.unwrap().into_inner();
    batch.2.truncate(9);
    batch.2.push(taking(&id("nobody"), &read, &batch.0.id));
    let before = there(s, &batch).await;
    let (run, records) = refused(s, &batch).await;
    assert_eq!(run, None);
    let mut expected = vec![None; 10];
    expected[3] = Some(Some(moved));
    expected[9] = Some(None);
    assert_eq!(records, expected);
    assert_eq!(there(s, &batch).await, before);
}

async fn nothing_is_taken_when_the_run_has_moved(s: &Subject) {
    let batch = ready(s).await;
    let taken_over = Run { fence: 2, ..written(&batch.0) };
    s.runs.put_run(&batch.0, &taken_over).await.unwrap().into_inner();
    let before = there(s, &batch).await;
    assert_eq!(refused(s, &batch).await, (Some(Some(taken_over)), vec![None; 10]));
    assert_eq!(there(s, &batch).await, before);
}

async fn a_take_whose_answer_was_lost_is_recognised(s: &Subject) {
    let batch = ready(s).await;
    for _ in 0..2 {
        assert_eq!(take(s, &batch).await, afterwards(&batch));
    }
    let sent = Record { state: State::Redriven, ..batch.2[0].next.clone() };
    let write = record_write(&batch.2[0].id, is(&batch.2[0].next), &sent);
    s.ledger.put_record(&write, NOW).await.unwrap().into_inner();
    assert_eq!(take(s, &batch).await.1[0], Some(sent));
    let (run, next, writes) = batch;
    let other = Run { batch: vec![id("m-1")], ..next.clone() };
    let (of_run, _) = refused(s, &(run, other, writes)).await;
    assert_eq!(of_run, Some(Some(next)));
}

async fn records_come_in_the_order_asked(s: &Subject) {
    let over = Wall::from_ms((NOW.as_secs() + 60) * 1000);
    let first = parked("p-1", NOW);
    let expiring = Record { expires_at_secs: Some(over.as_secs()), ..parked("p-2", NOW) };
    put(s, &id("m-1"), &first).await;
    put(s, &id("m-2"), &expiring).await;
    let asked = ["m-2", "absent", "m-1", "m-2"].map(id);
    let (first, expiring) = (Some(first), Some(expiring));
    assert_eq!(read(s, &asked, NOW).await, [expiring.clone(), None, first.clone(), expiring]);
    assert_eq!(read(s, &asked, over).await, [None, None, first, None]);
    assert_eq!(read(s, &[], NOW).await, []);
}

async fn many_records_are_read_at_once(s: &Subject) {
    let ids: Vec<_> = (0..MAX_READ).rev().map(|n| id(&format!("m-{n}"))).collect();
    for id in ids.iter().step_by(2) {
        put(s, id, &parked(id.as_str(), NOW)).await;
    }
    let found = read(s, &ids, NOW).await;
    for (n, (id, record)) in ids.iter().zip(&found).enumerate() {
        let token = record.as_ref().map(|record| record.park_token.as_str());
        assert_eq!(token, (n % 2 == 0).then_some(id.as_str()));
    }
    let too_many = vec![id("m-1"); MAX_READ + 1];
    assert!(s.runs.records(&too_many, NOW).await.is_err());
}

/// The wrapper of faults hides the answer of a take that was made.
#[tokio::test]
async fn a_fault_hides_the_answer_and_not_the_take() {
    let s = sim().await;
    let batch = ready(&s).await;
    let faults = Faults::new();
    faults.at_call_of("runs.take", 1, Fault::LostAnswer);
    let runs = Arc::new(FaultRuns::new(Arc::clone(&s.runs), faults.clone()));
    let (read, next, writes) = &batch;
    let answer = runs.take(read, next, writes, NOW).await;
    assert!(matches!(answer, Err(TakeError::Unknown(_))), "{answer:?}");
    let s = Subject { runs, ledger: s.ledger };
    assert_eq!(take(&s, &batch).await, afterwards(&batch));
    assert_eq!(there(&s, &batch).await, afterwards(&batch));
    assert_eq!(faults.log(), ["runs.take", "runs.take", "runs.run", "runs.records"]);
}
