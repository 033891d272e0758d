//! Endurance: workers of the built binary die at random behind a wire with faults, and at the end nothing is
//! lost and nothing is committed twice.
//!
//! The short form is an ordinary test; `tests/chaos --long` runs the long one. Messages, faults and blows come
//! from one seed, which is printed, and taken from `REDRIVE_CHAOS_SEED` when that is set. How the processes
//! interleave is the machine's, so a seed repeats the storm and not every step in it.
//!
//! What may happen to a message that can succeed: it is parked as `WORKER_CRASHED` after three workers died
//! with it in hand, and nothing else. What may happen to an effect: a worker dies between it and its commit,
//! and it is made again under the same idempotency key.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::indexing_slicing, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "what a storm did is told")]
#![expect(clippy::disallowed_methods, reason = "processes are waited for in real time")]

#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;
#[path = "../harness/wire/mod.rs"]
#[expect(dead_code, reason = "each test binary uses its part of the wire")]
mod wire;

mod crew;
mod message;
mod proof;
mod storm;
mod world;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use self::proof::Proof;
use self::storm::{Form, Storm, storm};
use self::world::World;

/// The seed of this run.
fn seed() -> u64 {
    let given = std::env::var("REDRIVE_CHAOS_SEED").ok();
    given.map_or_else(|| redrive::system::seed().unwrap(), |seed| seed.parse().unwrap())
}

#[test]
fn nothing_is_lost_or_committed_twice_while_workers_die_and_their_wire_fails() {
    let form = match std::env::var_os("REDRIVE_CHAOS_LONG") {
        Some(_) => Form::LONG,
        None => Form::SHORT,
    };
    let seed = seed();
    println!("REDRIVE_CHAOS_SEED={seed}");
    let world = World::new();
    let Storm { sent, faults, fates } = storm(&world, form, &mut StdRng::seed_from_u64(seed));
    println!("{} messages, {faults} faults on the wire, {fates}", sent.len());
    let proof = Proof::gather(&world);
    println!("{proof}");
    proof.check(&sent, &fates);
}
