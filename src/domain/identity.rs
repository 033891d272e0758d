//! What makes two deliveries the same work: the key strategy, the content hash, and repeats.
//!
//! Hashes are over bytes exactly as received, never over re-serialised JSON: key order, `1` and `1.0`,
//! white space and Unicode normal forms all make different keys. JSON pointers read the number's own
//! text, so that large numbers do not collide.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::entry::{Commit, Entry};
use super::id::{EntryKey, RecordId, Sha256Hex};
use super::message::{Attributes, Value};
use super::selector::json_text;
use super::time::Wall;

/// How the key of an entry is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyStrategy {
    /// The payload's SHA-256.
    Payload,
    /// The SHA-256 of the original MessageId.
    MessageId,
    /// The SHA-256 of one attribute's value.
    Attribute(String),
    /// The SHA-256 of the values at these JSON pointers, joined with 0x1F.
    Json(Vec<String>),
}

/// A text that is no key strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no key strategy: use \"payload\", \"message-id\", \"attribute:NAME\" or \"json:/a,/b\""
)]
pub struct KeyStrategyError(String);

/// The body or the attributes lack what the strategy needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} finds nothing in this message")]
pub struct IdentityMissing(pub String);

impl FromStr for KeyStrategy {
    type Err = KeyStrategyError;

    fn from_str(text: &str) -> Result<Self, KeyStrategyError> {
        let refused = || KeyStrategyError(text.to_owned());
        match text {
            "payload" => Ok(Self::Payload),
            "message-id" => Ok(Self::MessageId),
            _ => match text.split_once(':') {
                Some(("attribute", name)) if !name.is_empty() => {
                    Ok(Self::Attribute(name.to_owned()))
                }
                Some(("json", list)) => {
                    let pointers: Vec<String> = list.split(',').map(str::to_owned).collect();
                    if pointers.iter().all(|p| p.starts_with('/')) {
                        Ok(Self::Json(pointers))
                    } else {
                        Err(refused())
                    }
                }
                Some(_) | None => Err(refused()),
            },
        }
    }
}

/// The strategy's fingerprint: its text. A process with another one must not share the ledger.
impl fmt::Display for KeyStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload => f.write_str("payload"),
            Self::MessageId => f.write_str("message-id"),
            Self::Attribute(name) => write!(f, "attribute:{name}"),
            Self::Json(pointers) => write!(f, "json:{}", pointers.join(",")),
        }
    }
}

impl KeyStrategy {
    /// The key of a message.
    ///
    /// # Errors
    /// The message lacks what the strategy needs; its key is then the payload's hash.
    pub fn key(
        &self,
        origin: &RecordId,
        payload: &Sha256Hex,
        body: &str,
        attributes: &Attributes,
    ) -> Result<EntryKey, IdentityMissing> {
        match self {
            Self::Payload => Ok(payload.clone().into()),
            Self::MessageId => Ok(Sha256Hex::of(origin.as_str().as_bytes()).into()),
            Self::Attribute(name) => {
                let attribute = attributes
                    .get(name)
                    .ok_or_else(|| IdentityMissing(format!("attribute:{name}")))?;
                Ok(match &attribute.value {
                    Value::Text(text) => Sha256Hex::of(text.as_bytes()),
                    Value::Binary(bytes) => Sha256Hex::of(bytes),
                }
                .into())
            }
            Self::Json(pointers) => {
                let mut joined = Vec::new();
                for (i, pointer) in pointers.iter().enumerate() {
                    let value = json_text(body, pointer)
                        .ok_or_else(|| IdentityMissing(format!("json:{pointer}")))?;
                    if i > 0 {
                        joined.push(0x1F);
                    }
                    joined.extend_from_slice(value.as_bytes());
                }
                Ok(Sha256Hex::of(&joined).into())
            }
        }
    }
}

/// The content hash: over body and message attributes in name order, each part with its length before
/// it, so that no two contents share one.
#[must_use]
pub fn content_hash(body: &str, attributes: &Attributes) -> Sha256Hex {
    fn part(digest: &mut Sha256, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        digest.update(length.to_be_bytes());
        digest.update(bytes);
    }
    let mut digest = Sha256::new();
    part(&mut digest, body.as_bytes());
    for (name, attribute) in attributes {
        part(&mut digest, name.as_bytes());
        part(&mut digest, attribute.data_type.as_bytes());
        match &attribute.value {
            Value::Text(text) => part(&mut digest, text.as_bytes()),
            Value::Binary(bytes) => part(&mut digest, bytes),
        }
    }
    Sha256Hex::from_digest(digest)
}

