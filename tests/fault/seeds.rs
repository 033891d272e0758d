//! Fixes that help most records and fixes that help too few, on the embedded AWS: the bounds of every run.

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use redrive::domain::message::Outgoing;
use redrive::domain::ramp::RampPolicy;
use redrive::domain::run::State as RunState;

use crate::redriving::patient;
use crate::wire::call::Service;
use crate::world::World;

/// One run over fifty records of which so many are not helped by the fix, chosen by the seed.
async fn run_with(hard: usize, seed: u64) {
    let world = World::new().await;
    let places: Vec<usize> = (0..50).collect();
    let mut rng = StdRng::seed_from_u64(seed);
    let hard: Vec<usize> = places.sample(&mut rng, hard).copied().collect();
    let body =
        |n: usize| if hard.contains(&n) { format!("bad hard {n}") } else { format!("bad {n}") };
    let messages = places.iter().map(|n| Outgoing { body: body(*n), ..Outgoing::default() });
    world.park(messages.collect()).await;
    world.wire.clear_log();
    let policy = RampPolicy { max_failure_ratio: 0.2, ..patient() };
    let (report, _) = world.redrive(policy).await;
    let counts = report.counts;
    assert!(report.is_balanced(), "{seed}: {counts:?}");
    let sent = world.wire.calls_of(Service::Sqs, "SendMessageBatch");
    let copies: usize = sent.iter().filter(|c| c.object == "orders").map(|c| c.entries).sum();
    assert_eq!(copies as u64, counts.sent, "{seed}");
    if hard.len() > 10 {
        assert_eq!(report.run.state, RunState::Tripped, "{seed}: {counts:?}");
        assert!(counts.failed_again >= 2 && counts.not_sent > 0, "{seed}: {counts:?}");
        // What was proven bounds what was risked.
        assert!(counts.failed_again <= 5 + counts.resolved, "{seed}: {counts:?}");
    } else {
        assert_eq!(report.run.state, RunState::Completed, "{seed}: {counts:?}");
        assert_eq!(counts.failed_again, hard.len() as u64, "{seed}");
        assert_eq!(counts.resolved, 50 - hard.len() as u64, "{seed}");
        assert_eq!(report.troubles.len(), hard.len(), "each is named");
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_seeds_of_a_bad_fix_trip_within_their_bounds() {
    for seed in 0..20 {
        run_with(15, seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_seeds_of_a_good_fix_complete_and_name_their_failures() {
    for seed in 0..20 {
        run_with(1, seed).await;
    }
}
