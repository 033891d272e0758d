//! The rules of the index by state: shards, order, ranges and pages.

use std::time::Duration;

use redrive::domain::id::RecordId;
use redrive::domain::record::{Record, State};
use redrive::domain::time::Wall;
use redrive::port::index::{PAGE_RECORDS, shard_of};
use redrive::port::ledger::{Expect, Range, SHARDS, Shard};

use crate::item::{NOW, id, parked, record_write};
use crate::ledger::{Subject, aws, sim};
use crate::on_both;

on_both!(
    each_shard_holds_its_records_in_parked_order,
    a_record_moves_with_its_state,
    a_range_holds_what_was_parked_from_and_before,
    pages_go_on_where_they_ended,
);

fn quarantined(from: Option<Wall>, until: Option<Wall>) -> Range {
    Range { state: State::Quarantined, from, until }
}

fn minute(n: u64) -> Wall {
    NOW.plus(Duration::from_secs(60 * n))
}

async fn put(ledger: &Subject, id: &RecordId, parked_at: Wall) -> Record {
    let record = parked("p-1", parked_at);
    ledger.put_record(&record_write(id, Expect::Absent, &record), NOW).await.unwrap().into_inner();
    record
}

/// All records of a shard, page by page, and how many pages had some.
async fn all(ledger: &Subject, range: &Range, shard: Shard) -> (Vec<(RecordId, Record)>, usize) {
    let (mut records, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = ledger.page(range, shard, after.as_ref()).await.unwrap();
        pages += usize::from(!page.records.is_empty());
        records.extend(page.records);
        after = page.next;
        if after.is_none() {
            return (records, pages);
        }
    }
}

/// The first `count` ids that fall into a shard.
fn ids_of(shard: Shard, count: usize) -> Vec<RecordId> {
    let ids = (0..).map(|n| id(&format!("m-{n}")));
    ids.filter(|id| shard_of(id) == shard).take(count).collect()
}

async fn each_shard_holds_its_records_in_parked_order(ledger: &Subject) {
    for n in 0..40 {
        put(ledger, &id(&format!("m-{n}")), minute(n * 7 % 40)).await;
    }
    let mut found = 0;
    for shard in 0..SHARDS {
        let (records, _) = all(ledger, &quarantined(None, None), shard).await;
        assert!(records.iter().all(|(id, _)| shard_of(id) == shard));
        assert!(records.is_sorted_by_key(|(_, record)| record.parked_at));
        found += records.len();
    }
    assert_eq!(found, 40);
}

async fn a_record_moves_with_its_state(ledger: &Subject) {
    let id = id("m-1");
    let shard = shard_of(&id);
    let record = put(ledger, &id, NOW).await;
    let discarded = Record { state: State::Discarded, ..record.clone() };
    let write = record_write(&id, crate::item::is(&record), &discarded);
    ledger.put_record(&write, NOW).await.unwrap().into_inner();
    assert_eq!(all(ledger, &quarantined(None, None), shard).await.0, []);
    let range = Range { state: State::Discarded, from: None, until: None };
    assert_eq!(all(ledger, &range, shard).await.0, [(id, discarded)]);
}

async fn a_range_holds_what_was_parked_from_and_before(ledger: &Subject) {
    let ids = ids_of(2, 4);
    for (n, id) in (0..).zip(&ids) {
        put(ledger, id, minute(n)).await;
    }
    for (from, until, expected) in [
        (None, None, &ids[..]),
        (Some(minute(1)), None, &ids[1..]),
        (None, Some(minute(2)), &ids[..2]),
        (Some(minute(1)), Some(minute(3)), &ids[1..3]),
        (Some(minute(2)), Some(minute(2)), &[]),
        (Some(minute(3)), Some(minute(1)), &[]),
    ] {
        let (records, _) = all(ledger, &quarantined(from, until), 2).await;
        let found: Vec<_> = records.into_iter().map(|(id, _)| id).collect();
        assert_eq!(found, expected, "{from:?} {until:?}");
    }
}

async fn pages_go_on_where_they_ended(ledger: &Subject) {
    let ids = ids_of(1, usize::from(PAGE_RECORDS) * 2 + 5);
    // Many were parked in the same millisecond: the id keeps them apart.
    for (n, id) in (0..).zip(&ids) {
        put(ledger, id, minute(n / 50)).await;
    }
    let (records, pages) = all(ledger, &quarantined(None, None), 1).await;
    assert_eq!(pages, 3);
    let mut found: Vec<_> = records.into_iter().map(|(id, _)| id).collect();
    let mut expected = ids;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
