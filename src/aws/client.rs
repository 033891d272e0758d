//! The clients of all services, from AWS's own variables and profile only.
//!
//! Every attempt and every operation has a time-out, so no call hangs for ever. A receive has its own,
//! longer than its long poll (`receive_timeouts`). Stalled-stream protection is off for S3: it ends
//! slow but live transfers, and the time-outs bound them anyway.
//! Deliberately absent: regions, endpoints and keys of our own.

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider, SharedHttpClient};
use aws_types::service_config::ServiceConfigKey;

use super::error;
use crate::port::error::{PortError, Target};

/// The longest one attempt may take, other than a receive.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest one operation may take with its retries, other than a receive.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(25);
/// How long a connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Attempts of one operation, the first included.
pub const ATTEMPTS: u32 = 3;
/// How much longer than its long poll one attempt of a receive may take.
const RECEIVE_SLACK: Duration = Duration::from_secs(10);
/// How much longer than one attempt a whole receive may take.
const RECEIVE_RETRY: Duration = Duration::from_secs(5);

/// The clients.
#[derive(Debug, Clone)]
pub struct Aws {
    pub(super) sqs: aws_sdk_sqs::Client,
    pub(super) dynamodb: aws_sdk_dynamodb::Client,
    pub(super) s3: aws_sdk_s3::Client,
    pub(super) sts: aws_sdk_sts::Client,
    region: Option<String>,
}

/// Who calls, as STS tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The account.
    pub account: String,
    /// The caller's ARN.
    pub arn: String,
}

impl Aws {
    /// Connects as AWS's own variables and profile say. Nothing is called yet.
    pub async fn connect() -> Self {
        Self::new(&defaults().load().await)
    }

    /// Connects to the embedded AWS at `endpoint`, whatever the environment says: neither its variables,
    /// profiles and proxies nor TLS have a part in it.
    #[must_use]
    pub fn embedded(endpoint: &str) -> Self {
        Self::embedded_through(endpoint, aws_smithy_http_client::Builder::new().build_http())
    }

    /// The same through an HTTP client of the caller's, which carries every request of every service: a
    /// test counts, breaks and answers them there, below the SDK's retries and time-outs.
    #[must_use]
    pub fn embedded_through(endpoint: &str, http_client: SharedHttpClient) -> Self {
        let test = Credentials::builder()
            .access_key_id("test")
            .secret_access_key("test")
            .provider_name("embedded")
            .build();
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http_client)
            .retry_config(retries())
            .timeout_config(timeouts(ATTEMPT_TIMEOUT, OPERATION_TIMEOUT))
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(test))
            .endpoint_url(endpoint);
        Self::new(&config.build())
    }

    fn new(config: &SdkConfig) -> Self {
        let s3 = aws_sdk_s3::config::Builder::from(config)
            .force_path_style(has_own_s3_endpoint(config))
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Self {
            sqs: aws_sdk_sqs::Client::new(config),
            dynamodb: aws_sdk_dynamodb::Client::new(config),
            s3: aws_sdk_s3::Client::from_conf(s3),
            sts: aws_sdk_sts::Client::new(config),
            region: config.region().map(ToString::to_string),
        }
    }

    /// The region in force, if one is set.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// Asks STS who calls.
    ///
    /// # Errors
    /// The call failed, or its answer names nobody.
    pub async fn caller(&self) -> Result<Caller, PortError> {
        let call = error::Call::new(Target::Sts, "GetCallerIdentity", "the caller");
        let answer = self.sts.get_caller_identity().send().await.map_err(|e| call.failed(&e))?;
        match (answer.account, answer.arn) {
            (Some(account), Some(arn)) => Ok(Caller { account, arn }),
            _ => Err(call.nonsense("answer without account or ARN")),
        }
    }
}

fn defaults() -> aws_config::ConfigLoader {
    aws_config::defaults(BehaviorVersion::latest())
        .retry_config(retries())
        .timeout_config(timeouts(ATTEMPT_TIMEOUT, OPERATION_TIMEOUT))
}

fn retries() -> RetryConfig {
    RetryConfig::standard().with_max_attempts(ATTEMPTS)
}

fn timeouts(attempt: Duration, operation: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(attempt)
        .operation_timeout(operation)
        .build()
}

/// The time-outs of a long poll of `wait`: 30 s an attempt for the longest.
pub(super) fn receive_timeouts(wait: Duration) -> TimeoutConfig {
    let attempt = wait.saturating_add(RECEIVE_SLACK);
    timeouts(attempt, attempt.saturating_add(RECEIVE_RETRY))
}

/// Endpoints other than AWS's own seldom resolve a bucket's own host name.
fn has_own_s3_endpoint(config: &SdkConfig) -> bool {
    let own = config.service_config().and_then(|service| {
        let key = ServiceConfigKey::builder()
            .service_id("S3")
            .env("AWS_ENDPOINT_URL")
            .profile("endpoint_url")
            .build()
            .ok()?;
        service.load_config(key)
    });
    own.is_some() || config.endpoint_url().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::ErrorClass;

    #[test]
    fn case_b2_every_wait_has_an_attempt_that_outlives_it() {
        for wait in (1..=20).map(Duration::from_secs) {
            let attempt = receive_timeouts(wait).operation_attempt_timeout().unwrap();
            assert!(attempt >= wait + Duration::from_secs(5), "{wait:?} {attempt:?}");
        }
        assert!(ATTEMPT_TIMEOUT <= Duration::from_secs(10), "other calls have a short limit");
    }

    #[test]
    fn a_receive_outlives_its_long_poll() {
        let timeouts = receive_timeouts(Duration::from_secs(20));
        assert_eq!(timeouts.operation_attempt_timeout(), Some(Duration::from_secs(30)));
        assert!(timeouts.operation_timeout() > timeouts.operation_attempt_timeout());
    }

    fn config() -> aws_types::sdk_config::Builder {
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url("http://127.0.0.1:9")
    }

    #[tokio::test]
    async fn what_is_missing_to_make_a_call_is_named() {
        let no_credentials = config().region(Region::from_static("us-east-1")).build();
        let error = Aws::new(&no_credentials).caller().await.unwrap_err();
        assert_eq!((error.class(), error.code()), (ErrorClass::Denied, "CredentialsNotLoaded"));
        let keys = Credentials::builder().access_key_id("k").secret_access_key("s");
        let keys = SharedCredentialsProvider::new(keys.provider_name("test").build());
        let no_region = config().credentials_provider(keys).build();
        let error = Aws::new(&no_region).caller().await.unwrap_err();
        assert_eq!((error.class(), error.code()), (ErrorClass::Invalid, "RegionNotSet"));
    }

    #[test]
    fn only_endpoints_of_their_own_get_path_style_buckets() {
        assert!(has_own_s3_endpoint(&config().build()));
        assert!(!has_own_s3_endpoint(&SdkConfig::builder().build()));
    }
}
