//! The two clocks, which cannot be mixed.
//!
//! [`Wall`] is epoch milliseconds, for what is stored and shown. [`Mono`] is time since the process
//! began, for leases and pacing: a step of the wall clock does not move it. All arithmetic saturates.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::{Deserialize, Serialize};

/// A point on the wall clock, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(u64);

/// A point on the monotonic clock of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(Duration);

/// Whole milliseconds of a duration, saturating.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Wall {
    /// The point `ms` milliseconds after the epoch.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// A point that a service told as epoch milliseconds; `None` if the digits are of another unit or none:
    /// before 2001 as milliseconds, which seconds of today are.
    #[must_use]
    pub fn told_in_ms(digits: &str) -> Option<Self> {
        let ms: u64 = digits.parse().ok()?;
        (1_000_000_000_000..100_000_000_000_000).contains(&ms).then_some(Self(ms))
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, the unit of DynamoDB's TTL attribute.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// This point, `duration` later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// This point, `duration` earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// How long after `earlier` this is; zero if it is before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// How far apart the two points are, whichever is first.
    #[must_use]
    pub const fn distance(self, other: Self) -> Duration {
        Duration::from_millis(self.0.abs_diff(other.0))
    }

    /// RFC 3339, UTC, with exactly three digits of milliseconds: `2026-11-30T16:42:34.123Z`.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let timestamp = i64::try_from(self.0)
            .ok()
            .and_then(|ms| Timestamp::from_millisecond(ms).ok())
            .unwrap_or(Timestamp::MAX);
        DateTimePrinter::new().precision(Some(3)).timestamp_to_string(&timestamp)
    }

    /// Reads RFC 3339.
    ///
    /// # Errors
    /// The text is no RFC 3339 time, or is before 1970.
    pub fn from_rfc3339(text: &str) -> Result<Self, String> {
        let timestamp: Timestamp = text.parse().map_err(|e| format!("{text:?}: {e}"))?;
        u64::try_from(timestamp.as_millisecond())
            .map(Self)
            .map_err(|_| format!("{text:?} is before 1970"))
    }
}

impl Mono {
    /// The point `since_start` after the process began.
    #[must_use]
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// This point, `duration` later.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// This point, `duration` earlier, not before the start.
    #[must_use]
    pub const fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// How long after `earlier` this is; zero if it is before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_b10_times_are_read_in_milliseconds_and_ages_are_never_negative() {
        let sent = Wall::told_in_ms("1701176278493").unwrap();
        assert_eq!(sent.to_rfc3339(), "2023-11-28T12:57:58.493Z");
        for other in ["1701176278", "-1", "", "abc", "1701176278493000", "0"] {
            assert_eq!(Wall::told_in_ms(other), None, "{other}");
        }
        let retention = Duration::from_secs(345_600);
        for skew in [0, 120] {
            let skew = Duration::from_secs(skew);
            assert_eq!(sent.minus(skew).since(sent), Duration::ZERO, "never negative");
            assert_eq!(sent.plus(skew).since(sent), skew);
            let left = sent.plus(retention).since(sent.plus(skew));
            assert_eq!(left, retention - skew);
        }
        // The hour that Europe's clocks skip.
        let change = Wall::from_rfc3339("2024-03-31T01:30:00.000Z").unwrap();
        assert_eq!(change.to_rfc3339(), "2024-03-31T01:30:00.000Z");
    }

    #[test]
    fn rfc3339_has_milliseconds_and_comes_back() {
        let wall = Wall::from_ms(1_701_176_278_400);
        assert_eq!(wall.to_rfc3339(), "2023-11-28T12:57:58.400Z");
        assert_eq!(Wall::from_rfc3339(&wall.to_rfc3339()), Ok(wall));
        assert_eq!(Wall::from_ms(0).to_rfc3339(), "1970-01-01T00:00:00.000Z");
        assert!(Wall::from_rfc3339("1969-12-31T00:00:00Z").is_err());
        assert!(Wall::from_rfc3339("yesterday").is_err());
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Wall::from_ms(5).minus(Duration::from_secs(1)), Wall::from_ms(0));
        assert_eq!(Wall::from_ms(u64::MAX).plus(Duration::MAX), Wall::from_ms(u64::MAX));
        assert_eq!(Wall::from_ms(1).since(Wall::from_ms(2)), Duration::ZERO);
        assert_eq!(
            Mono::from_start(Duration::MAX)
                .plus(Duration::MAX)
                .since(Mono::from_start(Duration::MAX)),
            Duration::ZERO
        );
    }
}
