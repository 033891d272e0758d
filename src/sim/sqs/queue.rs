//! The state of one queue: its messages, and the indexes that say which may be received.
//!
//! Invariants: every message has exactly one [`Place`]; all changes of place go through
//! [`Queue::set_place`], which keeps the indexes true. `ready` holds what the next receive may take: on a
//! standard queue every visible message, on a FIFO queue the head of each group that nothing locks. Every
//! step costs O(log n). Callers settle the queue before they look.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::attribute::Settings;
use super::fifo::Fifo;
use crate::domain::id::{MessageId, QueueArn};
use crate::domain::message::Outgoing;
use crate::domain::time::Wall;
use crate::port::queue::Depth;

/// The order of arrival of a message, counted over all queues.
pub(super) type Key = u64;

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Ready,
    Delayed { until: Wall },
    InFlight { since: Wall, until: Wall },
}

/// A message as a queue holds it.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) id: MessageId,
    pub(super) content: Outgoing,
    pub(super) sequence_number: Option<String>,
    /// `SentTimestamp`; retention counts from it.
    pub(super) sent: Wall,
    pub(super) first_received: Option<Wall>,
    /// Receives over all queues: `ApproximateReceiveCount`.
    pub(super) receive_count: u32,
    /// Receives from this queue: what its RedrivePolicy limits, and what tells receipt handles apart.
    pub(super) receives_here: u32,
    pub(super) dead_letter_source: Option<QueueArn>,
    pub(super) place: Place,
}

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) arn: QueueArn,
    pub(super) settings: Settings,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) created: Wall,
    pub(super) modified: Wall,
    pub(super) fifo: Fifo,
    messages: HashMap<Key, Message>,
    ready: BTreeSet<Key>,
    hidden: BTreeSet<(Wall, Key)>,
    by_age: BTreeSet<(Wall, Key)>,
    in_flight: usize,
    delayed: usize,
}

impl Queue {
    pub(super) fn new(arn: QueueArn, settings: Settings, now: Wall) -> Self {
        Self {
            arn,
            settings,
            tags: BTreeMap::new(),
            created: now,
            modified: now,
            fifo: Fifo::default(),
            messages: HashMap::new(),
            ready: BTreeSet::new(),
            hidden: BTreeSet::new(),
            by_age: BTreeSet::new(),
            in_flight: 0,
            delayed: 0,
        }
    }

    /// Makes visible what is due, and drops what is older than the retention period.
    pub(super) fn settle(&mut self, now: Wall) {
        while let Some(&(due, key)) = self.hidden.first()
            && due <= now
        {
            self.set_place(key, Place::Ready);
        }
        while let Some(&(sent, key)) = self.by_age.first()
            && sent.plus(self.settings.retention) <= now
        {
            self.remove(key);
        }
        self.fifo.forget(now);
    }

