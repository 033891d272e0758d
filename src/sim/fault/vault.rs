//! A vault with faults.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::Faults;
use crate::domain::id::EnvelopeKey;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::vault::Vault;

/// A vault with faults.
#[derive(Debug, Clone)]
pub struct FaultVault {
    inner: Arc<dyn Vault>,
    faults: Faults,
}

impl FaultVault {
    /// Wraps a vault.
    #[must_use]
    pub const fn new(inner: Arc<dyn Vault>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

#[async_trait]
impl Vault for FaultVault {
    async fn put(&self, key: &EnvelopeKey, body: Bytes) -> Result<Stored<EnvelopeKey>, PortError> {
        self.faults.around(Target::S3, "vault.put", "", self.inner.put(key, body)).await
    }

    async fn put_new(
        &self,
        key: &EnvelopeKey,
        body: Bytes,
    ) -> Result<Option<Stored<EnvelopeKey>>, PortError> {
        self.faults.around(Target::S3, "vault.put_new", "", self.inner.put_new(key, body)).await
    }

    async fn check(&self, folder: &str) -> Result<(), PortError> {
        self.faults.around(Target::S3, "vault.check", "", self.inner.check(folder)).await
    }

    async fn get(&self, key: &EnvelopeKey) -> Result<Bytes, PortError> {
        self.faults.around(Target::S3, "vault.get", "", self.inner.get(key)).await
    }

    async fn list(&self, beginning: &str) -> Result<Vec<EnvelopeKey>, PortError> {
        self.faults.around(Target::S3, "vault.list", "", self.inner.list(beginning)).await
    }
}
