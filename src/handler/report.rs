//! The outcome contract: what an attempt left behind, turned into done or a failure.
//!
//! Pure. Leniency is the rule: a field of the handler's report that has another type than documented is
//! as good as absent, and so is a report that is no JSON object: whether an attempt is done, and whether
//! its failure is permanent, only the exit says. Unknown is transient.
//!
//! Texts are kept as they came, control characters too: what stores or shows them knows its own alphabet.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::domain::failure::{Done, ErrorCode, Exception, Failure, FailureKind};
use crate::domain::message::MAX_VISIBILITY_SECS;

/// `EX_DATAERR` of sysexits.h: the input is wrong, and will be wrong again.
const EX_DATAERR: i32 = 65;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Signaled(i32),
    /// It was killed after running for this long.
    TimedOut(Duration),
}

/// What a process left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// How it ended.
    pub ending: Ending,
    /// The last line of its stdout that is not blank.
    pub stdout_line: Option<String>,
    /// The end of its stderr.
    pub stderr: String,
}

/// What a handler says of its own attempt. Every field may be missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// `error_code`, not yet normalised.
    pub error_code: Option<String>,
    /// `message`.
    pub message: Option<String>,
    /// `validation_output`, whole.
    pub validation_output: Option<Value>,
    /// `confidence`.
    pub confidence: Option<f64>,
    /// `retry_after_s`, at most the longest visibility timeout.
    pub retry_after: Option<Duration>,
}

impl Report {
    /// Reads a line of JSON. Anything but an object is an empty report.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        serde_json::from_str(line).map(Self::from_fields).unwrap_or_default()
    }

    /// Reads the fields of a JSON object.
    #[must_use]
    pub fn from_fields(mut fields: Map<String, Value>) -> Self {
        let number = |name| fields.get(name).and_then(Value::as_f64);
        Self {
            confidence: number("confidence"),
            retry_after: number("retry_after_s").and_then(retry_after),
            error_code: text(&mut fields, "error_code"),
            message: text(&mut fields, "message"),
            validation_output: fields.remove("validation_output").filter(|value| !value.is_null()),
        }
    }

    /// A finished attempt with this report.
    #[must_use]
    pub const fn done(&self) -> Done {
        Done { confidence: self.confidence }
    }

    /// A failed attempt with this report; code and message are for what it does not say.
    #[must_use]
    pub fn failure(self, kind: FailureKind, error_code: &str, message: &str) -> Failure {
        Failure {
            kind,
            error_code: ErrorCode::normalize(self.error_code.as_deref().unwrap_or(error_code)),
            message: self.message.unwrap_or_else(|| message.to_owned()),
            validation_output: self.validation_output,
            exception: None,
            confidence: self.confidence,
        }
    }
}

/// Judges what a process left behind. Exit code 65 is permanent whatever `permanent_exit_codes` holds,
/// and 0 is done.
///
/// # Errors
/// The attempt failed.
pub fn judge(left: Leftover, permanent_exit_codes: &[i32]) -> Result<Done, Box<Failure>> {
    let Leftover { ending, stdout_line, stderr } = left;
    let mut report = match ending {
        Ending::Exited(_) | Ending::Signaled(_) => {
            Report::parse(stdout_line.as_deref().unwrap_or_default())
        }
        // What it last printed was said before the end, so it is no report of it.
        Ending::TimedOut(_) => Report::default(),
    };
    let retry_after = report.retry_after.take();
    let transient = FailureKind::Transient { retry_after };
    let last_words = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let (kind, code, default) = match ending {
        Ending::Exited(0) => return Ok(report.done()),
        Ending::Exited(exit) => {
            let permanent = exit == EX_DATAERR || permanent_exit_codes.contains(&exit);
            let kind = if permanent { FailureKind::Permanent } else { transient };
            (kind, format!("EXIT_{exit}"), format!("exit code {exit}"))
        }
        Ending::Signaled(signal) => {
            (transient, format!("SIGNAL_{signal}"), format!("killed by signal {signal}"))
        }
        Ending::TimedOut(after) => {
            (transient, "HANDLER_TIMEOUT".to_owned(), format!("timed out after {after:?}"))
        }
    };
    let message = match ending {
        Ending::TimedOut(_) => default.as_str(),
        Ending::Exited(_) | Ending::Signaled(_) => last_words.unwrap_or(&default),
    };
    let mut failure = report.failure(kind, &code, message);
    failure.exception = last_words.map(|words| Exception {
        kind: String::new(),
        message: words.to_owned(),
        traceback: stderr.clone(),
    });
    Err(Box::new(failure))
}

fn text(fields: &mut Map<String, Value>, name: &str) -> Option<String> {
    match fields.remove(name) {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(text),
        _ => None,
    }
}

