//! What `discard`, `restore`, `resolve` and `rescue` share: their flags, consent, result and exit code.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::cmd::record;
use super::confirm::confirmed;
use super::exit::{CliError, Exit};
use super::redrive;
use super::render::{self, Table};
use super::select::Select;
use super::world::World;
use crate::domain::id::RecordId;
use crate::port::queue::Queue as _;
use crate::service::operate::{Move, MoveError, Moved, Mover, Refused, Selected};
use crate::service::scope::Scope;
use crate::system::SystemClock;

/// Which records, why, and whether it is meant.
#[derive(Debug, clap::Args)]
pub(super) struct MoveFlags {
    /// Records: an id, the beginning of one, or a payload's SHA-256. Or select them.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Do it. Without this, what would be done is printed, and on a terminal the queue's name is asked for.
    #[arg(long)]
    execute: bool,
    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT", required = true, value_parser = redrive::note)]
    note: String,
}

#[derive(Debug, Serialize)]
struct Shape<'a> {
    matched: u64,
    moved: u64,
    refused: Vec<RefusedShape<'a>>,
    executed: bool,
}

#[derive(Debug, Serialize)]
struct RefusedShape<'a> {
    record_id: &'a str,
    why: &'a str,
}

impl From<MoveError> for CliError {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Port(error) => Self::Port(error),
            MoveError::Audit(_) => Self::Misfit(format!("{error}: shorten vault.prefix")),
        }
    }
}

/// The mover of this world's records.
async fn mover(world: &World) -> Result<Mover, CliError> {
    let source = world.source().await?;
    let dlq = world.needed_dlq(&source).await?;
    let dlq_max_bytes = dlq.facts().await?.max_message_bytes;
    let ledger = Arc::new(world.ledger());
    Ok(Mover {
        source: source.name().clone(),
        dlq: Arc::new(dlq),
        dlq_max_bytes,
        vault: Arc::new(world.vault().await),
        runs: ledger.clone(),
        ledger,
        clock: Arc::new(SystemClock::start()),
        prefix: world.config.vault.prefix.as_str().to_owned(),
        remember: world.config.identity.remember,
    })
}

impl MoveFlags {
    /// Carries a move out, or says what it would do. `silent` is how long a redriven record must have been
    /// without a word.
    pub(super) async fn run(
        &self,
        act: Move,
        silent: Option<Duration>,
        world: &World,
        json: bool,
    ) -> Result<Exit, CliError> {
        let mover = mover(world).await?;
        let scope = Scope { silent, ..self.scope(silent.is_some(), world).await? };
        let selected = mover.select(act, scope).await?;
        if selected.plan.records().is_empty() {
            return nothing_to_do(json);
        }
        if !self.execute && !consented(act, &mover, &selected, json).await? {
            return Ok(Exit::Ok);
        }
        let by = redrive::by(world, Some(&self.note)).await;
        let stop = CancellationToken::new();
        let moved = {
            let mut chance = redrive::chance()?;
            let moves = mover.carry_out(&selected, &by, &mut chance, &stop);
            tokio::pin!(moves);
            // The records in hand are brought to their end.
            tokio::select! {
                biased;
                moved = &mut moves => moved?,
                _ = tokio::signal::ctrl_c() => {
                    stop.cancel();
                    moves.await?
                }
            }
        };
        tracing::info!(act = act.act().name(), moved = moved.moved, "records moved");
        print_moved(act, &selected, &moved, json)?;
        if stop.is_cancelled() {
            return Err(CliError::Interrupted);
        }
        exit_of(moved)
    }

