//! The ledger's rules for one item: conditions, expiry, lost answers, one winner, the identity.

use std::sync::Arc;

use redrive::domain::entry::{Entry, State};
use redrive::domain::id::{ParkToken, RunId};
use redrive::domain::record::{Record, State as RecordState};
use redrive::domain::time::Wall;
use redrive::port::ledger::{Expect, Expiry, Ledger, WriteError, write_entry, write_record};
use redrive::sim::ledger::SimLedger;

use crate::embedded::Embedded;
use crate::item::{NOW, claimed, committed, entry_write, id, is, parked, record_write};
use crate::on_both;

pub(crate) type Subject = Arc<dyn Ledger>;

pub(crate) async fn sim() -> Subject {
    Arc::new(SimLedger::new())
}

pub(crate) async fn aws() -> (Embedded, Subject) {
    let embedded = Embedded::start().await;
    let ledger = embedded.ledger();
    (embedded, Arc::new(ledger))
}

on_both!(
    an_absent_entry_is_created_once,
    a_version_is_replaced_and_a_stale_one_is_refused,
    each_part_of_an_entrys_version_is_compared,
    each_part_of_a_records_version_is_compared,
    a_version_of_nothing_is_refused_with_nothing,
    an_expired_entry_is_absent,
    an_expired_record_is_absent,
    whatever_is_written_comes_back,
    a_lost_answer_is_recognised_as_our_own_write,
    of_sixteen_claims_one_wins,
    the_identity_is_put_once_and_replaced_knowingly,
    what_is_ours_makes_the_ledger_forget,
);

/// The item that a refused write came back with.
fn lost<T: std::fmt::Debug + Clone>(
    answer: Result<redrive::port::evidence::Stored<T>, WriteError<T>>,
) -> Option<T> {
    match answer {
        Err(WriteError::Lost(current)) => current.map(|stored| stored.get().clone()),
        other => panic!("{other:?}"),
    }
}

async fn create(ledger: &Subject, entry: &Entry) {
    let written = ledger.put_entry(&entry_write(Expect::Absent, entry), NOW).await.unwrap();
    assert_eq!(written.get(), entry);
}

async fn read(ledger: &Subject, now: Wall) -> Option<Entry> {
    ledger.entry(&crate::item::key(), now).await.unwrap().map(|stored| stored.get().clone())
}

fn later(secs: u64) -> Wall {
    NOW.plus(std::time::Duration::from_secs(secs))
}

async fn an_absent_entry_is_created_once(ledger: &Subject) {
    assert_eq!(read(ledger, NOW).await, None);
    let first = claimed("t-1", NOW);
    create(ledger, &first).await;
    let second = claimed("t-2", NOW);
    let answer = ledger.put_entry(&entry_write(Expect::Absent, &second), NOW).await;
    assert_eq!(lost(answer), Some(first.clone()));
    assert_eq!(read(ledger, NOW).await, Some(first));
}

async fn a_version_is_replaced_and_a_stale_one_is_refused(ledger: &Subject) {
    let first = claimed("t-1", NOW);
    create(ledger, &first).await;
    let open = Entry { state: State::Open, ..first.clone() };
    ledger.put_entry(&entry_write(is(&first), &open), NOW).await.unwrap().into_inner();
    let answer = ledger.put_entry(&entry_write(is(&first), &claimed("t-2", NOW)), NOW).await;
    assert_eq!(lost(answer), Some(open.clone()));
    assert_eq!(read(ledger, NOW).await, Some(open));
}

async fn each_part_of_an_entrys_version_is_compared(ledger: &Subject) {
    let entry = claimed("t-1", NOW);
    create(ledger, &entry).await;
    for other in [
        claimed("t-2", NOW),
        Entry { state: State::Open, ..entry.clone() },
        Entry { state: State::InProgress { lease_until: later(61) }, ..entry.clone() },
    ] {
        let answer = ledger.put_entry(&entry_write(is(&other), &other), NOW).await;
        assert_eq!(lost(answer), Some(entry.clone()), "{other:?}");
    }
    let same = Entry { owner: "another".into(), attempts: 9, ..entry.clone() };
    ledger.put_entry(&entry_write(is(&same), &entry), NOW).await.unwrap().into_inner();
}

async fn each_part_of_a_records_version_is_compared(ledger: &Subject) {
    let run = RunId::new("run-1").unwrap();
    let bare = parked("p-1", NOW);
    let full = Record { run_id: Some(run), token_sent: Some(NOW), ..bare.clone() };
    for (n, there) in [bare.clone(), full.clone()].into_iter().enumerate() {
        let id = id(&format!("m-{n}"));
        ledger
            .put_record(&record_write(&id, Expect::Absent, &there), NOW)
            .await
            .unwrap()
            .into_inner();
        for other in [
            Record { state: RecordState::Redriving, ..there.clone() },
            Record { redrive_count: 1, ..there.clone() },
            Record { park_token: ParkToken::new("p-2").unwrap(), ..there.clone() },
            Record { token_sent: Some(later(1)), ..there.clone() },
            Record { run_id: Some(RunId::new("run-2").unwrap()), ..there.clone() },
            if n == 0 { full.clone() } else { bare.clone() },
        ] {
            let answer = ledger.put_record(&record_write(&id, is(&other), &other), NOW).await;
            assert_eq!(lost(answer), Some(there.clone()), "{other:?}");
        }
        let next = Record { state: RecordState::Discarded, ..there.clone() };
        ledger.put_record(&record_write(&id, is(&there), &next), NOW).await.unwrap().into_inner();
    }
}

