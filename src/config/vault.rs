//! `[vault]`: the S3 bucket and prefix that keep envelopes.

use super::error::ConfigError;
use super::name::{AccountId, BucketName, Prefix};
use super::section::Section;
use super::setting::choice;

choice! {
    /// Where error texts go.
    pub ErrorText {
        /// Into the ledger and the token too, cut.
        Ledger = "ledger",
        /// Into the vault alone, for payloads whose errors quote them; only the code goes elsewhere.
        Vault = "vault",
    }
}

/// The vault's place and its encryption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vault {
    /// The bucket. There is no default: S3 names are global.
    pub bucket: BucketName,
    /// The account that must own the bucket, if not the caller's own.
    pub owner: Option<AccountId>,
    /// What goes before every key.
    pub prefix: Prefix,
    /// The KMS key, if not the bucket's default encryption.
    pub kms_key_id: Option<String>,
    /// Where error texts go.
    pub error_text: ErrorText,
}

impl Vault {
    pub(super) fn read(mut s: Section<'_>) -> Result<Self, ConfigError> {
        let vault = Self {
            bucket: s.required("bucket")?,
            owner: s.filled("owner")?,
            prefix: s.or("prefix", Prefix::none())?,
            kms_key_id: s.filled("kms_key_id")?,
            error_text: s.or("error_text", ErrorText::Ledger)?,
        };
        s.finish()?;
        Ok(vault)
    }
}
