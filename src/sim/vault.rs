//! A vault in memory: nothing is overwritten, nothing is deleted, except by [`SimVault::rot`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use crate::domain::failure::ErrorClass;
use crate::domain::id::EnvelopeKey;
use crate::port::error::{PortError, Target};
use crate::port::evidence::Stored;
use crate::port::vault::{LISTED, Vault};

/// A vault in memory.
#[derive(Debug, Default)]
pub struct SimVault {
    objects: Mutex<BTreeMap<EnvelopeKey, Bytes>>,
}

impl SimVault {
    /// An empty vault.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All objects as they are now.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<EnvelopeKey, Bytes> {
        self.lock().clone()
    }

    /// What no caller of the port can do: an object is lost (`None`) or its bytes change, as by a wrong
    /// lifecycle rule or an operator's hand. Says whether it was there.
    pub fn rot(&self, key: &EnvelopeKey, bytes: Option<Bytes>) -> bool {
        let mut objects = self.lock();
        let before = objects.remove(key);
        if let (Some(bytes), true) = (bytes, before.is_some()) {
            objects.insert(key.clone(), bytes);
        }
        before.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<EnvelopeKey, Bytes>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Vault for SimVault {
    async fn put(&self, key: &EnvelopeKey, body: Bytes) -> Result<Stored<EnvelopeKey>, PortError> {
        self.put_new(key, body).await?;
        Ok(Stored::witnessed(key.clone()))
    }

    async fn put_new(
        &self,
        key: &EnvelopeKey,
        body: Bytes,
    ) -> Result<Option<Stored<EnvelopeKey>>, PortError> {
        match self.lock().entry(key.clone()) {
            Entry::Occupied(_) => Ok(None),
            Entry::Vacant(place) => {
                place.insert(body);
                Ok(Some(Stored::witnessed(key.clone())))
            }
        }
    }

    async fn check(&self, _folder: &str) -> Result<(), PortError> {
        Ok(())
    }

    async fn get(&self, key: &EnvelopeKey) -> Result<Bytes, PortError> {
        let missing = || {
            let class = ErrorClass::NotFound;
            PortError::new(class, Target::S3, "GetObject", key.as_str(), "NoSuchKey")
        };
        self.lock().get(key).cloned().ok_or_else(missing)
    }

    async fn list(&self, beginning: &str) -> Result<Vec<EnvelopeKey>, PortError> {
        let objects = self.lock();
        let keys = objects.keys().filter(|key| key.as_str().starts_with(beginning));
        Ok(keys.take(LISTED).cloned().collect())
    }
}
