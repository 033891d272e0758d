//! S3 over HTTP: the protocol is `s3s`'s, the store is ours and atomic.
//!
//! What the vault and `doctor` use is here: buckets, conditional puts with checksums, ranged gets, heads,
//! listings, deletes, copies, and the documents of a bucket. Absent: versions, multipart uploads, ACLs,
//! presigned posts; s3s answers `NotImplemented` for all of them.

mod answer;
mod body;
mod checksum;
mod key;
mod store;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "each operation has two types of its own in there")
)]
use s3s::dto::*;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use self::body::{check_md5, collect};
use self::key::TestKey;
use self::store::{Conditions, Documents, Listing, Store};
use crate::port::clock::Clock;
use crate::sim::sqs::REGION;

const MAX_KEYS: usize = 1_000;

type Answer<T> = S3Result<S3Response<T>>;

/// The S3 of an embedded AWS.
#[derive(Debug)]
struct Buckets {
    store: Store,
    clock: Arc<dyn Clock>,
}

/// The S3 service.
pub(super) fn service(clock: Arc<dyn Clock>) -> S3Service {
    let mut builder = S3ServiceBuilder::new(Buckets { store: Store::default(), clock });
    builder.set_auth(TestKey);
    builder.build()
}

impl Buckets {
    fn read<T>(
        &self,
        bucket: &str,
        owner: Option<&String>,
        read: impl FnOnce(&Documents) -> S3Result<T>,
    ) -> Answer<T> {
        let read = self.store.with(bucket, owner.map(String::as_str), |b| read(&b.documents))?;
        Ok(S3Response::new(read))
    }

    fn write<T: Default>(
        &self,
        bucket: &str,
        owner: Option<&String>,
        write: impl FnOnce(&mut Documents),
    ) -> Answer<T> {
        self.store.with(bucket, owner.map(String::as_str), |b| {
            write(&mut b.documents);
            Ok(S3Response::new(T::default()))
        })
    }
}

#[async_trait::async_trait]
impl S3 for Buckets {
    async fn create_bucket(&self, r: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        self.store.create(&r.input.bucket, self.clock.wall())?;
        let location = Some(format!("/{}", r.input.bucket));
        Ok(S3Response::new(CreateBucketOutput { location }))
    }

    async fn delete_bucket(&self, r: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        self.store.remove(&r.input.bucket, r.input.expected_bucket_owner.as_deref())?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    async fn head_bucket(&self, r: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.read(&r.input.bucket, r.input.expected_bucket_owner.as_ref(), |_| {
            Ok(HeadBucketOutput { bucket_region: Some(REGION.to_owned()), ..Default::default() })
        })
    }

    async fn get_bucket_location(
        &self,
        r: S3Request<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        // No constraint is how S3 says us-east-1.
        self.read(&r.input.bucket, r.input.expected_bucket_owner.as_ref(), |_| {
            Ok(GetBucketLocationOutput::default())
        })
    }

    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let buckets = self.store.names().into_iter().map(|(name, created)| Bucket {
            name: Some(name),
            creation_date: Some(answer::timestamp(created)),
            ..Default::default()
        });
        let buckets = Some(buckets.collect());
        Ok(S3Response::new(ListBucketsOutput { buckets, ..Default::default() }))
    }

    async fn put_object(&self, r: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let (mut input, trailers) = (r.input, r.trailing_headers);
        let owner = input.expected_bucket_owner.clone();
        self.store.with(&input.bucket, owner.as_deref(), |_| Ok(()))?;
        let body = collect(input.body.take()).await?;
        check_md5(&body, input.content_md5.as_deref())?;
        let checksum = checksum::verify(&body, &checksum::given(&input, trailers.as_ref()))?;
        let object = answer::object(&input, body, checksum, self.clock.wall());
        let output = answer::put(&object);
        let on = Conditions { if_match: input.if_match, if_none_match: input.if_none_match };
        self.store.with(&input.bucket, owner.as_deref(), |b| b.put(&input.key, object, &on))?;
        Ok(S3Response::new(output))
    }

    async fn get_object(&self, r: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = &r.input;
        let owner = input.expected_bucket_owner.as_deref();
        let output =
            self.store.with(&input.bucket, owner, |b| answer::get(b.get(&input.key)?, input))?;
        Ok(S3Response::new(output))
    }

    async fn head_object(&self, r: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = &r.input;
        let owner = input.expected_bucket_owner.as_deref();
        let output = self.store.with(&input.bucket, owner, |b| {
            let object = b.get(&input.key)?;
            answer::check(object, input.if_match.as_ref(), input.if_none_match.as_ref())?;
            Ok(answer::head(object, input.checksum_mode.is_some()))
        })?;
        Ok(S3Response::new(output))
    }

