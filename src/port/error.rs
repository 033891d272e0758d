//! The one error of all ports.
//!
//! It carries what an operator needs (which call on which object, the service's code and request id)
//! and nothing secret: no payload, no receipt handle. [`PortError::class`] is all that decisions see.

use std::fmt;

use crate::domain::failure::ErrorClass;

/// The dependency that a call went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Amazon SQS.
    Sqs,
    /// Amazon S3.
    S3,
    /// Amazon DynamoDB.
    DynamoDb,
    /// AWS STS.
    Sts,
    /// The handler, or the host it lives on.
    Handler,
}

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortError {
    class: ErrorClass,
    target: Target,
    operation: &'static str,
    object: String,
    code: String,
    request_id: Option<String>,
    reached: Reached,
}

/// Whether an answer came back at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// The service answered.
    Answered,
    /// No answer came: whether the call took effect is unknown.
    NoAnswer,
}

impl PortError {
    /// An error of `operation` on `object` (a queue, table, bucket or key). `code` is the service's own
    /// error code, or a short text that names the fault.
    #[must_use]
    pub fn new(
        class: ErrorClass,
        target: Target,
        operation: &'static str,
        object: impl Into<String>,
        code: impl Into<String>,
    ) -> Self {
        Self {
            class,
            target,
            operation,
            object: object.into(),
            code: code.into(),
            request_id: None,
            reached: Reached::Answered,
        }
    }

    /// Adds the service's request id.
    #[must_use]
    pub fn with_request_id(mut self, request_id: Option<String>) -> Self {
        self.request_id = request_id;
        self
    }

    /// Says whether an answer came.
    #[must_use]
    pub const fn with_reached(mut self, reached: Reached) -> Self {
        self.reached = reached;
        self
    }

    /// What the error means.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        self.class
    }

    /// Whether a batch may have been refused as a whole for one of its entries, and each is to be tried alone.
    #[must_use]
    pub fn is_of_an_entry(&self) -> bool {
        self.class == ErrorClass::Invalid
            || matches!(self.code.as_str(), "ReceiptHandleIsInvalid" | "MessageNotInflight")
    }

    /// The dependency.
    #[must_use]
    pub const fn target(&self) -> Target {
        self.target
    }

    /// The service's code.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What a code means where it does not speak for itself, and what to look at.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.code.as_str() {
            "RequestTimeTooSkewed" | "RequestExpired" | "RequestInTheFuture" => {
                "clock skew: this host's clock and AWS's differ, check its time service"
            }
            "InvalidSignatureException" | "SignatureDoesNotMatch" => {
                "a wrong secret key, or clock skew: check this host's time service"
            }
            "OverLimit" => {
                "too many messages in flight, not an empty queue: 120,000 are the limit of a standard queue"
            }
            "ExpiredToken" | "ExpiredTokenException" => {
                "credentials ran out: they are asked for anew"
            }
            _ => return None,
        })
    }

    /// What the call was on.
    #[must_use]
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Whether an answer came back at all.
    #[must_use]
    pub const fn reached(&self) -> Reached {
        self.reached
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqs => "SQS",
            Self::S3 => "S3",
            Self::DynamoDb => "DynamoDB",
            Self::Sts => "STS",
            Self::Handler => "handler",
        })
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, operation, object, code, .. } = self;
        write!(f, "{target} {operation} on {object}: {code}")?;
        if let Some(id) = &self.request_id {
            write!(f, " (request {id})")?;
        }
        self.hint().map_or(Ok(()), |hint| write!(f, ": {hint}"))
    }
}

impl std::error::Error for PortError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_call_the_object_and_what_to_look_at() {
        let error =
            |code| PortError::new(ErrorClass::Transient, Target::Sqs, "Call", "orders", code);
        let plain = error("InternalError").with_request_id(Some("r-1".to_owned()));
        assert_eq!(plain.to_string(), "SQS Call on orders: InternalError (request r-1)");
        for skewed in ["RequestTimeTooSkewed", "InvalidSignatureException"] {
            assert!(error(skewed).to_string().contains("clock skew"), "{skewed}");
        }
        assert!(error("OverLimit").to_string().contains("not an empty queue"));
    }
}
