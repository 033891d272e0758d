//! SendMessage and its batch: what a queue accepts, and deduplication.
//!
//! Standard queues keep a MessageGroupId (fair queues) and give no order. On FIFO queues the same
//! deduplication id within five minutes gets the first send's answer and no second message.

use std::time::Duration;

use super::attribute::Settings;
use super::batch::{self, Entries};
use super::content;
use super::engine::{Engine, sequence_number};
use super::error::SqsError;
use super::queue::{Message, Place};
use crate::domain::id::{MessageId, QueueName, Sha256Hex};
use crate::domain::message::{MAX_MESSAGE_BYTES, Outgoing};
use crate::domain::time::Wall;

const MAX_DELAY_SECS: u64 = 900;

/// One SendMessage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendMessage {
    /// The message.
    pub message: Outgoing,
    /// `DelaySeconds`; the queue's own when absent.
    pub delay_secs: Option<u64>,
}

/// The answer to an accepted SendMessage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The message's id.
    pub message_id: MessageId,
    /// Its place in the order of a FIFO queue.
    pub sequence_number: Option<String>,
}

impl From<Outgoing> for SendMessage {
    fn from(message: Outgoing) -> Self {
        Self { message, delay_secs: None }
    }
}

impl Engine {
    /// SendMessage.
    ///
    /// # Errors
    /// The queue does not exist, or refuses the message.
    pub fn send(
        &mut self,
        now: Wall,
        name: &QueueName,
        request: SendMessage,
    ) -> Result<Sent, SqsError> {
        let queue = self.visit(now, name)?;
        let (content, delay) = accept(&queue.settings, request)?;
        let deduplication = deduplication_key(&queue.settings, &content);
        if let Some(sent) = deduplication.as_deref().and_then(|key| queue.fifo.duplicate_of(key)) {
            return Ok(sent.clone());
        }
        let is_fifo = queue.settings.fifo;
        let id = self.new_message_id()?;
        let key = self.next_key();
        let sequence_number = is_fifo.then(|| sequence_number(key));
        let place =
            if delay.is_zero() { Place::Ready } else { Place::Delayed { until: now.plus(delay) } };
        let message = Message {
            id: id.clone(),
            content,
            sequence_number: sequence_number.clone(),
            sent: now,
            first_received: None,
            receive_count: 0,
            receives_here: 0,
            dead_letter_source: None,
            place,
        };
        let sent = Sent { message_id: id, sequence_number };
        let queue = self.queues.get_mut(name).ok_or(SqsError::QueueDoesNotExist)?;
        queue.insert(key, message);
        if let Some(deduplication) = deduplication {
            queue.fifo.remember(deduplication, sent.clone(), now);
        }
        self.touch(name);
        Ok(sent)
    }

    /// SendMessageBatch.
    ///
    /// # Errors
    /// The queue does not exist, or the batch as a whole is refused.
    pub fn send_batch(
        &mut self,
        now: Wall,
        name: &QueueName,
        entries: Vec<(String, SendMessage)>,
    ) -> Result<Entries<Sent>, SqsError> {
        self.check_exists(name)?;
        batch::check(entries.iter().map(|(id, _)| id.as_str()))?;
        let bytes: usize = entries.iter().map(|(_, request)| request.message.size()).sum();
        if bytes > MAX_MESSAGE_BYTES {
            return Err(SqsError::BatchRequestTooLong { max_bytes: MAX_MESSAGE_BYTES });
        }
        Ok(entries.into_iter().map(|(id, request)| (id, self.send(now, name, request))).collect())
    }
}

