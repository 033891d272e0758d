//! Names that AWS gives things, checked against AWS's own rules before any call.

use super::setting::Setting;
use crate::domain::id::{QueueArn, QueueName};

/// A queue, by its name, URL or ARN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRef {
    name: QueueName,
    text: String,
}

impl QueueRef {
    /// The queue's name.
    #[must_use]
    pub const fn name(&self) -> &QueueName {
        &self.name
    }

    /// The text that was given: name, URL or ARN.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Setting for QueueRef {
    fn from_text(text: &str) -> Result<Self, String> {
        let last = if text.starts_with("arn:") {
            QueueArn::new(text).ok().and_then(|arn| arn.name())
        } else if text.starts_with("https://") || text.starts_with("http://") {
            text.rsplit('/').next().and_then(|name| QueueName::new(name).ok())
        } else {
            QueueName::new(text).ok()
        };
        last.map(|name| Self { name, text: text.to_owned() }).ok_or_else(|| {
            format!(
                "{text:?} is no queue: give its name (1 to 80 of A-Z a-z 0-9 - _, with .fifo at the \
                 end for FIFO), URL or ARN"
            )
        })
    }
}

/// Defines a name type with its rule.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $form:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Setting for $name {
            fn from_text(text: &str) -> Result<Self, String> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(format!("{text:?} is no {}: it must be {}", $kind, $form))
                }
            }
        }
    };
}

name!(
    /// An S3 bucket's name.
    BucketName, "bucket name", "3 to 63 of a-z 0-9 . -, beginning and ending with a letter or digit",
    |t| {
        (3..=63).contains(&t.len())
            && t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b))
            && !t.starts_with(['.', '-'])
            && !t.ends_with(['.', '-'])
            && !t.contains("..")
    }
);
name!(
    /// A DynamoDB table's name.
    TableName, "table name", "3 to 255 of A-Z a-z 0-9 _ . -",
    |t| {
        (3..=255).contains(&t.len())
            && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    }
);
name!(
    /// An AWS account's id.
    AccountId, "account id", "12 digits",
    |t| t.len() == 12 && t.bytes().all(|b| b.is_ascii_digit())
);
name!(
    /// An SNS topic's ARN.
    TopicArn, "topic ARN", "arn:PARTITION:sns:REGION:ACCOUNT:NAME",
    |t| {
        let parts: Vec<&str> = t.split(':').collect();
        matches!(parts.as_slice(), ["arn", _, "sns", _, _, name] if !name.is_empty())
    }
);
name!(
    /// What goes before every key in the vault: empty, or without a slash at either end. Short enough
    /// for every envelope's key to keep within its 512 characters.
    Prefix, "prefix", "at most 128 of A-Z a-z 0-9 / _ = . -, without a slash at either end or two dots in a row",
    |t| {
        t.len() <= 128
            && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_=.-".contains(&b))
            && !t.starts_with('/')
            && !t.ends_with('/')
            && !t.contains("..")
    }
);

impl Prefix {
    pub(super) const fn none() -> Self {
        Self(String::new())
    }
}

impl TableName {
    pub(super) fn default_name() -> Self {
        Self("redrive-ledger".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_named_in_three_ways() {
        for text in [
            "orders",
            "https://sqs.eu-west-1.amazonaws.com/000000000000/orders",
            "http://127.0.0.1:4566/000000000000/orders",
            "arn:aws:sqs:eu-west-1:000000000000:orders",
        ] {
            let queue = QueueRef::from_text(text).unwrap();
            assert_eq!((queue.name().as_str(), queue.as_str()), ("orders", text));
        }
        for text in ["", "a b", "https://host/", "arn:aws:s3:::orders", "orders.fif"] {
            assert!(QueueRef::from_text(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_keep_to_the_rules_of_aws() {
        assert!(BucketName::from_text("my-vault").is_ok());
        for bad in ["", "ab", "My-vault", "-vault", "vault-", "a..b", &"x".repeat(64)] {
            assert!(BucketName::from_text(bad).is_err(), "{bad:?}");
        }
        assert!(TableName::from_text("redrive-ledger").is_ok());
        assert!(TableName::from_text("a/b").is_err());
        assert!(AccountId::from_text("000000000000").is_ok());
        assert!(AccountId::from_text("12").is_err());
        assert!(Prefix::from_text("a/b").is_ok());
        for bad in ["/a", "a/", "a/../b", "a b", "ä"] {
            assert!(Prefix::from_text(bad).is_err(), "{bad:?}");
        }
    }
}
