//! Checksums of an object: those that came with it are checked, and kept to be shown again.
//!
//! A checksum comes in a header or, with an aws-chunked body, in a trailer. Without any, CRC64NVME is
//! computed, as S3 does.

use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::{Checksum, PutObjectInput};
use s3s::{S3Result, TrailingHeaders, s3_error};

/// The checksums that a put carries.
pub(super) fn given(input: &PutObjectInput, trailers: Option<&TrailingHeaders>) -> Checksum {
    let trailer = |name: &str| {
        trailers?.read(|headers| headers.get(name)?.to_str().ok().map(str::to_owned)).flatten()
    };
    let or_trailer = |header: &Option<String>, name: &str| header.clone().or_else(|| trailer(name));
    Checksum {
        checksum_crc32: or_trailer(&input.checksum_crc32, "x-amz-checksum-crc32"),
        checksum_crc32c: or_trailer(&input.checksum_crc32c, "x-amz-checksum-crc32c"),
        checksum_crc64nvme: or_trailer(&input.checksum_crc64nvme, "x-amz-checksum-crc64nvme"),
        checksum_sha1: or_trailer(&input.checksum_sha1, "x-amz-checksum-sha1"),
        checksum_sha256: or_trailer(&input.checksum_sha256, "x-amz-checksum-sha256"),
        checksum_type: None,
    }
}

/// Checks the given checksums against the body, and returns what the object is to show.
pub(super) fn verify(body: &[u8], given: &Checksum) -> S3Result<Checksum> {
    let mut hasher = ChecksumHasher {
        crc32: given.checksum_crc32.is_some().then(Crc32::new),
        crc32c: given.checksum_crc32c.is_some().then(Crc32c::new),
        sha1: given.checksum_sha1.is_some().then(Sha1::new),
        sha256: given.checksum_sha256.is_some().then(Sha256::new),
        crc64nvme: given.checksum_crc64nvme.is_some().then(Crc64Nvme::new),
    };
    let none = *given == Checksum::default();
    if none {
        hasher.crc64nvme = Some(Crc64Nvme::new());
    }
    hasher.update(body);
    let computed = hasher.finalize();
    if none || computed == *given {
        Ok(computed)
    } else {
        Err(s3_error!(BadDigest, "the checksum you specified did not match what we received"))
    }
}

/// The MD5 of a body: a single put's ETag.
pub(super) fn md5(body: &[u8]) -> [u8; 16] {
    Md5::checksum(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_checksum_is_kept_and_a_wrong_one_refused() {
        let sha256 = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
        let right = Checksum { checksum_sha256: Some(sha256.into()), ..Checksum::default() };
        assert!(verify(b"hello", &right).is_ok_and(|shown| shown == right));
        assert!(verify(b"hullo", &right).is_err());
    }

    #[test]
    fn without_any_a_default_is_computed() {
        let shown = verify(b"hello", &Checksum::default()).unwrap();
        assert!(shown.checksum_crc64nvme.is_some() && shown.checksum_sha256.is_none());
    }
}
