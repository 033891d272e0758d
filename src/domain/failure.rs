//! What went wrong with one attempt, and what follows from it.
//!
//! Two axes are kept apart: the *class* of a port error (what the service said) and the *kind* of a
//! handler's failure (what the work said). Only [`ErrorClass::blames_dependency`] decides that a fault
//! is nobody's (G6). Unknown is transient, never permanent.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a port error means, whatever service it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The service asked for fewer calls.
    Throttled,
    /// The service or the network failed; the same call may succeed later. Also every unknown answer.
    Transient,
    /// The named thing does not exist.
    NotFound,
    /// A condition on the write did not hold: the only verdict a write can give.
    ConditionLost,
    /// The caller may not do this.
    Denied,
    /// The request itself is wrong and will be refused again.
    Invalid,
    /// An answer that makes no sense.
    Bug,
}

impl ErrorClass {
    /// Whether this is a dependency's fault (G6): no attempt is counted and the message waits.
    /// A lost condition is a verdict, not a fault.
    #[must_use]
    pub const fn blames_dependency(self) -> bool {
        match self {
            Self::Throttled
            | Self::Transient
            | Self::NotFound
            | Self::Denied
            | Self::Invalid
            | Self::Bug => true,
            Self::ConditionLost => false,
        }
    }
}

/// An error code: `^[A-Z][A-Z0-9_]{0,63}$`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ErrorCode(String);

impl ErrorCode {
    /// Makes a code of any text: upper-cased, other characters become `_`, cut to 64; if it still does
    /// not match, `E_` goes before it.
    #[must_use]
    pub fn normalize(text: &str) -> Self {
        let mut code: String = text
            .trim()
            .chars()
            .take(64)
            .map(|c| c.to_ascii_uppercase())
            .map(|c| if c.is_ascii_uppercase() || c.is_ascii_digit() { c } else { '_' })
            .collect();
        if !code.starts_with(|c: char| c.is_ascii_uppercase()) {
            code = format!("E_{code}");
            code.truncate(64);
        }
        Self(code)
    }

    /// The code's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ErrorCode {
    fn from(text: String) -> Self {
        Self::normalize(&text)
    }
}

impl From<&str> for ErrorCode {
    fn from(text: &str) -> Self {
        Self::normalize(text)
    }
}

impl From<ErrorCode> for String {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a message was parked: whether retrying could have helped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// The same input will fail again.
    Permanent,
    /// The attempts are used up.
    Exhausted,
}

/// Why a message was parked: what kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The last failure was permanent.
    Validation,
    /// The last failure was transient, a time-out, a panic or a crash.
    Exception,
    /// The handler reported a confidence below the floor.
    LowConfidence,
    /// The receive count reached its limit with fewer recorded attempts than `max_attempts`.
    ReceivesExhausted,
    /// Adopted without a source ARN.
    Unknown,
}

impl Reason {
    /// The text of this reason in every stored format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Exception => "exception",
            Self::LowConfidence => "low_confidence",
            Self::ReceivesExhausted => "receives_exhausted",
            Self::Unknown => "unknown",
        }
    }
}

impl Disposition {
    /// The text of this disposition in every stored format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Exhausted => "exhausted",
        }
    }
}

/// Whether a failed attempt may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The same input will fail again: park now.
    Permanent,
    /// It may succeed later. Everything unknown is this.
    Transient {
        /// How long the handler asked to wait.
        retry_after: Option<Duration>,
    },
    /// The handler was done but not sure enough: park as `low_confidence`.
    LowConfidence,
}

/// What the handler's language knows of the exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// The exception's type.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Its message.
    #[serde(default)]
    pub message: String,
    /// Its traceback, or the tail of stderr.
    #[serde(default)]
    pub traceback: String,
}

/// One failed attempt, in the words of the outcome contract.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Whether to try again.
    pub kind: FailureKind,
    /// The code that failures are grouped by.
    pub error_code: ErrorCode,
    /// The full text.
    pub message: String,
    /// What a validator produced, whole.
    pub validation_output: Option<serde_json::Value>,
    /// The exception, if there was one.
    pub exception: Option<Exception>,
    /// The confidence, if one was reported.
    pub confidence: Option<f64>,
}

/// A finished attempt.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Done {
    /// The confidence, if one was reported.
    pub confidence: Option<f64>,
}

impl Failure {
    /// A permanent failure.
    #[must_use]
    pub fn permanent(error_code: &str, message: impl Into<String>) -> Self {
        Self::new(FailureKind::Permanent, error_code, message)
    }

    /// A transient failure.
    #[must_use]
    pub fn transient(error_code: &str, message: impl Into<String>) -> Self {
        Self::new(FailureKind::Transient { retry_after: None }, error_code, message)
    }

    fn new(kind: FailureKind, error_code: &str, message: impl Into<String>) -> Self {
        Self {
            kind,
            error_code: ErrorCode::normalize(error_code),
            message: message.into(),
            validation_output: None,
            exception: None,
            confidence: None,
        }
    }

    /// The name of this outcome in `history`.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match self.kind {
            FailureKind::Permanent => "permanent",
            FailureKind::Transient { .. } => "transient",
            FailureKind::LowConfidence => "low_confidence",
        }
    }
}

impl Done {
    /// The failure that a confidence below `floor` is, if it is one.
    #[must_use]
    pub fn below_floor(self, floor: f64) -> Option<Failure> {
        let confidence = self.confidence.filter(|c| c.is_nan() || *c < floor)?;
        let message = format!("confidence {confidence} is below the floor {floor}");
        let mut failure = Failure::new(FailureKind::LowConfidence, "LOW_CONFIDENCE", message);
        failure.confidence = Some(confidence);
        Some(failure)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn codes_are_normalised_as_documented() {
        for (text, code) in [
            ("ISRC_MALFORMED", "ISRC_MALFORMED"),
            ("no such territory", "NO_SUCH_TERRITORY"),
            ("404", "E_404"),
            ("", "E_"),
            ("straße", "STRA_E"),
        ] {
            assert_eq!(ErrorCode::normalize(text).as_str(), code, "{text:?}");
        }
    }

    #[test]
    fn only_a_lost_condition_is_a_verdict() {
        use ErrorClass as C;
        for class in [C::Throttled, C::Transient, C::NotFound, C::Denied, C::Invalid, C::Bug] {
            assert!(class.blames_dependency(), "{class:?}");
        }
        assert!(!C::ConditionLost.blames_dependency());
    }

    #[test]
    fn confidence_is_judged_only_when_reported() {
        assert_eq!(Done::default().below_floor(0.75), None);
        assert_eq!(Done { confidence: Some(0.75) }.below_floor(0.75), None);
        assert!(Done { confidence: Some(0.62) }.below_floor(0.75).is_some());
        assert!(Done { confidence: Some(f64::NAN) }.below_floor(0.75).is_some());
    }

    proptest! {
        #[test]
        fn every_code_matches_its_form(text in ".{0,200}") {
            let code = ErrorCode::normalize(&text);
            let mut chars = code.as_str().chars();
            prop_assert!(chars.next().is_some_and(|c| c.is_ascii_uppercase()));
            prop_assert!(chars.all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            prop_assert!(code.as_str().len() <= 64);
        }
    }
}
