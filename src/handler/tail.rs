//! The end of a stream, kept within bounds while all of it is read.
//!
//! Holds at most twice its limit and one chunk, in bytes, whatever is pushed. Text is decoded lossily,
//! so a character cut in two at the front becomes U+FFFD.

/// The last bytes of a stream.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl Tail {
    /// An empty tail that keeps the last `limit` bytes.
    pub(super) const fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, cut: false }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
        // Cutting only at twice the limit moves each byte at most once.
        if self.bytes.len() > self.limit.saturating_mul(2) {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let excess = self.bytes.len().saturating_sub(self.limit);
        self.cut |= excess > 0;
        self.bytes.drain(..excess);
    }

    /// All that was kept, as text.
    pub(super) fn into_text(mut self) -> String {
        self.trim();
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The last line that is not blank, if all of it was kept: a line without its beginning says
    /// something else than was written.
    pub(super) fn into_last_line(mut self) -> Option<String> {
        self.trim();
        let text = self.bytes.trim_ascii_end();
        match text.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => text.get(newline.saturating_add(1)..),
            None if self.cut => None,
            None => Some(text),
        }
        .map(|line| String::from_utf8_lossy(line.trim_ascii()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tail(limit: usize, text: &[u8]) -> Tail {
        let mut tail = Tail::new(limit);
        tail.push(text);
        tail
    }

    #[test]
    fn the_last_line_is_the_last_that_is_not_blank_and_whole() {
        for (limit, text, line) in [
            (99, "a\nb\n", Some("b")),
            (99, "a\r\n b \r\n\n  \n", Some("b")),
            (99, "a", Some("a")),
            (99, "", Some("")),
            (4, "x\n{1}", Some("{1}")),
            (3, "xx{1}", None),
            (3, "x{1}\n", None),
        ] {
            assert_eq!(tail(limit, text.as_bytes()).into_last_line().as_deref(), line, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_become_the_replacement_character() {
        assert_eq!(tail(9, b"a\xFFb").into_text(), "a\u{FFFD}b");
        assert_eq!(tail(1, "é".as_bytes()).into_text(), "\u{FFFD}");
    }

    proptest! {
        #[test]
        fn a_tail_is_the_end_of_the_stream_and_bounded(
            chunks in proptest::collection::vec(proptest::collection::vec(b'a'..=b'z', 0..20), 0..20),
            limit in 1_usize..50,
        ) {
            let mut tail = Tail::new(limit);
            for chunk in &chunks {
                tail.push(chunk);
                prop_assert!(tail.bytes.len() <= 2 * limit);
            }
            let all = chunks.concat();
            let end = String::from_utf8(all[all.len().saturating_sub(limit)..].to_vec()).unwrap();
            prop_assert_eq!(tail.into_text(), end);
        }
    }
}