/// The message as the queue takes it, with the deduplication id that its content gives, and its delay.
fn accept(settings: &Settings, request: SendMessage) -> Result<(Outgoing, Duration), SqsError> {
    let SendMessage { mut message, delay_secs } = request;
    content::check(&message)?;
    if message.size() > settings.max_message_bytes {
        return Err(SqsError::parameter(
            "MessageBody",
            format!("message must be shorter than {} bytes", settings.max_message_bytes),
        ));
    }
    if delay_secs.is_some_and(|secs| secs > MAX_DELAY_SECS) {
        return Err(SqsError::parameter("DelaySeconds", "it must be between 0 and 900"));
    }
    if !settings.fifo {
        if message.deduplication_id.is_some() {
            return Err(not_of_this_type("MessageDeduplicationId"));
        }
        return Ok((message, delay_secs.map_or(settings.delay, Duration::from_secs)));
    }
    if delay_secs.is_some_and(|secs| secs > 0) {
        return Err(not_of_this_type("DelaySeconds"));
    }
    if message.group_id.is_none() {
        return Err(SqsError::MissingParameter("MessageGroupId"));
    }
    if message.deduplication_id.is_none() {
        if !settings.content_based_deduplication {
            return Err(SqsError::parameter(
                "MessageDeduplicationId",
                "the queue should either have ContentBasedDeduplication enabled or \
                 MessageDeduplicationId provided explicitly",
            ));
        }
        message.deduplication_id = Some(Sha256Hex::of(message.body.as_bytes()).into());
    }
    Ok((message, settings.delay))
}

fn not_of_this_type(parameter: &'static str) -> SqsError {
    SqsError::parameter(
        parameter,
        "the request includes a parameter that is not valid for this queue type",
    )
}

