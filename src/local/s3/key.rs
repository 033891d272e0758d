//! The one access key. Its secret is the same word, and the refusal of any other key says so.

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};

use crate::local::KEY;

/// Knows the key `test`.
pub(super) struct TestKey;

#[async_trait::async_trait]
impl S3Auth for TestKey {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == KEY {
            Ok(SecretKey::from(KEY))
        } else {
            Err(s3_error!(
                InvalidAccessKeyId,
                "the embedded AWS knows one key only: use AWS_ACCESS_KEY_ID=test and AWS_SECRET_ACCESS_KEY=test"
            ))
        }
    }
}
