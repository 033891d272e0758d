//! The two markers that travel in SQS messages: the token in the DLQ and the copy in the source.
//!
//! Both are one String attribute, [`ATTRIBUTE`]. A marker is believed only if it parses, its queue is
//! ours and its hash is that of the body it travels with; anything else under that name is a user's
//! attribute. Where the original leaves no room, the message becomes a pointer to the envelope.

use serde::{Deserialize, Serialize};

use super::failure::{ErrorCode, Reason};
use super::id::{EnvelopeKey, ParkToken, QueueName, RecordId, RunId, Sha256Hex};
use super::message::{Attribute, Attributes, MAX_ATTRIBUTES, Outgoing, Value};
use super::time::Wall;

/// The name of the attribute that carries a marker.
pub const ATTRIBUTE: &str = "redrive";

const VERSION: u32 = 1;

/// The DLQ message that stands for a quarantined record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The source.
    pub queue: QueueName,
    /// The record.
    pub record: RecordId,
    /// Its redrive count.
    pub n: u32,
    /// The original's SentTimestamp.
    pub sent_ms: Wall,
    /// SHA-256 of the original's body.
    pub sha256: Sha256Hex,
    /// Which issue this is: only the record's newest counts.
    pub park: ParkToken,
    /// The envelope.
    pub envelope: EnvelopeKey,
    /// The error code.
    pub code: ErrorCode,
    /// The reason.
    pub reason: Reason,
    /// When it was parked.
    pub parked_at_ms: Wall,
}

/// The message that a redrive sends to the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// The source.
    pub queue: QueueName,
    /// The record.
    pub record: RecordId,
    /// The run.
    pub run: RunId,
    /// Which copy of the record.
    pub n: u32,
    /// The original's SentTimestamp.
    pub sent_ms: Wall,
    /// SHA-256 of the original's body.
    pub sha256: Sha256Hex,
    /// Whether an operator forced it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// A token or a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// A token.
    Token(Token),
    /// A copy.
    Copy(Copy),
}

/// A believed marker, and where the original is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// The message is the original with one attribute more.
    Inline(Marker),
    /// The original is in the envelope; its body's hash is yet to be compared.
    Pointer(Marker),
}

/// The original of a token or copy, as far as it travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original<'a> {
    /// Its body.
    pub body: &'a str,
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// Its trace header.
    pub trace_header: Option<&'a str>,
    /// Its message group.
    pub group_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Tagged<'a, T> {
    v: u32,
    t: &'static str,
    #[serde(flatten)]
    marker: &'a T,
}

#[derive(Serialize, Deserialize)]
struct Pointer<T> {
    redrive: T,
}

impl Carried {
    /// The marker.
    #[must_use]
    pub const fn marker(&self) -> &Marker {
        match self {
            Self::Inline(marker) | Self::Pointer(marker) => marker,
        }
    }
}

impl Marker {
    /// The marker's queue.
    #[must_use]
    pub const fn queue(&self) -> &QueueName {
        match self {
            Self::Token(token) => &token.queue,
            Self::Copy(copy) => &copy.queue,
        }
    }

    /// The hash of the original's body.
    #[must_use]
    pub const fn sha256(&self) -> &Sha256Hex {
        match self {
            Self::Token(token) => &token.sha256,
            Self::Copy(copy) => &copy.sha256,
        }
    }

    /// The JSON of this marker.
    ///
    /// # Errors
    /// Never for the types at hand; the error is the library's.
    pub fn encode(&self) -> Result<String, serde_json::Error> {
        match self {
            Self::Token(token) => {
                serde_json::to_string(&Tagged { v: VERSION, t: "token", marker: token })
            }
            Self::Copy(copy) => {
                serde_json::to_string(&Tagged { v: VERSION, t: "copy", marker: copy })
            }
        }
    }

    fn decode(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Head {
            v: u32,
            t: String,
        }
        let head: Head = serde_json::from_str(text).ok()?;
        match (head.v, head.t.as_str()) {
            (VERSION, "token") => serde_json::from_str(text).ok().map(Self::Token),
            (VERSION, "copy") => serde_json::from_str(text).ok().map(Self::Copy),
            _ => None,
        }
    }
}

/// The marker that a message carries, if it is to be believed by the worker of `queue`.
#[must_use]
pub fn recognise(body: &str, attributes: &Attributes, queue: &QueueName) -> Option<Carried> {
    recognise_any(body, attributes).filter(|carried| carried.marker().queue() == queue)
}

