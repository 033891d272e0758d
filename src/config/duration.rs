//! Durations as text: a whole number and one of `ms s m h d`.

use std::fmt;
use std::time::Duration;

/// A duration that reads and prints as text: `500ms`, `20s`, `15m`, `12h`, `30d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) const fn mins(n: u64) -> Duration {
    secs(n * 60)
}

pub(super) const fn hours(n: u64) -> Duration {
    mins(n * 60)
}

pub(super) const fn days(n: u64) -> Duration {
    hours(n * 24)
}

const UNITS_MS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no duration: write it like 500ms, 20s, 15m, 12h or 30d");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let (_, unit_ms) =
            UNITS_MS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        number
            .checked_mul(unit_ms)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(|| format!("{text:?} is too long"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = crate::domain::time::millis(self.0);
        if ms == 0 {
            return f.write_str("0s");
        }
        UNITS_MS
            .into_iter()
            .find(|(_, unit_ms)| ms.is_multiple_of(*unit_ms))
            .map_or(Ok(()), |(unit, unit_ms)| write!(f, "{}{unit}", ms / unit_ms))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documented_forms_are_read() {
        for (text, ms) in [
            ("500ms", 500),
            ("20s", 20_000),
            ("15m", 900_000),
            ("12h", 43_200_000),
            ("30d", 2_592_000_000),
            ("0s", 0),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(ms))), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "20", "s", "-1s", "1.5s", "1 s", "20S", "1w", "99999999999999999999s", "é"]
        {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
        assert!("18446744073709551615d".parse::<Span>().is_err_and(|e| e.contains("too long")));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_the_same(ms in 0..u64::MAX / 86_400_000) {
            let span = Span(Duration::from_millis(ms));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
    }
}
