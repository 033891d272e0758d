//! The errors SQS models, with the two names each has on the wire.
//!
//! A JSON answer carries the shape's name, and beside it, in `x-amzn-query-error`, the code that the older
//! query protocol used; SDKs show the latter. Texts are close to AWS's, and never quote a body.
//! Source: Amazon SQS API Reference and its service model. Absent: throttling and KMS errors.

/// A call, or a batch entry, that SQS refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SqsError {
    /// No queue has this name.
    #[error("the specified queue does not exist")]
    QueueDoesNotExist,
    /// A queue of this name has other attributes.
    #[error("a queue already exists with the same name and a different value for attribute {0}")]
    QueueNameExists(String),
    /// A parameter's value is refused.
    #[error("value for parameter {parameter} is invalid. Reason: {reason}")]
    InvalidParameterValue {
        /// The parameter.
        parameter: &'static str,
        /// Why.
        reason: String,
    },
    /// A parameter is missing.
    #[error("the request must contain the parameter {0}")]
    MissingParameter(&'static str),
    /// The queue has no attribute of this name.
    #[error("unknown attribute {0}")]
    InvalidAttributeName(String),
    /// The attribute does not take this value.
    #[error("invalid value for the parameter {0}")]
    InvalidAttributeValue(String),
    /// A body or attribute holds characters outside SQS's set.
    #[error(
        "invalid characters were found: only #x9, #xA, #xD, #x20 to #xD7FF, #xE000 to #xFFFD, #x10000 to #x10FFFF"
    )]
    InvalidMessageContents,
    /// The message is not in flight.
    #[error("the specified message is not in flight")]
    MessageNotInflight,
    /// The receipt handle is none of this queue's.
    #[error("the input receipt handle is invalid")]
    ReceiptHandleIsInvalid,
    /// Too many messages of a standard queue are in flight.
    #[error("too many messages are in flight")]
    OverLimit,
    /// The batch holds no entry.
    #[error("there should be at least one entry in the request")]
    EmptyBatchRequest,
    /// The batch holds more than ten entries.
    #[error("maximum number of entries per request is 10")]
    TooManyEntriesInBatchRequest,
    /// Two entries have one id.
    #[error("id {0} repeated")]
    BatchEntryIdsNotDistinct(String),
    /// An entry's id is refused.
    #[error(
        "a batch entry id can only contain alphanumeric characters, hyphens and underscores, at most 80"
    )]
    InvalidBatchEntryId,
    /// The entries together are too large.
    #[error("batch requests cannot be longer than {max_bytes} bytes")]
    BatchRequestTooLong {
        /// The largest sum, in bytes.
        max_bytes: usize,
    },
    /// What a message move task names does not exist.
    #[error("the resource that you specified for the {0} parameter does not exist")]
    ResourceNotFound(&'static str),
    /// The operation is none that is served.
    #[error("the action {0} is not valid for this endpoint")]
    UnknownOperation(String),
    /// The request's body is no JSON of the operation's form.
    #[error("{0}")]
    Serialization(String),
}

impl SqsError {
    /// A refused parameter.
    pub(super) fn parameter(parameter: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidParameterValue { parameter, reason: reason.into() }
    }

    /// The shape's name: `__type` of a JSON answer, with its namespace.
    #[must_use]
    pub const fn shape(&self) -> &'static str {
        match self {
            Self::QueueDoesNotExist => "com.amazonaws.sqs#QueueDoesNotExist",
            Self::QueueNameExists(_) => "com.amazonaws.sqs#QueueNameExists",
            Self::InvalidParameterValue { .. } => {
                "com.amazon.coral.service#InvalidParameterValueException"
            }
            Self::MissingParameter(_) => {
                "com.amazon.coral.service#MissingRequiredParameterException"
            }
            Self::InvalidAttributeName(_) => "com.amazonaws.sqs#InvalidAttributeName",
            Self::InvalidAttributeValue(_) => "com.amazonaws.sqs#InvalidAttributeValue",
            Self::InvalidMessageContents => "com.amazonaws.sqs#InvalidMessageContents",
            Self::MessageNotInflight => "com.amazonaws.sqs#MessageNotInflight",
            Self::ReceiptHandleIsInvalid => "com.amazonaws.sqs#ReceiptHandleIsInvalid",
            Self::OverLimit => "com.amazonaws.sqs#OverLimit",
            Self::EmptyBatchRequest => "com.amazonaws.sqs#EmptyBatchRequest",
            Self::TooManyEntriesInBatchRequest => "com.amazonaws.sqs#TooManyEntriesInBatchRequest",
            Self::BatchEntryIdsNotDistinct(_) => "com.amazonaws.sqs#BatchEntryIdsNotDistinct",
            Self::InvalidBatchEntryId => "com.amazonaws.sqs#InvalidBatchEntryId",
            Self::BatchRequestTooLong { .. } => "com.amazonaws.sqs#BatchRequestTooLong",
            Self::ResourceNotFound(_) => "com.amazonaws.sqs#ResourceNotFoundException",
            Self::UnknownOperation(_) => "com.amazon.coral.service#UnknownOperationException",
            Self::Serialization(_) => "com.amazon.coral.service#SerializationException",
        }
    }

    /// The code of the query protocol: what SDKs show, and what a failed batch entry carries.
    #[must_use]
    pub const fn query_code(&self) -> &'static str {
        match self {
            Self::QueueDoesNotExist => "AWS.SimpleQueueService.NonExistentQueue",
            Self::QueueNameExists(_) => "QueueAlreadyExists",
            Self::InvalidParameterValue { .. } => "InvalidParameterValue",
            Self::MissingParameter(_) => "MissingParameter",
            Self::InvalidAttributeName(_) => "InvalidAttributeName",
            Self::InvalidAttributeValue(_) => "InvalidAttributeValue",
            Self::InvalidMessageContents => "InvalidMessageContents",
            Self::MessageNotInflight => "AWS.SimpleQueueService.MessageNotInflight",
            Self::ReceiptHandleIsInvalid => "ReceiptHandleIsInvalid",
            Self::OverLimit => "OverLimit",
            Self::EmptyBatchRequest => "AWS.SimpleQueueService.EmptyBatchRequest",
            Self::TooManyEntriesInBatchRequest => {
                "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"
            }
            Self::BatchEntryIdsNotDistinct(_) => "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
            Self::InvalidBatchEntryId => "AWS.SimpleQueueService.InvalidBatchEntryId",
            Self::BatchRequestTooLong { .. } => "AWS.SimpleQueueService.BatchRequestTooLong",
            Self::ResourceNotFound(_) => "ResourceNotFoundException",
            Self::UnknownOperation(_) => "InvalidAction",
            Self::Serialization(_) => "MalformedQueryString",
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::ResourceNotFound(_) => 404,
            _ => 400,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_names_of_an_error_are_aws_s() {
        let error = SqsError::QueueDoesNotExist;
        assert_eq!(error.shape(), "com.amazonaws.sqs#QueueDoesNotExist");
        assert_eq!(error.query_code(), "AWS.SimpleQueueService.NonExistentQueue");
        assert_eq!(SqsError::ResourceNotFound("SourceArn").status(), 404);
    }
}
