//! Cutting a list into batches that SQS accepts: at most ten entries and at most so many bytes.

use std::ops::Range;

use super::message::MAX_BATCH_ENTRIES;

/// Cuts entries of these sizes (bytes) into batches, in order. An entry above `max_bytes` stands alone:
/// SQS will refuse it, and that refusal is its answer.
#[must_use]
pub fn plan_batches(sizes: &[usize], max_bytes: usize) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0_usize;
    for (i, size) in sizes.iter().enumerate() {
        let end = i.saturating_add(1);
        match batches.last_mut() {
            Some(last)
                if last.len() < MAX_BATCH_ENTRIES && bytes.saturating_add(*size) <= max_bytes =>
            {
                last.end = end;
                bytes = bytes.saturating_add(*size);
            }
            Some(_) | None => {
                batches.push(i..end);
                bytes = *size;
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn batches_keep_order_and_bounds(sizes in proptest::collection::vec(0_usize..200, 0..100)) {
            let batches = plan_batches(&sizes, 150);
            let flat: Vec<usize> = batches.iter().cloned().flatten().collect();
            prop_assert_eq!(flat, (0..sizes.len()).collect::<Vec<_>>());
            for batch in batches {
                let bytes: usize = sizes[batch.clone()].iter().sum();
                prop_assert!((1..=MAX_BATCH_ENTRIES).contains(&batch.len()));
                prop_assert!(bytes <= 150 || batch.len() == 1);
            }
        }
    }
}