fn retry_after(seconds: f64) -> Option<Duration> {
    let longest = Duration::from_secs(MAX_VISIBILITY_SECS);
    (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(longest).min(longest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn left(ending: Ending, line: &str, stderr: &str) -> Leftover {
        Leftover { ending, stdout_line: Some(line.to_owned()), stderr: stderr.to_owned() }
    }

    fn failed(ending: Ending, line: &str, stderr: &str) -> Failure {
        *judge(left(ending, line, stderr), &[3]).unwrap_err()
    }

    #[test]
    fn only_exit_zero_is_done_and_only_named_codes_are_permanent() {
        assert_eq!(judge(left(Ending::Exited(0), "", "warning"), &[0]), Ok(Done::default()));
        for (ending, outcome, code, message) in [
            (Ending::Exited(65), "permanent", "EXIT_65", "exit code 65"),
            (Ending::Exited(3), "permanent", "EXIT_3", "exit code 3"),
            (Ending::Exited(75), "transient", "EXIT_75", "exit code 75"),
            (Ending::Exited(1), "transient", "EXIT_1", "exit code 1"),
            (Ending::Exited(137), "transient", "EXIT_137", "exit code 137"),
            (Ending::Signaled(9), "transient", "SIGNAL_9", "killed by signal 9"),
            (
                Ending::TimedOut(Duration::from_secs(50)),
                "transient",
                "HANDLER_TIMEOUT",
                "timed out after 50s",
            ),
        ] {
            let failure = failed(ending, "", "");
            assert_eq!(failure.outcome(), outcome, "{ending:?}");
            assert_eq!(failure.error_code.as_str(), code);
            assert_eq!(failure.message, message);
            assert_eq!(failure.exception, None);
        }
    }

    #[test]
    fn a_report_says_what_the_exit_cannot() {
        let line = json!({
            "error_code": "isrc malformed", "message": "ISRC 'x'", "validation_output": [{"row": 1}],
            "confidence": 0.5, "retry_after_s": 1.5,
        })
        .to_string();
        let failure = failed(Ending::Exited(75), &line, "Traceback\n  at x\nboom\n\n");
        assert_eq!(failure.error_code.as_str(), "ISRC_MALFORMED");
        assert_eq!(failure.message, "ISRC 'x'");
        assert_eq!(failure.validation_output, Some(json!([{"row": 1}])));
        assert_eq!(failure.confidence, Some(0.5));
        let retry_after = Some(Duration::from_millis(1500));
        assert_eq!(failure.kind, FailureKind::Transient { retry_after });
        let exception = failure.exception.unwrap();
        assert_eq!(exception.message, "boom");
        assert_eq!(exception.traceback, "Traceback\n  at x\nboom\n\n");

        assert_eq!(failed(Ending::Exited(65), &line, "").kind, FailureKind::Permanent);
        let done = judge(left(Ending::Exited(0), &line, ""), &[]).unwrap();
        assert_eq!(done.confidence, Some(0.5));
    }

    #[test]
    fn without_a_message_the_last_words_on_stderr_are_it() {
        let failure = failed(Ending::Exited(1), "{\"message\": \" \"}", "a\n b \r\n\n");
        assert_eq!(failure.message, "b");
        let after = Ending::TimedOut(Duration::from_secs(1));
        assert_eq!(failed(after, "{\"message\": \"early\"}", "b").message, "timed out after 1s");
    }

    #[test]
    fn what_is_no_report_is_as_good_as_none() {
        for line in [
            "{\"error_code\": \"HALF",
            "[{\"error_code\":\"A\"}]",
            "\"text\"",
            "7",
            "plain",
            "{}",
            "{\"error_code\":7,\"message\":[],\"confidence\":\"1\",\"retry_after_s\":null}",
            "{\"retry_after_s\":-1,\"validation_output\":null}",
            "{\"retry_after_s\":1e999}",
            "{\"message\":\"raw \u{1} control\"}",
        ] {
            let failure = failed(Ending::Exited(1), line, "");
            assert_eq!(failure, Failure::transient("EXIT_1", "exit code 1"), "{line}");
        }
    }

    #[test]
    fn control_characters_in_a_message_are_kept() {
        let failure = failed(Ending::Exited(1), r#"{"message":"a\u0000\u001b[31mb\n"}"#, "");
        assert_eq!(failure.message, "a\0\u{1b}[31mb\n");
    }

    #[test]
    fn the_wait_that_a_handler_asks_for_is_bounded() {
        for (seconds, wait) in [(0.0, 0), (7.0, 7), (1e300, MAX_VISIBILITY_SECS)] {
            assert_eq!(retry_after(seconds), Some(Duration::from_secs(wait)));
        }
    }

    proptest! {
        #[test]
        fn no_output_changes_what_the_exit_says(exit in 0..=255, line in ".*", stderr in ".*") {
            let verdict = judge(left(Ending::Exited(exit), &line, &stderr), &[]);
            let outcome = verdict.as_ref().map_or_else(|failure| failure.outcome(), |_| "done");
            prop_assert_eq!(outcome, match exit { 0 => "done", 65 => "permanent", _ => "transient" });
        }
    }
}
