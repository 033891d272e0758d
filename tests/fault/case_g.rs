//! Cases of class G: what a redrive keeps, how fast it goes, and that it ends.

use std::time::Duration;

use redrive::domain::id::{RecordId, Sha256Hex};
use redrive::domain::message::Outgoing;
use redrive::domain::ramp::RampPolicy;
use redrive::domain::record::State;
use redrive::domain::run::{Counts, State as RunState};
use redrive::domain::selection::Selection;
use redrive::port::queue::Queue as _;
use redrive::service::query::Parked;
use tokio_util::sync::CancellationToken;

use crate::redriving::{execute, in_memory, message, open, patient, plan_all, start};
use crate::script::pass;
use crate::wire::act::{Act, Fault, Reply};
use crate::wire::call::{Call, Service};
use crate::wire::rule::Rule;
use crate::world::{Kind, Spec, World};

const SEND: &str = "SendMessageBatch";

fn in_group(group: &str, n: usize) -> Outgoing {
    Outgoing {
        group_id: Some(group.to_owned()),
        deduplication_id: Some(format!("{group}-{n}")),
        ..message(format!("bad {group} {n}"))
    }
}

async fn fifo_world() -> World {
    World::with(Spec { kind: Kind::Fifo, ..Spec::default() }).await
}

/// Sends to the source, over the wire.
fn sends(world: &World, queue: &str) -> Vec<Call> {
    let calls = world.wire.calls_of(Service::Sqs, SEND).into_iter();
    calls.filter(|call| call.object == queue).collect()
}

