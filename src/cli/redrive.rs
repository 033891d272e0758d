//! What the commands of a redrive share: flags, the service on this world's adapters, shapes, progress.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::Serialize;

use super::exit::{CliError, Exit};
use super::render::{self, Table};
use super::wiring;
use super::world::World;
use crate::domain::id::RunId;
use crate::domain::ramp::{Phase, Trip};
use crate::domain::run::{Counts, Run, RunError, State};
use crate::domain::time::{Mono, Wall};
use crate::port::clock::Clock;
use crate::port::evidence::Stored;
use crate::service::audit::By;
use crate::service::redrive::{Progress, RedriveError, Redriver, Report};
use crate::service::settings::Ports;
use crate::service::start::{StartError, prepare_sweep};
use crate::service::sweeper::{NoHandler, Sweeper};
use crate::system::{self, SystemClock};

/// The redriver of this world's source.
pub(super) async fn redriver(world: &World) -> Result<Redriver, CliError> {
    let ports = ports(world).await?;
    let max_message_bytes = ports.source.facts().await?.max_message_bytes;
    Ok(Redriver {
        source: Arc::clone(&ports.source),
        to: None,
        vault: Arc::clone(&ports.vault),
        ledger: Arc::clone(&ports.ledger),
        runs: Arc::clone(&ports.runs),
        clock: Arc::clone(&ports.clock),
        prefix: world.config.vault.prefix.as_str().to_owned(),
        owner: wiring::owner(),
        max_message_bytes,
        lease: world.config.redriver.lease,
        remember: world.config.identity.remember,
        sweeper: sweeper_on(world, ports).await?,
    })
}

/// The sweeper of this world's DLQ.
pub(super) async fn sweeper(world: &World) -> Result<Sweeper, CliError> {
    sweeper_on(world, ports(world).await?).await
}

async fn sweeper_on(world: &World, ports: Ports) -> Result<Sweeper, CliError> {
    let settings = wiring::sweep_settings(&world.config)?;
    let context = prepare_sweep(ports, settings).await.map_err(|error| match error {
        StartError::Port(error) => CliError::Port(error),
        misfit => CliError::Misfit(misfit.to_string()),
    })?;
    let seed = system::seed().map_err(|e| CliError::Failed(e.to_string()))?;
    tracing::debug!(seed, "the sweep takes its chances from this seed");
    Ok(Sweeper::new(context, StdRng::seed_from_u64(seed)))
}

/// The adapters of this world, without a handler.
async fn ports(world: &World) -> Result<Ports, CliError> {
    let source = world.source().await?;
    let dlq = world.needed_dlq(&source).await?;
    let ledger = Arc::new(world.ledger());
    Ok(Ports {
        source: Arc::new(source),
        dlq: Arc::new(dlq),
        vault: Arc::new(world.vault().await),
        ledger: ledger.clone(),
        runs: ledger,
        handler: Arc::new(NoHandler),
        clock: Arc::new(SystemClock::start()),
    })
}

/// Chance for the ids of one command.
pub(super) fn chance() -> Result<StdRng, CliError> {
    let seed = system::seed().map_err(|e| CliError::Failed(e.to_string()))?;
    tracing::debug!(seed, "chance");
    Ok(StdRng::seed_from_u64(seed))
}

/// Who acts, and why.
pub(super) async fn by(world: &World, note: Option<&String>) -> By {
    By { operator: world.operator().await, note: note.cloned() }
}

/// Reads a reason: one that says something.
pub(super) fn note(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say why".to_owned()),
        note => Ok(note.to_owned()),
    }
}

/// Why no other run can start: which one is open, whose it is, and since when.
pub(super) async fn is_open(redriver: &Redriver, id: RunId) -> Result<CliError, CliError> {
    let Some(run) = redriver.find(Some(&id)).await?.map(Stored::into_inner) else {
        return Ok(RedriveError::Open(id).into());
    };
    let (state, since, by) = (run.state.name(), run.started_at.to_rfc3339(), &run.operator);
    let holder = match run.held_by(redriver.clock.wall()) {
        Some(lease) => format!("{} executes it", lease.owner),
        None => "nobody executes it".to_owned(),
    };
    Ok(CliError::TryAgain(format!(
        "run {id} of this source is open: {state}, started {since} by {by}; {holder}: see `redrive \
         status`, then `redrive resume` or `redrive abort`"
    )))
}

