//! Properties of the engine over arbitrary calls: nothing is lost or comes back, groups keep their order,
//! and the same calls give the same answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::testing::{at, engine, fifo, pair, receive, text};
use super::{Engine, ReceiveMessage, SendMessage};
use crate::domain::id::QueueName;
use crate::domain::message::Received;

/// How many receives a message has before it moves.
const LIMIT: u32 = 2;

#[derive(Debug, Clone)]
enum Op {
    Send {
        group: u8,
        delay_secs: u64,
    },
    Receive {
        max: usize,
        visibility_secs: u64,
    },
    /// Deletes with the n-th newest handle.
    Delete(usize),
    ChangeVisibility {
        handle: usize,
        secs: u64,
    },
    Pass {
        secs: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..3_u8, 0..40_u64).prop_map(|(group, delay_secs)| Op::Send { group, delay_secs }),
        4 => (1..=10_usize, 0..60_u64)
            .prop_map(|(max, visibility_secs)| Op::Receive { max, visibility_secs }),
        2 => (0..8_usize).prop_map(Op::Delete),
        2 => (0..8_usize, 0..60_u64).prop_map(|(handle, secs)| Op::ChangeVisibility { handle, secs }),
        2 => (0..90_u64).prop_map(|secs| Op::Pass { secs }),
    ]
}

/// What became of a run of calls.
#[derive(Debug, PartialEq)]
struct World {
    sent: Vec<String>,
    received: Vec<(u64, Received)>,
    deleted: BTreeSet<String>,
    now_ms: u64,
}

fn request(is_fifo: bool, n: usize, group: u8, delay_secs: u64) -> SendMessage {
    if is_fifo {
        fifo(&n.to_string(), &group.to_string(), &n.to_string())
    } else {
        SendMessage { delay_secs: Some(delay_secs), ..text(&n.to_string()) }
    }
}

fn run(engine: &mut Engine, source: &QueueName, ops: &[Op]) -> World {
    let mut world = World { sent: vec![], received: vec![], deleted: BTreeSet::new(), now_ms: 0 };
    for op in ops {
        let now = at(world.now_ms);
        let newest = |n: usize| world.received.iter().rev().nth(n).map(|(_, r)| r.clone());
        match *op {
            Op::Send { group, delay_secs } => {
                let request = request(source.is_fifo(), world.sent.len(), group, delay_secs);
                let sent = engine.send(now, source, request).unwrap();
                world.sent.push(sent.message_id.into());
            }
            Op::Receive { max, visibility_secs } => {
                let visibility = Some(Duration::from_secs(visibility_secs));
                let request = ReceiveMessage { max, visibility, attempt_id: None };
                let got = engine.receive(now, source, &request).unwrap();
                world.received.extend(got.into_iter().map(|received| (world.now_ms, received)));
            }
            Op::Delete(n) => {
                let Some(message) = newest(n) else { continue };
                let depth = engine.facts(now, source).unwrap().depth;
                if engine.delete(now, source, &message.receipt).is_ok()
                    && engine.facts(now, source).unwrap().depth != depth
                {
                    world.deleted.insert(message.message_id.into());
                }
            }
            Op::ChangeVisibility { handle, secs } => {
                let Some(message) = newest(handle) else { continue };
                let timeout = Duration::from_secs(secs);
                // Refused for messages that are visible or gone, which is as good.
                let _answer = engine.change_visibility(now, source, &message.receipt, timeout);
            }
            Op::Pass { secs } => world.now_ms += secs * 1_000,
        }
    }
    world
}

/// Every message that is still anywhere.
fn drain(engine: &mut Engine, queues: [&QueueName; 2], mut now_ms: u64) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..4 {
        now_ms += 100_000;
        for queue in queues {
            loop {
                let got = receive(engine, now_ms, queue);
                if got.is_empty() {
                    break;
                }
                for message in got {
                    engine.delete(at(now_ms), queue, &message.receipt).unwrap();
                    ids.push(message.message_id.into());
                }
            }
        }
    }
    ids
}

proptest! {
    #[test]
    fn a_message_is_deleted_or_still_there_and_never_both(
        is_fifo: bool,
        ops in vec(op(), 0..80),
    ) {
        let mut engine = engine();
        let (source, dead) = if is_fifo { ("q.fifo", "dead.fifo") } else { ("q", "dead") };
        let (source, dead) = pair(&mut engine, source, dead, LIMIT);
        let world = run(&mut engine, &source, &ops);
        let left = drain(&mut engine, [&source, &dead], world.now_ms);
        let all: BTreeSet<String> = left.iter().cloned().collect();
        prop_assert_eq!(all.len(), left.len(), "one is there twice");
        let expected: BTreeSet<String> =
            world.sent.into_iter().filter(|id| !world.deleted.contains(id)).collect();
        prop_assert_eq!(all, expected);
        for queue in [&source, &dead] {
            prop_assert_eq!(engine.facts(at(world.now_ms), queue).unwrap().depth, Default::default());
        }
    }

    #[test]
    fn no_message_is_received_more_often_than_its_limit(ops in vec(op(), 0..80)) {
        let mut engine = engine();
        let (source, _) = pair(&mut engine, "q", "dead", LIMIT);
        for (_, message) in run(&mut engine, &source, &ops).received {
            prop_assert!(message.receive_count <= Some(LIMIT));
        }
    }

    #[test]
    fn first_receives_of_a_group_keep_its_order(ops in vec(op(), 0..80)) {
        let mut engine = engine();
        let (source, _) = pair(&mut engine, "q.fifo", "dead.fifo", LIMIT);
        let mut newest: BTreeMap<String, usize> = BTreeMap::new();
        for (_, message) in run(&mut engine, &source, &ops).received {
            if message.receive_count == Some(1) {
                let n: usize = message.body.parse().unwrap();
                let before = newest.insert(message.group_id.unwrap(), n);
                prop_assert!(before < Some(n));
            }
        }
    }

    #[test]
    fn the_same_calls_give_the_same_answers(ops in vec(op(), 0..60)) {
        let once = || {
            let mut engine = engine();
            let (source, _) = pair(&mut engine, "q", "dead", LIMIT);
            run(&mut engine, &source, &ops)
        };
        prop_assert_eq!(once(), once());
    }
}
