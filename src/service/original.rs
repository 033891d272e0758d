//! Gets the original of a record back from its envelope, and holds it against the record.

use crate::domain::envelope::Envelope;
use crate::domain::failure::ErrorClass;
use crate::domain::id::RecordId;
use crate::domain::record::Record;
use crate::port::error::PortError;
use crate::port::vault::Vault;

/// The record's envelope; or why it cannot be used: it is missing, forbidden, corrupt, or not in `folder`.
/// Only what concerns this one object is a reason; all else is the vault's error.
pub(crate) async fn fetch(
    vault: &dyn Vault,
    folder: &str,
    id: &RecordId,
    record: &Record,
) -> Result<Result<Envelope, String>, PortError> {
    let key = &record.envelope;
    let unusable = |why: &str| Ok(Err(why.to_owned()));
    if !key.as_str().starts_with(folder) {
        return unusable("the envelope is outside the vault");
    }
    let bytes = match vault.get(key).await {
        Ok(bytes) => bytes,
        Err(e) if concerns_one_object(&e) => return unusable(e.code()),
        Err(e) => return Err(e),
    };
    match Envelope::decode(&bytes) {
        Ok(envelope) if envelope.record_id != *id => unusable("the envelope is of another record"),
        Ok(envelope) if envelope.body_sha256() != record.payload_sha256 => {
            unusable("the envelope's body is not the one that was parked")
        }
        Ok(envelope) => Ok(Ok(envelope)),
        Err(e) => unusable(&e.to_string()),
    }
}

/// Whether an error of the vault is about this object and not about the vault.
fn concerns_one_object(error: &PortError) -> bool {
    match error.class() {
        ErrorClass::NotFound => error.code() != "NoSuchBucket",
        ErrorClass::Denied | ErrorClass::Invalid => true,
        ErrorClass::Throttled
        | ErrorClass::Transient
        | ErrorClass::ConditionLost
        | ErrorClass::Bug => false,
    }
}
