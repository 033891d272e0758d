//! ReceiveMessage: what is handed out, and what goes to the dead-letter queue instead.
//!
//! A message that was received `maxReceiveCount` times moves on the receive after that, if its dead-letter
//! queue exists; if not, it is handed out as before: nothing is ever dropped. One receive takes several
//! messages of one FIFO group, in order, and then nothing more of it until they are done with.
//! An answer is full whenever it can be, which AWS does not promise. Waiting is the caller's business.

use std::time::Duration;

use super::engine::Engine;
use super::error::SqsError;
use super::queue::{Key, Message, Place, Queue};
use super::receipt::{self, Receipt};
use crate::domain::id::QueueName;
use crate::domain::message::{MAX_BATCH_ENTRIES, MAX_VISIBILITY_SECS, Received};
use crate::domain::time::Wall;

/// How many messages of a queue may be in flight.
pub const MAX_IN_FLIGHT: usize = 120_000;

/// One ReceiveMessage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveMessage {
    /// `MaxNumberOfMessages`, 1 to 10.
    pub max: usize,
    /// `VisibilityTimeout`; the queue's own when absent.
    pub visibility: Option<Duration>,
    /// `ReceiveRequestAttemptId`: a repeat within five minutes gets the same messages again.
    pub attempt_id: Option<String>,
}

impl Default for ReceiveMessage {
    fn default() -> Self {
        Self { max: 1, visibility: None, attempt_id: None }
    }
}

impl Engine {
    /// ReceiveMessage, without waiting.
    ///
    /// # Errors
    /// The queue does not exist, a parameter is refused, or too many messages are in flight.
    pub fn receive(
        &mut self,
        now: Wall,
        name: &QueueName,
        request: &ReceiveMessage,
    ) -> Result<Vec<Received>, SqsError> {
        check(request)?;
        let policy = self.queue(name)?.settings.redrive.clone();
        let target = policy
            .as_ref()
            .and_then(|policy| Some((self.find(&policy.target)?, policy.max_receive_count)));
        let queue = self.visit(now, name)?;
        let until = now.plus(request.visibility.unwrap_or(queue.settings.visibility));
        let place = Place::InFlight { since: now, until };
        if let Some(again) = queue.replay(request, place) {
            return Ok(again.into_iter().filter_map(|key| queue.show(name, key)).collect());
        }
        let limit = target.as_ref().map(|(_, max_receive_count)| *max_receive_count);
        let taken = queue.take(request.max, limit, place)?;
        if let Some(attempt_id) = &request.attempt_id
            && queue.settings.fifo
        {
            let got = taken.keys.iter();
            let got = got.filter_map(|&key| Some((key, queue.get(key)?.receives_here)));
            let got = got.collect();
            queue.fifo.remember_attempt(attempt_id.clone(), got, now);
        }
        let received = taken.keys.iter().filter_map(|&key| queue.show(name, key)).collect();
        if let Some((target, _)) = target {
            let source = queue.arn.clone();
            for message in taken.exhausted {
                self.bury(now, &target, &source, message);
            }
        }
        Ok(received)
    }
}

#[derive(Default)]
struct Taken {
    keys: Vec<Key>,
    exhausted: Vec<Message>,
}

impl Queue {
    /// Takes up to `max` messages out of view, and for good those received `limit` times already.
    fn take(&mut self, max: usize, limit: Option<u32>, place: Place) -> Result<Taken, SqsError> {
        let mut taken = Taken::default();
        let mut group: Option<String> = None;
        while taken.keys.len() < max {
            let same_group = group.as_deref().and_then(|group| self.next_of_group(group));
            let Some(key) = same_group.or_else(|| self.first_ready()) else { break };
            let receives = self.get(key).map_or(0, |message| message.receives_here);
            if limit.is_some_and(|limit| receives >= limit) {
                taken.exhausted.extend(self.remove(key));
                continue;
            }
            if self.in_flight() >= MAX_IN_FLIGHT {
                if self.settings.fifo || !taken.keys.is_empty() {
                    break;
                }
                return Err(SqsError::OverLimit);
            }
            group = self.fifo_group(key).map(str::to_owned);
            self.hand_out(key, place);
            taken.keys.push(key);
        }
        Ok(taken)
    }

    fn hand_out(&mut self, key: Key, place: Place) {
        self.set_place(key, place);
        if let Some(message) = self.get_mut(key)
            && let Place::InFlight { since, .. } = place
        {
            message.receive_count = message.receive_count.saturating_add(1);
            message.receives_here = message.receives_here.saturating_add(1);
            message.first_received.get_or_insert(since);
        }
    }

    /// The messages that an earlier attempt of the same id got, if all are still in its hands.
    fn replay(&mut self, request: &ReceiveMessage, place: Place) -> Option<Vec<Key>> {
        let got = self.fifo.attempt(request.attempt_id.as_deref()?)?.to_vec();
        let is_held = |(key, receive): &(Key, u32)| {
            self.get(*key).is_some_and(|message| {
                message.receives_here == *receive && message.place != Place::Ready
            })
        };
        if got.is_empty() || !got.iter().all(is_held) {
            return None;
        }
        let keys: Vec<Key> = got.into_iter().map(|(key, _)| key).collect();
        for &key in &keys {
            self.set_place(key, place);
        }
        Some(keys)
    }