    async fn list_objects_v2(
        &self,
        r: S3Request<ListObjectsV2Input>,
    ) -> Answer<ListObjectsV2Output> {
        let input = r.input;
        let token = match &input.continuation_token {
            None => None,
            Some(token) => Some(
                URL_SAFE_NO_PAD
                    .decode(token)
                    .ok()
                    .and_then(|token| String::from_utf8(token).ok())
                    .ok_or_else(|| s3_error!(InvalidArgument, "no such continuation token"))?,
            ),
        };
        let max = input.max_keys.and_then(|max| usize::try_from(max).ok()).unwrap_or(MAX_KEYS);
        let max = max.min(MAX_KEYS);
        let listing = Listing {
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref().unwrap_or_default(),
            after: token.as_deref().or(input.start_after.as_deref()).unwrap_or_default(),
            max,
        };
        let owner = input.expected_bucket_owner.as_deref();
        let mut page = self.store.with(&input.bucket, owner, |b| Ok(b.list(&listing)))?;
        let next = page.next.take().filter(|_| max > 0).map(|next| URL_SAFE_NO_PAD.encode(next));
        Ok(S3Response::new(answer::list(input, page, max, next)))
    }

    async fn delete_object(&self, r: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        let input = &r.input;
        let owner = input.expected_bucket_owner.as_deref();
        self.store.with(&input.bucket, owner, |b| b.delete(&input.key, input.if_match.as_ref()))?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        r: S3Request<DeleteObjectsInput>,
    ) -> Answer<DeleteObjectsOutput> {
        let input = r.input;
        let is_quiet = input.delete.quiet == Some(true);
        let mut deleted = Vec::new();
        self.store.with(&input.bucket, input.expected_bucket_owner.as_deref(), |bucket| {
            for object in input.delete.objects {
                bucket.delete(&object.key, None)?;
                deleted.push(DeletedObject { key: Some(object.key), ..Default::default() });
            }
            Ok(())
        })?;
        let deleted = (!is_quiet).then_some(deleted);
        Ok(S3Response::new(DeleteObjectsOutput { deleted, ..Default::default() }))
    }

    async fn copy_object(&self, r: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        let input = r.input;
        let CopySource::Bucket { bucket, key, .. } = &input.copy_source else {
            return Err(s3_error!(NotImplemented, "copies come from buckets only"));
        };
        let from = input.expected_source_bucket_owner.as_deref();
        let mut object = self.store.with(bucket, from, |b| b.get(key).cloned())?;
        object.modified = self.clock.wall();
        let result = CopyObjectResult {
            e_tag: Some(object.e_tag.clone()),
            last_modified: Some(answer::timestamp(object.modified)),
            ..Default::default()
        };
        let owner = input.expected_bucket_owner.as_deref();
        let any = Conditions::default();
        self.store.with(&input.bucket, owner, |b| b.put(&input.key, object, &any))?;
        let copy_object_result = Some(result);
        Ok(S3Response::new(CopyObjectOutput { copy_object_result, ..Default::default() }))
    }

    async fn put_bucket_versioning(
        &self,
        r: S3Request<PutBucketVersioningInput>,
    ) -> Answer<PutBucketVersioningOutput> {
        let PutBucketVersioningInput { bucket, expected_bucket_owner, .. } = &r.input;
        let set = r.input.versioning_configuration.clone();
        self.write(bucket, expected_bucket_owner.as_ref(), |d| d.versioning = set)
    }

    async fn get_bucket_versioning(
        &self,
        r: S3Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        self.read(&r.input.bucket, r.input.expected_bucket_owner.as_ref(), |documents| {
            let status = documents.versioning.status.clone();
            Ok(GetBucketVersioningOutput { status, ..Default::default() })
        })
    }

    async fn put_bucket_encryption(
        &self,
        r: S3Request<PutBucketEncryptionInput>,
    ) -> Answer<PutBucketEncryptionOutput> {
        let PutBucketEncryptionInput { bucket, expected_bucket_owner, .. } = &r.input;
        let set = r.input.server_side_encryption_configuration.clone();
        self.write(bucket, expected_bucket_owner.as_ref(), |d| d.encryption = Some(set))
    }

