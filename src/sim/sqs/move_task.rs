//! Message move tasks: AWS's own button that empties a dead-letter queue.
//!
//! A moved message is a new one: new MessageId and SentTimestamp, receive count zero, no source ARN. A
//! task moves what is visible, in order, at its rate (or 500 a second), and ends when nothing is visible.
//! Without a destination each message goes to its own source; one that was sent to the dead-letter queue
//! directly has none, and fails the task. Tasks have no thread: every call to the engine lets them catch up.
//! Absent: the limit of 100 tasks an account, and the 36 hours after which a task ends.

use std::time::Duration;

use super::engine::{Engine, sequence_number};
use super::error::SqsError;
use super::queue::Place;
use crate::domain::id::{QueueArn, QueueName};
use crate::domain::time::{Wall, millis};

const MAX_RATE: u32 = 500;
const MAX_RESULTS: usize = 10;

/// What has become of a move task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStatus {
    /// It moves messages.
    Running,
    /// Nothing more was visible.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// It met a message it could not move, for this reason.
    Failed(&'static str),
}

/// A move task, as ListMessageMoveTasks tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveTask {
    /// `TaskHandle`.
    pub handle: String,
    /// The dead-letter queue.
    pub source: QueueArn,
    /// Where all messages go; their own sources when absent.
    pub destination: Option<QueueArn>,
    /// `MaxNumberOfMessagesPerSecond`, as asked.
    pub rate: Option<u32>,
    /// When it began.
    pub started: Wall,
    /// How many messages were visible then.
    pub to_move: u64,
    /// How many it has moved.
    pub moved: u64,
    /// How it stands.
    pub status: MoveStatus,
}

impl MoveTask {
    /// When it next moves a message.
    pub(super) fn next_due(&self) -> Option<Wall> {
        let running = self.status == MoveStatus::Running;
        running.then(|| self.started.plus(Duration::from_millis(self.due_after_ms())))
    }

    fn per_second(&self) -> u64 {
        u64::from(self.rate.unwrap_or(MAX_RATE)).max(1)
    }

    /// Milliseconds from the start until one more message may go.
    fn due_after_ms(&self) -> u64 {
        self.moved.saturating_add(1).saturating_mul(1_000).div_ceil(self.per_second())
    }
}

impl Engine {
    /// StartMessageMoveTask.
    ///
    /// # Errors
    /// A queue does not exist, the source is no dead-letter queue or has a task already, or the rate is
    /// refused.
    pub fn start_move_task(
        &mut self,
        now: Wall,
        source: &str,
        destination: Option<&str>,
        rate: Option<u32>,
    ) -> Result<MoveTask, SqsError> {
        let (name, source) = self.resolve("SourceArn", source)?;
        let destination = destination
            .map(|arn| self.resolve("DestinationArn", arn))
            .transpose()?
            .map(|(_, arn)| arn);
        if rate.is_some_and(|rate| !(1..=MAX_RATE).contains(&rate)) {
            return Err(SqsError::parameter(
                "MaxNumberOfMessagesPerSecond",
                "it must be between 1 and 500",
            ));
        }
        if self.dead_letter_sources(&name)?.is_empty() {
            return Err(SqsError::parameter(
                "SourceArn",
                "source queue must be configured as a dead letter queue",
            ));
        }
        let to_move = self.visit(now, &name)?.depth().visible;
        if self.tasks.iter().any(|t| t.source == source && t.status == MoveStatus::Running) {
            return Err(SqsError::parameter(
                "SourceArn",
                "there is already a task running: only one active task is allowed for a source",
            ));
        }
        let task = MoveTask {
            handle: self.random_id(),
            source,
            destination,
            rate,
            started: now,
            to_move,
            moved: 0,
            status: MoveStatus::Running,
        };
        self.tasks.push(task.clone());
        self.forget_old_tasks(&task.source);
        self.touch(&name);
        self.wake_destinations(&name);
        Ok(task)
    }