    fn show(&self, name: &QueueName, key: Key) -> Option<Received> {
        let message = self.get(key)?;
        let content = &message.content;
        let receipt = Receipt { key, receive: message.receives_here };
        Some(Received {
            message_id: message.id.clone(),
            receipt: receipt::encode(name, receipt),
            body: content.body.clone(),
            attributes: content.attributes.clone(),
            sent: Some(message.sent),
            first_received: message.first_received,
            receive_count: Some(message.receive_count),
            group_id: content.group_id.clone(),
            deduplication_id: content.deduplication_id.clone(),
            sequence_number: message.sequence_number.clone(),
            trace_header: content.trace_header.clone(),
            dead_letter_source: message.dead_letter_source.clone(),
        })
    }
}

fn check(request: &ReceiveMessage) -> Result<(), SqsError> {
    if !(1..=MAX_BATCH_ENTRIES).contains(&request.max) {
        return Err(SqsError::parameter("MaxNumberOfMessages", "it must be between 1 and 10"));
    }
    if request.visibility.is_some_and(|timeout| timeout.as_secs() > MAX_VISIBILITY_SECS) {
        return Err(SqsError::parameter("VisibilityTimeout", "it must be between 0 and 43200"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sqs::testing::{at, bodies, engine, fifo, name, receive, text};

    #[test]
    fn a_received_message_is_hidden_until_its_visibility_ends() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[("VisibilityTimeout", "30")]);
        engine.send(at(5), &queue, text("x")).unwrap();
        let first = receive(&mut engine, 10, &queue).remove(0);
        assert_eq!((first.sent, first.first_received), (Some(at(5)), Some(at(10))));
        assert!(receive(&mut engine, 30_009, &queue).is_empty());
        let second = receive(&mut engine, 30_010, &queue).remove(0);
        assert_eq!((second.first_received, second.receive_count), (Some(at(10)), Some(2)));
        assert_ne!(second.receipt, first.receipt);
    }

    #[test]
    fn a_receive_may_set_its_own_visibility_and_zero_hides_nothing() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        engine.send(at(0), &queue, text("x")).unwrap();
        let request = ReceiveMessage { visibility: Some(Duration::ZERO), ..Default::default() };
        for count in 1..=3 {
            let received = engine.receive(at(0), &queue, &request).unwrap();
            assert_eq!(received[0].receive_count, Some(count));
        }
    }

    #[test]
    fn a_fifo_group_is_locked_while_any_of_it_is_in_flight_and_others_flow() {
        let mut engine = engine();
        let queue = name(&mut engine, "q.fifo", &[("FifoQueue", "true")]);
        for (n, group) in ["a", "b", "a", "a"].into_iter().enumerate() {
            engine
                .send(at(0), &queue, fifo(&format!("{group}{n}"), group, &n.to_string()))
                .unwrap();
        }
        let one = ReceiveMessage::default();
        let head = engine.receive(at(0), &queue, &one).unwrap();
        assert_eq!(bodies(&head), ["a0"]);
        assert_eq!(bodies(&receive(&mut engine, 0, &queue)), ["b1"]);
        engine.delete(at(0), &queue, &head[0].receipt).unwrap();
        assert_eq!(bodies(&receive(&mut engine, 0, &queue)), ["a2", "a3"], "in order");
        assert_eq!(bodies(&receive(&mut engine, 30_000, &queue)), ["b1", "a2", "a3"]);
    }

    #[test]
    fn one_receive_takes_a_group_in_order_before_the_next_group() {
        let mut engine = engine();
        let queue = name(&mut engine, "q.fifo", &[("FifoQueue", "true")]);
        for n in 0..6 {
            let group = if n % 2 == 0 { "even" } else { "odd" };
            engine.send(at(0), &queue, fifo(&n.to_string(), group, &n.to_string())).unwrap();
        }
        assert_eq!(bodies(&receive(&mut engine, 0, &queue)), ["0", "2", "4", "1", "3", "5"]);
    }

    #[test]
    fn a_fifo_attempt_is_replayed_while_it_holds_its_messages() {
        let mut engine = engine();
        let queue = name(&mut engine, "q.fifo", &[("FifoQueue", "true")]);
        engine.send(at(0), &queue, fifo("x", "g", "d")).unwrap();
        let request = ReceiveMessage { attempt_id: Some("r".into()), ..Default::default() };
        let first = engine.receive(at(0), &queue, &request).unwrap();
        assert_eq!(engine.receive(at(29_000), &queue, &request).unwrap(), first);
        assert!(receive(&mut engine, 58_999, &queue).is_empty(), "the replay hides anew");
        engine.delete(at(58_999), &queue, &first[0].receipt).unwrap();
        assert!(engine.receive(at(58_999), &queue, &request).unwrap().is_empty());
    }

    #[test]
    fn in_flight_is_limited_with_an_error_on_standard_queues_and_silently_on_fifo() {
        for (queue_name, attributes) in [("q", &[][..]), ("q.fifo", &[("FifoQueue", "true")][..])] {
            let mut engine = engine();
            let queue = name(&mut engine, queue_name, attributes);
            for n in 0..=MAX_IN_FLIGHT {
                let request = match attributes {
                    [] => text("x"),
                    _ => fifo("x", &n.to_string(), &n.to_string()),
                };
                engine.send(at(0), &queue, request).unwrap();
            }
            for _ in 0..MAX_IN_FLIGHT / 10 {
                assert_eq!(receive(&mut engine, 0, &queue).len(), 10);
            }
            let over = engine.receive(at(0), &queue, &ReceiveMessage::default());
            let silent = !attributes.is_empty();
            assert_eq!(over, if silent { Ok(vec![]) } else { Err(SqsError::OverLimit) });
        }
    }

    #[test]
    fn more_than_ten_or_none_is_refused() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        for max in [0, 11] {
            let request = ReceiveMessage { max, ..Default::default() };
            assert!(engine.receive(at(0), &queue, &request).is_err());
        }
    }
}
