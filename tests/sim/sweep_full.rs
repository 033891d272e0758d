//! The full sweep: every quarantined record shows in the DLQ, for as long as it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redrive::domain::failure::ErrorClass;
use redrive::domain::id::{ParkToken, QueueName, ReceiptHandle, RecordId};
use redrive::domain::message::{Outgoing, Received};
use redrive::domain::record::{Event, State};
use redrive::port::clock::Clock as _;
use redrive::port::error::PortError;
use redrive::port::evidence::{Deletable, Stored};
use redrive::port::queue::{Accepted, BatchAnswer, Depth, Queue, QueueFacts};
use redrive::service::settings::Ports;
use redrive::service::shutdown::Stage;
use redrive::service::start::fit;
use redrive::service::sweeper::{SweepError, Sweeper, Swept};
use redrive::sim::fault::{Fault, Faults};
use redrive::sim::queue::SimQueue;
use redrive::sim::sqs::ReceiveMessage;
use tokio_util::sync::CancellationToken;

use crate::executor::patient;
use crate::world::World;

const DAY: Duration = Duration::from_secs(86_400);

impl World {
    /// A full sweep through these faults, at once.
    async fn sweep_full_now(&self, faults: &Faults) -> Result<Swept, SweepError> {
        self.sweeper(faults, "sweeper").full(&CancellationToken::new()).await
    }

    /// The DLQ loses all it has.
    fn purge(&self) {
        let name = self.dlq.name().clone();
        self.engine.with(|engine, now| engine.purge_queue(now, &name)).unwrap();
    }