/// The marker that a message carries, if the worker of its own queue would believe it.
#[must_use]
pub fn recognise_any(body: &str, attributes: &Attributes) -> Option<Carried> {
    let text = match attributes.get(ATTRIBUTE)? {
        Attribute { data_type, value: Value::Text(text) } if data_type == "String" => text,
        Attribute { .. } => return None,
    };
    let marker = Marker::decode(text)?;
    if *marker.sha256() == Sha256Hex::of(body.as_bytes()) {
        return Some(Carried::Inline(marker));
    }
    let pointer: Pointer<Box<serde_json::value::RawValue>> = serde_json::from_str(body).ok()?;
    let same = Marker::decode(pointer.redrive.get()).as_ref() == Some(&marker);
    (same && attributes.len() == 1).then_some(Carried::Pointer(marker))
}

/// Whether the original fits with one attribute more, or must travel as a pointer.
fn fits(original: &Original<'_>, marker_bytes: usize, max_bytes: usize) -> bool {
    let room = original.attributes.len() < MAX_ATTRIBUTES;
    let size = super::message::message_size(original.body, original.attributes)
        .saturating_add(ATTRIBUTE.len())
        .saturating_add("String".len())
        .saturating_add(marker_bytes);
    room && !original.attributes.contains_key(ATTRIBUTE) && size <= max_bytes
}

