//! How the table keeps entries and records: attribute names, numbers, absent attributes.
//!
//! Times are epoch milliseconds in attributes named `_ms`; `expires_at` alone, the TTL attribute, is
//! epoch seconds. An absent option is an absent attribute. Unknown attributes are left alone on reading;
//! an item that cannot be read names its key and the attribute, and nothing of its values.

mod entry;
pub(super) mod lock;
mod record;
mod run;

pub(super) use record::index_partition;
pub(super) use run::run_partition;

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::domain::id::QueueName;
use crate::domain::time::Wall;

/// The partition key.
pub(super) const PK: &str = "pk";
/// The TTL attribute, in epoch seconds.
pub const EXPIRES_AT: &str = "expires_at";
/// The partition key of the index by state.
pub(super) const GSI_PK: &str = "gsi_pk";
/// The sort key of the index by state.
pub(super) const GSI_SK: &str = "gsi_sk";
/// Who holds a lease.
pub(super) const OWNER: &str = "owner";
/// Until when a lease lasts.
pub(super) const LEASE_UNTIL: &str = "lease_until_ms";
/// The id of a run.
pub(super) const RUN_ID: &str = "run_id";
/// The state of an entry, record or run.
const STATE: &str = "state";

pub(super) type Item = HashMap<String, AttributeValue>;

/// An item that does not have the form this program writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("item {pk}: attribute {attribute} cannot be read")]
pub(super) struct Undecodable {
    pk: String,
    attribute: &'static str,
}

/// What the table keeps one of an item.
pub(super) trait Kept: Sized {
    type Id: Sync;
    /// `idem#<queue>#<key>`, `rec#<queue>#<id>` or `run#<id>`.
    fn pk(queue: &QueueName, id: &Self::Id) -> String;
    fn to_item(&self, queue: &QueueName, id: &Self::Id) -> Item;
    fn from_item(item: &Item) -> Result<Self, Undecodable>;
    /// The attributes that name a version, as `is_version_of` compares them.
    fn version(&self) -> Vec<(&'static str, Option<AttributeValue>)>;
    fn is_expired(&self, now: Wall) -> bool;
}

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn number(value: impl Into<u64>) -> AttributeValue {
    AttributeValue::N(value.into().to_string())
}

fn time(at: Wall) -> AttributeValue {
    number(at.as_ms())
}

/// Collects the attributes that are there.
fn item<const N: usize>(attributes: [(&str, Option<AttributeValue>); N]) -> Item {
    attributes
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)))
        .collect()
}

/// Reads one map of attributes: an item, or a map within it.
#[derive(Clone, Copy)]
struct Reader<'a> {
    pk: &'a str,
    attributes: &'a Item,
}

impl<'a> Reader<'a> {
    fn of_item(item: &'a Item) -> Self {
        let pk = item.get(PK).and_then(|pk| pk.as_s().ok()).map_or("without pk", String::as_str);
        Self { pk, attributes: item }
    }

    fn within(
        &self,
        value: &'a AttributeValue,
        attribute: &'static str,
    ) -> Result<Self, Undecodable> {
        let attributes = value.as_m().map_err(|_| self.bad(attribute))?;
        Ok(Self { pk: self.pk, attributes })
    }

    fn bad(&self, attribute: &'static str) -> Undecodable {
        Undecodable { pk: self.pk.to_owned(), attribute }
    }

    fn text(&self, name: &'static str) -> Result<Option<&'a str>, Undecodable> {
        let Some(value) = self.attributes.get(name) else { return Ok(None) };
        value.as_s().map(|text| Some(text.as_str())).map_err(|_| self.bad(name))
    }

    fn needed_text(&self, name: &'static str) -> Result<&'a str, Undecodable> {
        self.text(name)?.ok_or_else(|| self.bad(name))
    }

    /// A text of a checked form.
    fn parsed<T: TryFrom<String>>(&self, name: &'static str) -> Result<Option<T>, Undecodable> {
        let parse = |text: &str| T::try_from(text.to_owned()).map_err(|_| self.bad(name));
        self.text(name)?.map(parse).transpose()
    }

    fn needed<T: TryFrom<String>>(&self, name: &'static str) -> Result<T, Undecodable> {
        self.parsed(name)?.ok_or_else(|| self.bad(name))
    }

    fn number<T: std::str::FromStr>(&self, name: &'static str) -> Result<Option<T>, Undecodable> {
        let Some(value) = self.attributes.get(name) else { return Ok(None) };
        let digits = value.as_n().map_err(|_| self.bad(name))?;
        digits.parse().map(Some).map_err(|_| self.bad(name))
    }

    fn needed_number<T: std::str::FromStr>(&self, name: &'static str) -> Result<T, Undecodable> {
        self.number(name)?.ok_or_else(|| self.bad(name))
    }

    /// A name of a fixed set.
    fn named<T>(
        &self,
        name: &'static str,
        from_name: fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Undecodable> {
        let parse = |text| from_name(text).ok_or_else(|| self.bad(name));
        self.text(name)?.map(parse).transpose()
    }

    fn needed_named<T>(
        &self,
        name: &'static str,
        from_name: fn(&str) -> Option<T>,
    ) -> Result<T, Undecodable> {
        self.named(name, from_name)?.ok_or_else(|| self.bad(name))
    }

    fn time(&self, name: &'static str) -> Result<Option<Wall>, Undecodable> {
        Ok(self.number(name)?.map(Wall::from_ms))
    }

    fn needed_time(&self, name: &'static str) -> Result<Wall, Undecodable> {
        self.time(name)?.ok_or_else(|| self.bad(name))
    }

    /// A map; an absent one is empty.
    fn map(
        &self,
        name: &'static str,
    ) -> Result<impl Iterator<Item = (&'a String, &'a AttributeValue)> + use<'a>, Undecodable> {
        let map = self.attributes.get(name).map(AttributeValue::as_m).transpose();
        Ok(map.map_err(|_| self.bad(name))?.into_iter().flatten())
    }

    /// A list; an absent one is empty.
    fn list(&self, name: &'static str) -> Result<&'a [AttributeValue], Undecodable> {
        let list = self.attributes.get(name).map(AttributeValue::as_l).transpose();
        Ok(list.map_err(|_| self.bad(name))?.map_or(&[], Vec::as_slice))
    }
}