impl From<RedriveError> for CliError {
    fn from(error: RedriveError) -> Self {
        let text = error.to_string();
        match error {
            RedriveError::Port(error) => Self::Port(error),
            RedriveError::NoRun(_) => Self::NotFound(text),
            RedriveError::Open(_)
            | RedriveError::Fenced(_)
            | RedriveError::Unheard(_)
            | RedriveError::Refused { why: RunError::Held { .. }, .. } => Self::TryAgain(text),
            RedriveError::Refused { .. }
            | RedriveError::Elsewhere { .. }
            | RedriveError::PlanHash { .. }
            | RedriveError::Unusable { .. } => Self::Failed(text),
        }
    }
}

/// The exit code that a report means.
pub(super) fn exit_of(report: &Report) -> Exit {
    if report.is_well() { Exit::Ok } else { Exit::Partial }
}

/// The run that a command is about.
pub(super) async fn find(redriver: &Redriver, id: Option<&RunId>) -> Result<Run, CliError> {
    let found = redriver.find(id).await?;
    found.map(Stored::into_inner).ok_or_else(|| {
        let queue = redriver.source.name();
        CliError::NotFound(format!("no run of {queue} yet: see `redrive start --help`"))
    })
}

/// The same, if it is open.
pub(super) async fn find_open(redriver: &Redriver, id: Option<&RunId>) -> Result<Run, CliError> {
    let run = find(redriver, id).await?;
    if run.state.is_open() {
        return Ok(run);
    }
    let (id, state) = (&run.id, run.state.name());
    Err(CliError::Failed(format!("run {id} is {state}: see `redrive report {id}`")))
}

/// Counters as every command prints them.
#[derive(Debug, Serialize)]
pub(super) struct ReportShape<'a> {
    run_id: Option<&'a str>,
    state: State,
    tripped: Option<&'static str>,
    #[serde(flatten)]
    counts: Counts,
    by_code: Vec<CodeShape<'a>>,
    errors: Vec<ErrorShape<'a>>,
    resolution_rate: Option<f64>,
    balanced: bool,
    started_at: Option<String>,
    ended_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct CodeShape<'a> {
    error_code: &'a str,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Debug, Serialize)]
struct ErrorShape<'a> {
    record_id: &'a str,
    kind: &'a str,
    code: &'a str,
    detail: &'a str,
}

/// The same with what only an open run has.
#[derive(Debug, Serialize)]
pub(super) struct StatusShape<'a> {
    #[serde(flatten)]
    report: ReportShape<'a>,
    rate: f64,
    window: u32,
    phase: &'static str,
}

impl<'a> ReportShape<'a> {
    /// A selection that found nothing.
    pub(super) const fn empty() -> Self {
        Self {
            run_id: None,
            state: State::Completed,
            tripped: None,
            counts: Counts::NONE,
            by_code: Vec::new(),
            errors: Vec::new(),
            resolution_rate: None,
            balanced: true,
            started_at: None,
            ended_at: None,
        }
    }

    pub(super) fn new(report: &'a Report) -> Self {
        let by_code = report.by_code.iter();
        let by_code = by_code.map(|(c, n)| CodeShape { error_code: c.as_str(), counts: *n });
        let errors = report.troubles.iter().map(|trouble| ErrorShape {
            record_id: trouble.record_id.as_str(),
            kind: trouble.kind,
            code: trouble.code.as_str(),
            detail: &trouble.detail,
        });
        Self {
            run_id: Some(report.run.id.as_str()),
            state: report.run.state,
            tripped: report.run.tripped.map(Trip::name),
            counts: report.counts,
            by_code: by_code.collect(),
            errors: errors.collect(),
            resolution_rate: report.resolution_rate(),
            balanced: report.is_balanced(),
            started_at: Some(report.run.started_at.to_rfc3339()),
            ended_at: report.run.ended_at.map(Wall::to_rfc3339),
        }
    }
}

impl<'a> StatusShape<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        Self {
            report: ReportShape::new(report),
            rate: report.run.rate,
            window: report.run.window,
            phase: phase(report),
        }
    }
}

/// Canary or ramp, as counters tell.
fn phase_of(run: &Run, counts: &Counts) -> Phase {
    let outcomes = counts.resolved.saturating_add(counts.failed_again);
    if outcomes < u64::from(run.policy.canary) { Phase::Canary } else { Phase::Ramp }
}

/// Where a run was when its item was written last.
pub(super) fn progress(run: &Run) -> Progress {
    let phase = phase_of(run, &run.counts);
    Progress { phase, rate: run.rate, window: run.window, counts: run.counts }
}

