//! The rules of a batch request as a whole: 1 to 10 entries, each with an id of its own.
//!
//! A broken rule refuses the request; whatever is wrong with one entry fails that entry alone.

use std::collections::BTreeSet;

use super::error::SqsError;
use crate::domain::message::MAX_BATCH_ENTRIES;

/// One answer an entry, with the entry's id, in the order asked.
pub type Entries<T> = Vec<(String, Result<T, SqsError>)>;

const MAX_ID_CHARS: usize = 80;

/// Checks the ids of a batch.
pub(super) fn check<'a>(ids: impl Iterator<Item = &'a str>) -> Result<(), SqsError> {
    let mut seen = BTreeSet::new();
    for id in ids {
        let word = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if id.is_empty() || id.len() > MAX_ID_CHARS || !word {
            return Err(SqsError::InvalidBatchEntryId);
        }
        if !seen.insert(id) {
            return Err(SqsError::BatchEntryIdsNotDistinct(id.to_owned()));
        }
        if seen.len() > MAX_BATCH_ENTRIES {
            return Err(SqsError::TooManyEntriesInBatchRequest);
        }
    }
    if seen.is_empty() { Err(SqsError::EmptyBatchRequest) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_one_to_ten_entries_with_ids_of_their_own() {
        assert_eq!(check(["a", "b-_9"].into_iter()), Ok(()));
        assert_eq!(check([].into_iter()), Err(SqsError::EmptyBatchRequest));
        assert_eq!(
            check(["a", "a"].into_iter()),
            Err(SqsError::BatchEntryIdsNotDistinct("a".into()))
        );
        for id in ["", "a b", &"x".repeat(81)] {
            assert_eq!(check([id].into_iter()), Err(SqsError::InvalidBatchEntryId));
        }
        let eleven: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        assert_eq!(
            check(eleven.iter().map(String::as_str)),
            Err(SqsError::TooManyEntriesInBatchRequest)
        );
    }
}