/// What two sends must share to be one message; nothing on a standard queue.
fn deduplication_key(settings: &Settings, message: &Outgoing) -> Option<String> {
    let id = message.deduplication_id.as_deref()?;
    match message.group_id.as_deref() {
        Some(group) if settings.deduplicates_per_group => Some(format!("{group} {id}")),
        _ => Some(id.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::Attribute;
    use crate::sim::sqs::testing::{at, bodies, engine, fifo, name, receive, text};

    #[test]
    fn size_counts_attributes_and_the_queue_s_own_limit() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[("MaximumMessageSize", "1024")]);
        assert!(engine.send(at(0), &queue, text(&"x".repeat(1024))).is_ok());
        assert!(engine.send(at(0), &queue, text(&"x".repeat(1025))).is_err());
        let mut request = text(&"x".repeat(1000));
        request.message.attributes.insert("a".into(), Attribute::string("y".repeat(18)));
        assert!(engine.send(at(0), &queue, request).is_err(), "1000 + 1 + 6 + 18 bytes");
    }

    #[test]
    fn a_batch_sum_over_one_mebibyte_refuses_the_batch() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        let entry = |id: &str, bytes: usize| (id.to_owned(), text(&"x".repeat(bytes)));
        let fits = vec![entry("a", MAX_MESSAGE_BYTES - 1), entry("b", 1)];
        assert!(engine.send_batch(at(0), &queue, fits).is_ok());
        let over = vec![entry("a", MAX_MESSAGE_BYTES - 1), entry("b", 2)];
        assert_eq!(
            engine.send_batch(at(0), &queue, over),
            Err(SqsError::BatchRequestTooLong { max_bytes: MAX_MESSAGE_BYTES })
        );
    }

    #[test]
    fn a_bad_entry_fails_alone() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        let late = SendMessage { delay_secs: Some(901), ..text("x") };
        let entries =
            vec![("a".into(), text("ok")), ("b".into(), text("\u{0}")), ("c".into(), late)];
        let answers = engine.send_batch(at(0), &queue, entries).unwrap();
        let ok: Vec<bool> = answers.iter().map(|(_, answer)| answer.is_ok()).collect();
        assert_eq!(ok, [true, false, false]);
        assert_eq!(bodies(&receive(&mut engine, 0, &queue)), ["ok"]);
    }

    #[test]
    fn delay_hides_until_it_is_over_and_the_message_s_own_goes_first() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[("DelaySeconds", "10")]);
        engine.send(at(0), &queue, text("queue's")).unwrap();
        engine.send(at(0), &queue, SendMessage { delay_secs: Some(0), ..text("own") }).unwrap();
        assert_eq!(bodies(&receive(&mut engine, 0, &queue)), ["own"]);
        assert_eq!(engine.next_due(&queue), Some(at(10_000)));
        assert!(receive(&mut engine, 9_999, &queue).is_empty());
        assert_eq!(bodies(&receive(&mut engine, 10_000, &queue)), ["queue's"]);
    }

    #[test]
    fn a_deduplication_id_counts_for_five_minutes_also_after_the_delete() {
        let mut engine = engine();
        let queue = name(&mut engine, "q.fifo", &[("FifoQueue", "true")]);
        let first = engine.send(at(0), &queue, fifo("1", "g", "d")).unwrap();
        let received = receive(&mut engine, 0, &queue);
        engine.delete(at(0), &queue, &received[0].receipt).unwrap();
        assert_eq!(engine.send(at(299_999), &queue, fifo("2", "g", "d")), Ok(first));
        assert!(receive(&mut engine, 299_999, &queue).is_empty());
        engine.send(at(300_000), &queue, fifo("3", "g", "d")).unwrap();
        assert_eq!(bodies(&receive(&mut engine, 300_000, &queue)), ["3"]);
    }

    #[test]
    fn deduplication_may_be_scoped_by_group() {
        let mut engine = engine();
        let queue = name(
            &mut engine,
            "q.fifo",
            &[("FifoQueue", "true"), ("DeduplicationScope", "messageGroup")],
        );
        for group in ["a", "b", "a"] {
            engine.send(at(0), &queue, fifo("x", group, "d")).unwrap();
        }
        assert_eq!(receive(&mut engine, 0, &queue).len(), 2);
    }

    #[test]
    fn content_gives_the_deduplication_id_when_asked_to() {
        let mut engine = engine();
        let queue = name(
            &mut engine,
            "q.fifo",
            &[("FifoQueue", "true"), ("ContentBasedDeduplication", "true")],
        );
        for _ in 0..2 {
            let mut request = fifo("same", "g", "");
            request.message.deduplication_id = None;
            engine.send(at(0), &queue, request).unwrap();
        }
        let received = receive(&mut engine, 0, &queue);
        assert_eq!(received.len(), 1);
        let hash: String = Sha256Hex::of(b"same").into();
        assert_eq!(received[0].deduplication_id, Some(hash));
    }

    #[test]
    fn each_type_of_queue_refuses_what_is_the_other_s() {
        let mut engine = engine();
        let standard = name(&mut engine, "q", &[]);
        let ordered = name(&mut engine, "q.fifo", &[("FifoQueue", "true")]);
        assert!(engine.send(at(0), &standard, fifo("x", "g", "d")).is_err());
        assert_eq!(
            engine.send(at(0), &ordered, text("x")),
            Err(SqsError::MissingParameter("MessageGroupId"))
        );
        let mut request = fifo("x", "g", "d");
        request.message.deduplication_id = None;
        assert!(engine.send(at(0), &ordered, request).is_err());
        let delayed = SendMessage { delay_secs: Some(5), ..fifo("x", "g", "d") };
        assert!(engine.send(at(0), &ordered, delayed).is_err());
    }

    #[test]
    fn a_standard_queue_keeps_the_group_of_a_fair_queue() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        for body in ["1", "2"] {
            let mut request = text(body);
            request.message.group_id = Some("tenant".into());
            engine.send(at(0), &queue, request).unwrap();
        }
        let first = engine.receive(at(0), &queue, &crate::sim::sqs::ReceiveMessage::default());
        assert_eq!(first.unwrap()[0].group_id.as_deref(), Some("tenant"));
        assert_eq!(receive(&mut engine, 0, &queue).len(), 1, "the group does not lock");
    }
}