/// Where a run is, as its counters tell.
fn phase(report: &Report) -> &'static str {
    match report.run.state {
        State::Running => name_of(phase_of(&report.run, &report.counts)),
        state @ (State::Paused | State::Completed | State::Tripped | State::Aborted) => {
            state.name()
        }
    }
}

const fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Canary => "canary",
        Phase::Ramp => "ramp",
    }
}

/// Why a run stopped by itself.
const fn explained(why: Trip) -> &'static str {
    match why {
        Trip::FailureRatio => "too many failed again",
        Trip::NoOutcome => "no outcome came in time: does a worker run?",
        Trip::Unattended => "nobody executed it for five minutes",
    }
}

/// Prints a report as text.
pub(super) fn text(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let Report { run, counts, .. } = report;
    let why = run.tripped.map(|why| format!(": {}", explained(why))).unwrap_or_default();
    writeln!(out, "run {}  {}{why}", run.id, run.state.name())?;
    let mut table =
        Table::new(["CODE", "PLANNED", "SENT", "RESOLVED", "DUPLICATES", "FAILED AGAIN", "OTHER"]);
    let all = (String::from("all"), *counts);
    let codes = report.by_code.iter().map(|(code, counts)| (code.to_string(), *counts));
    for (code, n) in codes.chain([all]) {
        let done = n.resolved.saturating_add(n.failed_again);
        let other = n.planned.saturating_sub(done);
        let cells = [n.planned, n.sent, n.resolved, n.duplicates, n.failed_again, other];
        let [planned, sent, resolved, duplicates, failed_again, other] =
            cells.map(|count| count.to_string());
        table.row(out, [code, planned, sent, resolved, duplicates, failed_again, other])?;
    }
    table.flush(out)?;
    let Counts { not_sent, in_doubt, discarded, skipped, errored, .. } = *counts;
    writeln!(
        out,
        "other: {not_sent} not sent, {in_doubt} in doubt, {discarded} discarded, {skipped} skipped, \
         {errored} errored"
    )?;
    if counts.assumed > 0 {
        let assumed = counts.assumed;
        writeln!(out, "{assumed} of the resolved are assumed: they did not come back to the DLQ")?;
    }
    for trouble in &report.troubles {
        let (kind, code, detail) = (trouble.kind, &trouble.code, render::plain(&trouble.detail));
        writeln!(out, "{}  {kind}  {code}  {detail}", trouble.record_id)?;
    }
    match report.is_balanced() {
        true => writeln!(out, "balanced: planned is the sum of all outcomes"),
        false => writeln!(out, "NOT BALANCED: planned is not the sum of all outcomes"),
    }
}

/// Prints where a run is.
pub(super) fn print_status(json: bool, report: &Report) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    if json {
        return render::json(&mut out, &StatusShape::new(report));
    }
    text(&mut out, report)?;
    if report.run.state == State::Tripped {
        writeln!(out, "tripped: fix the cause, then `redrive resume {}`", report.run.id)?;
    }
    Ok(())
}

/// Prints a report.
pub(super) fn print(json: bool, report: &Report) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    if json {
        render::json(&mut out, &ReportShape::new(report))
    } else {
        Ok(text(&mut out, report)?)
    }
}

/// How often a line of progress is printed where there is no terminal.
const EVERY: Duration = Duration::from_secs(2);

/// Progress on stderr: one line that changes on a terminal, else a line now and then.
pub(super) struct Display {
    bar: ProgressBar,
    clock: Arc<dyn Clock>,
    printed: Option<(Mono, Progress)>,
}

impl Display {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        Self { bar, clock, printed: None }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        if io::stderr().is_terminal() {
            self.bar.set_message(line(&progress));
            self.bar.tick();
            return;
        }
        let now = self.clock.mono();
        let due = self.printed.is_none_or(|(at, last)| {
            let moved = last.phase != progress.phase || now.since(at) >= EVERY;
            moved && last != progress
        });
        if due {
            self.printed = Some((now, progress));
            // Progress is for whoever looks; nobody may.
            let _unseen = writeln!(io::stderr().lock(), "{}", line(&progress));
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Where a run is, on one line.
pub(super) fn line(progress: &Progress) -> String {
    let Counts { planned, sent, in_doubt, resolved, failed_again, .. } = progress.counts;
    let (phase, rate, window) = (name_of(progress.phase), progress.rate, progress.window);
    format!(
        "{phase:6}  {rate:.1}/s  in doubt {in_doubt}/{window}  sent {sent}/{planned}  resolved \
         {resolved}  failed again {failed_again}"
    )
}
