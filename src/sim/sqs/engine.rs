//! The engine: all queues of one account and region, and the operations on queues themselves.
//!
//! What is done with messages lives in the sibling files, one idea each. Every operation first lets due
//! things happen (`Engine::visit`): move tasks, visibility, retention. The engine has no clock and no
//! thread: `now` is an argument, chance a seeded rng, so that the same calls give the same answers.
//! Absent on purpose: the 60 seconds that AWS wants between a DeleteQueue or PurgeQueue and the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::attribute::{AttributeMap, Settings};
use super::error::SqsError;
use super::move_task::MoveTask;
use super::queue::{Key, Queue};
use crate::domain::id::{MessageId, QueueArn, QueueName};
use crate::domain::time::Wall;
use crate::port::queue::QueueFacts;

/// The account of everything the engine makes.
pub const ACCOUNT: &str = "000000000000";
/// The region of everything the engine makes.
pub const REGION: &str = "us-east-1";

/// The queues of one account.
#[derive(Debug)]
pub struct Engine {
    pub(super) queues: BTreeMap<QueueName, Queue>,
    pub(super) tasks: Vec<MoveTask>,
    pub(super) touched: BTreeSet<QueueName>,
    rng: StdRng,
    last_key: Key,
}

impl Engine {
    /// An engine without queues. The same seed gives the same ids.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            queues: BTreeMap::new(),
            tasks: Vec::new(),
            touched: BTreeSet::new(),
            rng: StdRng::seed_from_u64(seed),
            last_key: 0,
        }
    }

    /// CreateQueue. A queue of that name with the same values of the given attributes is left as it is.
    ///
    /// # Errors
    /// The name or an attribute is refused, or the queue exists with other attributes.
    pub fn create_queue(
        &mut self,
        now: Wall,
        name: &str,
        attributes: &AttributeMap,
        tags: BTreeMap<String, String>,
    ) -> Result<QueueName, SqsError> {
        let name = QueueName::new(name)
            .map_err(|error| SqsError::parameter("QueueName", error.to_string()))?;
        let wants_fifo = attributes.get("FifoQueue").is_some_and(|text| text == "true");
        if wants_fifo != name.is_fifo() {
            return Err(SqsError::parameter(
                "QueueName",
                "a FIFO queue's name ends with .fifo and its attribute FifoQueue is true",
            ));
        }
        let arn = arn_of(&name)?;
        let settings = Settings::new(name.is_fifo()).with(attributes)?;
        if let Some(queue) = self.queues.get(&name) {
            let other = attributes
                .keys()
                .find(|key| settings.texts().get(*key) != queue.settings.texts().get(*key));
            return match other {
                Some(attribute) => Err(SqsError::QueueNameExists(attribute.clone())),
                None => Ok(name),
            };
        }
        self.check_redrive(&arn, &settings)?;
        let mut queue = Queue::new(arn, settings, now);
        queue.tags = tags;
        self.queues.insert(name.clone(), queue);
        Ok(name)
    }

    /// DeleteQueue, with all its messages.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn delete_queue(&mut self, name: &QueueName) -> Result<(), SqsError> {
        self.touched.insert(name.clone());
        self.queues.remove(name).map(drop).ok_or(SqsError::QueueDoesNotExist)
    }

    /// PurgeQueue, at once.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn purge_queue(&mut self, now: Wall, name: &QueueName) -> Result<(), SqsError> {
        self.visit(now, name)?.purge();
        Ok(())
    }

    /// The names of all queues that begin with `prefix`, in order.
    pub fn queue_names(&self, prefix: &str) -> impl Iterator<Item = &QueueName> {
        self.queues.keys().filter(move |name| name.as_str().starts_with(prefix))
    }

    /// Whether the queue exists.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn check_exists(&self, name: &QueueName) -> Result<(), SqsError> {
        self.queue(name).map(drop)
    }

    /// GetQueueAttributes, all of them.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn attributes(&mut self, now: Wall, name: &QueueName) -> Result<AttributeMap, SqsError> {
        let queue = self.visit(now, name)?;
        let depth = queue.depth();
        let mut attributes = queue.settings.texts().clone();
        for (name, text) in [
            ("QueueArn", queue.arn.to_string()),
            ("CreatedTimestamp", queue.created.as_secs().to_string()),
            ("LastModifiedTimestamp", queue.modified.as_secs().to_string()),
            ("ApproximateNumberOfMessages", depth.visible.to_string()),
            ("ApproximateNumberOfMessagesNotVisible", depth.in_flight.to_string()),
            ("ApproximateNumberOfMessagesDelayed", depth.delayed.to_string()),
        ] {
            attributes.insert(name.to_owned(), text);
        }
        Ok(attributes)
    }

    /// The attributes that the queue port tells, parsed.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn facts(&mut self, now: Wall, name: &QueueName) -> Result<QueueFacts, SqsError> {
        let queue = self.visit(now, name)?;
        Ok(QueueFacts {
            arn: queue.arn.clone(),
            visibility_timeout: queue.settings.visibility,
            retention: queue.settings.retention,
            max_message_bytes: queue.settings.max_message_bytes,
            redrive_policy: queue.settings.redrive.clone(),
            depth: queue.depth(),
        })
    }

    /// The queue's `ReceiveMessageWaitTimeSeconds`.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn receive_wait(&self, name: &QueueName) -> Result<Duration, SqsError> {
        Ok(self.queue(name)?.settings.receive_wait)
    }

    /// SetQueueAttributes, all or none.
    ///
    /// # Errors
    /// The queue does not exist, or an attribute is refused.
    pub fn set_attributes(
        &mut self,
        now: Wall,
        name: &QueueName,
        attributes: &AttributeMap,
    ) -> Result<(), SqsError> {
        let queue = self.queue(name)?;
        let settings = queue.settings.with(attributes)?;
        if attributes.contains_key("RedrivePolicy") {
            self.check_redrive(&queue.arn, &settings)?;
        }
        let queue = self.visit(now, name)?;
        queue.settings = settings;
        queue.modified = now;
        Ok(())
    }

    /// ListQueueTags, to read or, by TagQueue and UntagQueue, to change.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn tags(&mut self, name: &QueueName) -> Result<&mut BTreeMap<String, String>, SqsError> {
        match self.queues.get_mut(name) {
            Some(queue) => Ok(&mut queue.tags),
            None => Err(SqsError::QueueDoesNotExist),
        }
    }

    /// The queues that something happened to since the last call: whoever polls them should look again.
    pub fn take_touched(&mut self) -> BTreeSet<QueueName> {
        std::mem::take(&mut self.touched)
    }

    /// When, if no call comes before, a receive from this queue may give something new.
    #[must_use]
    pub fn next_due(&self, name: &QueueName) -> Option<Wall> {
        let hidden = self.queues.get(name).and_then(Queue::next_due);
        let moved = self.tasks.iter().filter_map(MoveTask::next_due).min();
        [hidden, moved].into_iter().flatten().min()
    }

    /// The queue, after everything due has happened.
    pub(super) fn visit(&mut self, now: Wall, name: &QueueName) -> Result<&mut Queue, SqsError> {
        self.advance_tasks(now);
        let queue = self.queues.get_mut(name).ok_or(SqsError::QueueDoesNotExist)?;
        queue.settle(now);
        Ok(queue)
    }

    pub(super) fn queue(&self, name: &QueueName) -> Result<&Queue, SqsError> {
        self.queues.get(name).ok_or(SqsError::QueueDoesNotExist)
    }

    pub(super) fn touch(&mut self, name: &QueueName) {
        if !self.touched.contains(name) {
            self.touched.insert(name.clone());
        }
    }

    pub(super) const fn next_key(&mut self) -> Key {
        self.last_key += 1;
        self.last_key
    }

    /// A random id, in the form of a uuid.
    pub(super) fn random_id(&mut self) -> String {
        let mut bytes = [0; 16];
        self.rng.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    pub(super) fn new_message_id(&mut self) -> Result<MessageId, SqsError> {
        MessageId::new(self.random_id())
            .map_err(|error| SqsError::parameter("MessageId", error.to_string()))
    }
}

fn arn_of(name: &QueueName) -> Result<QueueArn, SqsError> {
    QueueArn::new(format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"))
        .map_err(|error| SqsError::parameter("QueueName", error.to_string()))
}

/// A FIFO queue's SequenceNumber: 20 digits that grow with the key.
pub(super) fn sequence_number(key: Key) -> String {
    format!("188{key:017}")
}
