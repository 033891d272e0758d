//! The vault's bucket: private, versioned, encrypted, its evidence kept longer than any dead letter.

use aws_sdk_s3::types::{
    BucketLifecycleConfiguration, BucketLocationConstraint, BucketVersioningStatus,
    CreateBucketConfiguration, ExpirationStatus, LifecycleExpiration, LifecycleRule,
    LifecycleRuleFilter, NoncurrentVersionExpiration, PublicAccessBlockConfiguration,
    ServerSideEncryption, ServerSideEncryptionByDefault, ServerSideEncryptionConfiguration,
    ServerSideEncryptionRule, VersioningConfiguration,
};

use super::{SetupReport, Was};
use crate::aws::client::Aws;
use crate::aws::error::Call;
use crate::domain::failure::ErrorClass;
use crate::port::error::{PortError, Target};

/// The region that is never named when a bucket is created there.
const US_EAST_1: &str = "us-east-1";
/// How long envelopes are kept; SQS keeps no dead letter longer than 14 days, and a record in quarantine
/// has its token issued anew.
const KEEP_DAYS: i32 = 400;
/// How long replaced or deleted versions are kept.
const KEEP_NONCURRENT_DAYS: i32 = 90;

pub(super) async fn ensure(
    aws: &Aws,
    bucket: &str,
    report: &mut SetupReport,
) -> Result<(), PortError> {
    let was = if exists(aws, bucket).await? { Was::Existing } else { create(aws, bucket).await? };
    report.add(was, format!("bucket {bucket}"));
    block_public_access(aws, bucket).await?;
    version(aws, bucket).await?;
    if was == Was::Created {
        // An existing bucket may be shared: its encryption and lifecycle are its owner's.
        encrypt(aws, bucket).await?;
        expire(aws, bucket).await?;
    }
    Ok(())
}

async fn exists(aws: &Aws, bucket: &str) -> Result<bool, PortError> {
    let call = Call::new(Target::S3, "HeadBucket", bucket);
    match aws.s3.head_bucket().bucket(bucket).send().await {
        Ok(_) => Ok(true),
        Err(error) => match call.failed(&error) {
            missing if missing.class() == ErrorClass::NotFound => Ok(false),
            failed => Err(failed),
        },
    }
}

async fn create(aws: &Aws, bucket: &str) -> Result<Was, PortError> {
    let call = Call::new(Target::S3, "CreateBucket", bucket);
    let place = aws.region().filter(|region| *region != US_EAST_1).map(|region| {
        let region = BucketLocationConstraint::from(region);
        CreateBucketConfiguration::builder().location_constraint(region).build()
    });
    let request = aws.s3.create_bucket().bucket(bucket).set_create_bucket_configuration(place);
    match request.send().await {
        Ok(_) => Ok(Was::Created),
        Err(error) => match call.failed(&error) {
            ours if ours.code() == "BucketAlreadyOwnedByYou" => Ok(Was::Existing),
            failed => Err(failed),
        },
    }
}

async fn block_public_access(aws: &Aws, bucket: &str) -> Result<(), PortError> {
    let call = Call::new(Target::S3, "PutPublicAccessBlock", bucket);
    let all = PublicAccessBlockConfiguration::builder()
        .block_public_acls(true)
        .ignore_public_acls(true)
        .block_public_policy(true)
        .restrict_public_buckets(true)
        .build();
    let request = aws.s3.put_public_access_block().bucket(bucket);
    let answer = request.public_access_block_configuration(all).send().await;
    answer.map(|_| ()).map_err(|e| call.failed(&e))
}

async fn version(aws: &Aws, bucket: &str) -> Result<(), PortError> {
    let call = Call::new(Target::S3, "PutBucketVersioning", bucket);
    let enabled =
        VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    let request = aws.s3.put_bucket_versioning().bucket(bucket).versioning_configuration(enabled);
    request.send().await.map(|_| ()).map_err(|e| call.failed(&e))
}

async fn encrypt(aws: &Aws, bucket: &str) -> Result<(), PortError> {
    let call = Call::new(Target::S3, "PutBucketEncryption", bucket);
    let kms = ServerSideEncryptionByDefault::builder()
        .sse_algorithm(ServerSideEncryption::AwsKms)
        .build()
        .map_err(|_| call.invalid("incomplete rule"))?;
    let rule = ServerSideEncryptionRule::builder()
        .apply_server_side_encryption_by_default(kms)
        .bucket_key_enabled(true)
        .build();
    let rules = ServerSideEncryptionConfiguration::builder()
        .rules(rule)
        .build()
        .map_err(|_| call.invalid("incomplete rule"))?;
    let request = aws.s3.put_bucket_encryption().bucket(bucket);
    let answer = request.server_side_encryption_configuration(rules).send().await;
    answer.map(|_| ()).map_err(|e| call.failed(&e))
}

async fn expire(aws: &Aws, bucket: &str) -> Result<(), PortError> {
    let call = Call::new(Target::S3, "PutBucketLifecycleConfiguration", bucket);
    let replaced =
        NoncurrentVersionExpiration::builder().noncurrent_days(KEEP_NONCURRENT_DAYS).build();
    let rule = LifecycleRule::builder()
        .id("evidence")
        .status(ExpirationStatus::Enabled)
        .filter(LifecycleRuleFilter::builder().prefix("").build())
        .expiration(LifecycleExpiration::builder().days(KEEP_DAYS).build())
        .noncurrent_version_expiration(replaced)
        .build()
        .map_err(|_| call.invalid("incomplete rule"))?;
    let rules = BucketLifecycleConfiguration::builder()
        .rules(rule)
        .build()
        .map_err(|_| call.invalid("incomplete rule"))?;
    let request = aws.s3.put_bucket_lifecycle_configuration().bucket(bucket);
    let answer = request.lifecycle_configuration(rules).send().await;
    answer.map(|_| ()).map_err(|e| call.failed(&e))
}
