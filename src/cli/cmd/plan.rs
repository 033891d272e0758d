//! `plan`: what a run would do. Writes nothing.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::cli::exit::{CliError, Exit};
use crate::cli::ramp::RampFlags;
use crate::cli::render::{self, Table};
use crate::cli::select::Select;
use crate::cli::world::World;
use crate::domain::plan::estimate;
use crate::domain::ramp::RampPolicy;
use crate::domain::time::Wall;
use crate::service::redrive::{Draft, Redriver};

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
pub struct Plan {
    #[command(flatten)]
    select: Select,
    #[command(flatten)]
    ramp: RampFlags,
}

#[derive(Debug, Serialize)]
struct Shape<'a> {
    plan_hash: String,
    cutoff: String,
    planned: usize,
    by_code: Vec<CodeShape<'a>>,
    at_cap: u64,
    estimated_seconds: u64,
    first_expiry: Option<String>,
    groups: Option<usize>,
}

#[derive(Debug, Serialize)]
struct CodeShape<'a> {
    error_code: &'a str,
    count: u64,
}

impl Plan {
    pub(super) async fn run(&self, world: &World, json: bool) -> Result<Exit, CliError> {
        self.select.needed()?;
        let redriver = self.ramp.redriver(world).await?;
        let draft = draft(world, &redriver, &self.select).await?;
        print(json, &redriver, &draft, &self.ramp.policy(&world.config.redriver)?).await?;
        Ok(Exit::Ok)
    }
}

/// The draft of a selection.
pub(super) async fn draft(
    world: &World,
    redriver: &Redriver,
    select: &Select,
) -> Result<Draft, CliError> {
    let (selection, parked) = (select.selection(), select.parked(world.now()));
    let max_redrives = world.config.limits.max_redrives;
    Ok(redriver.draft(&selection, parked, select.limit(), max_redrives).await?)
}

/// Prints a draft.
pub(super) async fn print(
    json: bool,
    redriver: &Redriver,
    draft: &Draft,
    policy: &RampPolicy,
) -> Result<(), CliError> {
    let retention = redriver.sweeper.dlq().facts().await?.retention;
    let by_code = draft.by_code.iter();
    let planned = draft.plan.records().len();
    let shape = Shape {
        plan_hash: draft.plan.hash().to_string(),
        cutoff: draft.cutoff.to_rfc3339(),
        planned,
        by_code: by_code
            .map(|(code, count)| CodeShape { error_code: code.as_str(), count: *count })
            .collect(),
        at_cap: draft.at_cap,
        estimated_seconds: estimate(planned, policy).as_secs(),
        first_expiry: draft.oldest_token.map(|sent| sent.plus(retention)).map(Wall::to_rfc3339),
        groups: draft.groups,
    };
    let mut out = io::stdout().lock();
    if json {
        return render::json(&mut out, &shape);
    }
    let mut table = Table::new(["CODE", "RECORDS"]);
    for code in &shape.by_code {
        table.row(&mut out, [code.error_code.to_owned(), code.count.to_string()])?;
    }
    table.flush(&mut out)?;
    let Shape { planned, at_cap, estimated_seconds, plan_hash, first_expiry, .. } = &shape;
    writeln!(out, "{planned} records, at least {estimated_seconds} s under the ramp")?;
    if *at_cap > 0 {
        writeln!(out, "{at_cap} of them are at their cap of redrives and will be discarded")?;
    }
    if let Some(expiry) = first_expiry {
        writeln!(out, "the first DLQ message of these expires at {expiry}")?;
    }
    if let Some(warning) = overtaken(draft) {
        writeln!(out, "{warning}")?;
    }
    writeln!(out, "plan hash {plan_hash}")?;
    Ok(())
}

/// What is to be known before a FIFO source gets records back: they were parked, and their groups went on.
pub(super) fn overtaken(draft: &Draft) -> Option<String> {
    let groups = draft.groups.filter(|_| !draft.plan.records().is_empty())?;
    Some(format!(
        "the message groups of these records have gone on meanwhile ({groups} groups): what was parked comes \
         after what they have sent since, in its own order, and each with its first send time"
    ))
}
