//! The native dead-letter policy: who may name whom, and what a move keeps.
//!
//! On standard queues a moved message keeps MessageId, attributes, receive count and first SentTimestamp,
//! so its age goes on counting against the dead-letter queue's retention. On FIFO queues the timestamp is
//! new and the deduplication id becomes the MessageId. The receive count of the policy starts anew.
//! Source: Amazon SQS Developer Guide, "Using dead-letter queues".

use super::attribute::{RedriveAllow, Settings};
use super::engine::{Engine, sequence_number};
use super::error::SqsError;
use super::queue::{Message, Place};
use crate::domain::id::{QueueArn, QueueName};
use crate::domain::time::Wall;

impl Engine {
    /// ListDeadLetterSourceQueues: the queues whose policy names this one, in order.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn dead_letter_sources(&self, name: &QueueName) -> Result<Vec<QueueName>, SqsError> {
        let arn = &self.queue(name)?.arn;
        let sources = self.queues.iter().filter(|(_, queue)| {
            queue.settings.redrive.as_ref().is_some_and(|policy| policy.target == *arn)
        });
        Ok(sources.map(|(name, _)| name.clone()).collect())
    }

    /// The queue of an ARN, if it exists.
    pub(super) fn find(&self, arn: &QueueArn) -> Option<QueueName> {
        let name = arn.name()?;
        self.queues.get(&name).is_some_and(|queue| queue.arn == *arn).then_some(name)
    }

    /// Whether `source` may have the RedrivePolicy of these settings.
    pub(super) fn check_redrive(
        &self,
        source: &QueueArn,
        settings: &Settings,
    ) -> Result<(), SqsError> {
        let Some(policy) = &settings.redrive else { return Ok(()) };
        let refused = |reason| Err(SqsError::parameter("RedrivePolicy", reason));
        let Some(target) = self.find(&policy.target) else {
            return refused("the dead letter target does not exist");
        };
        let target = self.queue(&target)?;
        if target.settings.fifo != settings.fifo {
            return refused("the dead letter target must be of the same type of queue");
        }
        let allowed = match &target.settings.redrive_allow {
            RedriveAllow::All => true,
            RedriveAllow::None => false,
            RedriveAllow::Only(arns) => arns.iter().any(|arn| arn == source.as_str()),
        };
        if allowed {
            Ok(())
        } else {
            refused("the dead letter target's RedriveAllowPolicy forbids it")
        }
    }

    /// Puts a message that was received too often into the dead-letter queue, which exists.
    pub(super) fn bury(
        &mut self,
        now: Wall,
        target: &QueueName,
        source: &QueueArn,
        mut message: Message,
    ) {
        let key = self.next_key();
        let Some(queue) = self.queues.get_mut(target) else { return };
        message.dead_letter_source = Some(source.clone());
        message.receives_here = 0;
        message.place = Place::Ready;
        if queue.settings.fifo {
            message.sent = now;
            message.sequence_number = Some(sequence_number(key));
            message.content.deduplication_id = Some(message.id.to_string());
        }
        queue.insert(key, message);
        self.touch(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::{Attribute, Value};
    use crate::sim::sqs::testing::{at, bodies, engine, fifo, name, pair, receive, text};

    #[test]
    fn a_message_moves_on_the_receive_after_the_limit_and_not_before() {
        let mut engine = engine();
        let (source, dead) = pair(&mut engine, "q", "dead", 2);
        engine.send(at(0), &source, text("x")).unwrap();
        assert_eq!(receive(&mut engine, 0, &source).len(), 1);
        assert_eq!(receive(&mut engine, 30_000, &source).len(), 1);
        assert!(receive(&mut engine, 90_000, &dead).is_empty(), "not without a receive");
        assert!(receive(&mut engine, 90_000, &source).is_empty());
        let moved = receive(&mut engine, 90_000, &dead).remove(0);
        assert_eq!(moved.receive_count, Some(3), "over all queues");
    }

    #[test]
    fn a_move_keeps_identity_attributes_and_age() {
        let mut engine = engine();
        let (source, dead) = pair(&mut engine, "q", "dead", 1);
        let mut request = text("x");
        let blob = Attribute { data_type: "Binary".into(), value: Value::Binary(vec![0, 255]) };
        request.message.attributes.insert("b".into(), blob);
        request.message.trace_header = Some("Root=1-2".into());
        engine.send(at(7), &source, request).unwrap();
        let first = receive(&mut engine, 10, &source).remove(0);
        assert_eq!(engine.take_touched(), [source.clone()].into());
        assert!(receive(&mut engine, 40_000, &source).is_empty());
        assert_eq!(engine.take_touched(), [dead.clone()].into(), "who polls it is to look");
        let moved = receive(&mut engine, 40_000, &dead).remove(0);
        assert_eq!(moved.message_id, first.message_id);
        assert_eq!(moved.attributes, first.attributes);
        assert_eq!(moved.trace_header, first.trace_header);
        assert_eq!(moved.sent, Some(at(7)));
        assert_eq!(moved.dead_letter_source, Some(engine.facts(at(0), &source).unwrap().arn));
    }

    #[test]
    fn age_counts_against_the_dead_letter_queue_s_retention() {
        let mut engine = engine();
        let (source, dead) = pair(&mut engine, "q", "dead", 1);
        engine.send(at(0), &source, text("x")).unwrap();
        receive(&mut engine, 345_590_000 - 30_000, &source);
        receive(&mut engine, 345_590_000, &source);
        assert_eq!(engine.facts(at(345_599_999), &dead).unwrap().depth.visible, 1);
        assert_eq!(engine.facts(at(345_600_000), &dead).unwrap().depth.visible, 0);
    }

    #[test]
    fn a_missing_dead_letter_queue_never_drops_a_message() {
        let mut engine = engine();
        let (source, dead) = pair(&mut engine, "q", "dead", 1);
        engine.send(at(0), &source, text("x")).unwrap();
        engine.delete_queue(&dead).unwrap();
        for n in 0..5 {
            assert_eq!(receive(&mut engine, n * 30_000, &source).len(), 1, "receive {n}");
        }
    }

    #[test]
    fn a_fifo_move_unblocks_the_group_and_makes_the_message_new() {
        let mut engine = engine();
        let (source, dead) = pair(&mut engine, "q.fifo", "dead.fifo", 1);
        for n in ["0", "1"] {
            engine.send(at(0), &source, fifo(n, "g", n)).unwrap();
        }
        let one = crate::sim::sqs::ReceiveMessage::default();
        let head = engine.receive(at(0), &source, &one).unwrap().remove(0);
        assert_eq!(bodies(&receive(&mut engine, 30_000, &source)), ["1"]);
        let moved = receive(&mut engine, 30_000, &dead).remove(0);
        assert_eq!(moved.message_id, head.message_id);
        assert_eq!(moved.group_id.as_deref(), Some("g"));
        assert_eq!(moved.deduplication_id.as_deref(), Some(head.message_id.as_str()));
        assert_eq!(moved.sent, Some(at(30_000)));
    }

    #[test]
    fn a_dead_letter_queue_must_exist_be_of_the_type_and_allow_it() {
        let mut engine = engine();
        let dead = name(&mut engine, "dead", &[]);
        let source = name(&mut engine, "q", &[]);
        name(&mut engine, "dead.fifo", &[("FifoQueue", "true")]);
        let point_to = |engine: &mut Engine, target: &str| {
            let policy = format!(
                r#"{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:{target}","maxReceiveCount":1}}"#
            );
            engine.set_attributes(at(0), &source, &[("RedrivePolicy".into(), policy)].into())
        };
        assert!(point_to(&mut engine, "missing").is_err());
        assert!(point_to(&mut engine, "dead.fifo").is_err());
        for (allow, ok) in [
            (r#"{"redrivePermission":"denyAll"}"#, false),
            (
                r#"{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:x"]}"#,
                false,
            ),
            (
                r#"{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:q"]}"#,
                true,
            ),
            (r#"{"redrivePermission":"allowAll"}"#, true),
        ] {
            let allow = [("RedriveAllowPolicy".into(), allow.into())].into();
            engine.set_attributes(at(0), &dead, &allow).unwrap();
            assert_eq!(point_to(&mut engine, "dead").is_ok(), ok);
        }
        assert_eq!(engine.dead_letter_sources(&dead).unwrap(), [QueueName::new("q").unwrap()]);
    }
}
