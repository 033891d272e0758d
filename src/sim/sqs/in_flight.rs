//! What a receipt handle is good for: DeleteMessage and ChangeMessageVisibility.
//!
//! A delete that is repeated succeeds. A handle that is not the message's newest is accepted on a standard
//! queue and does nothing, as the API reference has it; a FIFO queue refuses a handle that has expired.
//! Visibility is at most 12 hours from the receive.

use std::time::Duration;

use super::batch::{self, Entries};
use super::engine::Engine;
use super::error::SqsError;
use super::queue::{Message, Place};
use super::receipt::{self, Receipt};
use crate::domain::id::{QueueName, ReceiptHandle};
use crate::domain::message::MAX_VISIBILITY_SECS;
use crate::domain::time::Wall;

const MAX_VISIBILITY: Duration = Duration::from_secs(MAX_VISIBILITY_SECS);

impl Engine {
    /// DeleteMessage.
    ///
    /// # Errors
    /// The queue does not exist, the handle is none of its own, or has expired (FIFO).
    pub fn delete(
        &mut self,
        now: Wall,
        name: &QueueName,
        handle: &ReceiptHandle,
    ) -> Result<(), SqsError> {
        let queue = self.visit(now, name)?;
        let receipt = receipt::decode(name, handle)?;
        let Some(message) = queue.get(receipt.key) else { return Ok(()) };
        let newest = is_newest(message, receipt);
        if queue.settings.fifo && !(newest && matches!(message.place, Place::InFlight { .. })) {
            return Err(SqsError::parameter("ReceiptHandle", "the receipt handle has expired"));
        }
        if newest {
            queue.remove(receipt.key);
            self.touch(name);
        }
        Ok(())
    }

    /// DeleteMessageBatch.
    ///
    /// # Errors
    /// The queue does not exist, or the batch as a whole is refused.
    pub fn delete_batch(
        &mut self,
        now: Wall,
        name: &QueueName,
        entries: Vec<(String, ReceiptHandle)>,
    ) -> Result<Entries<()>, SqsError> {
        self.check_exists(name)?;
        batch::check(entries.iter().map(|(id, _)| id.as_str()))?;
        Ok(entries.into_iter().map(|(id, handle)| (id, self.delete(now, name, &handle))).collect())
    }

    /// ChangeMessageVisibility: hidden until `timeout` from now.
    ///
    /// # Errors
    /// The queue does not exist, the handle is none of its own, its message is not in flight or gone, or
    /// the timeout is too long.
    pub fn change_visibility(
        &mut self,
        now: Wall,
        name: &QueueName,
        handle: &ReceiptHandle,
        timeout: Duration,
    ) -> Result<(), SqsError> {
        let queue = self.visit(now, name)?;
        if timeout > MAX_VISIBILITY {
            return Err(SqsError::parameter("VisibilityTimeout", "it must be between 0 and 43200"));
        }
        let receipt = receipt::decode(name, handle)?;
        let Some(message) = queue.get(receipt.key) else {
            return Err(SqsError::parameter(
                "ReceiptHandle",
                "message does not exist or is not available for visibility timeout change",
            ));
        };
        let Place::InFlight { since, .. } = message.place else {
            return Err(SqsError::MessageNotInflight);
        };
        if !is_newest(message, receipt) {
            return if queue.settings.fifo { Err(SqsError::MessageNotInflight) } else { Ok(()) };
        }
        let until = now.plus(timeout);
        if until.since(since) > MAX_VISIBILITY {
            return Err(SqsError::parameter(
                "VisibilityTimeout",
                "total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
            ));
        }
        queue.set_place(receipt.key, Place::InFlight { since, until });
        self.touch(name);
        Ok(())
    }

    /// ChangeMessageVisibilityBatch.
    ///
    /// # Errors
    /// The queue does not exist, or the batch as a whole is refused.
    pub fn change_visibility_batch(
        &mut self,
        now: Wall,
        name: &QueueName,
        entries: Vec<(String, ReceiptHandle, Duration)>,
    ) -> Result<Entries<()>, SqsError> {
        self.check_exists(name)?;
        batch::check(entries.iter().map(|(id, ..)| id.as_str()))?;
        Ok(entries
            .into_iter()
            .map(|(id, handle, timeout)| (id, self.change_visibility(now, name, &handle, timeout)))
            .collect())
    }
}

