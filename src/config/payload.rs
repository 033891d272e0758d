//! `[payload]`: where a message's payload is.

use super::error::ConfigError;
use super::name::BucketName;
use super::section::Section;
use super::setting::choice;

choice! {
    /// Where the payload is.
    pub From {
        /// It is the message's body.
        Body = "body",
        /// It is the object that the S3 event in the body names.
        S3Event = "s3-event",
    }
}

/// The payload's place and bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Where it is.
    pub from: From,
    /// The buckets that events and Extended Client pointers may name.
    pub buckets: Vec<BucketName>,
    /// The largest object that is read, in bytes.
    pub max_bytes: u64,
}

/// The largest object that S3 copies or puts in one call, in bytes.
/// Source: Amazon S3 User Guide, "Copying, moving, and renaming objects".
const LARGEST_OBJECT_BYTES: u64 = 5 * 1024 * 1024 * 1024;

impl Payload {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let payload = Self {
            from: s.or("from", From::Body)?,
            buckets: s.or("buckets", Vec::new())?,
            max_bytes: s.number("max_bytes", 64 * 1024 * 1024, 1..=LARGEST_OBJECT_BYTES)?,
        };
        s.finish()?;
        if payload.from == From::S3Event && payload.buckets.is_empty() {
            let problem =
                "must name the buckets that events may point to, with from = \"s3-event\"";
            return Err(ConfigError::of_key("payload.buckets", problem));
        }
        Ok(payload)
    }
}
