//! G5 and the pace, measured at the source: what is in doubt at each send, and how many sends a second.

use std::time::Duration;

use redrive::domain::id::RecordId;
use redrive::domain::ramp::RampPolicy;
use redrive::domain::run::State;
use redrive::domain::time::Mono;
use redrive::port::queue::Depth;
use redrive::service::consumer::Ending;
use redrive::sim::fault::Faults;

use crate::executor::{patient, policy};
use crate::spy::Batch;
use crate::world::World;

/// At each send no more is in doubt than max(canary, what is proven). Returns the most that was.
pub(crate) fn assert_doubt(batches: &[Batch], canary: usize) -> usize {
    for Batch { at, in_doubt, proven, .. } in batches {
        assert!(*in_doubt <= canary.max(*proven), "{in_doubt} in doubt, {proven} proven at {at:?}");
    }
    batches.iter().map(|batch| batch.in_doubt).max().unwrap_or(0)
}

/// No window of one second holds more sends than `rate` × 1.1 + 1, the rate being that of its end.
pub(crate) fn assert_pace(batches: &[Batch], rate: impl Fn(Mono) -> f64) {
    for (i, first) in batches.iter().enumerate() {
        let end = first.at.plus(Duration::from_secs(1));
        let sends: usize =
            batches[i..].iter().take_while(|b| b.at < end).map(|b| b.copies.len()).sum();
        let most = rate(end) * 1.1 + 1.0 + 1e-6;
        assert!((sends as f64) <= most, "{sends} sends from {:?}, {most} allowed", first.at);
    }
}

/// A world with many parked records and a worker that takes them all at once.
async fn wide_world(records: usize, takes: Duration) -> World {
    let mut world = World::new();
    world.settings.concurrency = 1_000;
    world.park_many(records).await;
    world.handler.set_fixed(true);
    world.handler.set_takes(takes);
    world
}

#[tokio::test(start_paused = true)]
async fn at_no_send_more_is_in_doubt_than_the_canary_or_what_is_proven() {
    for (nth, least) in [(usize::MAX, 80), (12, 10)] {
        let world = wide_world(250, Duration::from_secs(20)).await;
        let draft = world.plan_all(&world.redriver(&Faults::new(), "reader")).await.unwrap();
        let hard = draft.plan.records().iter().skip(nth - 1).step_by(nth);
        world.handler.set_hard(hard.map(|planned| planned.record_id.clone()));
        let fast = RampPolicy { start_rate: 50.0, ..policy() };
        let report = world.redrive(fast).await;
        assert_eq!(report.run.state, State::Completed, "{:?}", report.counts);
        let most = assert_doubt(&world.spy.batches(), 5);
        assert!(most >= least, "the window never grew: {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn max_in_doubt_bounds_what_was_proven_too() {
    let world = wide_world(100, Duration::from_secs(20)).await;
    let report = world.redrive(RampPolicy { max_in_doubt: 8, ..patient() }).await;
    assert_eq!(report.counts.resolved, 100);
    assert_eq!(world.spy.batches().iter().map(|b| b.in_doubt).max(), Some(8));
}

#[tokio::test(start_paused = true)]
async fn no_second_holds_more_sends_than_its_rate_allows() {
    for rate in [0.5, 1.0, 7.5, 50.0] {
        let world = wide_world(120, Duration::ZERO).await;
        let steady = RampPolicy { start_rate: rate, max_rate: rate, ..policy() };
        let began = redrive::port::clock::Clock::mono(world.clock.as_ref());
        assert_eq!(world.redrive(steady).await.counts.resolved, 120);
        let batches = world.spy.batches();
        assert_pace(&batches, |_| rate);
        let took = batches.last().unwrap().at.since(began).as_secs_f64();
        let slow = 120.0 / rate * 1.5 + 10.0;
        assert!(took < slow, "the rate {rate} is not reached: {took} s");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pace_holds_while_the_rate_grows() {
    let world = wide_world(400, Duration::ZERO).await;
    let worker = world.worker(&Faults::new()).await;
    let growing = RampPolicy { step: Duration::from_secs(5), ..policy() };
    let executor = world.start(&world.redriver(&Faults::new(), "executor"), growing).await;
    world.wait_until("the end", || executor.is_over()).await;
    let progress = executor.progress();
    assert_eq!(executor.end().await.unwrap().counts.resolved, 400);
    worker.stop().await;
    assert_pace(&world.spy.batches(), |end| {
        let rates = progress.iter().take_while(|(at, _)| *at <= end);
        rates.map(|(_, p)| p.rate).fold(1.0, f64::max)
    });
    assert!(progress.last().unwrap().1.rate > 15.0, "the rate grew");
}

#[tokio::test(start_paused = true)]
async fn trap_34_a_jump_of_the_hosts_wall_clock_releases_nothing() {
    let hour = 3_600_000;
    for jumps in [[hour, 0], [-hour, 0], [hour, -hour], [-hour, hour]] {
        let mut world = World::new();
        world.settings.concurrency = 1_000;
        let ids = world.park_many(60).await;
        world.handler.set_fixed(true);
        world.handler.set_takes(Duration::from_secs(7));
        let worker = world.worker(&Faults::new()).await;
        let slow = RampPolicy { max_rate: 3.0, ..policy() };
        let executor = world.start(&world.redriver(&Faults::new(), "executor"), slow).await;
        for (jump, copies) in jumps.into_iter().zip([3, 25]) {
            world.wait_until("some sends", || world.spy.copies().len() >= copies).await;
            world.hosts.set_offset_ms(jump);
        }
        let run = executor.end().await.unwrap();
        worker.stop().await;
        assert_eq!(run.state, State::Completed, "{jumps:?}");
        assert_doubt(&world.spy.batches(), 5);
        assert_pace(&world.spy.batches(), |_| 3.0);
        assert_eq!(world.report(&run.id).await.counts.resolved, 60, "{jumps:?}");
        assert_eq!((world.commits(), world.spy.copies().len()), (60, 60));
        world.assert_none_lost(&ids).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trap_34_a_jump_on_one_of_two_workers_loses_nothing_and_commits_once() {
    let hour = 3_600_000;
    for jump in [hour, -hour] {
        let world = World::new();
        let mut ids = world.park(&["bad 1", "bad 2"]).await;
        // Work that outlives its visibility, work that is tried again, and copies, all across the jump.
        for body in ["slow 1", "slow 2", "flaky 1", "flaky 2", "never 1", "fine"] {
            ids.push(RecordId::from(&world.send(body).await));
        }
        world.handler.set_takes(Duration::from_secs(20));
        let runs = world.handler.runs().len();
        let one = world.worker_on(&world.hosts, &Faults::new()).await;
        let other = world.worker_on(&world.clock, &Faults::new()).await;
        let executor = world.start(&world.redriver(&Faults::new(), "executor"), patient()).await;
        world.wait_until("runs", || world.handler.runs().len() >= runs + 8).await;
        world.hosts.set_offset_ms(jump);
        let run = executor.end().await.unwrap();
        let is_empty = || world.depth(&world.source) == Depth::default();
        world.wait_until("an empty source", is_empty).await;
        assert_eq!((one.stop().await, other.stop().await), (Ending::Drained, Ending::Drained));
        assert_eq!(world.report(&run.id).await.counts.failed_again, 2);
        assert_eq!(world.commits(), 5, "{jump}");
        for id in ids.iter().filter(|id| !world.ledger.records().contains_key(id)) {
            let ran = world.runs_of(id);
            assert!(ran <= 2, "{id} ran {ran} times");
        }
        world.assert_none_lost(&ids).await;
    }
}