const fn is_newest(message: &Message, receipt: Receipt) -> bool {
    message.receives_here == receipt.receive
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sqs::testing::{at, engine, fifo, name, receive, text};

    #[test]
    fn a_delete_is_final_and_may_be_repeated() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        engine.send(at(0), &queue, text("x")).unwrap();
        let received = receive(&mut engine, 0, &queue);
        for _ in 0..2 {
            assert_eq!(engine.delete(at(0), &queue, &received[0].receipt), Ok(()));
        }
        assert!(receive(&mut engine, 100_000, &queue).is_empty());
        let entries = vec![
            ("a".into(), received[0].receipt.clone()),
            ("b".into(), ReceiptHandle::new("bogus")),
        ];
        let answers = engine.delete_batch(at(0), &queue, entries).unwrap();
        assert_eq!(answers[0].1, Ok(()));
        assert_eq!(answers[1].1, Err(SqsError::ReceiptHandleIsInvalid));
    }

    #[test]
    fn an_expired_handle_still_deletes_from_a_standard_queue_unless_the_message_was_received_anew()
    {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        engine.send(at(0), &queue, text("x")).unwrap();
        let old = receive(&mut engine, 0, &queue).remove(0);
        let new = receive(&mut engine, 30_000, &queue).remove(0);
        assert_eq!(engine.delete(at(30_000), &queue, &old.receipt), Ok(()));
        assert_eq!(
            engine.change_visibility(at(30_000), &queue, &old.receipt, Duration::ZERO),
            Ok(())
        );
        assert_eq!(
            engine.facts(at(30_000), &queue).unwrap().depth.in_flight,
            1,
            "nothing was done"
        );
        assert_eq!(engine.facts(at(60_000), &queue).unwrap().depth.visible, 1, "it is back");
        assert_eq!(engine.delete(at(60_000), &queue, &new.receipt), Ok(()));
        assert!(receive(&mut engine, 60_000, &queue).is_empty());
    }

    #[test]
    fn a_fifo_queue_refuses_an_expired_handle() {
        let mut engine = engine();
        let queue = name(&mut engine, "q.fifo", &[("FifoQueue", "true")]);
        engine.send(at(0), &queue, fifo("x", "g", "d")).unwrap();
        let old = receive(&mut engine, 0, &queue).remove(0);
        assert!(engine.delete(at(30_000), &queue, &old.receipt).is_err());
        let new = receive(&mut engine, 30_000, &queue).remove(0);
        assert!(engine.delete(at(30_000), &queue, &old.receipt).is_err());
        assert_eq!(engine.delete(at(30_000), &queue, &new.receipt), Ok(()));
    }

    #[test]
    fn visibility_may_be_stretched_or_given_back() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        engine.send(at(0), &queue, text("x")).unwrap();
        let first = receive(&mut engine, 0, &queue).remove(0);
        let minute = Duration::from_secs(60);
        engine.change_visibility(at(29_000), &queue, &first.receipt, minute).unwrap();
        assert!(receive(&mut engine, 88_999, &queue).is_empty());
        engine.change_visibility(at(88_999), &queue, &first.receipt, Duration::ZERO).unwrap();
        assert_eq!(receive(&mut engine, 88_999, &queue).len(), 1);
    }

    #[test]
    fn visibility_is_at_most_twelve_hours_from_the_receive() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        engine.send(at(0), &queue, text("x")).unwrap();
        let handle = receive(&mut engine, 0, &queue).remove(0).receipt;
        let mut change =
            |ms, secs| engine.change_visibility(at(ms), &queue, &handle, Duration::from_secs(secs));
        assert!(change(0, 43_201).is_err());
        assert!(change(1_000, 43_200).is_err(), "one second is used up");
        assert_eq!(change(1_000, 43_199), Ok(()));
        assert!(change(43_199_000, 2).is_err());
    }

    #[test]
    fn only_messages_in_flight_have_a_visibility_to_change() {
        let mut engine = engine();
        let queue = name(&mut engine, "q", &[]);
        engine.send(at(0), &queue, text("x")).unwrap();
        let handle = receive(&mut engine, 0, &queue).remove(0).receipt;
        let second = Duration::from_secs(1);
        assert_eq!(
            engine.change_visibility(at(30_000), &queue, &handle, second),
            Err(SqsError::MessageNotInflight)
        );
        engine.delete(at(30_000), &queue, &handle).unwrap();
        let gone = engine.change_visibility(at(30_000), &queue, &handle, second);
        assert!(matches!(gone, Err(SqsError::InvalidParameterValue { .. })));
        let bogus = ReceiptHandle::new("bogus");
        assert_eq!(
            engine.change_visibility(at(30_000), &queue, &bogus, second),
            Err(SqsError::ReceiptHandleIsInvalid)
        );
    }
}
