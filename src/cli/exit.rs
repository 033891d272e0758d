//! Exit codes, and the one mapping of errors to them.
//!
//! The numbers are those of BSD's sysexits.h where it has one.

use std::io;

use crate::config::ConfigError;
use crate::domain::failure::ErrorClass;
use crate::port::error::{PortError, Reached, Target};

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; also when there was nothing to do.
    Ok = 0,
    /// Done in part, or a check failed.
    Partial = 1,
    /// A threshold was exceeded.
    Exceeded = 2,
    /// The command line is wrong, or a prefix means several.
    Usage = 64,
    /// An id on the command line is not found.
    NotFound = 66,
    /// The endpoint could not be reached for 30 s.
    Unreachable = 69,
    /// Try again later.
    TryAgain = 75,
    /// No permission.
    Denied = 77,
    /// Something that the configuration names does not exist or fit.
    Config = 78,
    /// Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// An id on the command line is not found.
    #[error("{0}")]
    NotFound(String),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Configuration and deployment do not fit.
    #[error("{0}")]
    Misfit(String),
    /// A call failed.
    #[error("{}", explain(.0))]
    Port(#[from] PortError),
    /// Part of it could not be done.
    #[error("{0}")]
    Failed(String),
    /// Somebody else is at it.
    #[error("{0}")]
    TryAgain(String),
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl CliError {
    /// The exit code. A closed pipe is not an error: whoever read has enough.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::NotFound(_) => Exit::NotFound,
            Self::Config(_) | Self::Misfit(_) => Exit::Config,
            Self::Port(error) => exit_of(error),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Failed(_) | Self::Output(_) => Exit::Partial,
            Self::TryAgain(_) => Exit::TryAgain,
            Self::Interrupted => Exit::Interrupted,
        }
    }
}

fn exit_of(error: &PortError) -> Exit {
    match (error.class(), error.reached()) {
        (ErrorClass::Denied, _) => Exit::Denied,
        (ErrorClass::NotFound | ErrorClass::Invalid, _) => Exit::Config,
        (ErrorClass::Transient, Reached::NoAnswer) => Exit::Unreachable,
        (ErrorClass::Throttled | ErrorClass::Transient | ErrorClass::ConditionLost, _) => {
            Exit::TryAgain
        }
        (ErrorClass::Bug, _) => Exit::Partial,
    }
}

/// The error with the next step.
fn explain(error: &PortError) -> String {
    let step = match (error.class(), error.target(), error.reached()) {
        (ErrorClass::Denied, _, Reached::NoAnswer) => {
            "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        }
        (ErrorClass::Denied, ..) => "allow it to this identity, or use another one",
        (ErrorClass::NotFound, Target::Sqs, _) => {
            "it does not exist in this account and region: check [source], or run `redrive setup`"
        }
        (ErrorClass::NotFound, Target::S3, _) => {
            "it does not exist: check [vault], or run `redrive setup`"
        }
        (ErrorClass::NotFound, Target::DynamoDb, _) => {
            "it does not exist in this account and region: check [ledger], or run `redrive setup`"
        }
        (ErrorClass::NotFound, Target::Sts | Target::Handler, _) => "check its name",
        (ErrorClass::Transient, _, Reached::NoAnswer) => {
            "the endpoint cannot be reached: check AWS_ENDPOINT_URL, AWS_REGION and the network"
        }
        (ErrorClass::Throttled | ErrorClass::Transient | ErrorClass::ConditionLost, ..) => {
            "try again later"
        }
        (ErrorClass::Invalid, ..) => "check the configuration",
        (ErrorClass::Bug, Target::DynamoDb, _) => {
            "an item of the table is not of the form this program writes: mend or delete it"
        }
        (ErrorClass::Bug, ..) => "this endpoint does not answer as AWS does",
    };
    format!("{error}; {step}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(class: ErrorClass, reached: Reached) -> CliError {
        PortError::new(class, Target::Sqs, "GetQueueUrl", "orders", "CODE")
            .with_reached(reached)
            .into()
    }

    #[test]
    fn errors_of_calls_have_the_documented_codes() {
        use ErrorClass as C;
        for (class, reached, exit) in [
            (C::NotFound, Reached::Answered, Exit::Config),
            (C::Denied, Reached::Answered, Exit::Denied),
            (C::Denied, Reached::NoAnswer, Exit::Denied),
            (C::Transient, Reached::NoAnswer, Exit::Unreachable),
            (C::Transient, Reached::Answered, Exit::TryAgain),
            (C::Throttled, Reached::Answered, Exit::TryAgain),
        ] {
            let error = error(class, reached);
            assert_eq!(error.exit(), exit, "{class:?}");
            let text = error.to_string();
            assert!(text.contains("orders") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let closed = CliError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(closed.exit(), Exit::Ok);
        assert_eq!(CliError::Output(io::ErrorKind::StorageFull.into()).exit(), Exit::Partial);
    }
}