async fn a_version_of_nothing_is_refused_with_nothing(ledger: &Subject) {
    let entry = claimed("t-1", NOW);
    assert_eq!(lost(ledger.put_entry(&entry_write(is(&entry), &entry), NOW).await), None);
    let record = parked("p-1", NOW);
    let write = record_write(&id("m-1"), is(&record), &record);
    assert_eq!(lost(ledger.put_record(&write, NOW).await), None);
}

async fn an_expired_entry_is_absent(ledger: &Subject) {
    let entry = claimed("t-1", NOW);
    create(ledger, &entry).await;
    let last = Wall::from_ms(entry.expires_at_secs * 1000 - 1);
    let over = Wall::from_ms(entry.expires_at_secs * 1000);
    assert_eq!(read(ledger, last).await.as_ref(), Some(&entry));
    assert_eq!(read(ledger, over).await, None);
    assert_eq!(lost(ledger.put_entry(&entry_write(is(&entry), &entry), over).await), None);
    let next = claimed("t-2", over);
    let early = ledger.put_entry(&entry_write(Expect::Absent, &next), last).await;
    assert_eq!(lost(early), Some(entry));
    ledger.put_entry(&entry_write(Expect::Absent, &next), over).await.unwrap().into_inner();
    assert_eq!(read(ledger, over).await, Some(next));
}

async fn an_expired_record_is_absent(ledger: &Subject) {
    let id = id("m-1");
    let over = later(100);
    let resolved = Record { expires_at_secs: Some(over.as_secs()), ..parked("p-1", NOW) };
    ledger
        .put_record(&record_write(&id, Expect::Absent, &resolved), NOW)
        .await
        .unwrap()
        .into_inner();
    assert!(ledger.record(&id, later(99)).await.unwrap().is_some());
    assert!(ledger.record(&id, over).await.unwrap().is_none());
    let answer = ledger.put_record(&record_write(&id, is(&resolved), &resolved), over).await;
    assert_eq!(lost(answer), None);
    let next = parked("p-2", over);
    ledger.put_record(&record_write(&id, Expect::Absent, &next), over).await.unwrap().into_inner();
    let for_ever = ledger.record(&id, Wall::from_ms(u64::MAX / 2)).await.unwrap().unwrap();
    assert_eq!(for_ever.get(), &next);
}

async fn whatever_is_written_comes_back(ledger: &Subject) {
    let committed = committed(&claimed("t-1", NOW), &id("m-1"));
    create(ledger, &committed).await;
    assert_eq!(read(ledger, NOW).await.as_ref(), Some(&committed));
    let record = Record {
        run_id: Some(RunId::new("run-1").unwrap()),
        group_id: Some("group".into()),
        sequence: Some("18849496460467696128".into()),
        duplicate_of: Some(id("m-0")),
        error_message: String::new(),
        ..parked("p-1", NOW)
    };
    let id = id("m-1");
    ledger.put_record(&record_write(&id, Expect::Absent, &record), NOW).await.unwrap().into_inner();
    assert_eq!(ledger.record(&id, NOW).await.unwrap().unwrap().get(), &record);
}

async fn a_lost_answer_is_recognised_as_our_own_write(ledger: &Subject) {
    let entry = claimed("t-1", NOW);
    let write = entry_write(Expect::Absent, &entry);
    for _ in 0..2 {
        assert_eq!(write_entry(&**ledger, &write, NOW).await.unwrap().get(), &entry);
    }
    let other = entry_write(Expect::Absent, &claimed("t-2", NOW));
    assert_eq!(lost(write_entry(&**ledger, &other, NOW).await), Some(entry));
    let record = parked("p-1", NOW);
    let write = record_write(&id("m-1"), Expect::Absent, &record);
    for _ in 0..2 {
        assert_eq!(write_record(&**ledger, &write, NOW).await.unwrap().get(), &record);
    }
    let other = record_write(&id("m-1"), Expect::Absent, &parked("p-2", NOW));
    assert_eq!(lost(write_record(&**ledger, &other, NOW).await), Some(record));
}

async fn of_sixteen_claims_one_wins(ledger: &Subject) {
    let claim = |n: usize| {
        let ledger = Arc::clone(ledger);
        let write = entry_write(Expect::Absent, &claimed(&format!("t-{n}"), NOW));
        tokio::spawn(async move { ledger.put_entry(&write, NOW).await })
    };
    let claims: Vec<_> = (0..16).map(claim).collect();
    let mut winners = Vec::new();
    let mut seen = Vec::new();
    for claim in claims {
        match claim.await.unwrap() {
            Ok(won) => winners.push(won.get().clone()),
            Err(WriteError::Lost(current)) => seen.push(current.unwrap().get().clone()),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert!(seen.iter().all(|current| *current == winners[0]));
}

async fn the_identity_is_put_once_and_replaced_knowingly(ledger: &Subject) {
    assert_eq!(ledger.identity().await.unwrap(), None);
    assert_eq!(ledger.put_identity("payload", None).await.unwrap(), "payload");
    assert_eq!(ledger.put_identity("payload", None).await.unwrap(), "payload");
    assert_eq!(ledger.put_identity("json:/a", None).await.unwrap(), "payload");
    assert_eq!(ledger.put_identity("json:/a", Some("other")).await.unwrap(), "payload");
    assert_eq!(ledger.put_identity("json:/a", Some("payload")).await.unwrap(), "json:/a");
    assert_eq!(ledger.identity().await.unwrap().as_deref(), Some("json:/a"));
}

async fn what_is_ours_makes_the_ledger_forget(ledger: &Subject) {
    assert_eq!(ledger.expiry().await.unwrap(), Expiry::Ours);
}
