//! The index of records by state: how it is cut into shards, and in which order a shard is read.
//!
//! A shard is read by parking time. Times are written with thirteen digits, so that the order of the
//! texts is the order of the times until the year 2286.

use super::ledger::{Range, SHARDS, Shard};
use crate::domain::id::{RecordId, Sha256Hex};
use crate::domain::record::Record;
use crate::domain::time::Wall;

/// The most records in one page.
pub const PAGE_RECORDS: u16 = 100;

/// After every sort key: `:` follows `9`.
const END: &str = ":";

/// The shard of a record: the first hex digit of the SHA-256 of its id, modulo [`SHARDS`].
#[must_use]
pub fn shard_of(id: &RecordId) -> Shard {
    let hash = Sha256Hex::of(id.as_str().as_bytes());
    let digit = hash.as_str().chars().next().and_then(|c| c.to_digit(16)).unwrap_or_default();
    Shard::try_from(digit).unwrap_or_default() % SHARDS
}

/// A record's place in its shard: `<parked_at_ms, 13 digits>#<error_code>#<record id>`.
#[must_use]
pub fn sort_key(id: &RecordId, record: &Record) -> String {
    format!("{}#{}#{id}", digits(record.parked_at), record.error_code)
}

/// The sort keys of a range: at or after the first, before the second. No sort key equals the second.
#[must_use]
pub fn bounds(range: &Range) -> (String, String) {
    let from = digits(range.from.unwrap_or(Wall::from_ms(0)));
    (from, range.until.map_or_else(|| END.to_owned(), digits))
}

fn digits(at: Wall) -> String {
    format!("{:013}", at.as_ms())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::record::State;

    #[test]
    fn bounds_hold_what_was_parked_from_and_before() {
        let range = Range {
            state: State::Quarantined,
            from: Some(Wall::from_ms(5)),
            until: Some(Wall::from_ms(1_700_000_000_000)),
        };
        let (from, until) = bounds(&range);
        assert!(from.as_str() <= "0000000000005#A#x" && from.as_str() > "0000000000004#Z#x");
        assert!(until.as_str() > "1699999999999#Z#x" && until.as_str() < "1700000000000#A#x");
        let (from, until) = bounds(&Range { from: None, until: None, ..range });
        assert!(from.as_str() < "0000000000000#A#x" && until.as_str() > "9999999999999#Z#x");
    }

    #[test]
    fn shards_are_all_used() {
        let shards: std::collections::BTreeSet<Shard> =
            (0..64).map(|n| shard_of(&RecordId::new(format!("m{n}")).unwrap())).collect();
        assert_eq!(shards, (0..SHARDS).collect());
    }
}
