//! The name that somebody probably meant.

/// The one of `known` that is nearest to `name`, if it is near at all: within a third of its length.
#[must_use]
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, near) =
        known.iter().map(|candidate| (distance(name, candidate), *candidate)).min()?;
    (distance <= near.len().max(name.len()).div_ceil(3)).then_some(near)
}

/// Levenshtein's edit distance, in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let first_row: Vec<usize> = (0..=b.len()).collect();
    let last_row = a.chars().enumerate().fold(first_row, |above, (i, a_char)| {
        let mut row = vec![i + 1];
        for (b_char, pair) in b.iter().zip(above.windows(2)) {
            let (diagonal, up) = (pair.first().copied(), pair.last().copied());
            let replaced = diagonal.map_or(0, |d| d + usize::from(a_char != *b_char));
            let removed = up.map_or(0, |u| u + 1);
            let inserted = row.last().map_or(0, |left| left + 1);
            row.push(replaced.min(removed).min(inserted));
        }
        row
    });
    last_row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_known() {
        for (a, b, d) in
            [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("wait", "wiat", 2)]
        {
            assert_eq!(distance(a, b), d, "{a} {b}");
            assert_eq!(distance(b, a), d, "{b} {a}");
        }
    }

    #[test]
    fn only_what_is_near_is_offered() {
        let known = ["queue", "wait", "visibility_timeout"];
        assert_eq!(nearest("quue", &known), Some("queue"));
        assert_eq!(nearest("visibilty_timout", &known), Some("visibility_timeout"));
        assert_eq!(nearest("zzzzzz", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