    fn park_of(&self, id: &RecordId) -> ParkToken {
        self.ledger.records()[id].park_token.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_gone_is_issued_again_by_a_full_sweep_alone() {
    let world = World::new();
    let ids = world.park_many(3).await;
    world.purge();
    assert_eq!(world.sweep().await.reissued, 0);
    assert_eq!(world.depth(&world.dlq), Depth::default());
    let swept = world.sweep_full().await;
    assert_eq!((swept.reissued, swept.truncated, swept.errors), (3, false, vec![]));
    world.assert_one_token_each(&ids).await;
    assert_eq!(world.sweep_full().await.reissued, 0, "once");
    world.handler.set_fixed(true);
    assert_eq!(world.redrive(patient()).await.counts.resolved, 3);
}

#[tokio::test(start_paused = true)]
async fn a_record_waits_in_the_dlq_for_as_long_as_it_takes() {
    let world = World::new();
    let ids = world.park_many(12).await;
    let mut issued = 0;
    for day in 0..40 {
        let swept = world.sweep_full().await;
        assert_eq!(swept.errors, [], "day {day}");
        issued += swept.reissued;
        world.assert_one_token_each(&ids).await;
        tokio::time::advance(DAY - Duration::from_secs(364)).await;
    }
    assert_eq!(issued, 36, "each every twelve days, before SQS forgets it after fourteen");
}

#[tokio::test(start_paused = true)]
async fn trap_15_a_restore_that_died_before_its_token_is_mended() {
    let world = World::new();
    let ids = world.park(&["bad"]).await;
    let remember = world.settings.remember;
    world.act(&ids[0], Event::Discard, remember).await;
    world.sweep().await;
    assert_eq!(world.depth(&world.dlq), Depth::default());
    let token = ParkToken::generate(world.clock.wall(), &mut world.rng());
    world.act(&ids[0], Event::Restore(token.clone()), remember).await;
    // A sweep in between changes nothing; the full one issues a token.
    assert_eq!(world.sweep().await.reissued, 0);
    assert_eq!(world.park_of(&ids[0]), token);
    assert_eq!(world.sweep_full().await.reissued, 1);
    world.assert_one_token_each(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn trap_11_a_token_that_another_holds_is_issued_twice_at_worst_and_the_last_counts() {
    let world = World::new();
    let ids = world.park(&["bad"]).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    let name = world.dlq.name().clone();
    let peek =
        ReceiveMessage { visibility: Some(Duration::from_secs(600)), ..ReceiveMessage::default() };
    assert_eq!(world.engine.with(|e, now| e.receive(now, &name, &peek)).unwrap().len(), 1);
    let before = world.park_of(&ids[0]);
    assert_eq!(world.sweep_full().await.reissued, 1);
    assert_ne!(world.park_of(&ids[0]), before);
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(world.sweep().await.removed, 1, "the older no longer counts");
    world.assert_one_token_each(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_seen_does_not_count_when_not_all_was_seen() {
    let over = Fault::Refuse(ErrorClass::Throttled, "OverLimit");
    for (stopped, fault) in [(false, Some(over)), (true, None)] {
        let world = World::new();
        let ids = world.park(&["bad gone", "bad old"]).await;
        let before = world.park_of(&ids[0]);
        world.purge();
        tokio::time::advance(Duration::from_secs(61)).await;
        let faults = Faults::new();
        if let Some(fault) = fault {
            faults.at_call_of("queue.receive", 1, fault);
        }
        let stop = CancellationToken::new();
        if stopped {
            stop.cancel();
        }
        let swept = world.sweeper(&faults, "sweeper").full(&stop).await.unwrap();
        assert_eq!((swept.truncated, swept.reissued, swept.errors), (true, 0, vec![]));
        assert_eq!(world.park_of(&ids[0]), before);
        // What expires is known without having been seen.
        tokio::time::advance(DAY * 12).await;
        let faults = Faults::new();
        faults.at_call_of("queue.receive", 1, over);
        let swept = world.sweep_full_now(&faults).await.unwrap();
        assert_eq!((swept.truncated, swept.reissued), (true, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_parked_during_the_walk_is_not_taken_for_missing() {
    let world = World::new();
    let old = world.park(&["bad old"]).await;
    tokio::time::advance(Duration::from_secs(61)).await;
    let faults = Faults::new();
    faults.at_call_of("ledger.page", 1, Fault::Late(Duration::from_secs(60)));
    let sweeper = world.sweeper(&faults, "sweeper");
    let full = tokio::spawn(async move { sweeper.full(&CancellationToken::new()).await.unwrap() });
    world.wait_until("the walk", || faults.log().iter().any(|c| c == "ledger.page")).await;
    let new = world.park(&["bad new"]).await;
    let before = world.park_of(&new[0]);
    assert!(!full.is_finished());
    assert_eq!(full.await.unwrap().reissued, 0);
    assert_eq!(world.park_of(&new[0]), before);
    world.assert_one_token_each(&[old, new].concat()).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_a_run_takes_during_the_walk_is_the_runs() {
    for call in ["runs.records", "vault.get", "ledger.put_record"] {
        let world = World::new();
        let ids = world.park(&["bad"]).await;
        world.purge();
        tokio::time::advance(Duration::from_secs(61)).await;
        let faults = Faults::new();
        let k = if call == "runs.records" { 3 } else { 1 };
        faults.at_call_of(call, k, Fault::Late(Duration::from_secs(10)));
        let sweeper = world.sweeper(&faults, "sweeper");
        let full = tokio::spawn(async move { sweeper.full(&CancellationToken::new()).await });
        let reached = || faults.log().iter().filter(|c| *c == call).count() >= k;
        world.wait_until("the call", || reached() || full.is_finished()).await;
        world.handler.set_fixed(true);
        world.send_copy().await;
        let before = world.ledger.records()[&ids[0]].clone();
        let swept = full.await.unwrap().unwrap();
        assert_eq!(swept.errors, [], "{call}");
        if call != "runs.records" {
            assert_eq!(swept.reissued, 0, "{call}");
            assert_eq!(world.ledger.records()[&ids[0]], before, "{call}");
        }
        world.work(&Faults::new()).await;
        assert_eq!(world.states(&ids), [State::Resolved], "{call}");
        world.sweep().await;
        assert_eq!(world.dead_letters_after_a_second().await.len(), 0, "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_envelope_a_token_is_left_to_count_and_the_record_is_named() {
    let world = World::new();
    let ids = world.park(&["bad"]).await;
    let before = world.ledger.records()[&ids[0]].clone();
    tokio::time::advance(DAY * 12).await;
    let faults = Faults::new();
    faults.at_call_of("vault.get", 1, Fault::Refuse(ErrorClass::NotFound, "NoSuchKey"));
    faults.at_call_of("vault.get", 2, Fault::Refuse(ErrorClass::NotFound, "NoSuchKey"));
    let swept = world.sweep_full_now(&faults).await.unwrap();
    assert_eq!(swept.reissued, 0);
    assert!(!swept.errors.is_empty());
    assert!(swept.errors.iter().all(|e| e.message_id.as_str() == ids[0].as_str()), "{swept:?}");
    assert_eq!(world.ledger.records()[&ids[0]], before);
    world.assert_one_token_each(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn trap_16_a_fifo_token_is_issued_again_within_five_minutes() {
    let world = World::fifo();
    let message = Outgoing {
        body: "bad".into(),
        group_id: Some("g".into()),
        deduplication_id: Some("d".into()),
        ..Outgoing::default()
    };
    let id = RecordId::from(&world.send_message(message).await);
    world.work(&Faults::new()).await;
    for _ in 0..3 {
        world.purge();
        assert_eq!(world.sweep_full().await.reissued, 1);
        let tokens = world.dead_letters_after_a_second().await;
        assert_eq!(tokens.len(), 1, "SQS took it for a new one");
        assert_eq!(tokens[0].group_id.as_deref(), Some(id.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_sweeps_whole_at_first_and_then_on_its_period() {
    let mut world = World::new();
    let period = DAY / 4;
    world.settings.sweep_full_every = period;
    let ids = world.park(&["bad"]).await;
    let facts = |queue: &SimQueue| {
        let name = queue.name().clone();
        world.engine.with(|engine, now| engine.facts(now, &name)).unwrap()
    };
    let context =
        fit(world.ports(), world.settings.clone(), facts(&world.source), &facts(&world.dlq));
    let (stage, stages) = tokio::sync::watch::channel(Stage::Running);
    world.purge();
    tokio::time::advance(Duration::from_secs(61)).await;
    let worker = redrive::service::worker::run(context.unwrap(), stages, world.rng());
    let worker = tokio::spawn(worker);
    world.wait_until("a token", || world.depth(&world.dlq).visible == 1).await;
    let started = world.clock.mono();
    world.purge();
    world.wait_until("another token", || world.depth(&world.dlq).visible == 1).await;
    let waited = world.clock.mono().since(started);
    assert!((period / 2..period + Duration::from_secs(600)).contains(&waited), "{waited:?}");
    stage.send_replace(Stage::Draining);
    worker.await.unwrap();
    world.assert_one_token_each(&ids).await;
}

/// A DLQ that gives one to three messages where ten are asked for, and every third time none.
#[derive(Debug)]
struct Stingy(SimQueue, AtomicUsize);

#[async_trait]
impl Queue for Stingy {
    fn name(&self) -> &QueueName {
        self.0.name()
    }

    async fn facts(&self) -> Result<QueueFacts, PortError> {
        self.0.facts().await
    }

    async fn sources(&self) -> Result<Vec<QueueName>, PortError> {
        self.0.sources().await
    }

    async fn receive(
        &self,
        max: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, PortError> {
        match self.1.fetch_add(1, Ordering::Relaxed) {
            n if n % 3 == 0 => Ok(Vec::new()),
            n => self.0.receive(max.min(1 + n % 4), wait, visibility).await,
        }
    }

    async fn send(
        &self,
        messages: &[Outgoing],
    ) -> Result<BatchAnswer<Stored<Accepted>>, PortError> {
        self.0.send(messages).await
    }

    async fn delete(&self, messages: &[Deletable]) -> Result<BatchAnswer<()>, PortError> {
        self.0.delete(messages).await
    }

    async fn change_visibility(
        &self,
        changes: &[(ReceiptHandle, Duration)],
    ) -> Result<BatchAnswer<()>, PortError> {
        self.0.change_visibility(changes).await
    }
}

#[tokio::test(start_paused = true)]
async fn case_g4_one_empty_receive_is_not_the_end() {
    let world = World::new();
    let ids = world.park_many(50).await;
    tokio::time::advance(Duration::from_secs(61)).await;
    let stingy = Stingy(world.dlq.clone(), AtomicUsize::new(0));
    let ports = Ports { dlq: Arc::new(stingy), ..world.ports() };
    let facts = |queue: &SimQueue| {
        let name = queue.name().clone();
        world.engine.with(|engine, now| engine.facts(now, &name)).unwrap()
    };
    let context = fit(ports, world.settings.clone(), facts(&world.source), &facts(&world.dlq));
    let sweeper = Sweeper::new(context.unwrap(), world.rng());
    let swept = sweeper.full(&CancellationToken::new()).await.unwrap();
    assert_eq!((swept.received, swept.kept, swept.reissued), (50, 50, 0));
    world.assert_one_token_each(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn case_e1_what_is_still_in_the_dlq_after_a_failed_delete_has_its_evidence() {
    let world = World::new();
    let ids = world.park_many(5).await;
    world.handler.set_fixed(true);
    let faults = Faults::new();
    for k in 1..200 {
        faults.at_call_of("queue.delete orders-dlq", k, Fault::FailBefore);
    }
    let redriver = world.redriver(&faults, "executor");
    let worker = world.worker(&Faults::new()).await;
    let run = world.start(&redriver, patient()).await.end().await.unwrap();
    worker.stop().await;
    assert_eq!(run.counts.resolved, 5);
    tokio::time::advance(Duration::from_secs(301)).await;
    let left = world.tokens();
    assert_eq!(left.len(), 5);
    assert!(left.iter().all(|token| world.vault.objects().contains_key(&token.envelope)));
    let swept = world.sweep().await;
    assert_eq!((swept.removed, swept.kept, swept.errors), (5, 0, vec![]));
    assert_eq!((world.commits(), world.spy.copies().len()), (5, 5));
    assert_eq!(world.states(&ids), [State::Resolved; 5]);
}
