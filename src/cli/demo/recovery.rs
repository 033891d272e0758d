//! The second half: a redrive that comes too soon stops by itself; after the fix everything is resolved.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::failure::ByCode;
use super::handler::{Book, RoyaltyHandler, Version};
use super::line::Flaw;
use super::place::{Deployment, MAX_REDRIVES, Place, RAMP, depth};
use super::step::Step;
use super::teller::Teller;
use super::watch::Watch;
use crate::cli::exit::CliError;
use crate::cli::redrive as runs;
use crate::cli::render::Table;
use crate::domain::dispatch::Dispatch;
use crate::domain::failure::ErrorCode;
use crate::domain::plan::estimate;
use crate::domain::ramp::Trip;
use crate::domain::run::{Counts, Run, State};
use crate::domain::selection::Selection;
use crate::port::evidence::Stored;
use crate::service::consumer::Ending;
use crate::service::query::Parked;
use crate::service::redrive::{Draft, Opening, Redriver, Report};
use crate::service::sweeper::SweepError;

/// What is redriven before the fix is there.
const IMPATIENT: Flaw = Flaw::SplitSumInvalid;

async fn draft(redriver: &Redriver, selection: &Selection) -> Result<Draft, CliError> {
    Ok(redriver.draft(selection, Parked::default(), u64::MAX, MAX_REDRIVES).await?)
}

/// Opens a run of a plan that was agreed to.
async fn open(
    place: &mut Place,
    redriver: &Redriver,
    draft: &Draft,
    note: &str,
) -> Result<Stored<Run>, CliError> {
    let opening = Opening {
        note: Some(note.to_owned()),
        operator: "demo".to_owned(),
        policy: RAMP,
        dispatch: Dispatch::default(),
        max_redrives: MAX_REDRIVES,
        plan_hash: Some(draft.plan.hash()),
    };
    Ok(redriver.open(draft, opening, &mut place.rng).await?)
}

/// Executes a run with its progress, prints its report and notes its figures.
async fn execute(
    teller: &mut Teller,
    step: &mut Step,
    redriver: &Redriver,
    run: Stored<Run>,
) -> Result<Report, CliError> {
    let mut watch = Watch::new(&mut teller.out, redriver.clock.as_ref());
    let mut look = |progress| watch.look(progress);
    let run = redriver.execute(run, &CancellationToken::new(), &mut look).await?;
    let watched = watch.close()?;
    let report = redriver.report(&run).await?;
    teller.say("")?;
    runs::text(&mut teller.out, &report)?;
    step.note("run_id", run.id.as_str());
    step.note("counts", json!(report.counts));
    step.note("most_in_doubt", watched.most_in_doubt);
    step.check("over_window", watched.over_window, 0);
    step.check("balanced", report.is_balanced(), true);
    Ok(report)
}

/// Redrives one code while version 1 still runs: only the canary is spent.
pub(super) async fn redrive_too_soon(
    teller: &mut Teller,
    place: &mut Place,
    parked: &ByCode,
) -> Result<Run, CliError> {
    let code = IMPATIENT.code();
    let mut step = teller.begin(
        "redrive_too_soon",
        "Somebody redrives before the fix is deployed",
        "First a canary of 5 goes out, and nothing more before all 5 have come to something. They fail\n\
         again, so the run trips: the others are not sent. With a queue of your own: redrive start --code CODE --execute.",
    )?;
    let redriver = place.redriver().await?;
    let codes = vec![ErrorCode::from(code)];
    let draft = draft(&redriver, &Selection { codes, ..Selection::default() }).await?;
    let run = open(place, &redriver, &draft, "is it fixed?").await?;
    let report = execute(teller, &mut step, &redriver, run).await?;
    let canary = u64::from(RAMP.canary);
    let planned = parked.get(code).copied().unwrap_or(0);
    let why = report.run.tripped.map(Trip::name);
    teller.say(&format!(
        "tripped ({}): {} of {} sent, {} left alone",
        why.unwrap_or("no reason"),
        report.counts.sent,
        report.counts.planned,
        report.counts.not_sent
    ))?;
    step.check("state", report.run.state.name(), State::Tripped.name());
    step.check("tripped", json!(why), Trip::FailureRatio.name());
    step.check("planned", report.counts.planned, planned);
    step.check("sent", report.counts.sent, canary);
    step.check("failed_again", report.counts.failed_again, canary);
    step.check("not_sent", report.counts.not_sent, planned.saturating_sub(canary));
    teller.end(step)?;
    Ok(report.run)
}

/// Puts version 2 in the place of version 1.
pub(super) async fn fix(
    teller: &mut Teller,
    place: &mut Place,
    worker: Deployment,
    book: &Arc<Book>,
) -> Result<Deployment, CliError> {
    let mut step = teller.begin(
        "fix",
        "The fix: version 2 of the handler is deployed",
        "It finds a shortened ISRC in the catalogue, scales shares to 100 %, knows XK (Kosovo) and reads\n\
         1.234,56. The old worker finishes what it has in hand before it goes.",
    )?;
    let ending = worker.retire().await?;
    let handler = Arc::new(RoyaltyHandler::new(Version::Two, Arc::clone(book)));
    let worker = place.deploy(handler).await?;
    teller.say("version 1 drained and stopped, version 2 runs")?;
    step.check("drained", ending == Ending::Drained, true);
    teller.end(step)?;
    Ok(worker)
}

