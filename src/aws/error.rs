//! The one mapping of SDK errors to [`PortError`].
//!
//! A service is known by its code, in all the spellings of its protocols; without a code, by the HTTP
//! status. Unknown is transient. What goes into the error is the code and the request id, never the
//! service's message, which may quote a payload or a receipt handle.

use std::error::Error as StdError;

use aws_sdk_sqs::error::{ConnectorError, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::RequestId;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::domain::failure::ErrorClass;
use crate::port::error::{PortError, Reached, Target};

/// The longest code kept, in characters.
const CODE_CHARS: usize = 100;

/// One call, so that its errors name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    target: Target,
    operation: &'static str,
    object: &'a str,
}

impl<'a> Call<'a> {
    pub(super) const fn new(target: Target, operation: &'static str, object: &'a str) -> Self {
        Self { target, operation, object }
    }

    /// The call failed in the SDK or the service.
    pub(super) fn failed<E>(&self, error: &SdkError<E, HttpResponse>) -> PortError
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        let status = error.raw_response().map(|raw| raw.status().as_u16());
        match error {
            SdkError::ServiceError(service) => {
                let code = service.err().code().unwrap_or_default();
                self.refused(code, status).with_request_id(error.request_id().map(Into::into))
            }
            SdkError::ResponseError(_) => self
                .refused("", status)
                .with_request_id(error.request_id().map(Into::into))
                .with_reached(Reached::NoAnswer),
            SdkError::TimeoutError(_) => self.unanswered("timeout"),
            SdkError::DispatchFailure(dispatch) => self.undelivered(dispatch.as_connector_error()),
            other => self.undelivered_because(other),
        }
    }

    /// The service refused with a raw code, or with a bare HTTP status.
    pub(super) fn refused(&self, raw_code: &str, status: Option<u16>) -> PortError {
        let code = bare_code(raw_code);
        if code.is_empty() {
            let status = status.unwrap_or_default();
            return self.error(class_of_status(status), format!("HTTP {status}"));
        }
        let by_code = class_of_code(code);
        let class = by_code.unwrap_or_else(|| class_of_status(status.unwrap_or_default()));
        self.error(class, printable(code))
    }

    /// No answer came.
    pub(super) fn unanswered(&self, what: &'static str) -> PortError {
        self.error(ErrorClass::Transient, what).with_reached(Reached::NoAnswer)
    }

    /// The answer makes no sense.
    pub(super) fn nonsense(&self, what: impl Into<String>) -> PortError {
        self.error(ErrorClass::Bug, what)
    }

    /// The request was not made, being wrong.
    pub(super) fn invalid(&self, what: impl Into<String>) -> PortError {
        self.error(ErrorClass::Invalid, what)
    }

    fn error(&self, class: ErrorClass, code: impl Into<String>) -> PortError {
        PortError::new(class, self.target, self.operation, self.object, code)
    }

    fn undelivered(&self, error: Option<&ConnectorError>) -> PortError {
        match error {
            Some(error) if error.is_timeout() => self.unanswered("timeout"),
            Some(error) => self.undelivered_because(error),
            None => self.unanswered("not sent"),
        }
    }

    fn undelivered_because(&self, error: &(dyn StdError + 'static)) -> PortError {
        let mut cause = Some(error);
        let mut fault = None;
        while let (None, Some(error)) = (fault, cause) {
            fault = fault_of(error);
            cause = error.source();
        }
        match fault.unwrap_or(Fault::Other) {
            Fault::Credentials => self
                .error(ErrorClass::Denied, "CredentialsNotLoaded")
                .with_reached(Reached::NoAnswer),
            Fault::Region => {
                self.error(ErrorClass::Invalid, "RegionNotSet").with_reached(Reached::NoAnswer)
            }
            Fault::Network(what) => self.unanswered(what),
            Fault::Other => self.unanswered("not sent"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Network(&'static str),
    Credentials,
    Region,
    Other,
}

/// Names a fault below HTTP. Texts are only looked at, never passed on.
fn fault_of(cause: &(dyn StdError + 'static)) -> Option<Fault> {
    use std::io::ErrorKind;
    if let Some(io) = cause.downcast_ref::<std::io::Error>() {
        let what = match io.kind() {
            ErrorKind::ConnectionRefused => "connection refused",
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                "connection reset"
            }
            ErrorKind::TimedOut => "timeout",
            ErrorKind::UnexpectedEof => "connection closed",
            _ => return None,
        };
        return Some(Fault::Network(what));
    }
    let text = cause.to_string().to_ascii_lowercase();
    if text.contains("credentials") {
        Some(Fault::Credentials)
    } else if text.contains("missing") && text.contains("region") {
        Some(Fault::Region)
    } else if text.contains("dns error") {
        Some(Fault::Network("dns"))
    } else if text.contains("connection closed") {
        Some(Fault::Network("connection closed"))
    } else {
        None
    }
}

/// The code without the namespace, URL and fault that protocols put around it:
/// `com.amazonaws.sqs#QueueDoesNotExist`, `AWS.SimpleQueueService.NonExistentQueue;Sender`.
fn bare_code(raw: &str) -> &str {
    let code = raw.split([';', ':']).next().unwrap_or_default();
    let code = code.rsplit('#').next().unwrap_or_default().trim();
    code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code)
}

/// The text of a service's code as it is kept.
pub(super) fn code_text(raw: &str) -> String {
    printable(bare_code(raw))
}

/// Whether a code names a fault that passes by itself, whoever the service says is at fault.
pub(super) fn is_passing(code: &str) -> bool {
    matches!(class_of_code(code), Some(ErrorClass::Throttled | ErrorClass::Transient))
}

fn printable(code: &str) -> String {
    code.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(CODE_CHARS).collect()
}

fn class_of_status(status: u16) -> ErrorClass {
    match status {
        429 => ErrorClass::Throttled,
        401 | 403 => ErrorClass::Denied,
        404 => ErrorClass::NotFound,
        412 => ErrorClass::ConditionLost,
        408 | 409 => ErrorClass::Transient,
        400..=499 => ErrorClass::Invalid,
        _ => ErrorClass::Transient,
    }
}

/// The class of a bare code; `None` if it is not known, and the status decides.
fn class_of_code(code: &str) -> Option<ErrorClass> {
    Some(match code {
        "Throttling" | "ThrottlingException" | "ThrottledException" | "RequestThrottled"
        | "RequestThrottledException" | "RequestLimitExceeded" | "TooManyRequestsException"
        | "ProvisionedThroughputExceeded" | "ProvisionedThroughputExceededException"
        | "ThroughputExceeded" | "LimitExceededException" | "BandwidthLimitExceeded"
        | "SlowDown" | "TransactionThrottled" | "OverLimit" | "KmsThrottled"
        | "KMS.ThrottlingException" | "ThrottlingError" => ErrorClass::Throttled,

        "InternalError" | "InternalFailure" | "InternalServerError" | "ServiceUnavailable"
        | "ServiceUnavailableException" | "RequestTimeout" | "RequestTimeoutException"
        | "TransactionConflict" | "TransactionConflictException" | "TransactionInProgressException"
        | "TransactionCanceledException" | "ReplicatedWriteConflictException"
        | "ConditionalRequestConflict" | "OperationAborted" | "PurgeQueueInProgress"
        | "QueueDeletedRecently" | "ResourceInUseException" | "Busy"
        // The clock, or credentials that are replaced in time.
        | "RequestTimeTooSkewed" | "RequestExpired" | "RequestInTheFuture"
        | "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired"
        // Damage on the way, or a store that does not know the SDK's checksums.
        | "XAmzContentSHA256Mismatch" | "BadDigest" | "InvalidDigest" | "IncompleteBody"
        | "XAmzContentChecksumMismatch" => ErrorClass::Transient,

        "QueueDoesNotExist" | "NonExistentQueue" | "ResourceNotFoundException" | "NoSuchBucket"
        | "NoSuchKey" | "NotFound" | "NoSuchEntity" | "TableNotFoundException"
        | "ReceiptHandleIsInvalid" | "MessageNotInflight" => ErrorClass::NotFound,

        "ConditionalCheckFailed" | "ConditionalCheckFailedException" | "PreconditionFailed" => {
            ErrorClass::ConditionLost
        }

        "AccessDenied" | "AccessDeniedException" | "AuthFailure" | "UnauthorizedOperation"
        | "NotAuthorized" | "OptInRequired" | "InvalidSecurity" | "AllAccessDisabled"
        | "AccountProblem" | "UnrecognizedClientException" | "InvalidClientTokenId"
        | "InvalidAccessKeyId" | "InvalidToken" | "SignatureDoesNotMatch"
        | "InvalidSignatureException" | "IncompleteSignature" | "IncompleteSignatureException"
        | "MissingAuthenticationToken" | "MissingAuthenticationTokenException"
        | "KmsAccessDenied" | "KmsDisabled" | "KmsNotFound" | "KmsInvalidState"
        | "KmsInvalidKeyUsage" | "KmsOptInRequired" => ErrorClass::Denied,
        kms if kms.starts_with("KMS.") => ErrorClass::Denied,

        "ValidationException" | "ValidationError" | "InvalidParameterValue" | "MissingParameter"
        | "InvalidParameterCombination" | "InvalidMessageContents" | "BatchRequestTooLong"
        | "BatchEntryIdsNotDistinct" | "EmptyBatchRequest" | "TooManyEntriesInBatchRequest"
        | "InvalidBatchEntryId" | "InvalidAttributeName" | "InvalidAttributeValue"
        | "UnsupportedOperation" | "UnknownOperation" | "UnknownOperationException"
        | "InvalidAction" | "QueueNameExists" | "QueueAlreadyExists" | "InvalidAddress"
        | "IdempotentParameterMismatchException" | "ItemCollectionSizeLimitExceededException"
        | "EntityTooLarge" | "InvalidArgument" | "InvalidRequest" | "NotImplemented"
        | "PermanentRedirect" | "AuthorizationHeaderMalformed" | "InvalidBucketName"
        | "SerializationException" => ErrorClass::Invalid,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(raw: &str, status: u16) -> ErrorClass {
        Call::new(Target::Sqs, "Test", "object").refused(raw, Some(status)).class()
    }

    #[test]
    fn every_spelling_of_a_code_has_one_class() {
        use ErrorClass as C;
        for (raw, status, expected) in [
            ("AWS.SimpleQueueService.NonExistentQueue", 400, C::NotFound),
            ("AWS.SimpleQueueService.NonExistentQueue;Sender", 400, C::NotFound),
            ("com.amazonaws.sqs#QueueDoesNotExist", 400, C::NotFound),
            ("QueueDoesNotExist", 400, C::NotFound),
            ("QueueDoesNotExist:http://internal.amazon.com/doc/", 400, C::NotFound),
            ("com.amazonaws.sqs#OverLimit", 403, C::Throttled),
            ("OverLimit", 403, C::Throttled),
            ("RequestThrottled", 403, C::Throttled),
            ("Throttling", 400, C::Throttled),
            ("ThrottlingException", 400, C::Throttled),
            (
                "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
                400,
                C::Throttled,
            ),
            ("com.amazonaws.dynamodb.v20120810#RequestLimitExceeded", 400, C::Throttled),
            ("KmsThrottled", 400, C::Throttled),
            ("KMS.ThrottlingException", 400, C::Throttled),
            ("SlowDown", 503, C::Throttled),
            ("TransactionConflict", 400, C::Transient),
            ("InternalServerError", 500, C::Transient),
            ("RequestTimeTooSkewed", 403, C::Transient),
            ("ExpiredTokenException", 400, C::Transient),
            ("XAmzContentSHA256Mismatch", 400, C::Transient),
            ("KmsAccessDenied", 400, C::Denied),
            ("KMS.AccessDeniedException", 400, C::Denied),
            ("KMS.NotFoundException", 400, C::Denied),
            ("AccessDenied", 403, C::Denied),
            ("SignatureDoesNotMatch", 403, C::Denied),
            ("NoSuchBucket", 404, C::NotFound),
            ("NoSuchKey", 404, C::NotFound),
            ("ResourceNotFoundException", 400, C::NotFound),
            ("ReceiptHandleIsInvalid", 404, C::NotFound),
            ("ConditionalCheckFailedException", 400, C::ConditionLost),
            ("ValidationException", 400, C::Invalid),
            ("SomethingNew", 400, C::Invalid),
            ("SomethingNew", 500, C::Transient),
            ("", 503, C::Transient),
            ("", 403, C::Denied),
        ] {
            assert_eq!(class(raw, status), expected, "{raw} {status}");
        }
    }

    #[test]
    fn the_error_keeps_the_code_and_says_whether_an_answer_came() {
        let call = Call::new(Target::Sqs, "SendMessageBatch", "orders-dlq");
        let refused = call.refused("com.amazonaws.sqs#KmsAccessDenied", Some(400));
        assert_eq!(refused.to_string(), "SQS SendMessageBatch on orders-dlq: KmsAccessDenied");
        assert_eq!(refused.reached(), Reached::Answered);
        assert_eq!(call.refused("", Some(502)).code(), "HTTP 502");
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let unsent = call.undelivered(Some(&ConnectorError::io(io.into())));
        assert_eq!((unsent.code(), unsent.reached()), ("connection refused", Reached::NoAnswer));
        assert_eq!(unsent.class(), ErrorClass::Transient);
    }
}
