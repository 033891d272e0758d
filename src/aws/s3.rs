//! The vault in an S3 bucket.
//!
//! Puts never overwrite (`If-None-Match: *`) and carry the body's SHA-256, given as a header, so that no
//! store has to understand chunked trailers. Keys outside the prefix are refused, so that a forged
//! pointer reads nothing else. Deliberately absent: user metadata (it travels as headers and takes no
//! free text) and deletes.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::error::SdkError;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::operation::put_object::PutObjectError;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ChecksumMode, ServerSideEncryption};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

use super::client::{Aws, OPERATION_TIMEOUT};
use super::error::Call;
use crate::domain::failure::ErrorClass;
use crate::domain::id::EnvelopeKey;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::vault::{LISTED, Vault};

/// The largest object that is read, in bytes: the plan of half a million records. The largest envelope is
/// far below: an SQS body of 1 MiB, escaped, with long error texts.
pub const MAX_OBJECT_BYTES: usize = 64 * 1024 * 1024;
/// How often a put that races another is tried again (409).
const CONFLICT_RETRIES: u32 = 3;
/// The pause before that.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// A vault in S3.
#[derive(Debug, Clone)]
pub struct AwsVault {
    client: Client,
    place: Place,
}

/// Where a vault is, and how its objects are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The bucket.
    pub bucket: String,
    /// The prefix of all keys, without a slash at its end; may be empty.
    pub prefix: String,
    /// The account that must own the bucket, sent with every call.
    pub expected_owner: Option<String>,
    /// The KMS key; none leaves it to the bucket's default encryption.
    pub kms_key_id: Option<String>,
}

impl AwsVault {
    /// The vault at a place. Nothing is called yet.
    #[must_use]
    pub fn new(aws: &Aws, place: Place) -> Self {
        Self { client: aws.s3.clone(), place }
    }

    async fn put_once(
        &self,
        key: &EnvelopeKey,
        body: Bytes,
        sha256: &str,
    ) -> Result<(), SdkError<PutObjectError, HttpResponse>> {
        let kms = self.place.kms_key_id.as_ref();
        self.client
            .put_object()
            .bucket(&self.place.bucket)
            .key(key.as_str())
            .if_none_match("*")
            .checksum_sha256(sha256)
            .content_type("application/json")
            .set_expected_bucket_owner(self.place.expected_owner.clone())
            .set_server_side_encryption(kms.map(|_| ServerSideEncryption::AwsKms))
            .set_ssekms_key_id(kms.cloned())
            .body(ByteStream::from(body))
            .send()
            .await
            .map(|_| ())
    }

    async fn get_whole(&self, key: &EnvelopeKey) -> Result<Bytes, PortError> {
        let call = Call::new(Target::S3, "GetObject", key.as_str());
        let answer = self
            .client
            .get_object()
            .bucket(&self.place.bucket)
            .key(key.as_str())
            .checksum_mode(ChecksumMode::Enabled)
            .set_expected_bucket_owner(self.place.expected_owner.clone())
            .send()
            .await
            .map_err(|e| call.failed(&e))?;
        let body = read_bounded(answer, call).await?;
        match error_in_body(&body) {
            Some(code) => Err(call.refused(&code, Some(503))),
            None => Ok(body),
        }
    }

    async fn list_first(&self, beginning: &str, most: usize) -> Result<Vec<String>, PortError> {
        let call = Call::new(Target::S3, "ListObjectsV2", &self.place.bucket);
        let answer = self
            .client
            .list_objects_v2()
            .bucket(&self.place.bucket)
            .prefix(beginning)
            .max_keys(i32::try_from(most).unwrap_or(i32::MAX))
            .set_expected_bucket_owner(self.place.expected_owner.clone())
            .send()
            .await
            .map_err(|e| call.failed(&e))?;
        Ok(answer.contents.unwrap_or_default().into_iter().filter_map(|o| o.key).collect())
    }