    /// ListMessageMoveTasks, the newest first.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn move_tasks(
        &mut self,
        now: Wall,
        source: &str,
        max: usize,
    ) -> Result<Vec<MoveTask>, SqsError> {
        let (_, source) = self.resolve("SourceArn", source)?;
        if !(1..=MAX_RESULTS).contains(&max) {
            return Err(SqsError::parameter("MaxResults", "it must be between 1 and 10"));
        }
        self.advance_tasks(now);
        let tasks = self.tasks.iter().rev().filter(|task| task.source == source);
        Ok(tasks.take(max).cloned().collect())
    }

    /// CancelMessageMoveTask: gives how many messages were moved before.
    ///
    /// # Errors
    /// No running task has this handle.
    pub fn cancel_move_task(&mut self, now: Wall, handle: &str) -> Result<u64, SqsError> {
        self.advance_tasks(now);
        let task = self
            .tasks
            .iter_mut()
            .find(|task| task.handle == handle)
            .ok_or(SqsError::ResourceNotFound("TaskHandle"))?;
        if task.status != MoveStatus::Running {
            return Err(SqsError::parameter("TaskHandle", "only active tasks can be cancelled"));
        }
        task.status = MoveStatus::Cancelled;
        Ok(task.moved)
    }

    /// Lets running tasks move what their rate allows by now.
    pub(super) fn advance_tasks(&mut self, now: Wall) {
        for index in 0..self.tasks.len() {
            while let Some(task) = self.tasks.get(index)
                && task.status == MoveStatus::Running
            {
                let is_due = task.due_after_ms() <= millis(now.since(task.started));
                let (source, destination) = (task.source.clone(), task.destination.clone());
                let Some(status) = self.step(now, &source, destination.as_ref(), is_due) else {
                    break;
                };
                if let Some(task) = self.tasks.get_mut(index) {
                    task.status = status;
                    task.moved += u64::from(status == MoveStatus::Running);
                }
            }
        }
    }

    /// Moves one message if it is due: `Running`, one was moved; `None`, not yet.
    fn step(
        &mut self,
        now: Wall,
        source: &QueueArn,
        destination: Option<&QueueArn>,
        is_due: bool,
    ) -> Option<MoveStatus> {
        let Some(name) = self.find(source) else {
            return Some(MoveStatus::Failed("QueueDoesNotExist"));
        };
        let queue = self.queues.get_mut(&name)?;
        queue.settle(now);
        let Some(key) = queue.first_ready() else { return Some(MoveStatus::Completed) };
        if !is_due {
            return None;
        }
        let own = queue.get(key).and_then(|message| message.dead_letter_source.clone());
        let Some(arn) = destination.cloned().or(own) else {
            return Some(MoveStatus::Failed("CouldNotDetermineMessageSource"));
        };
        let Some(target) = self.find(&arn) else {
            return Some(MoveStatus::Failed("QueueDoesNotExist"));
        };
        let (Ok(id), new_key) = (self.new_message_id(), self.next_key()) else { return None };
        let mut message = self.queues.get_mut(&name)?.remove(key)?;
        let queue = self.queues.get_mut(&target)?;
        message.id = id;
        message.sent = now;
        message.first_received = None;
        message.receive_count = 0;
        message.receives_here = 0;
        message.dead_letter_source = None;
        message.sequence_number = queue.settings.fifo.then(|| sequence_number(new_key));
        message.place = Place::Ready;
        queue.insert(new_key, message);
        self.touch(&target);
        Some(MoveStatus::Running)
    }

    fn resolve(
        &self,
        parameter: &'static str,
        arn: &str,
    ) -> Result<(QueueName, QueueArn), SqsError> {
        let arn = QueueArn::new(arn)
            .map_err(|error| SqsError::parameter(parameter, error.to_string()))?;
        let name = self.find(&arn).ok_or(SqsError::ResourceNotFound(parameter))?;
        Ok((name, arn))
    }

    /// Whoever polls a queue that the task may feed is to look when the task is due.
    fn wake_destinations(&mut self, source: &QueueName) {
        let fed: Vec<QueueName> =
            self.queues.keys().filter(|name| *name != source).cloned().collect();
        self.touched.extend(fed);
    }

    fn forget_old_tasks(&mut self, source: &QueueArn) {
        let of_source = self.tasks.iter().filter(|task| task.source == *source).count();
        if of_source > MAX_RESULTS
            && let Some(oldest) = self.tasks.iter().position(|task| task.source == *source)
        {
            self.tasks.remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sqs::testing::{at, bodies, engine, pair, receive, text};

    /// A dead-letter queue with `count` messages that came by its source's policy.
    fn filled(count: usize) -> (Engine, QueueName, QueueName) {
        let mut engine = engine();
        let (source, dead) = pair(&mut engine, "q", "dead", 1);
        for n in 0..count {
            engine.send(at(0), &source, text(&n.to_string())).unwrap();
        }
        for ms in [0, 30_000] {
            for _ in 0..count.div_ceil(10) {
                receive(&mut engine, ms, &source);
            }
        }
        assert_eq!(visible(&mut engine, 30_000, &dead), count as u64);
        (engine, source, dead)
    }

    fn visible(engine: &mut Engine, ms: u64, queue: &QueueName) -> u64 {
        engine.facts(at(ms), queue).unwrap().depth.visible
    }

    fn arn(engine: &mut Engine, queue: &QueueName) -> String {
        engine.facts(at(0), queue).unwrap().arn.to_string()
    }

    #[test]
    fn a_task_moves_all_back_to_their_source_as_new_messages() {
        let (mut engine, source, dead) = filled(3);
        let dead_arn = arn(&mut engine, &dead);
        let task = engine.start_move_task(at(30_000), &dead_arn, None, None).unwrap();
        assert_eq!((task.to_move, task.moved), (3, 0));
        let back = receive(&mut engine, 31_000, &source);
        assert_eq!(bodies(&back), ["0", "1", "2"]);
        for message in &back {
            assert_eq!(message.receive_count, Some(1));
            assert_eq!(message.dead_letter_source, None);
            assert!(message.sent > Some(at(30_000)), "retention counts anew");
        }
        let tasks = engine.move_tasks(at(31_000), &dead_arn, 1).unwrap();
        assert_eq!((tasks[0].status, tasks[0].moved), (MoveStatus::Completed, 3));
    }

    #[test]
    fn the_rate_is_kept_and_a_cancel_stops() {
        let (mut engine, source, dead) = filled(20);
        let dead_arn = arn(&mut engine, &dead);
        let task = engine.start_move_task(at(30_000), &dead_arn, None, Some(5)).unwrap();
        assert_eq!(engine.next_due(&source), Some(at(30_200)));
        assert_eq!(visible(&mut engine, 30_199, &source), 0);
        assert_eq!(visible(&mut engine, 31_000, &source), 5);
        assert_eq!(visible(&mut engine, 32_000, &source), 10);
        assert_eq!(engine.cancel_move_task(at(32_000), &task.handle), Ok(10));
        assert_eq!(visible(&mut engine, 60_000, &source), 10);
        assert!(engine.cancel_move_task(at(60_000), &task.handle).is_err());
    }

    #[test]
    fn a_message_sent_to_the_dead_letter_queue_directly_has_no_source_to_go_to() {
        let (mut engine, source, dead) = filled(1);
        let dead_arn = arn(&mut engine, &dead);
        engine.send(at(30_000), &dead, text("direct")).unwrap();
        engine.start_move_task(at(30_000), &dead_arn, None, None).unwrap();
        let task = engine.move_tasks(at(40_000), &dead_arn, 1).unwrap().remove(0);
        assert_eq!(task.status, MoveStatus::Failed("CouldNotDetermineMessageSource"));
        assert_eq!(visible(&mut engine, 40_000, &source), 1);
        let source_arn = arn(&mut engine, &source);
        engine.start_move_task(at(40_000), &dead_arn, Some(&source_arn), None).unwrap();
        assert_eq!(visible(&mut engine, 41_000, &source), 2);
    }

    #[test]
    fn a_task_needs_a_dead_letter_queue_that_has_none_running() {
        let (mut engine, source, dead) = filled(2);
        let (dead_arn, source_arn) = (arn(&mut engine, &dead), arn(&mut engine, &source));
        let mut start = |arn: &str, rate| engine.start_move_task(at(30_000), arn, None, Some(rate));
        assert!(start(&source_arn, 1).is_err());
        assert!(start(&dead_arn, 0).is_err());
        assert!(start(&dead_arn, 501).is_err());
        assert!(start(&dead_arn, 1).is_ok());
        assert!(start(&dead_arn, 1).is_err());
        let missing = start("arn:aws:sqs:us-east-1:000000000000:missing", 1);
        assert_eq!(missing, Err(SqsError::ResourceNotFound("SourceArn")));
    }

    #[test]
    fn only_the_last_ten_tasks_are_remembered() {
        let (mut engine, _, dead) = filled(0);
        let dead_arn = arn(&mut engine, &dead);
        for ms in 0..12 {
            engine.start_move_task(at(30_000 + ms), &dead_arn, None, None).unwrap();
        }
        let tasks = engine.move_tasks(at(30_100), &dead_arn, 10).unwrap();
        assert_eq!(tasks.len(), 10);
        assert_eq!(tasks[0].started, at(30_011), "the newest first");
    }
}
