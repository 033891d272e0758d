//! The body of a put: collected whole, within bounds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use s3s::dto::StreamingBlob;
use s3s::{S3Result, s3_error};

use super::checksum;

/// The largest object, in bytes: twice the largest payload that a worker takes by default.
const MAX_OBJECT_BYTES: usize = 128 * 1024 * 1024;

/// The whole body, which is refused when it is too large or not as signed.
pub(super) async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let mut bytes = BytesMut::new();
    let Some(mut body) = body else { return Ok(bytes.freeze()) };
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| {
            let mut refused = s3_error!(IncompleteBody, "the body ended early or is not as signed");
            refused.set_source(error);
            refused
        })?;
        if bytes.len() + chunk.len() > MAX_OBJECT_BYTES {
            return Err(s3_error!(
                EntityTooLarge,
                "an object holds {MAX_OBJECT_BYTES} bytes at most"
            ));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// Checks a `Content-MD5`.
pub(super) fn check_md5(body: &[u8], given: Option<&str>) -> S3Result<()> {
    match given {
        Some(given) if given != STANDARD.encode(checksum::md5(body)) => {
            Err(s3_error!(BadDigest, "the Content-MD5 did not match what we received"))
        }
        _ => Ok(()),
    }
}