/// Goes on with the run that tripped.
pub(super) async fn resume(
    teller: &mut Teller,
    place: &Place,
    tripped: Run,
) -> Result<Counts, CliError> {
    let mut step = teller.begin(
        "resume",
        "The run that tripped goes on",
        "With a canary again. What failed again in this run stays parked; a later run takes it.\n\
         With a queue of your own: redrive resume.",
    )?;
    let redriver = place.redriver().await?;
    let run = redriver.claim(&tripped).await?;
    let report = execute(teller, &mut step, &redriver, run).await?;
    let before = tripped.counts;
    step.check("state", report.run.state.name(), State::Completed.name());
    step.check("resolved", report.counts.resolved, before.not_sent);
    step.check("failed_again", report.counts.failed_again, before.failed_again);
    step.check("in_doubt", report.counts.in_doubt, 0);
    teller.end(step)?;
    Ok(report.counts)
}

/// Says what a run of all that is parked would do.
pub(super) async fn plan(
    teller: &mut Teller,
    place: &Place,
    parked: &ByCode,
    resumed: &Counts,
) -> Result<Draft, CliError> {
    let mut step = teller.begin(
        "plan",
        "The plan for all the others",
        "A plan writes nothing. Its hash lets somebody agree to exactly these records.\n\
         With a queue of your own: redrive plan --all.",
    )?;
    let draft = draft(&place.redriver().await?, &Selection::default()).await?;
    let mut by_code = ByCode::new();
    let mut table = Table::new(["CODE", "RECORDS"]);
    for (code, count) in &draft.by_code {
        by_code.insert(code.to_string(), *count);
        table.row(&mut teller.out, [code.to_string(), count.to_string()])?;
    }
    table.flush(&mut teller.out)?;
    let (planned, hash) = (draft.plan.records().len(), draft.plan.hash());
    let seconds = estimate(planned, &RAMP).as_secs();
    teller.say(&format!("\n{planned} records, at least {seconds} s under the ramp"))?;
    teller.say(&format!("plan hash {hash}"))?;
    let mut expected = parked.clone();
    if let Some(count) = expected.get_mut(IMPATIENT.code()) {
        *count = count.saturating_sub(resumed.resolved);
    }
    step.note("plan_hash", hash.as_str());
    step.note("estimated_seconds", seconds);
    step.check("planned", planned, expected.values().sum::<u64>());
    step.check("by_code", json!(by_code), json!(expected));
    step.check("at_cap", draft.at_cap, 0);
    teller.end(step)?;
    Ok(draft)
}

/// Executes the plan.
pub(super) async fn redrive(
    teller: &mut Teller,
    place: &mut Place,
    planned: &Draft,
) -> Result<(), CliError> {
    let mut step = teller.begin(
        "redrive",
        "The redrive",
        "A canary, then more and faster: never more in doubt than was proven good in this run, while the\n\
         rate doubles each second. Each copy is claimed, run and committed like any message.",
    )?;
    let redriver = place.redriver().await?;
    let run = open(place, &redriver, planned, "repaired in version 2").await?;
    let report = execute(teller, &mut step, &redriver, run).await?;
    let count = planned.plan.records().len();
    step.check("state", report.run.state.name(), State::Completed.name());
    step.check("sent", report.counts.sent, count);
    step.check("resolved", report.counts.resolved, count);
    step.check("failed_again", report.counts.failed_again, 0);
    teller.end(step)
}

/// Does it again: nothing is left to plan, and the old plan sends nothing.
pub(super) async fn redrive_again(
    teller: &mut Teller,
    place: &mut Place,
    old: &Draft,
) -> Result<(), CliError> {
    let mut step = teller.begin(
        "redrive_again",
        "The same once more",
        "Safe to run twice: a run takes only records that are still parked, and these are resolved.",
    )?;
    let redriver = place.redriver().await?;
    let fresh = draft(&redriver, &Selection::default()).await?.plan.records().len();
    teller.say(&format!("a new plan has {fresh} records: nothing is parked any more"))?;
    teller.say(&format!("the old plan still names {}:", old.plan.records().len()))?;
    let run = open(place, &redriver, old, "by mistake, again").await?;
    let report = execute(teller, &mut step, &redriver, run).await?;
    let (sent, resolved) = (report.counts.sent, report.counts.resolved);
    teller.say(&format!("{sent} sent: all {resolved} had been resolved before"))?;
    step.check("newly_planned", fresh, 0);
    step.check("state", report.run.state.name(), State::Completed.name());
    step.check("sent", sent, 0);
    step.check("resolved", resolved, old.plan.records().len());
    teller.end(step)
}

/// Looks through the DLQ a last time.
pub(super) async fn sweep(teller: &mut Teller, place: &Place) -> Result<(), CliError> {
    let mut step = teller.begin(
        "sweep",
        "The DLQ is swept",
        "A DLQ message whose record has moved on is taken out, so that an alarm on the DLQ's depth tells the\n\
         truth. Runs sweep too; this is the last look. With a queue of your own: redrive sweep.",
    )?;
    let swept = place.sweeper().await?.pass(u64::MAX, &CancellationToken::new()).await;
    let swept = swept.map_err(|error| match error {
        SweepError::Port(error) => CliError::Port(error),
        held @ SweepError::Held { .. } => CliError::TryAgain(held.to_string()),
    })?;
    let left = depth(place.dlq.as_ref()).await?;
    let (received, removed) = (swept.received, swept.removed);
    teller.say(&format!("{received} found, {removed} removed; DLQ depth: {left}"))?;
    step.note("received", received);
    step.note("removed", removed);
    step.check("kept", swept.kept, 0);
    step.check("errors", swept.errors.len(), 0);
    step.check("dlq_depth", left, 0);
    teller.end(step)
}

/// Stops the last worker.
pub(super) async fn retire(worker: Deployment) -> Result<(), CliError> {
    match worker.retire().await? {
        Ending::Drained => Ok(()),
        Ending::GraceRanOut => Err(CliError::Failed("the worker did not drain".to_owned())),
    }
}
