//! The S3 bucket and prefix that keep envelopes. Nothing here overwrites or deletes.

use async_trait::async_trait;
use bytes::Bytes;

use super::error::PortError;
use super::evidence::Stored;
use crate::domain::id::EnvelopeKey;

/// The most keys that one listing gives.
pub const LISTED: usize = 1_000;

/// The vault.
#[async_trait]
pub trait Vault: Send + Sync + std::fmt::Debug {
    /// Puts an envelope under a key that nobody else writes, since it ends in our own fresh token: that
    /// the key exists already means an earlier try of ours got through, which is success.
    ///
    /// # Errors
    /// The call failed: whether the object exists is unknown.
    async fn put(&self, key: &EnvelopeKey, body: Bytes) -> Result<Stored<EnvelopeKey>, PortError>;

    /// Puts an object under a key that others may have used already; `None` if one is there.
    ///
    /// # Errors
    /// The call failed: whether the object exists is unknown.
    async fn put_new(
        &self,
        key: &EnvelopeKey,
        body: Bytes,
    ) -> Result<Option<Stored<EnvelopeKey>>, PortError>;

    /// Checks that objects under a folder can be seen at all.
    ///
    /// # Errors
    /// The bucket is missing, or may not be listed.
    async fn check(&self, folder: &str) -> Result<(), PortError>;

    /// Gets an envelope.
    ///
    /// # Errors
    /// The call failed; class `NotFound` if there is no such object.
    async fn get(&self, key: &EnvelopeKey) -> Result<Bytes, PortError>;

    /// The keys that begin with a text, in key order: at most [`LISTED`].
    ///
    /// # Errors
    /// The call failed.
    async fn list(&self, beginning: &str) -> Result<Vec<EnvelopeKey>, PortError>;
}
