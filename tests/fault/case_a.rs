//! Visibility and receipt handles on the wire: kept in time, and lost without harm.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use redrive::domain::id::MessageId;
use redrive::domain::record::State;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::telemetry::Counter;
use tokio::time::Instant;
use tracing::Level;

use crate::log::Log;
use crate::receipt::{
    Receipts, assert_batches_are_whole, assert_none_changed_after_its_delete, changes, handles,
};
use crate::script::pass;
use crate::wire::act::{Act, Reply};
use crate::wire::call::Service;
use crate::wire::rule::Rule;
use crate::world::{Spec, World};

const CHANGE: &str = "ChangeMessageVisibilityBatch";
const DELETE: &str = "DeleteMessageBatch";

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A world of a standard queue with this visibility timeout and maxReceiveCount.
async fn world(visibility: u64, max_receive_count: u32) -> World {
    let visibility = secs(visibility);
    World::with(Spec { visibility, max_receive_count, ..Spec::default() }).await
}

async fn send_fine(world: &World, count: usize) -> Vec<MessageId> {
    let mut sent = Vec::new();
    for n in 0..count {
        sent.push(world.send(&format!("fine {n}")).await);
    }
    sent
}

#[tokio::test(start_paused = true)]
async fn case_a1_work_that_outlives_the_visibility_timeout_runs_once() {
    let world = world(4, 5).await;
    world.handler.set_takes([secs(11)]);
    let receipts = Receipts::noted(&world);
    let workers = [world.worker().await, world.worker().await];
    let sent = [world.send("a1").await];
    world.wait_for_empty_source().await;
    let received = workers.each_ref().map(|w| w.telemetry.meter.value(Counter::Received));
    assert_eq!(received.iter().sum::<u64>(), 1, "one worker alone receives it, and once");
    for worker in workers {
        assert_eq!(worker.telemetry.meter.value(Counter::LeaseLost), 0);
        assert_eq!(worker.stop().await, Ending::Drained);
    }
    let runs = world.handler.runs();
    assert_eq!((runs.len(), runs[0].receive_count), (1, Some(1)));
    let delete = world.wire.calls_of(Service::Sqs, DELETE).remove(0);
    let [receipt] = receipts.of(&sent[0]).try_into().unwrap();
    let extensions = changes(&world).remove(&receipt).unwrap();
    let mut times: Vec<Duration> = extensions.iter().map(|(call, _)| call.at).collect();
    times.push(delete.at);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= secs(2)), "{times:?}");
    assert!(extensions.iter().all(|(_, seconds)| *seconds == 4), "{extensions:?}");
    assert!(times.len() > 11 / 2, "{times:?}");
    assert_none_changed_after_its_delete(&world);
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_committed_once(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a3_a_late_heartbeat_harms_nothing_and_never_follows_a_delete() {
    let mut world = world(2, 5).await;
    world.settings.concurrency = 20;
    world.handler.set_takes((0..40).map(|n| Duration::from_millis(900 + n * 7 % 40 * 5)));
    let sent = send_fine(&world, 200).await;
    let late = Act::DelayBefore(Duration::from_millis(300));
    let late = world.wire.add(Rule::on(Service::Sqs, CHANGE, late));
    let log = Log::capture();
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    for counter in [Counter::LeaseLost, Counter::DeleteFailed, Counter::Retried] {
        assert_eq!(worker.telemetry.meter.value(counter), 0, "{counter:?}");
    }
    assert_eq!(worker.stop().await, Ending::Drained);
    assert!(world.wire.acted(late) >= 20, "{}", world.wire.acted(late));
    assert_eq!(log.complaints(), [""; 0]);
    assert_none_changed_after_its_delete(&world);
    assert_batches_are_whole(&world);
    assert_eq!(world.wire.entries(Service::Sqs, DELETE), 200);
    assert_eq!(world.handler.runs().len(), 200);
    world.assert_committed_once(&sent).await;
}

/// Twenty messages, of which the seventh's first handle is refused by one operation. How often it and all
/// others ran.
async fn one_bad_handle(world: &World, operation: &str, sent: &[MessageId]) -> (usize, usize) {
    let receipts = Receipts::noted(world);
    let (seventh, first) = (sent[6].clone(), receipts.clone());
    let refused = Act::Answer(Reply::sqs(400, "ReceiptHandleIsInvalid"));
    let refused = Rule::on(Service::Sqs, operation, refused).when(move |call| {
        first.of(&seventh).first().is_some_and(|bad| handles(call).contains(bad))
    });
    let refused = world.wire.add(refused);
    let worker = world.worker().await;
    world.wait_for_empty_source().await;
    assert!(world.wire.acted(refused) > 0);
    // It polls on: what comes later is worked on.
    let later = [world.send("later").await];
    pass(secs(30)).await;
    world.wait_for_empty_source().await;
    world.assert_committed_once(&later).await;
    assert_eq!(worker.stop().await, Ending::Drained);
    world.assert_committed_once(sent).await;
    assert!(world.records().await.is_empty());
    let runs = world.handler.runs();
    let of_seventh = runs.iter().filter(|run| run.message_id == sent[6].as_str()).count();
    (of_seventh, runs.len() - of_seventh - 1)
}

#[tokio::test(start_paused = true)]
async fn case_a4_one_handle_that_no_delete_takes_does_not_stop_the_others() {
    let world = World::new().await;
    let sent = send_fine(&world, 20).await;
    let log = Log::capture();
    assert_eq!(one_bad_handle(&world, DELETE, &sent).await, (1, 19));
    let errors = log.lines(Level::ERROR, "");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains(sent[6].as_str()), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn case_a4_one_handle_that_is_never_extended_costs_no_other_its_lease() {
    let world = World::new().await;
    let sent = send_fine(&world, 20).await;
    world.handler.set_takes([secs(70)]);
    let log = Log::capture();
    assert_eq!(one_bad_handle(&world, CHANGE, &sent).await, (2, 19));
    assert_eq!(log.lines(Level::ERROR, ""), [""; 0]);
    let lost = log.lines(Level::WARN, "lease lost");
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].contains(sent[6].as_str()), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn case_a4_one_handle_that_cannot_be_given_back_comes_back_with_its_lease() {
    let world = World::new().await;
    let mut sent = Vec::new();
    for n in 0..20 {
        let verb = if n == 6 { "flaky" } else { "fine" };
        sent.push(world.send(&format!("{verb} {n}")).await);
    }
    let log = Log::capture();
    assert_eq!(one_bad_handle(&world, CHANGE, &sent).await, (2, 19));
    assert_eq!(log.lines(Level::ERROR, ""), [""; 0]);
    assert_eq!(log.lines(Level::WARN, "visibility not changed").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn case_a6_a_failure_under_a_long_lease_is_tried_again_within_its_back_off() {
    let world = world(3_600, 3).await;
    world.handler.set_takes([Duration::from_millis(100)]);
    let id = world.send("never").await;
    let receipts = Receipts::noted(&world);
    let log = Log::capture();
    world.work().await;
    let runs = world.handler.runs();
    let counts: Vec<_> = runs.iter().map(|run| (run.attempt, run.receive_count)).collect();
    assert_eq!(counts, [(1, Some(1)), (2, Some(2)), (3, Some(3))]);
    for (n, pair) in runs.windows(2).enumerate() {
        let gap = pair[1].at - pair[0].at;
        assert!(gap <= secs((1 << n) + 2), "{n}: {gap:?}");
    }
    let delays = receipts.of(&id).into_iter().map(|receipt| {
        let all = changes(&world).remove(&receipt).into_iter().flatten();
        all.map(|(_, seconds)| seconds).collect::<Vec<_>>()
    });
    let delays: Vec<Vec<u64>> = delays.collect();
    assert!(
        matches!(&delays[..], [one, two, none]
        if matches!(one[..], [0..=1]) && matches!(two[..], [0..=2]) && none.is_empty()),
        "{delays:?}"
    );
    assert_eq!(world.record(&id).await.state, State::Quarantined);
    assert_eq!(world.record(&id).await.attempts_total, 3);
    assert_eq!(log.complaints(), [""; 0]);
    world.assert_nothing_lost(&[id]).await;
}

#[tokio::test(start_paused = true)]
async fn case_a6_slow_back_offs_never_make_two_runs_overlap() {
    let world = world(2, 10).await;
    // Some fail at once, some only after their lease.
    world.handler.set_takes([100, 100, 1_500, 100, 5_000].map(Duration::from_millis));
    let late = Rule::on(Service::Sqs, CHANGE, Act::DelayBefore(secs(2)));
    let late = world.wire.add(late);
    let mut sent = Vec::new();
    for n in 0..10 {
        sent.push(world.send(&format!("never {n}")).await);
    }
    let workers = [world.worker().await, world.worker().await];
    world.wait_for_empty_source().await;
    for worker in workers {
        assert_eq!(worker.stop().await, Ending::Drained);
    }
    assert!(world.wire.acted(late) >= 20, "{}", world.wire.acted(late));
    assert!(world.handler.runs().len() >= 30);
    assert_eq!(world.handler.overlaps(), 0);
    world.assert_nothing_lost(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a7_no_message_waits_in_hand_for_its_handler() {
    let mut world = world(3, 2).await;
    world.settings.concurrency = 1;
    world.handler.set_takes([secs(1)]);
    let sent = send_fine(&world, 30).await;
    let worker = world.worker().await;
    let most = Cell::new(0);
    world
        .wait_until("an empty source", async || {
            let depth = world.source_depth().await;
            most.set(most.get().max(depth.in_flight));
            depth == Depth::default()
        })
        .await;
    assert_eq!(worker.stop().await, Ending::Drained);
    assert!(most.get() <= 2, "one in hand, one whose delete waits for company: {}", most.get());
    for call in world.wire.calls_of(Service::Sqs, "ReceiveMessage") {
        let is_source = call.object == "orders";
        assert!(!is_source || call.json()["MaxNumberOfMessages"] == 1, "{}", call.json());
    }
    let runs = world.handler.runs();
    assert_eq!(runs.len(), 30);
    assert!(runs.iter().all(|run| run.receive_count == Some(1)), "{runs:?}");
    assert_eq!(world.dlq_depth().await, Depth::default());
    world.assert_committed_once(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_a12_a_dependency_that_is_sick_for_twenty_seconds_costs_no_message() {
    let world = world(30, 5).await;
    world.handler.set_takes([Duration::from_millis(100)]);
    world.handler.set_sick(true);
    let sent = send_fine(&world, 50).await;
    let receipts = Receipts::noted(&world);
    let worker = world.worker().await;
    pass(secs(20)).await;
    world.handler.set_sick(false);
    world.wait_for_empty_source().await;
    assert_eq!(worker.stop().await, Ending::Drained);
    world.assert_committed_once(&sent).await;
    assert!(world.records().await.is_empty());
    assert_eq!(world.dlq_depth().await, Depth::default());

    let mut runs: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    for run in world.handler.runs() {
        runs.entry(run.message_id).or_default().push(run.at);
    }
    let second: Vec<Instant> = runs.values().filter_map(|at| at.get(1).copied()).collect();
    let spread = *second.iter().max().unwrap() - *second.iter().min().unwrap();
    assert!(spread >= secs(1), "{} second runs within {spread:?}", second.len());
    // The delay is asked of SQS, at once, and within what grows.
    let (changes, mut asked) = (changes(&world), BTreeMap::<usize, Vec<u64>>::new());
    for id in &sent {
        let runs = &runs[id.as_str()];
        for (n, receipt) in receipts.of(id).iter().enumerate().take(runs.len() - 1) {
            let [(_, seconds)] = &changes[receipt][..] else { panic!("{n} {id}: {changes:?}") };
            assert!(*seconds <= 1 << n, "{seconds} s after attempt {}", n + 1);
            assert!(runs[n + 1] - runs[n] >= secs(*seconds), "{n} {id}");
            asked.entry(n).or_default().push(*seconds);
        }
    }
    let most: Vec<u64> = asked.values().map(|all| *all.iter().max().unwrap()).collect();
    assert!(most.is_sorted() && most.len() >= 2 && most[1] == 2, "{asked:?}");
}

/// A lease that lapses since SQS fails to extend it is a dependency's fault, not a crash.
#[tokio::test(start_paused = true)]
async fn case_a2_leases_that_lapse_while_nothing_is_extended_are_no_crashes() {
    let world = world(2, 20).await;
    world.handler.set_takes([secs(4)]);
    let failing = Act::Answer(Reply::sqs(500, "InternalError"));
    let failing = world.wire.add(Rule::on(Service::Sqs, CHANGE, failing));
    let sent = [world.send("a2").await];
    let worker = world.worker().await;
    world.wait_until("five runs", async || world.handler.runs().len() == 5).await;
    world.wire.remove(failing);
    world.wait_for_empty_source().await;
    assert_eq!(worker.stop().await, Ending::Drained);
    assert_eq!(world.handler.overlaps(), 0);
    assert!(world.records().await.is_empty(), "{:?}", world.records().await);
    world.assert_committed_once(&sent).await;
}
