//! Runs whose copies another's consumer works on: it writes no ledger, and queues alone tell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redrive::domain::dispatch::{Dispatch, Feedback};
use redrive::domain::id::{QueueName, RecordId};
use redrive::domain::ramp::{RampPolicy, Trip};
use redrive::domain::record::State;
use redrive::domain::run::{Counts, Run, State as RunState};
use redrive::domain::token::{Carried, Marker, recognise};
use redrive::port::queue::{Depth, Queue as _};
use redrive::sim::fault::Faults;
use redrive::sim::queue::SimQueue;
use redrive::sim::sqs::ReceiveMessage;
use tokio::task::JoinHandle;

use crate::executor::patient;
use crate::world::World;

fn policy() -> RampPolicy {
    RampPolicy { outcome_timeout: Duration::from_secs(120), ..patient() }
}

fn dispatch() -> Dispatch {
    Dispatch { feedback: Feedback::Queue, ..Dispatch::default() }
}

/// A consumer that deletes whatever it gets but the copies of these records, which it leaves.
fn consumer(world: &World, hard: &[RecordId]) -> JoinHandle<()> {
    let (engine, name) = (Arc::clone(&world.engine), world.source.name().clone());
    let hard: BTreeSet<RecordId> = hard.iter().cloned().collect();
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            tick.tick().await;
            let visibility = Some(Duration::from_secs(2));
            let request = ReceiveMessage { max: 10, visibility, ..ReceiveMessage::default() };
            for message in engine.with(|e, now| e.receive(now, &name, &request)).unwrap() {
                let carried = recognise(&message.body, &message.attributes, &name);
                let Some(Carried::Inline(Marker::Copy(copy))) = carried else {
                    panic!("no copy: {message:?}")
                };
                if !hard.contains(&copy.record) {
                    let receipt = &message.receipt;
                    engine.with(|e, now| e.delete(now, &name, receipt)).unwrap();
                }
            }
        }
    })
}

async fn run(world: &World, dispatch: Dispatch) -> Run {
    let redriver = world.redriver(&Faults::new(), "executor");
    world.start_as(&redriver, policy(), dispatch).await.end().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_failed_again_and_the_rest_is_assumed_once_the_source_stays_drained() {
    let world = World::new();
    let ids = world.park_many(12).await;
    let consumer = consumer(&world, &ids[..2]);
    let started = tokio::time::Instant::now();
    let run = run(&world, dispatch()).await;
    consumer.abort();
    assert_eq!(run.state, RunState::Completed);
    let counts = Counts {
        planned: 12,
        sent: 12,
        resolved: 10,
        assumed: 10,
        failed_again: 2,
        ..Counts::NONE
    };
    assert_eq!(run.counts, counts);
    assert!(started.elapsed() >= policy().outcome_timeout);
    // What is written down is what the report says.
    assert_eq!(world.report(&run.id).await.counts, counts);
    for (n, id) in ids.iter().enumerate() {
        let record = world.ledger.records()[id].clone();
        let expected = if n < 2 { State::Quarantined } else { State::Resolved };
        assert_eq!((record.state, record.redrive_count), (expected, 1));
    }
    assert_eq!(world.spy.copies().len(), 12);
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_assumed_while_copies_wait_and_the_run_trips() {
    let world = World::new();
    let ids = world.park_many(7).await;
    let run = run(&world, dispatch()).await;
    assert_eq!((run.state, run.tripped), (RunState::Tripped, Some(Trip::NoOutcome)));
    assert_eq!((run.counts.in_doubt, run.counts.assumed, run.counts.not_sent), (5, 0, 2));
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn copies_that_go_elsewhere_leave_the_source_alone_and_no_other_redriver_sends_them() {
    let world = World::new();
    let ids = world.park_many(2).await;
    let name = QueueName::new("elsewhere").unwrap();
    world.engine.with(|e, now| e.create_queue(now, name.as_str(), &[].into(), [].into())).unwrap();
    let other = SimQueue::new(world.engine.clone(), name.clone());
    let here = world.redriver(&Faults::new(), "here");
    let there = here.clone().sending_to(Arc::new(other.clone()), 1_048_576);
    let executor = world.start_as(&there, policy(), dispatch()).await;
    world.wait_until("the copies", || world.depth(&other).visible == 2).await;
    let open = executor.stop().await;
    assert_eq!(
        (world.depth(&world.source), open.dispatch.to),
        (Depth::default(), Some(name.clone()))
    );
    let refused = world.resume(&here).await.end().await.unwrap_err();
    assert!(refused.to_string().contains("go to elsewhere"), "{refused}");
    world.engine.with(|e, now| e.purge_queue(now, &name)).unwrap();
    let run = world.resume(&there).await.end().await.unwrap();
    assert_eq!((run.state, run.counts.assumed), (RunState::Completed, 2));
    assert_eq!(world.states(&ids), [State::Resolved; 2]);
}