    fn check_prefix(&self, call: Call<'_>, key: &EnvelopeKey) -> Result<(), PortError> {
        let prefix = &self.place.prefix;
        let below = key.as_str().strip_prefix(prefix.as_str());
        let inside = below.is_some_and(|rest| prefix.is_empty() || rest.starts_with('/'));
        if inside { Ok(()) } else { Err(call.invalid("key outside the vault's prefix")) }
    }
}

async fn read_bounded(answer: GetObjectOutput, call: Call<'_>) -> Result<Bytes, PortError> {
    let mut stream = answer.body;
    let mut body = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        // A cut transfer and a wrong checksum both end here: what came is no evidence.
        let chunk = chunk.map_err(|_| call.unanswered("body cut or damaged"))?;
        if body.len().saturating_add(chunk.len()) > MAX_OBJECT_BYTES {
            return Err(call.invalid("larger than any object of ours"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The code of an error that came with status 200. Envelopes are JSON and never begin like this.
fn error_in_body(body: &[u8]) -> Option<String> {
    let head = body.get(..body.len().min(1024)).map(String::from_utf8_lossy)?;
    let head = head.trim_start();
    if !head.starts_with("<?xml") && !head.starts_with("<Error>") {
        return None;
    }
    let code = head.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    Some(code.map_or_else(|| "InternalError".to_owned(), |(code, _)| code.to_owned()))
}

#[async_trait]
impl Vault for AwsVault {
    async fn put(&self, key: &EnvelopeKey, body: Bytes) -> Result<Stored<EnvelopeKey>, PortError> {
        // The key ends in our own token: that it is there means an earlier try of ours got through.
        self.put_new(key, body).await?;
        Ok(Stored::witnessed(key.clone()))
    }

    async fn put_new(
        &self,
        key: &EnvelopeKey,
        body: Bytes,
    ) -> Result<Option<Stored<EnvelopeKey>>, PortError> {
        let call = Call::new(Target::S3, "PutObject", key.as_str());
        self.check_prefix(call, key)?;
        let sha256 = STANDARD.encode(Sha256::digest(&body));
        let mut conflicts = 0;
        loop {
            let Err(error) = self.put_once(key, body.clone(), &sha256).await else {
                return Ok(Some(Stored::witnessed(key.clone())));
            };
            let status = error.raw_response().map(|raw| raw.status().as_u16());
            let failed = call.failed(&error);
            if failed.class() == ErrorClass::ConditionLost {
                return Ok(None);
            }
            if status != Some(409) || conflicts == CONFLICT_RETRIES {
                return Err(failed);
            }
            conflicts += 1;
            tokio::time::sleep(CONFLICT_PAUSE).await;
        }
    }

    async fn check(&self, folder: &str) -> Result<(), PortError> {
        self.list_first(folder, 1).await.map(|_| ())
    }

    async fn get(&self, key: &EnvelopeKey) -> Result<Bytes, PortError> {
        let call = Call::new(Target::S3, "GetObject", key.as_str());
        self.check_prefix(call, key)?;
        // The SDK's time-outs end with the headers; the body has to come within the same bound.
        let whole = tokio::time::timeout(OPERATION_TIMEOUT, self.get_whole(key));
        whole.await.unwrap_or_else(|_| Err(call.unanswered("timeout")))
    }

    async fn list(&self, beginning: &str) -> Result<Vec<EnvelopeKey>, PortError> {
        let keys = self.list_first(beginning, LISTED).await?;
        // What has another form was put there by somebody else.
        Ok(keys.into_iter().filter_map(|key| EnvelopeKey::new(key).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_with_status_200_is_no_envelope() {
        let slow = br#"<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>"#;
        assert_eq!(error_in_body(slow).as_deref(), Some("SlowDown"));
        assert_eq!(error_in_body(b"<?xml").as_deref(), Some("InternalError"));
        assert_eq!(error_in_body(br#"{"schema_version":1}"#), None);
        assert_eq!(error_in_body(b""), None);
    }
}