    /// What is asked for. Each id must mean one record.
    async fn scope(&self, is_aged: bool, world: &World) -> Result<Scope, CliError> {
        let mut scope = self.select.scope(world.now());
        if self.ids.is_empty() {
            if !is_aged {
                self.select.needed()?;
            }
        } else if !self.select.is_empty() {
            return Err(CliError::Usage("name ids or a selection, not both".to_owned()));
        }
        let named = scope.selection.records.iter().map(RecordId::as_str);
        let mut records = Vec::new();
        for text in self.ids.iter().map(String::as_str).chain(named) {
            let (id, _) = record::one(world, text).await?;
            if !records.contains(&id) {
                records.push(id);
            }
        }
        scope.selection.records = records;
        Ok(scope)
    }
}

/// Shows what would be done, and asks.
async fn consented(
    act: Move,
    mover: &Mover,
    selected: &Selected,
    json: bool,
) -> Result<bool, CliError> {
    let name = act.act().name();
    if !json {
        print_plan(act, selected)?;
    }
    if confirmed(mover.source.as_str(), &format!("{name} these")).await? {
        return Ok(true);
    }
    if json {
        // With --json, stdout holds one value.
        let refused = shapes(&selected.refused);
        let shape = Shape { matched: selected.matched(), moved: 0, refused, executed: false };
        render::json(&mut io::stdout().lock(), &shape)?;
    }
    writeln!(io::stderr().lock(), "nothing was changed: add --execute to {name} these")?;
    Ok(false)
}

fn nothing_to_do(json: bool) -> Result<Exit, CliError> {
    let mut out = io::stdout().lock();
    if json {
        let shape = Shape { matched: 0, moved: 0, refused: Vec::new(), executed: false };
        render::json(&mut out, &shape)?;
    } else {
        writeln!(out, "nothing to do: no record is selected")?;
    }
    Ok(Exit::Ok)
}

fn shapes(refused: &[Refused]) -> Vec<RefusedShape<'_>> {
    refused
        .iter()
        .map(|one| RefusedShape { record_id: one.record_id.as_str(), why: &one.why })
        .collect()
}

fn print_plan(act: Move, selected: &Selected) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let mut table = Table::new(["CODE", "RECORDS"]);
    for (code, count) in &selected.by_code {
        table.row(&mut out, [code.to_string(), count.to_string()])?;
    }
    table.flush(&mut out)?;
    writeln!(out, "{} records to {}", selected.matched(), act.act().name())?;
    print_refused(&mut out, &selected.refused)
}

fn print_refused(out: &mut impl io::Write, refused: &[Refused]) -> Result<(), CliError> {
    for one in refused {
        writeln!(out, "{}  refused: {}", one.record_id, render::plain(&one.why))?;
    }
    Ok(())
}

fn print_moved(act: Move, selected: &Selected, moved: &Moved, json: bool) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let matched = selected.matched();
    if json {
        let refused = shapes(&moved.refused);
        let shape = Shape { matched, moved: moved.moved, refused, executed: true };
        return render::json(&mut out, &shape);
    }
    print_refused(&mut out, &moved.refused)?;
    let refused = u64::try_from(moved.refused.len()).unwrap_or(u64::MAX);
    let left = matched.saturating_sub(moved.moved).saturating_sub(refused);
    let name = act.act().name();
    writeln!(out, "{name}: {matched} matched, {} moved, {refused} refused", moved.moved)?;
    if left > 0 {
        writeln!(out, "{left} were not reached")?;
    }
    Ok(())
}

/// How a command ends: trying again may help if runs alone are in the way of all.
fn exit_of(moved: Moved) -> Result<Exit, CliError> {
    if let Some(error) = moved.failed {
        return Err(error.into());
    }
    match moved.refused.as_slice() {
        [] => Ok(Exit::Ok),
        refused if moved.moved == 0 && refused.iter().all(|one| one.run.is_some()) => {
            let runs = refused.iter().filter_map(|one| one.run.as_ref());
            let mut runs: Vec<&str> = runs.map(|run| run.as_str()).collect();
            runs.sort_unstable();
            runs.dedup();
            Err(CliError::TryAgain(format!("in a run: {}", runs.join(", "))))
        }
        _ => Ok(Exit::Partial),
    }
}