/// Where a delivery comes from, as far as repeats are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance {
    /// A producer's message.
    Plain,
    /// A copy or a redriven token.
    Redriven,
    /// A copy that an operator forced.
    Forced,
}

/// The facts of a delivery that decide whether it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Whose work it is.
    pub origin: RecordId,
    /// The origin's SentTimestamp.
    pub sent: Wall,
    /// The content hash of the original.
    pub hash: Sha256Hex,
    /// The payload's SHA-256.
    pub payload: Sha256Hex,
    /// Where it comes from.
    pub provenance: Provenance,
}

/// What an entry's commits say of a delivery, whatever the entry's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Its work is done: by the commit of this origin.
    Done(RecordId),
    /// The newest commit under its key has another payload: a person must decide.
    Mismatch,
    /// New work.
    New,
}

impl Content {
    /// Judges this delivery by the stored facts alone, so that a redelivery gets the same answer.
    #[must_use]
    pub fn judge(&self, entry: &Entry, repeat_window: Duration) -> Judgement {
        if entry.commits.contains_key(&self.origin) {
            return Judgement::Done(self.origin.clone());
        }
        if self.provenance == Provenance::Forced {
            return Judgement::New;
        }
        let repeats = |commit: &Commit| {
            commit.hash == self.hash
                && (commit.sent.distance(self.sent) <= repeat_window
                    || (self.provenance == Provenance::Redriven && commit.sent > self.sent))
        };
        if let Some((origin, _)) = entry.commits.iter().find(|(_, commit)| repeats(commit)) {
            return Judgement::Done(origin.clone());
        }
        match entry.newest_commit() {
            Some((_, commit)) if commit.payload != self.payload => Judgement::Mismatch,
            Some(_) | None => Judgement::New,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Attribute;
    use super::*;

    fn origin() -> RecordId {
        RecordId::new("m-1").unwrap()
    }

    fn key(strategy: &str, body: &str) -> Result<EntryKey, IdentityMissing> {
        let strategy: KeyStrategy = strategy.parse().unwrap();
        strategy.key(&origin(), &Sha256Hex::of(body.as_bytes()), body, &Attributes::new())
    }

    #[test]
    fn strategies_print_what_they_parse() {
        for text in ["payload", "message-id", "attribute:order", "json:/a,/b/0"] {
            assert_eq!(text.parse::<KeyStrategy>().unwrap().to_string(), text);
        }
        for text in ["", "body", "attribute:", "json:a", "json:/a,b"] {
            assert!(text.parse::<KeyStrategy>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn case_f8_raw_bytes_decide() {
        let pairs = [
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
            ("[1,2]", "[2,1]"),
            ("1", "1.0"),
            ("{\"a\":1}", "{\"a\": 1}"),
            ("\"\u{e9}\"", "\"e\u{301}\""),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            ("9007199254740993", "9007199254740992"),
        ];
        for (left, right) in pairs {
            assert_ne!(key("payload", left), key("payload", right), "{left} {right}");
        }
        let id = key("payload", r#"{"id":"a1"}"#).unwrap();
        let known = "5cc2b0b4633517b59ff08d134998061ecc5b278ddf09cf26813aea7409d03738";
        assert_eq!(id.as_str(), known);
        let a = r#"{"id":9007199254740993000000001}"#;
        let b = r#"{"id":9007199254740993000000002}"#;
        assert_ne!(key("json:/id", a), key("json:/id", b));
    }

    #[test]
    fn json_pointers_join_values_and_never_guess() {
        let body = r#"{"isrc":"US1","period": { "y": 2024, "q" : "a b" },"list":["x"],"n":null}"#;
        assert_eq!(json_text(body, "/isrc").as_deref(), Some("US1"));
        assert_eq!(json_text(body, "/period").as_deref(), Some(r#"{"y":2024,"q":"a b"}"#));
        assert_eq!(json_text(body, "/list/0").as_deref(), Some("x"));
        for nothing in ["/n", "/x", "/isrc/x", "/list/9", "/list/-"] {
            assert_eq!(json_text(body, nothing), None, "{nothing}");
        }
        assert_eq!(json_text("not json", "/a"), None);
        let joined = Sha256Hex::of(b"US1\x1f2024");
        assert_eq!(key("json:/isrc,/period/y", body), Ok(joined.into()));
        assert!(key("json:/isrc,/absent", body).is_err());
    }

    #[test]
    fn content_parts_cannot_run_into_each_other() {
        let with = |name: &str, value: &str| {
            Attributes::from([(name.to_owned(), Attribute::string(value))])
        };
        assert_ne!(content_hash("x", &with("ab", "c")), content_hash("x", &with("a", "bc")));
        assert_ne!(content_hash("x", &Attributes::new()), content_hash("y", &Attributes::new()));
    }
}
