//! Copies that nobody here has sent, a run that an operator ends, and a sweep that died.

use std::time::Duration;

use redrive::domain::id::{MessageId, QueueName, RecordId, RunId, Sha256Hex};
use redrive::domain::message::{Attribute, Attributes};
use redrive::domain::record::State;
use redrive::domain::run::{Counts, State as RunState};
use redrive::domain::time::Wall;
use redrive::domain::token::{ATTRIBUTE, Copy, Marker};
use redrive::port::clock::Clock as _;
use redrive::sim::fault::{Fault, Faults};

use crate::executor::{patient, policy};
use crate::world::World;

/// Sends a message that says it is copy `n` of a record, with a body of its own.
async fn send_forged(world: &World, record: &MessageId, body: &str, n: u32) -> MessageId {
    let marker = Marker::Copy(Copy {
        queue: QueueName::new("orders").unwrap(),
        record: RecordId::from(record),
        run: RunId::new("any-run").unwrap(),
        n,
        sent_ms: Wall::from_ms(1),
        sha256: Sha256Hex::of(body.as_bytes()),
        force: false,
    });
    let attribute = Attribute::string(marker.encode().unwrap());
    world.send_with(body, Attributes::from([(ATTRIBUTE.to_owned(), attribute)])).await
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_its_record_cannot_have_sent_is_a_users_message() {
    let world = World::new();
    let victim = world.send("bad victim").await;
    world.work(&Faults::new()).await;
    let before = world.record(&victim);
    let sent = [
        victim.clone(),
        send_forged(&world, &victim, "fine but another", 1).await,
        send_forged(&world, &victim, "bad and another", 1).await,
        send_forged(&world, &victim, "bad victim", u32::MAX).await,
    ];
    world.work(&Faults::new()).await;
    world.assert_nothing_lost(&sent);
    assert_eq!(world.record(&victim), before, "nothing of it has moved");
    let [_, fine, bad, repeated] = &sent;
    assert!(!world.ledger.records().contains_key(&RecordId::from(fine)), "done under its own id");
    for id in [bad, repeated] {
        let record = world.record(id);
        assert_eq!(record.state, State::Quarantined, "parked under its own id");
        let attributes = world.envelope(&record).attributes;
        assert!(attributes.contains_key(ATTRIBUTE), "with the attribute that it came with");
    }
}

#[tokio::test(start_paused = true)]
async fn an_aborted_run_frees_the_source_and_its_batch_in_hand() {
    let world = World::new();
    let ids = world.park_many(7).await;
    // An executor dies with a batch that is taken and not sent.
    let faults = Faults::new();
    faults.at_call_of("queue.send orders", 1, Fault::HangBefore);
    let executor = world.start(&world.redriver(&faults, "first"), patient()).await;
    world.wait_until("a send", || faults.log().iter().any(|c| c == "queue.send orders")).await;
    executor.crash().await;
    tokio::time::advance(crate::executor::LEASE).await;
    let redriver = world.redriver(&Faults::new(), "operator");
    let open = redriver.find(None).await.unwrap().unwrap().into_inner();
    let run = redriver.abort(redriver.claim(&open).await.unwrap()).await.unwrap();
    assert_eq!(run.state, RunState::Aborted);
    let report = world.report(&run.id).await;
    let in_hand = report.counts.errored;
    assert!(in_hand > 0, "{:?}", report.counts);
    let expected = Counts { planned: 7, not_sent: 7 - in_hand, errored: in_hand, ..Counts::NONE };
    assert_eq!(report.counts, expected);
    assert!(report.is_balanced());
    // The source is free: the next run takes all of them.
    world.handler.set_fixed(true);
    assert_eq!(world.redrive(policy()).await.counts.resolved, 7);
    world.assert_none_lost(&ids).await;
}

/// Records parked, and an executor that dies in its first sweep with all tokens in its hands and the
/// sweep's lock; the fix is there.
async fn with_a_dead_sweep(world: &World) -> Vec<RecordId> {
    let ids = world.park_many(7).await;
    let faults = Faults::new();
    faults.at_call_of("queue.receive orders-dlq", 1, Fault::HangAfter);
    let executor = world.start(&world.redriver(&faults, "first"), patient()).await;
    let is_sweeping = || faults.log().iter().any(|call| call == "queue.receive orders-dlq");
    world.wait_until("a sweep", is_sweeping).await;
    executor.crash().await;
    world.handler.set_fixed(true);
    ids
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_sweep_holds_is_swept_before_a_run_ends() {
    let world = World::new();
    let ids = with_a_dead_sweep(&world).await;
    let second = world.resume(&world.redriver(&Faults::new(), "second")).await;
    let worker = world.worker(&Faults::new()).await;
    let run = second.end().await.unwrap();
    worker.stop().await;
    assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 7));
    assert_eq!(world.depth(&world.dlq), redrive::port::queue::Depth::default());
    world.assert_none_lost(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_dead_sweep() {
    let world = World::new();
    let ids = with_a_dead_sweep(&world).await;
    let second = world.resume(&world.redriver(&Faults::new(), "second")).await;
    let worker = world.worker(&Faults::new()).await;
    let resolved = || second.progress().last().map(|(_, progress)| progress.counts.resolved);
    world.wait_until("all resolved", || resolved() == Some(7)).await;
    let asked = world.clock.mono();
    let run = second.stop().await;
    assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 7));
    assert!(world.clock.mono().since(asked) < Duration::from_secs(3));
    worker.stop().await;
    world.assert_none_lost(&ids).await;
}