    pub(super) fn insert(&mut self, key: Key, message: Message) {
        let place = message.place;
        self.by_age.insert((message.sent, key));
        self.messages.insert(key, message);
        self.enter(key, place);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Message> {
        let place = self.messages.get(&key)?.place;
        self.leave(key, place);
        let message = self.messages.remove(&key)?;
        self.by_age.remove(&(message.sent, key));
        Some(message)
    }

    pub(super) fn set_place(&mut self, key: Key, place: Place) {
        let Some(message) = self.messages.get_mut(&key) else { return };
        let before = std::mem::replace(&mut message.place, place);
        self.leave(key, before);
        self.enter(key, place);
    }

    pub(super) fn purge(&mut self) {
        let keys: Vec<Key> = self.messages.keys().copied().collect();
        for key in keys {
            self.remove(key);
        }
    }

    pub(super) fn get(&self, key: Key) -> Option<&Message> {
        self.messages.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Message> {
        self.messages.get_mut(&key)
    }

    /// What the next receive takes first.
    pub(super) fn first_ready(&self) -> Option<Key> {
        self.ready.first().copied()
    }

    /// The group of a message of a FIFO queue.
    pub(super) fn fifo_group(&self, key: Key) -> Option<&str> {
        if self.settings.fifo { self.messages.get(&key)?.content.group_id.as_deref() } else { None }
    }

    /// The next message of a group that this very receive has locked.
    pub(super) fn next_of_group(&self, group: &str) -> Option<Key> {
        let key = self.fifo.first_waiting(group)?;
        let message = self.messages.get(&key)?;
        (message.place == Place::Ready).then_some(key)
    }

    /// When the next hidden message becomes visible.
    pub(super) fn next_due(&self) -> Option<Wall> {
        self.hidden.first().map(|&(due, _)| due)
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn depth(&self) -> Depth {
        let visible = self.messages.len().saturating_sub(self.in_flight + self.delayed);
        Depth {
            visible: visible as u64,
            in_flight: self.in_flight as u64,
            delayed: self.delayed as u64,
        }
    }

    fn leave(&mut self, key: Key, place: Place) {
        match place {
            Place::Ready => {
                self.ready.remove(&key);
            }
            Place::Delayed { until } => {
                self.hidden.remove(&(until, key));
                self.delayed -= 1;
            }
            Place::InFlight { until, .. } => {
                self.hidden.remove(&(until, key));
                self.in_flight -= 1;
            }
        }
        if let Some(group) = self.fifo_group(key).map(str::to_owned) {
            match place {
                Place::InFlight { .. } => self.fifo.unlock(&group),
                Place::Ready | Place::Delayed { .. } => self.fifo.take(&group, key),
            }
            self.refresh(&group);
        }
    }

    fn enter(&mut self, key: Key, place: Place) {
        match place {
            Place::Ready => {}
            Place::Delayed { until } => {
                self.hidden.insert((until, key));
                self.delayed += 1;
            }
            Place::InFlight { until, .. } => {
                self.hidden.insert((until, key));
                self.in_flight += 1;
            }
        }
        if let Some(group) = self.fifo_group(key).map(str::to_owned) {
            match place {
                Place::InFlight { .. } => self.fifo.lock(&group),
                Place::Ready | Place::Delayed { .. } => self.fifo.put(&group, key),
            }
            self.refresh(&group);
        } else if place == Place::Ready {
            self.ready.insert(key);
        }
    }

    /// Puts the head of a group among the ready ones if nothing holds the group back.
    fn refresh(&mut self, group: &str) {
        if let Some(old) = self.fifo.head(group) {
            self.ready.remove(&old);
        }
        let head = if self.fifo.is_locked(group) { None } else { self.next_of_group(group) };
        if let Some(head) = head {
            self.ready.insert(head);
        }
        self.fifo.set_head(group, head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        let arn = QueueArn::new("arn:aws:sqs:us-east-1:000000000000:q").unwrap();
        Queue::new(arn, Settings::new(false), Wall::from_ms(0))
    }

    fn message(sent_ms: u64, place: Place) -> Message {
        Message {
            id: MessageId::new("m").unwrap(),
            content: Outgoing { body: "x".into(), ..Outgoing::default() },
            sequence_number: None,
            sent: Wall::from_ms(sent_ms),
            first_received: None,
            receive_count: 0,
            receives_here: 0,
            dead_letter_source: None,
            place,
        }
    }

    #[test]
    fn every_message_is_counted_in_exactly_one_place() {
        let mut queue = queue();
        let until = Wall::from_ms(10);
        queue.insert(1, message(0, Place::Ready));
        queue.insert(2, message(0, Place::Delayed { until }));
        queue.insert(3, message(0, Place::InFlight { since: Wall::from_ms(0), until }));
        assert_eq!(queue.depth(), Depth { visible: 1, in_flight: 1, delayed: 1 });
        assert_eq!(queue.next_due(), Some(until));
        queue.settle(until);
        assert_eq!(queue.depth(), Depth { visible: 3, in_flight: 0, delayed: 0 });
        queue.remove(1);
        queue.purge();
        assert_eq!(queue.depth(), Depth::default());
        assert_eq!(queue.first_ready(), None);
    }

    #[test]
    fn retention_takes_messages_wherever_they_are() {
        let mut queue = queue();
        let until = Wall::from_ms(u64::MAX);
        queue.insert(1, message(0, Place::Ready));
        queue.insert(2, message(1, Place::InFlight { since: Wall::from_ms(0), until }));
        queue.settle(Wall::from_ms(345_600_000 - 1));
        assert_eq!(queue.depth(), Depth { visible: 1, in_flight: 1, delayed: 0 });
        queue.settle(Wall::from_ms(345_600_000));
        assert_eq!(queue.depth(), Depth { visible: 0, in_flight: 1, delayed: 0 });
        queue.settle(Wall::from_ms(345_600_001));
        assert_eq!(queue.depth(), Depth::default());
    }
}
