//! `start`: opens a run and executes it in the foreground.

use std::io::{self, Write as _};

use tokio_util::sync::CancellationToken;

use super::plan;
use crate::cli::confirm::confirmed;
use crate::cli::exit::{CliError, Exit};
use crate::cli::ramp::RampFlags;
use crate::cli::redrive::{self, Display, ReportShape};
use crate::cli::render;
use crate::cli::select::Select;
use crate::cli::world::World;
use crate::domain::id::Sha256Hex;
use crate::domain::run::Run;
use crate::port::evidence::Stored;
use crate::service::redrive::{Opening, RedriveError, Redriver};

/// Arguments of `start`.
#[derive(Debug, clap::Args)]
pub struct Start {
    #[command(flatten)]
    select: Select,
    #[command(flatten)]
    ramp: RampFlags,
    /// Do it. Without this, what would be done is printed, and on a terminal the queue's name is asked for.
    #[arg(long)]
    execute: bool,
    /// Refuse if the plan has another hash: the one that `plan` printed.
    #[arg(long, value_name = "SHA256", value_parser = hash)]
    plan_hash: Option<Sha256Hex>,
    /// Leave the run to a worker with redriver.enabled instead of executing it here.
    #[arg(long)]
    detach: bool,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

fn hash(text: &str) -> Result<Sha256Hex, String> {
    Sha256Hex::new(text).map_err(|e| e.to_string())
}

impl Start {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        self.select.needed()?;
        let policy = self.ramp.policy(&world.config.redriver)?;
        let redriver = self.ramp.redriver(world).await?;
        if let Some(open) = redriver.runs.open_run().await? {
            return Err(redrive::is_open(&redriver, open).await?);
        }
        let draft = plan::draft(world, &redriver, &self.select).await?;
        if draft.plan.records().is_empty() {
            return nothing_to_do(json);
        }
        if self.execute
            && let Some(warning) = plan::overtaken(&draft)
        {
            writeln!(io::stderr().lock(), "{warning}")?;
        }
        if !self.execute {
            // With --json, stdout holds one value: the plan.
            plan::print(json, &redriver, &draft, &policy).await?;
            if !confirmed(redriver.source.name().as_str(), "send these").await? {
                let mut err = io::stderr().lock();
                writeln!(err, "nothing was sent: add --execute to do it")?;
                return Ok(Exit::Ok);
            }
        }
        let opening = Opening {
            note: self.note.clone(),
            operator: world.operator().await,
            policy,
            dispatch: self.ramp.dispatch(&world.config.redriver),
            max_redrives: world.config.limits.max_redrives,
            plan_hash: self.plan_hash.clone(),
        };
        let run = match redriver.open(&draft, opening, &mut redrive::chance()?).await {
            Ok(run) => run,
            Err(RedriveError::Open(open)) => return Err(redrive::is_open(&redriver, open).await?),
            Err(error) => return Err(error.into()),
        };
        tracing::info!(run_id = %run.get().id, "run started");
        if self.detach {
            return detach(&redriver, run, json).await;
        }
        execute(&redriver, run, json).await
    }
}

/// Leaves a run to whichever worker executes runs, and says what it is.
pub(super) async fn detach(
    redriver: &Redriver,
    run: Stored<Run>,
    json: bool,
) -> Result<Exit, CliError> {
    let run = redriver.leave(run).await?;
    redrive::print(json, &redriver.report(&run).await?)?;
    writeln!(io::stderr().lock(), "left to a worker with redriver.enabled: see `redrive watch`")?;
    Ok(Exit::Ok)
}

fn nothing_to_do(json: bool) -> Result<Exit, CliError> {
    let mut out = io::stdout().lock();
    if json {
        render::json(&mut out, &ReportShape::empty())?;
    } else {
        writeln!(out, "nothing to do: no quarantined record is selected")?;
    }
    Ok(Exit::Ok)
}

/// Executes a run in the foreground with its progress, then reports it. Ctrl-C brings the batch in hand
/// to its end and pauses the run.
pub(super) async fn execute(
    redriver: &Redriver,
    run: Stored<Run>,
    json: bool,
) -> Result<Exit, CliError> {
    let stop = CancellationToken::new();
    let mut display = Display::new(redriver.clock.clone());
    let mut watch = |progress| display.show(progress);
    let executed = {
        let execution = redriver.execute(run, &stop, &mut watch);
        tokio::pin!(execution);
        tokio::select! {
            biased;
            executed = &mut execution => executed,
            _ = tokio::signal::ctrl_c() => {
                stop.cancel();
                execution.await
            }
        }
    };
    display.finish();
    let report = redriver.report(&executed?).await?;
    redrive::print(json, &report)?;
    if stop.is_cancelled() {
        return Err(CliError::Interrupted);
    }
    Ok(redrive::exit_of(&report))
}
