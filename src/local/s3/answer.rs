//! What S3 says of an object or a page of them, and what a put says of the object to be.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use s3s::dto::{
    Checksum, CommonPrefix, ETag, ETagCondition, GetObjectInput, GetObjectOutput, HeadObjectOutput,
    ListObjectsV2Input, ListObjectsV2Output, PutObjectInput, PutObjectOutput, ServerSideEncryption,
    Timestamp,
};
use s3s::{Body, S3Result, s3_error};

use super::checksum;
use super::store::{Object, Page};
use crate::domain::id::hex;
use crate::domain::time::Wall;

/// The time as S3 writes it.
pub(super) fn timestamp(wall: Wall) -> Timestamp {
    Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_millis(wall.as_ms()))
}

/// The object that a put makes.
pub(super) fn object(input: &PutObjectInput, body: Bytes, checksum: Checksum, now: Wall) -> Object {
    let aes256 = || ServerSideEncryption::from_static(ServerSideEncryption::AES256);
    Object {
        e_tag: ETag::Strong(hex(&checksum::md5(&body))),
        body,
        modified: now,
        checksum,
        metadata: input.metadata.clone(),
        content_type: input.content_type.clone(),
        content_encoding: input.content_encoding.clone(),
        encryption: input.server_side_encryption.clone().unwrap_or_else(aes256),
        kms_key_id: input.ssekms_key_id.clone(),
        bucket_key: input.bucket_key_enabled,
    }
}

/// The answer to a put.
pub(super) fn put(object: &Object) -> PutObjectOutput {
    let Checksum {
        checksum_crc32,
        checksum_crc32c,
        checksum_crc64nvme,
        checksum_sha1,
        checksum_sha256,
        checksum_type,
    } = object.checksum.clone();
    PutObjectOutput {
        e_tag: Some(object.e_tag.clone()),
        checksum_crc32,
        checksum_crc32c,
        checksum_crc64nvme,
        checksum_sha1,
        checksum_sha256,
        checksum_type,
        server_side_encryption: Some(object.encryption.clone()),
        ssekms_key_id: object.kms_key_id.clone(),
        bucket_key_enabled: object.bucket_key,
        ..PutObjectOutput::default()
    }
}

/// The answer to a get, after its conditions and range.
pub(super) fn get(object: &Object, input: &GetObjectInput) -> S3Result<GetObjectOutput> {
    check(object, input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let total = object.body.len();
    let (body, content_range) = match input.range {
        None => (object.body.clone(), None),
        Some(range) => {
            let range = range.check(total as u64)?;
            let at = |n: u64| usize::try_from(n).unwrap_or(total).min(total);
            let content_range = format!("bytes {}-{}/{total}", range.start, range.end - 1);
            (object.body.slice(at(range.start)..at(range.end)), Some(content_range))
        }
    };
    let head = head(object, input.checksum_mode.is_some() && content_range.is_none());
    Ok(GetObjectOutput {
        content_length: i64::try_from(body.len()).ok(),
        content_range,
        body: Some(Body::from(body).into()),
        accept_ranges: head.accept_ranges,
        bucket_key_enabled: head.bucket_key_enabled,
        checksum_crc32: head.checksum_crc32,
        checksum_crc32c: head.checksum_crc32c,
        checksum_crc64nvme: head.checksum_crc64nvme,
        checksum_sha1: head.checksum_sha1,
        checksum_sha256: head.checksum_sha256,
        content_encoding: head.content_encoding,
        content_type: head.content_type,
        e_tag: head.e_tag,
        last_modified: head.last_modified,
        metadata: head.metadata,
        server_side_encryption: head.server_side_encryption,
        ssekms_key_id: head.ssekms_key_id,
        ..GetObjectOutput::default()
    })
}

/// The answer to a head.
pub(super) fn head(object: &Object, with_checksum: bool) -> HeadObjectOutput {
    let checksum = if with_checksum { object.checksum.clone() } else { Checksum::default() };
    HeadObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        bucket_key_enabled: object.bucket_key,
        checksum_crc32: checksum.checksum_crc32,
        checksum_crc32c: checksum.checksum_crc32c,
        checksum_crc64nvme: checksum.checksum_crc64nvme,
        checksum_sha1: checksum.checksum_sha1,
        checksum_sha256: checksum.checksum_sha256,
        content_encoding: object.content_encoding.clone(),
        content_length: i64::try_from(object.body.len()).ok(),
        content_type: object.content_type.clone(),
        e_tag: Some(object.e_tag.clone()),
        last_modified: Some(timestamp(object.modified)),
        metadata: object.metadata.clone(),
        server_side_encryption: Some(object.encryption.clone()),
        ssekms_key_id: object.kms_key_id.clone(),
        ..HeadObjectOutput::default()
    }
}

/// The conditions of a read.
pub(super) fn check(
    object: &Object,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    let is = |condition: &ETagCondition| match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(e_tag) => *e_tag == object.e_tag,
    };
    if if_match.is_some_and(|condition| !is(condition)) {
        return Err(s3_error!(PreconditionFailed, "the object has another ETag"));
    }
    if if_none_match.is_some_and(is) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

/// The answer to a listing; `next` is the token of the next page.
pub(super) fn list(
    input: ListObjectsV2Input,
    page: Page,
    max: usize,
    next: Option<String>,
) -> ListObjectsV2Output {
    ListObjectsV2Output {
        key_count: i32::try_from(page.len()).ok(),
        is_truncated: Some(next.is_some()),
        next_continuation_token: next,
        contents: Some(
            page.objects.into_iter().map(|(key, object)| listed(key, &object)).collect(),
        ),
        common_prefixes: Some(
            page.prefixes.into_iter().map(|p| CommonPrefix { prefix: Some(p) }).collect(),
        ),
        name: Some(input.bucket),
        prefix: input.prefix,
        max_keys: i32::try_from(max).ok(),
        continuation_token: input.continuation_token,
        delimiter: input.delimiter,
        start_after: input.start_after,
        ..ListObjectsV2Output::default()
    }
}

fn listed(key: String, object: &Object) -> s3s::dto::Object {
    s3s::dto::Object {
        key: Some(key),
        size: i64::try_from(object.body.len()).ok(),
        e_tag: Some(object.e_tag.clone()),
        last_modified: Some(timestamp(object.modified)),
        ..s3s::dto::Object::default()
    }
}
