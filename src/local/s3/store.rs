//! Buckets and objects in memory. A put is checked and done under one lock, so its conditions are atomic.
//!
//! Bodies are shared, not copied. The documents of a bucket (versioning, encryption and so on) are kept as
//! they were set and not acted on: there is one version of everything, and nothing expires.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use s3s::dto::{
    BucketLifecycleConfiguration, Checksum, ETag, ETagCondition, Metadata,
    PublicAccessBlockConfiguration, ServerSideEncryption, ServerSideEncryptionConfiguration,
    TagSet, VersioningConfiguration,
};
use s3s::{S3Result, s3_error};

use crate::domain::time::Wall;
use crate::sim::sqs::ACCOUNT;

/// All buckets.
#[derive(Debug, Default)]
pub(super) struct Store {
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

/// One bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    pub(super) created: Wall,
    pub(super) documents: Documents,
    objects: BTreeMap<String, Object>,
}

/// What was set on a bucket.
#[derive(Debug, Clone, Default)]
pub(super) struct Documents {
    pub(super) versioning: VersioningConfiguration,
    pub(super) encryption: Option<ServerSideEncryptionConfiguration>,
    pub(super) lifecycle: Option<BucketLifecycleConfiguration>,
    pub(super) public_access: Option<PublicAccessBlockConfiguration>,
    pub(super) tags: Option<TagSet>,
    pub(super) policy: Option<String>,
}

/// One object.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) body: Bytes,
    pub(super) e_tag: ETag,
    pub(super) modified: Wall,
    pub(super) checksum: Checksum,
    pub(super) metadata: Option<Metadata>,
    pub(super) content_type: Option<String>,
    pub(super) content_encoding: Option<String>,
    pub(super) encryption: ServerSideEncryption,
    pub(super) kms_key_id: Option<String>,
    pub(super) bucket_key: Option<bool>,
}

/// The conditions of a put.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) if_match: Option<ETagCondition>,
    pub(super) if_none_match: Option<ETagCondition>,
}

/// What to list.
#[derive(Debug, Default)]
pub(super) struct Listing<'a> {
    pub(super) prefix: &'a str,
    pub(super) delimiter: &'a str,
    /// The key or common prefix after which to begin; empty, at the beginning.
    pub(super) after: &'a str,
    pub(super) max: usize,
}

/// One page of a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<(String, Object)>,
    pub(super) prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    pub(super) next: Option<String>,
}

impl Page {
    pub(super) fn len(&self) -> usize {
        self.objects.len() + self.prefixes.len()
    }
}

impl Store {
    /// Makes a bucket.
    pub(super) fn create(&self, name: &str, now: Wall) -> S3Result<()> {
        let mut buckets = self.lock();
        if buckets.contains_key(name) {
            return Err(s3_error!(BucketAlreadyOwnedByYou, "you own the bucket {name} already"));
        }
        let documents = Documents::default();
        let bucket = Bucket { created: now, documents, objects: BTreeMap::new() };
        buckets.insert(name.to_owned(), bucket);
        Ok(())
    }

    /// Removes an empty bucket.
    pub(super) fn remove(&self, name: &str, owner: Option<&str>) -> S3Result<()> {
        self.with(name, owner, |_| Ok(()))?;
        let mut buckets = self.lock();
        if buckets.get(name).is_some_and(|bucket| !bucket.objects.is_empty()) {
            return Err(s3_error!(BucketNotEmpty, "the bucket {name} is not empty"));
        }
        buckets.remove(name);
        Ok(())
    }

    /// All buckets' names and birthdays.
    pub(super) fn names(&self) -> Vec<(String, Wall)> {
        self.lock().iter().map(|(name, bucket)| (name.clone(), bucket.created)).collect()
    }