#[tokio::test(start_paused = true)]
async fn case_g1_every_copy_keeps_its_group_and_each_group_its_order() {
    let groups = ["g1", "g2", "g3"];
    for fails in [false, true] {
        let world = fifo_world().await;
        let messages = (0..3).flat_map(|n| groups.map(|group| in_group(group, n)));
        world.park(messages.collect()).await;
        world.wire.clear_log();
        if fails {
            // SQS says of the first copy of a request that it failed, although it has it; twice.
            let act = Act::fail_entries([0], "InternalError", Fault::Service);
            let to_source = |call: &Call| call.object == "orders.fifo";
            world.wire.add(Rule::on(Service::Sqs, SEND, act).when(to_source).first(2));
        }
        let (report, handler) = world.redrive(patient()).await;
        let all = Counts { planned: 9, sent: 9, resolved: 9, ..Counts::NONE };
        assert_eq!((report.run.state, report.counts), (RunState::Completed, all));
        let attempts = handler.attempts();
        assert_eq!(attempts.len(), 9);
        for group in groups {
            let of = attempts.iter().filter(|a| a.group_id.as_deref() == Some(group));
            let bodies: Vec<String> = of.map(|attempt| attempt.body.clone()).collect();
            assert_eq!(bodies, [0, 1, 2].map(|n| format!("bad {group} {n}")), "fails: {fails}");
        }
        for call in sends(&world, "orders.fifo") {
            for entry in call.json()["Entries"].as_array().unwrap() {
                assert!(entry.get("DelaySeconds").is_none(), "{entry}");
                assert!(
                    entry["MessageGroupId"].is_string()
                        && entry["MessageDeduplicationId"].is_string()
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn case_g3_what_sqs_moved_to_a_fifo_dlq_is_found_by_its_own_id_or_payload() {
    let world =
        World::with(Spec { kind: Kind::Fifo, max_receive_count: 1, ..Spec::default() }).await;
    let sent = world.send_all(vec![in_group("g", 0), in_group("h", 0)]).await;
    // Nobody works on them; SQS moves them at their next receive.
    let second = Some(Duration::from_secs(1));
    for _ in 0..2 {
        world.clean.source.receive(10, Duration::ZERO, second).await.unwrap();
        pass(Duration::from_secs(2)).await;
    }
    let bare = world.dead_letters().await;
    for message in &bare {
        let seen = message.deduplication_id.as_deref();
        assert_eq!(seen, Some(message.message_id.as_str()), "not the producer's");
    }
    assert_eq!(bare.len(), 2);
    pass(Duration::from_secs(2)).await;
    let redriver = world.redriver().await;
    let swept = redriver.sweeper.pass(u64::MAX, &CancellationToken::new()).await.unwrap();
    assert_eq!(swept.adopted, 2);
    let by_id = Selection { records: vec![RecordId::from(&sent[0])], ..Selection::default() };
    let key = Some(Sha256Hex::of(b"bad h 0"));
    let by_payload = Selection { key, ..Selection::default() };
    let (worker, handler) = world.fixed_worker().await;
    for (selection, id) in [(by_id, &sent[0]), (by_payload, &sent[1])] {
        let draft = redriver.draft(&selection, Parked::default(), u64::MAX, 3).await.unwrap();
        let planned: Vec<_> = draft.plan.records().iter().map(|p| p.record_id.as_str()).collect();
        assert_eq!(planned, [id.as_str()]);
        let run = open(&redriver, &draft, patient()).await.unwrap();
        let run = execute(redriver.clone(), run).end().await.unwrap();
        assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 1));
    }
    worker.stop().await;
    assert_eq!(handler.bodies(), ["bad g 0", "bad h 0"]);
    world.assert_committed_once(&sent).await;
}

#[tokio::test(start_paused = true)]
async fn case_g4_an_empty_receive_is_not_the_end_of_the_dlq() {
    let world = World::with(Spec { max_receive_count: 1, ..Spec::default() }).await;
    let sent = world.send_all((0..50).map(|n| message(format!("bad {n}"))).collect()).await;
    let second = Some(Duration::from_secs(1));
    for _ in 0..2 {
        for _ in 0..10 {
            world.clean.source.receive(10, Duration::ZERO, second).await.unwrap();
        }
        pass(Duration::from_secs(2)).await;
    }
    assert_eq!(world.dlq_depth().await.visible, 50, "all bare");
    let in_dlq = |call: &Call| call.object == "orders-dlq";
    let none = Reply::new(200, "application/x-amz-json-1.0", "{}");
    let empty = world
        .wire
        .add(Rule::on(Service::Sqs, "ReceiveMessage", Act::Answer(none)).when(in_dlq).every_nth(3));
    let redriver = world.redriver().await;
    let swept = redriver.sweeper.pass(u64::MAX, &CancellationToken::new()).await.unwrap();
    assert_eq!((swept.adopted, swept.errors.len()), (50, 0));
    assert!(world.wire.acted(empty) > 1);
    let (report, handler) = world.redrive(patient()).await;
    assert_eq!((report.run.state, report.counts.resolved), (RunState::Completed, 50));
    assert_eq!(handler.attempts().len(), 50);
    world.assert_committed_once(&sent).await;
    assert_eq!(world.dlq_depth().await, Default::default());
}

/// How many entries were sent to the source in each second that begins with a send, at most.
fn busiest(calls: &[Call]) -> usize {
    let within = |from: Duration| {
        let second = from..from + Duration::from_secs(1);
        calls.iter().filter(|c| second.contains(&c.at)).map(|c| c.entries).sum::<usize>()
    };
    calls.iter().map(|call| within(call.at)).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn case_g7_the_rate_is_kept_in_every_second_and_steps_as_told() {
    let world = World::new().await;
    let ledger = world.park_in_memory(600).await;
    let policy = RampPolicy {
        start_rate: 2.0,
        growth: 2.0,
        step: Duration::from_secs(5),
        max_rate: 20.0,
        ..patient()
    };
    world.wire.clear_log();
    let redriver = world.redriver_with(in_memory(&ledger)).await;
    let worker = world.clean_worker(&ledger).await;
    let executing = start(&redriver, policy).await;
    world.wait_until("the end", async || executing.is_over()).await;
    let rates = executing.rates();
    let run = executing.end().await.unwrap();
    worker.stop().await;
    assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 600));
    let mut steps = rates;
    steps.dedup();
    assert_eq!(steps, [2.0, 4.0, 8.0, 16.0, 20.0]);
    let sends = sends(&world, "orders");
    assert!(busiest(&sends) <= 23, "{} in a second", busiest(&sends));
    // At the start rate: no burst of ten.
    let begin = sends[0].at;
    let first: Vec<Call> =
        sends.into_iter().filter(|c| c.at < begin + Duration::from_secs(5)).collect();
    assert!(busiest(&first) <= 3, "{} in a second at 2/s", busiest(&first));
}

#[tokio::test(start_paused = true)]
async fn case_g8_a_run_of_all_ends_and_its_failures_are_given_up_after_three() {
    let world = World::new().await;
    let body = |n| if n < 5 { format!("bad hard {n}") } else { format!("bad {n}") };
    let ids = world.park((0..20).map(|n| message(body(n))).collect()).await;
    let (report, _) = world.redrive(patient()).await;
    let counts = Counts { planned: 20, sent: 20, resolved: 15, failed_again: 5, ..Counts::NONE };
    assert_eq!((report.run.state, report.counts), (RunState::Completed, counts));
    assert!(!report.is_well(), "the command says so by its exit code");
    let again = report.troubles.iter().filter(|trouble| trouble.kind == "failed_again");
    assert_eq!(again.count(), 5);
    let hard = |records: &std::collections::BTreeMap<RecordId, _>| -> Vec<(State, u32)> {
        let of = |id: &RecordId| {
            let record: &redrive::domain::record::Record = &records[id];
            (record.state, record.redrive_count)
        };
        ids[..5].iter().map(of).collect()
    };
    assert_eq!(hard(&world.records().await), [(State::Quarantined, 1); 5]);
    for _ in 0..2 {
        assert_eq!(world.redrive(patient()).await.0.counts.failed_again, 5);
    }
    let (report, handler) = world.redrive(patient()).await;
    assert_eq!(report.counts, Counts { planned: 5, discarded: 5, ..Counts::NONE });
    assert!(handler.attempts().is_empty());
    assert_eq!(hard(&world.records().await), [(State::Discarded, 3); 5]);
    let redriver = world.redriver().await;
    assert!(plan_all(&redriver).await.plan.records().is_empty(), "nothing is left to go round");
}

#[tokio::test(start_paused = true)]
async fn case_g9_a_copy_has_the_whole_budget_of_attempts_again() {
    let world = World::with(Spec { max_receive_count: 3, ..Spec::default() }).await;
    let sent = world.send_all(vec![message("never soft")]).await;
    world.work().await;
    let record = world.record(&sent[0]).await;
    assert_eq!((record.attempts_total, record.state), (3, State::Quarantined));
    let (report, handler) = world.redrive(patient()).await;
    assert_eq!((report.counts.resolved, handler.attempts().len()), (1, 2), "at the second try");
    assert_eq!(world.dlq_depth().await, Default::default());
    world.assert_committed_once(&sent).await;
}