/// The message that carries `marker` with the original, or points to it where the original has no room
/// for one attribute more: ten attributes, one of our name, or a size above `max_bytes`.
///
/// # Errors
/// Never for the types at hand; the error is the library's.
pub fn wrap(
    marker: &Marker,
    original: &Original<'_>,
    max_bytes: usize,
) -> Result<Outgoing, serde_json::Error> {
    let text = marker.encode()?;
    let (body, mut attributes) = if fits(original, text.len(), max_bytes) {
        (original.body.to_owned(), original.attributes.clone())
    } else {
        (format!(r#"{{"redrive":{text}}}"#), Attributes::new())
    };
    attributes.insert(ATTRIBUTE.to_owned(), Attribute::string(text));
    let fifo = marker.queue().is_fifo();
    let (group_id, deduplication_id) = match marker {
        Marker::Token(token) if fifo => (
            Some(token.record.to_string()),
            Some(Sha256Hex::of(token.park.as_str().as_bytes()).to_string()),
        ),
        Marker::Copy(copy) if fifo => {
            let text = format!("{},{},{}", copy.record, copy.run, copy.n);
            let id = Sha256Hex::of(text.as_bytes()).to_string();
            (original.group_id.map(str::to_owned), Some(id))
        }
        Marker::Token(_) | Marker::Copy(_) => (original.group_id.map(str::to_owned), None),
    };
    Ok(Outgoing {
        body,
        attributes,
        group_id,
        deduplication_id,
        trace_header: original.trace_header.map(str::to_owned),
    })
}

/// A trace header without its `Lineage` field, in which Lambda counts loops: an operator's redrive is none.
#[must_use]
pub fn without_lineage(trace_header: &str) -> String {
    let keep = |field: &&str| !field.trim_start().starts_with("Lineage=");
    trace_header.split(';').filter(keep).collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> QueueName {
        QueueName::new("orders").unwrap()
    }

    fn token(queue: &str, body: &str) -> Marker {
        Marker::Token(Token {
            queue: QueueName::new(queue).unwrap(),
            record: RecordId::new("m-1").unwrap(),
            n: 0,
            sent_ms: Wall::from_ms(5),
            sha256: Sha256Hex::of(body.as_bytes()),
            park: ParkToken::new("p").unwrap(),
            envelope: EnvelopeKey::new("envelopes/v1/orders/x/m-1-0-t.json").unwrap(),
            code: ErrorCode::normalize("ISRC_MALFORMED"),
            reason: Reason::Validation,
            parked_at_ms: Wall::from_ms(6),
        })
    }

    fn copy(body: &str) -> Marker {
        Marker::Copy(Copy {
            queue: queue(),
            record: RecordId::new("m-1").unwrap(),
            run: RunId::new("r").unwrap(),
            n: 1,
            sent_ms: Wall::from_ms(5),
            sha256: Sha256Hex::of(body.as_bytes()),
            force: false,
        })
    }

    fn wrapped(marker: &Marker, body: &str, attributes: &Attributes, max: usize) -> Outgoing {
        let original =
            Original { body, attributes, trace_header: Some("Root=1"), group_id: Some("g") };
        wrap(marker, &original, max).unwrap()
    }

    #[test]
    fn the_stored_forms_are_as_documented() {
        insta::assert_snapshot!(token("orders", "b").encode().unwrap());
        insta::assert_snapshot!(copy("b").encode().unwrap());
    }

    #[test]
    fn body_and_attributes_are_the_originals_where_they_fit() {
        let attributes = Attributes::from([("a".to_owned(), Attribute::string("1"))]);
        for marker in [token("orders", "body"), copy("body")] {
            let message = wrapped(&marker, "body", &attributes, 1_048_576);
            assert_eq!(message.body, "body");
            assert_eq!(message.attributes.get("a"), attributes.get("a"));
            assert_eq!(message.attributes.len(), 2);
            assert_eq!(
                (message.group_id.as_deref(), &message.deduplication_id),
                (Some("g"), &None)
            );
            assert_eq!(message.trace_header.as_deref(), Some("Root=1"));
            let seen = recognise(&message.body, &message.attributes, &queue());
            assert_eq!(seen, Some(Carried::Inline(marker)));
        }
    }

    #[test]
    fn the_limit_is_kept_to_the_byte() {
        let attributes = Attributes::new();
        let marker = token("orders", "body");
        let exact = wrapped(&marker, "body", &attributes, 1_048_576).size();
        assert_eq!(wrapped(&marker, "body", &attributes, exact).body, "body");
        assert!(wrapped(&marker, "body", &attributes, exact - 1).body.starts_with("{\"redrive\":"));
    }

    #[test]
    fn a_pointer_is_small_and_recognised() {
        let ten: Attributes = (0..10).map(|i| (format!("a{i}"), Attribute::string("x"))).collect();
        let ours = Attributes::from([(ATTRIBUTE.to_owned(), Attribute::string("a user's"))]);
        for attributes in [ten, ours] {
            let marker = token("orders", "body");
            let message = wrapped(&marker, "body", &attributes, 1_048_576);
            assert_eq!(message.attributes.len(), 1);
            assert!(message.size() <= 1024, "{}", message.size());
            let seen = recognise(&message.body, &message.attributes, &queue());
            assert_eq!(seen, Some(Carried::Pointer(marker)));
        }
    }

    #[test]
    fn a_fifo_token_blocks_no_other_and_is_new_for_each_issue() {
        let marker = token("orders.fifo", "b");
        let message = wrapped(&marker, "b", &Attributes::new(), 1_048_576);
        assert_eq!(message.group_id.as_deref(), Some("m-1"));
        assert_eq!(message.deduplication_id, Some(Sha256Hex::of(b"p").to_string()));
    }

    #[test]
    fn a_redrive_is_no_loop_to_lambda() {
        let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Lineage=1:a87bd80c:1;Sampled=1";
        let kept = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1";
        assert_eq!(without_lineage(header), kept);
        assert_eq!(without_lineage(kept), kept);
    }

    #[test]
    fn only_believed_markers_count() {
        let with = |text: &str, kind: &str| {
            let value = Value::Text(text.to_owned());
            Attributes::from([(ATTRIBUTE.to_owned(), Attribute { data_type: kind.into(), value })])
        };
        let ours = token("orders", "body").encode().unwrap();
        let theirs = token("other", "body").encode().unwrap();
        assert!(recognise("body", &with(&ours, "String"), &queue()).is_some());
        assert_eq!(recognise("another body", &with(&ours, "String"), &queue()), None);
        assert_eq!(recognise("body", &with(&ours, "String.x"), &queue()), None);
        assert_eq!(recognise("body", &with(&theirs, "String"), &queue()), None);
        assert_eq!(
            recognise("body", &with(&ours.replace("\"v\":1", "\"v\":2"), "String"), &queue()),
            None
        );
        assert_eq!(recognise("body", &with("{", "String"), &queue()), None);
        assert_eq!(
            recognise("body", &with(&ours.replace("m-1", "../m"), "String"), &queue()),
            None
        );
        let forged = format!("{{\"redrive\":{}}}", ours.replace("\"n\":0", "\"n\":7"));
        assert_eq!(recognise(&forged, &with(&ours, "String"), &queue()), None);
    }
}