    /// Works on a bucket, which must be there and, if `owner` is given, be its.
    pub(super) fn with<T>(
        &self,
        name: &str,
        owner: Option<&str>,
        work: impl FnOnce(&mut Bucket) -> S3Result<T>,
    ) -> S3Result<T> {
        let mut buckets = self.lock();
        let bucket = buckets
            .get_mut(name)
            .ok_or_else(|| s3_error!(NoSuchBucket, "the bucket {name} does not exist"))?;
        if owner.is_some_and(|owner| owner != ACCOUNT) {
            return Err(s3_error!(AccessDenied, "the bucket {name} belongs to account {ACCOUNT}"));
        }
        work(bucket)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    /// Puts an object if the conditions hold.
    pub(super) fn put(&mut self, key: &str, object: Object, on: &Conditions) -> S3Result<()> {
        let old = self.objects.get(key).map(|object| &object.e_tag);
        let lost =
            || s3_error!(PreconditionFailed, "at least one of the preconditions did not hold");
        match (&on.if_none_match, old) {
            (Some(ETagCondition::Any), Some(_)) => return Err(lost()),
            (Some(ETagCondition::ETag(_)), _) => {
                return Err(s3_error!(NotImplemented, "If-None-Match of a put must be *"));
            }
            (None | Some(ETagCondition::Any), _) => {}
        }
        match (&on.if_match, old) {
            (Some(_), None) => return Err(no_such_key(key)),
            (Some(ETagCondition::ETag(asked)), Some(old)) if asked != old => return Err(lost()),
            _ => {}
        }
        self.objects.insert(key.to_owned(), object);
        Ok(())
    }

    /// The object of a key.
    pub(super) fn get(&self, key: &str) -> S3Result<&Object> {
        self.objects.get(key).ok_or_else(|| no_such_key(key))
    }

    /// Deletes an object, if it is there and has the given ETag.
    pub(super) fn delete(&mut self, key: &str, if_match: Option<&ETagCondition>) -> S3Result<()> {
        if let Some(ETagCondition::ETag(asked)) = if_match
            && self.get(key)?.e_tag != *asked
        {
            return Err(s3_error!(PreconditionFailed, "the object has another ETag"));
        }
        self.objects.remove(key);
        Ok(())
    }

    /// One page of keys, in order, with those below a delimiter folded into their common prefix.
    pub(super) fn list(&self, listing: &Listing<'_>) -> Page {
        let &Listing { prefix, delimiter, after, max } = listing;
        let mut page = Page::default();
        let mut last = String::new();
        let from = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let keys = self.objects.range::<str, _>((from, Bound::Unbounded));
        for (key, object) in keys.take_while(|(key, _)| key.starts_with(prefix)) {
            let folded = common_prefix(key, prefix, delimiter);
            if folded.is_some_and(|folded| folded == after || folded == last) {
                continue;
            }
            if page.len() == max {
                page.next = Some(last);
                return page;
            }
            last = folded.unwrap_or(key).to_owned();
            match folded {
                Some(folded) => page.prefixes.push(folded.to_owned()),
                None => page.objects.push((key.clone(), object.clone())),
            }
        }
        page
    }
}

fn common_prefix<'a>(key: &'a str, prefix: &str, delimiter: &str) -> Option<&'a str> {
    if delimiter.is_empty() {
        return None;
    }
    let at = key.get(prefix.len()..)?.find(delimiter)?;
    key.get(..prefix.len() + at + delimiter.len())
}

fn no_such_key(key: &str) -> s3s::S3Error {
    s3_error!(NoSuchKey, "the key {key} does not exist")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(e_tag: &str) -> Object {
        Object {
            body: Bytes::new(),
            e_tag: ETag::Strong(e_tag.into()),
            modified: Wall::from_ms(0),
            checksum: Checksum::default(),
            metadata: None,
            content_type: None,
            content_encoding: None,
            encryption: ServerSideEncryption::from_static(ServerSideEncryption::AES256),
            kms_key_id: None,
            bucket_key: None,
        }
    }

    fn bucket(keys: &[&str]) -> Bucket {
        let objects = keys.iter().map(|key| ((*key).to_owned(), object("e"))).collect();
        Bucket { created: Wall::from_ms(0), documents: Documents::default(), objects }
    }

    fn etag(text: &str) -> Option<ETagCondition> {
        Some(ETagCondition::ETag(ETag::Strong(text.into())))
    }

    #[test]
    fn a_put_if_none_match_never_overwrites() {
        let mut bucket = bucket(&[]);
        let absent = Conditions { if_none_match: Some(ETagCondition::Any), if_match: None };
        assert!(bucket.put("k", object("1"), &absent).is_ok());
        assert!(bucket.put("k", object("2"), &absent).is_err());
        assert_eq!(bucket.get("k").unwrap().e_tag, ETag::Strong("1".into()));
    }

    #[test]
    fn a_put_if_match_replaces_only_what_it_read() {
        let mut bucket = bucket(&[]);
        let same = Conditions { if_match: etag("1"), if_none_match: None };
        assert!(bucket.put("k", object("1"), &same).is_err(), "nothing there");
        bucket.put("k", object("1"), &Conditions::default()).unwrap();
        assert!(bucket.put("k", object("2"), &same).is_ok());
        assert!(bucket.put("k", object("3"), &same).is_err());
        assert!(bucket.delete("k", etag("1").as_ref()).is_err());
        assert!(bucket.delete("k", etag("2").as_ref()).is_ok());
    }

    #[test]
    fn pages_hold_every_key_once_in_order() {
        let bucket = bucket(&["p/0", "p/1", "p/2", "p/3", "q"]);
        let (mut keys, mut after) = (Vec::new(), String::new());
        loop {
            let page = bucket.list(&Listing { prefix: "p/", after: &after, max: 2, delimiter: "" });
            keys.extend(page.objects.into_iter().map(|(key, _)| key));
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(keys, ["p/0", "p/1", "p/2", "p/3"]);
    }

    #[test]
    fn keys_below_a_delimiter_fold_also_across_pages() {
        let bucket = bucket(&["a/1", "a/2", "b", "c/1"]);
        let page = |after: &str| {
            let page = bucket.list(&Listing { prefix: "", delimiter: "/", after, max: 1 });
            (page.prefixes, page.objects.len(), page.next)
        };
        assert_eq!(page(""), (vec!["a/".into()], 0, Some("a/".into())));
        assert_eq!(page("a/"), (vec![], 1, Some("b".into())));
        assert_eq!(page("b"), (vec!["c/".into()], 0, None));
    }

    #[test]
    fn a_bucket_is_its_owner_s() {
        let store = Store::default();
        store.create("b", Wall::from_ms(0)).unwrap();
        assert!(store.create("b", Wall::from_ms(0)).is_err());
        assert!(store.with("b", Some(ACCOUNT), |_| Ok(())).is_ok());
        assert!(store.with("b", Some("111111111111"), |_| Ok(())).is_err());
        assert!(store.with("c", None, |_| Ok(())).is_err());
    }
}
