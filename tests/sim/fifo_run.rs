//! Runs of a FIFO source: plans in the order of groups, and copies that never overtake one another.

use redrive::domain::id::RecordId;
use redrive::domain::message::Outgoing;
use redrive::domain::run::State as RunState;
use redrive::domain::selection::Selection;
use redrive::port::queue::Queue as _;
use redrive::service::query::Parked;
use redrive::service::redrive::Draft;
use redrive::sim::fault::{Fault, Faults};

use crate::executor::patient;
use crate::world::World;

async fn send(world: &World, group: &str, body: &str) -> RecordId {
    let message = Outgoing {
        body: format!("{body} {group}"),
        group_id: Some(group.to_owned()),
        deduplication_id: Some(format!("{group}-{}", body.replace(' ', "-"))),
        ..Outgoing::default()
    };
    RecordId::from(&world.send_message(message).await)
}

/// Three of each group, sent by turns and parked.
async fn parked(groups: &[&str]) -> (World, Vec<Vec<RecordId>>) {
    let world = World::fifo();
    let mut ids = vec![Vec::new(); groups.len()];
    for n in 0..3 {
        for (group, ids) in groups.iter().zip(&mut ids) {
            ids.push(send(&world, group, &format!("bad {n}")).await);
        }
    }
    world.work(&Faults::new()).await;
    (world, ids)
}

fn planned(draft: &Draft) -> Vec<RecordId> {
    draft.plan.records().iter().map(|planned| planned.record_id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_ordered_within_its_groups_also_under_a_limit() {
    let (world, ids) = parked(&["g", "h"]).await;
    // The first of `g` is parked anew, and so is the last of its group by that.
    world.redrive_of(&ids[0][0], patient()).await;
    let redriver = world.redriver(&Faults::new(), "planner");
    let draft = world.plan_all(&redriver).await.unwrap();
    let of = |group: &Vec<RecordId>| -> Vec<usize> {
        let plan = planned(&draft);
        group.iter().map(|id| plan.iter().position(|planned| planned == id).unwrap()).collect()
    };
    let mut places: Vec<Vec<usize>> = ids.iter().map(of).collect();
    places.sort();
    assert_eq!(places, [[0, 1, 2], [3, 4, 5]], "group by group, each in order");
    assert_eq!(draft.groups, Some(2));
    let all = Selection::default();
    let first = redriver.draft(&all, Parked::default(), 2, 3).await.unwrap();
    assert_eq!(planned(&first), planned(&draft)[..2]);
    assert_eq!((first.groups, first.by_code.values().sum::<u64>()), (Some(1), 2));
}

#[tokio::test(start_paused = true)]
async fn case_g1_groups_come_back_in_order_whatever_send_is_lost() {
    for lost in 1..=4 {
        let (world, ids) = parked(&["g", "h", "i"]).await;
        world.handler.set_fixed(true);
        let runs = world.handler.runs().len();
        let faults = Faults::new();
        faults.at_call_of("queue.send", lost, Fault::FailBefore);
        let redriver = world.redriver(&faults, "executor");
        let worker = world.worker(&Faults::new()).await;
        let run = world.start(&redriver, patient()).await.end().await.unwrap();
        worker.stop().await;
        assert_eq!((run.state, run.counts.resolved), (RunState::Completed, 9));
        let ran = world.handler.runs().split_off(runs);
        for group in &ids {
            let of_group = ran.iter().map(|run| run.record_id.clone());
            let expected: Vec<String> = group.iter().map(ToString::to_string).collect();
            let of_group: Vec<String> = of_group.filter(|id| expected.contains(id)).collect();
            assert_eq!(of_group, expected, "lost: {lost}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_holds_two_copies_of_a_group_and_a_refused_one_stops_none() {
    let (world, ids) = parked(&["g", "h"]).await;
    world.handler.set_fixed(true);
    world.spy.refuse(&ids[0][0], 1);
    let report = world.redrive(patient()).await;
    assert_eq!((report.counts.resolved, report.counts.errored), (5, 1));
    for batch in world.spy.batches() {
        let group = |id: &RecordId| ids.iter().position(|group| group.contains(id)).unwrap();
        let mut groups: Vec<usize> = batch.copies.iter().map(|copy| group(&copy.record)).collect();
        let copies = groups.len();
        groups.dedup();
        assert_eq!(groups.len(), copies);
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_gone_fails_its_own_records_and_the_run_ends() {
    let world = World::new();
    let ids = world.park_many(12).await;
    let redriver = world.redriver(&Faults::new(), "executor");
    let run = world.open(&redriver, patient()).await.unwrap();
    world.engine.with(|e, _| e.delete_queue(world.source.name())).unwrap();
    let run = crate::executor::execute(redriver.clone(), run).end().await.unwrap();
    assert_eq!((run.state, run.counts.errored), (RunState::Completed, 12));
    let report = redriver.report(&run).await.unwrap();
    assert!(report.troubles.iter().all(|trouble| trouble.kind == "refused"));
    assert!(ids.iter().all(|id| world.ledger.records()[id].redrive_count == 0));
}
