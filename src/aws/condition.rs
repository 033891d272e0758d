//! The condition expressions of the ledger's writes.
//!
//! All attribute names go through placeholders, since some are reserved words. An item past its expiry
//! counts as absent, so every condition compares the expiry too.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{EXPIRES_AT, Kept, LEASE_UNTIL, OWNER, PK, number, text};
use crate::domain::time::Wall;
use crate::port::ledger::Expect;

/// A condition expression with its placeholders.
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) names: HashMap<String, String>,
    /// None if there are none: DynamoDB refuses an empty map.
    pub(super) values: Option<HashMap<String, AttributeValue>>,
}

#[derive(Default)]
struct Builder {
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Builder {
    fn name(&mut self, attribute: &str) -> String {
        let placeholder = format!("#{attribute}");
        self.names.insert(placeholder.clone(), attribute.to_owned());
        placeholder
    }

    fn value(&mut self, attribute: &str, value: AttributeValue) -> String {
        let placeholder = format!(":{attribute}");
        self.values.insert(placeholder.clone(), value);
        placeholder
    }

    fn absent(&mut self, attribute: &str) -> String {
        format!("attribute_not_exists({})", self.name(attribute))
    }

    fn compare(&mut self, attribute: &str, operator: &str, value: AttributeValue) -> String {
        let value = self.value(attribute, value);
        format!("{} {operator} {value}", self.name(attribute))
    }

    /// The item is this version.
    fn same<T: Kept>(&mut self, version: &T) -> String {
        let term = |(attribute, value): (&str, Option<AttributeValue>)| match value {
            Some(value) => self.compare(attribute, "=", value),
            None => self.absent(attribute),
        };
        version.version().into_iter().map(term).collect::<Vec<_>>().join(" AND ")
    }

    fn build(self, text: String) -> Expression {
        let values = (!self.values.is_empty()).then_some(self.values);
        Expression { text, names: self.names, values }
    }
}

/// The condition of a write.
pub(super) fn of<T: Kept>(expect: &Expect<T>, now: Wall) -> Expression {
    let mut builder = Builder::default();
    let now = number(now.as_secs());
    let text = match expect {
        Expect::Absent => {
            let absent = builder.absent(PK);
            format!("{absent} OR {}", builder.compare(EXPIRES_AT, "<=", now))
        }
        Expect::Is(version) => {
            let same = builder.same(version.as_ref());
            let for_ever = builder.absent(EXPIRES_AT);
            let not_yet = builder.compare(EXPIRES_AT, ">", now);
            format!("{same} AND ({for_ever} OR {not_yet})")
        }
    };
    builder.build(text)
}

/// The item is this version; for items that have no expiry.
pub(super) fn same<T: Kept>(version: &T) -> Expression {
    let mut builder = Builder::default();
    let text = builder.same(version);
    builder.build(text)
}

/// The item's attribute has this value.
pub(super) fn has(attribute: &str, value: &str) -> Expression {
    let mut builder = Builder::default();
    let expression = builder.compare(attribute, "=", text(value));
    builder.build(expression)
}

/// A lease that nobody has, whose time is over at `now`, or that is `owner`'s.
pub(super) fn free_for(owner: &str, now: Wall) -> Expression {
    let mut builder = Builder::default();
    let absent = builder.absent(PK);
    let over = builder.compare(LEASE_UNTIL, "<=", number(now.as_ms()));
    let own = builder.compare(OWNER, "=", text(owner));
    builder.build(format!("{absent} OR {over} OR {own}"))
}

/// There is no item, or its attribute has this value.
pub(super) fn absent_or(attribute: &str, value: Option<&str>) -> Expression {
    let mut builder = Builder::default();
    let mut expression = builder.absent(PK);
    if let Some(value) = value {
        expression = format!("{expression} OR {}", builder.compare(attribute, "=", text(value)));
    }
    builder.build(expression)
}