    async fn get_bucket_encryption(
        &self,
        r: S3Request<GetBucketEncryptionInput>,
    ) -> Answer<GetBucketEncryptionOutput> {
        self.read(&r.input.bucket, r.input.expected_bucket_owner.as_ref(), |documents| {
            let set = documents.encryption.clone().unwrap_or_else(default_encryption);
            Ok(GetBucketEncryptionOutput { server_side_encryption_configuration: Some(set) })
        })
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        r: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> Answer<PutBucketLifecycleConfigurationOutput> {
        let PutBucketLifecycleConfigurationInput { bucket, expected_bucket_owner, .. } = &r.input;
        let set = r.input.lifecycle_configuration.clone();
        self.write(bucket, expected_bucket_owner.as_ref(), |d| d.lifecycle = set)
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        r: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> Answer<GetBucketLifecycleConfigurationOutput> {
        self.read(&r.input.bucket, r.input.expected_bucket_owner.as_ref(), |documents| {
            let lifecycle = documents.lifecycle.clone();
            let rules = lifecycle.ok_or_else(|| s3_error!(NoSuchLifecycleConfiguration))?.rules;
            Ok(GetBucketLifecycleConfigurationOutput { rules: Some(rules), ..Default::default() })
        })
    }

    async fn put_public_access_block(
        &self,
        r: S3Request<PutPublicAccessBlockInput>,
    ) -> Answer<PutPublicAccessBlockOutput> {
        let PutPublicAccessBlockInput { bucket, expected_bucket_owner, .. } = &r.input;
        let set = r.input.public_access_block_configuration.clone();
        self.write(bucket, expected_bucket_owner.as_ref(), |d| d.public_access = Some(set))
    }

    async fn get_public_access_block(
        &self,
        r: S3Request<GetPublicAccessBlockInput>,
    ) -> Answer<GetPublicAccessBlockOutput> {
        self.read(&r.input.bucket, r.input.expected_bucket_owner.as_ref(), |documents| {
            let set = documents.public_access.clone();
            let set = set.ok_or_else(|| {
                let mut missing = s3_error!(NoSuchResource, "no public access block was set");
                missing.set_code(s3s::S3ErrorCode::Custom(
                    "NoSuchPublicAccessBlockConfiguration".into(),
                ));
                missing.set_status_code(axum::http::StatusCode::NOT_FOUND);
                missing
            })?;
            Ok(GetPublicAccessBlockOutput { public_access_block_configuration: Some(set) })
        })
    }

    async fn put_bucket_tagging(
        &self,
        r: S3Request<PutBucketTaggingInput>,
    ) -> Answer<PutBucketTaggingOutput> {
        let PutBucketTaggingInput { bucket, expected_bucket_owner, .. } = &r.input;
        let set = r.input.tagging.tag_set.clone();
        self.write(bucket, expected_bucket_owner.as_ref(), |d| d.tags = Some(set))
    }

    async fn get_bucket_tagging(
        &self,
        r: S3Request<GetBucketTaggingInput>,
    ) -> Answer<GetBucketTaggingOutput> {
        self.read(&r.input.bucket, r.input.expected_bucket_owner.as_ref(), |documents| {
            let tag_set = documents.tags.clone().ok_or_else(|| s3_error!(NoSuchTagSet))?;
            Ok(GetBucketTaggingOutput { tag_set })
        })
    }

    async fn put_bucket_policy(
        &self,
        r: S3Request<PutBucketPolicyInput>,
    ) -> Answer<PutBucketPolicyOutput> {
        let PutBucketPolicyInput { bucket, expected_bucket_owner, .. } = &r.input;
        let set = r.input.policy.clone();
        self.write(bucket, expected_bucket_owner.as_ref(), |d| d.policy = Some(set))
    }

    async fn get_bucket_policy(
        &self,
        r: S3Request<GetBucketPolicyInput>,
    ) -> Answer<GetBucketPolicyOutput> {
        self.read(&r.input.bucket, r.input.expected_bucket_owner.as_ref(), |documents| {
            let policy = documents.policy.clone().ok_or_else(|| s3_error!(NoSuchBucketPolicy))?;
            Ok(GetBucketPolicyOutput { policy: Some(policy) })
        })
    }
}

/// What S3 does with a bucket that nothing was set on.
fn default_encryption() -> ServerSideEncryptionConfiguration {
    ServerSideEncryptionConfiguration {
        rules: vec![ServerSideEncryptionRule {
            apply_server_side_encryption_by_default: Some(ServerSideEncryptionByDefault {
                kms_master_key_id: None,
                sse_algorithm: ServerSideEncryption::from_static(ServerSideEncryption::AES256),
            }),
            bucket_key_enabled: Some(false),
        }],
    }
}
