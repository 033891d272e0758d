//! A storm: messages come, calls fail and workers die, until all is still again.

use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;
use redrive::port::queue::Depth;

use crate::crew::{Crew, Fates};
use crate::harness::pause;
use crate::message::{Sent, message};
use crate::wire::Wire;
use crate::wire::act::{Act, Reply};
use crate::wire::call::Service;
use crate::wire::proxy::Proxy;
use crate::wire::rule::Rule;
use crate::world::{World, wait_until};

/// How long a storm is and how heavy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    messages: usize,
    /// How long they come.
    time: Duration,
    /// Between two blows, at least and at most, in milliseconds.
    calm: (u64, u64),
}

impl Form {
    pub(crate) const SHORT: Self =
        Self { messages: 300, time: Duration::from_secs(12), calm: (3_000, 5_000) };
    pub(crate) const LONG: Self =
        Self { messages: 2_000, time: Duration::from_secs(180), calm: (2_000, 8_000) };
}

/// What came, and what befell it.
pub(crate) struct Storm {
    pub(crate) sent: Vec<Sent>,
    pub(crate) faults: u64,
    pub(crate) fates: Fates,
}

/// One call of twenty goes wrong. Some never arrive, of some the answer is lost, some are carried out and
/// said to have failed, and some are throttled.
fn faults(rng: &mut StdRng) -> Vec<Rule> {
    let failed = |reply| Act::ReplaceAnswer(reply);
    let throttled = |reply| Act::Answer(reply);
    let throughput = "ProvisionedThroughputExceededException";
    let rules = [
        Rule::all(Act::ResetBefore),
        Rule::all(Act::LoseAnswer),
        Rule::of(Service::Sqs, failed(Reply::sqs(500, "InternalError"))),
        Rule::of(Service::Sqs, throttled(Reply::sqs(403, "RequestThrottled"))),
        Rule::of(Service::DynamoDb, failed(Reply::dynamodb(500, "InternalServerError"))),
        Rule::of(Service::DynamoDb, throttled(Reply::dynamodb(400, throughput))),
        Rule::of(Service::S3, failed(Reply::s3(500, "InternalError"))),
        Rule::of(Service::S3, throttled(Reply::s3(503, "SlowDown"))),
    ];
    rules.map(|rule| rule.chance(0.0125, rng.random())).into()
}

/// Lets a storm pass: at its end nothing is left in the source, and no worker is left.
pub(crate) fn storm(world: &World, form: Form, rng: &mut StdRng) -> Storm {
    let wire = Wire::new();
    let rules: Vec<_> = faults(rng).into_iter().map(|rule| wire.add(rule)).collect();
    let proxy = Proxy::start(&wire, world.endpoint());
    let mut crew = Crew::new(world, &proxy);
    let mut sent: Vec<Sent> = Vec::new();
    let started = Instant::now();
    let mut calm = || Duration::from_millis(rng.random_range(form.calm.0..=form.calm.1));
    let mut blows = Vec::new();
    let mut at = calm();
    while at < form.time {
        blows.push(at);
        at += calm();
    }
    let mut blows = blows.into_iter().peekable();
    let is_due = |n: usize| {
        let at = form.time.mul_f64(n as f64 / form.messages as f64);
        at <= started.elapsed()
    };
    while sent.len() < form.messages || blows.peek().is_some() {
        let next: Vec<_> =
            (sent.len()..form.messages).take_while(|n| is_due(*n)).map(message).collect();
        sent.extend(world.send(&next));
        if blows.next_if(|at| *at <= started.elapsed()).is_some() {
            crew.strike(rng);
        }
        crew.tend();
        wire.clear_log();
        pause();
    }
    let faults = rules.iter().map(|rule| wire.acted(*rule)).sum();
    rules.into_iter().for_each(|rule| wire.remove(rule));
    wait_until("an empty source", || {
        crew.tend();
        world.source_depth() == Depth::default()
    });
    Storm { sent, faults, fates: crew.dismiss() }
}
