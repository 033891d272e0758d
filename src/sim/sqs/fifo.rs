//! What a FIFO queue remembers beside its messages: groups, deduplication ids, receive attempts.
//!
//! A group is locked while any of its messages is in flight. A deduplication id counts for five minutes
//! from its first use, also when its message is long deleted. A standard queue leaves all this empty.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::queue::Key;
use super::send::Sent;
use crate::domain::time::Wall;

/// How long a deduplication id or a receive attempt is remembered.
pub(super) const MEMORY: Duration = Duration::from_secs(300);

/// Groups, deduplication ids and receive attempts of one queue.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    groups: HashMap<String, Group>,
    sent: HashMap<String, Sent>,
    sent_order: VecDeque<(Wall, String)>,
    attempts: HashMap<String, Vec<(Key, u32)>>,
    attempt_order: VecDeque<(Wall, String)>,
}

#[derive(Debug, Default)]
struct Group {
    waiting: BTreeSet<Key>,
    in_flight: usize,
    head: Option<Key>,
}

impl Fifo {
    /// Forgets what is older than five minutes.
    pub(super) fn forget(&mut self, now: Wall) {
        while let Some((_, id)) = self.sent_order.pop_front_if(|(at, _)| at.plus(MEMORY) <= now) {
            self.sent.remove(&id);
        }
        while let Some((_, id)) = self.attempt_order.pop_front_if(|(at, _)| at.plus(MEMORY) <= now)
        {
            self.attempts.remove(&id);
        }
    }

    /// The answer that an earlier send with this deduplication id got.
    pub(super) fn duplicate_of(&self, deduplication_id: &str) -> Option<&Sent> {
        self.sent.get(deduplication_id)
    }

    /// Remembers a send. The five minutes of an id that is remembered already go on.
    pub(super) fn remember(&mut self, deduplication_id: String, sent: Sent, now: Wall) {
        if self.sent.insert(deduplication_id.clone(), sent).is_none() {
            self.sent_order.push_back((now, deduplication_id));
        }
    }

    /// The messages, each with its receive, that an earlier attempt of this id got.
    pub(super) fn attempt(&self, attempt_id: &str) -> Option<&[(Key, u32)]> {
        self.attempts.get(attempt_id).map(Vec::as_slice)
    }

    /// Remembers what a receive attempt got.
    pub(super) fn remember_attempt(&mut self, attempt_id: String, got: Vec<(Key, u32)>, now: Wall) {
        if self.attempts.insert(attempt_id.clone(), got).is_none() {
            self.attempt_order.push_back((now, attempt_id));
        }
    }

    pub(super) fn first_waiting(&self, group: &str) -> Option<Key> {
        self.groups.get(group)?.waiting.first().copied()
    }

    pub(super) fn is_locked(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.in_flight > 0)
    }

    pub(super) fn head(&self, group: &str) -> Option<Key> {
        self.groups.get(group)?.head
    }

    /// Notes which message of a group is among the ready ones; an empty group is forgotten.
    pub(super) fn set_head(&mut self, group: &str, head: Option<Key>) {
        if let Some(state) = self.groups.get_mut(group) {
            state.head = head;
            if state.waiting.is_empty() && state.in_flight == 0 {
                self.groups.remove(group);
            }
        }
    }

    pub(super) fn put(&mut self, group: &str, key: Key) {
        self.group(group).waiting.insert(key);
    }

    pub(super) fn take(&mut self, group: &str, key: Key) {
        self.group(group).waiting.remove(&key);
    }

    pub(super) fn lock(&mut self, group: &str) {
        self.group(group).in_flight += 1;
    }

    pub(super) fn unlock(&mut self, group: &str) {
        self.group(group).in_flight -= 1;
    }

    fn group(&mut self, group: &str) -> &mut Group {
        self.groups.entry(group.to_owned()).or_default()
    }
}
