//! The flags of a run: every bound of `[redriver]`, and how its copies are sent.

use std::sync::Arc;
use std::time::Duration;

use super::exit::CliError;
use super::redrive::redriver;
use super::world::World;
use crate::config::{self, Redriver as Bounds, Span};
use crate::domain::dispatch::{Dispatch, Feedback};
use crate::domain::id::QueueName;
use crate::domain::ramp::RampPolicy;
use crate::port::queue::Queue as _;
use crate::service::redrive::Redriver;

/// The bounds of a run, where they differ from the configuration.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Ramp")]
pub(super) struct RampFlags {
    /// Copies that go first.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    canary: Option<u32>,
    /// Messages per second at first.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    start_rate: Option<f64>,
    /// By what the rate grows in each healthy step.
    #[arg(long, value_name = "FACTOR", value_parser = growth)]
    growth: Option<f64>,
    /// How long a step is, for example 30s.
    #[arg(long, value_name = "TIME", value_parser = step)]
    step: Option<Span>,
    /// Messages per second at most.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    max_rate: Option<f64>,
    /// Messages waiting in the source which hold the run.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    max_backlog: Option<u64>,
    /// Copies in doubt at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_in_doubt: Option<u32>,
    /// The share of copies that failed again which stops the run.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    max_failure_ratio: Option<f64>,
    /// How long an outcome may be awaited, for example 15m.
    #[arg(long, value_name = "TIME", value_parser = outcome_timeout)]
    outcome_timeout: Option<Span>,
    /// How long an executor holds a run without a sign of life, for example 15s.
    #[arg(long, value_name = "TIME", value_parser = lease)]
    lease: Option<Span>,
    /// Where outcomes are read: ledger (our own workers), or queue (another's consumer, which says nothing).
    #[arg(long, value_name = "WHERE", value_parser = feedback)]
    feedback: Option<Feedback>,
    /// Run copies even where another payload was committed under their key.
    #[arg(long)]
    force: bool,
    /// Send to this queue instead of the source; outcomes are read as by --feedback queue.
    #[arg(long, value_name = "QUEUE", requires = "allow_other_queue")]
    to: Option<String>,
    /// Whether --to may name a queue that the records do not come from.
    #[arg(long)]
    allow_other_queue: bool,
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| format!("write a number from {least} to {most}"))
}

/// Reads sends a second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.01, 10_000.0)
}

fn time(text: &str, least: Duration, most: Duration) -> Result<Span, String> {
    let span: Span = text.parse()?;
    let in_range = (least..=most).contains(&span.0);
    in_range
        .then_some(span)
        .ok_or_else(|| format!("write a time from {} to {}", Span(least), Span(most)))
}

fn step(text: &str) -> Result<Span, String> {
    time(text, Duration::from_secs(1), Duration::from_secs(3_600))
}

fn outcome_timeout(text: &str) -> Result<Span, String> {
    time(text, Duration::from_secs(1), Duration::from_secs(14 * 86_400))
}

fn lease(text: &str) -> Result<Span, String> {
    time(text, Duration::from_secs(1), Duration::from_secs(300))
}

fn feedback(text: &str) -> Result<Feedback, String> {
    Feedback::from_name(text).ok_or_else(|| "there are ledger and queue".to_owned())
}

fn growth(text: &str) -> Result<f64, String> {
    number(text, 1.0, 100.0)
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0)
}

impl RampFlags {
    /// The configured bounds with these flags.
    pub(super) fn policy(&self, bounds: &Bounds) -> Result<RampPolicy, CliError> {
        let time =
            |flag: Option<Span>, configured: Duration| flag.map_or(configured, |span| span.0);
        let policy = RampPolicy {
            canary: self.canary.unwrap_or(bounds.canary),
            start_rate: self.start_rate.unwrap_or(bounds.start_rate),
            growth: self.growth.unwrap_or(bounds.growth),
            step: time(self.step, bounds.step),
            max_rate: self.max_rate.unwrap_or(bounds.max_rate),
            max_in_doubt: self.max_in_doubt.unwrap_or(bounds.max_in_doubt),
            max_failure_ratio: self.max_failure_ratio.unwrap_or(bounds.max_failure_ratio),
            max_backlog: self.max_backlog.unwrap_or(bounds.max_backlog),
            outcome_timeout: time(self.outcome_timeout, bounds.outcome_timeout),
        };
        if policy.max_rate < policy.start_rate {
            let (start, most) = (policy.start_rate, policy.max_rate);
            return Err(CliError::Usage(format!(
                "the start rate {start} is above the highest rate {most}: raise --max-rate or lower \
                 --start-rate"
            )));
        }
        Ok(policy)
    }

    /// How copies are sent.
    pub(super) fn dispatch(&self, bounds: &Bounds) -> Dispatch {
        let configured = match bounds.feedback {
            config::Feedback::Ledger => Feedback::Ledger,
            config::Feedback::Queue => Feedback::Queue,
        };
        let feedback = match self.to {
            Some(_) => Feedback::Queue,
            None => self.feedback.unwrap_or(configured),
        };
        Dispatch { force: self.force, feedback, to: None }
    }

    /// The redriver of this world's source, with these flags.
    pub(super) async fn redriver(&self, world: &World) -> Result<Redriver, CliError> {
        let redriver = redriver(world).await?;
        let lease = self.lease.map_or(redriver.lease, |span| span.0);
        let redriver = Redriver { lease, ..redriver };
        match &self.to {
            Some(to) => sending_to(world, redriver, to).await,
            None => Ok(redriver),
        }
    }
}

/// The redriver with its copies going to another queue: one of the source's type, and not the DLQ.
pub(super) async fn sending_to(
    world: &World,
    redriver: Redriver,
    to: &str,
) -> Result<Redriver, CliError> {
    let queue = world.queue(to).await?;
    let (source, name) = (redriver.source.name(), queue.name());
    if name == redriver.sweeper.dlq().name() {
        return Err(CliError::Usage(format!(
            "{name} is the DLQ of {source}: what is sent there is not worked on"
        )));
    }
    if name.is_fifo() != source.is_fifo() {
        let kind = |queue: &QueueName| if queue.is_fifo() { "FIFO" } else { "a standard queue" };
        return Err(CliError::Usage(format!(
            "{name} is {} and {source} is {}: groups and their order would be lost or made up",
            kind(name),
            kind(source)
        )));
    }
    if name == source {
        return Ok(redriver);
    }
    let max_message_bytes = queue.facts().await?.max_message_bytes;
    Ok(redriver.sending_to(Arc::new(queue), max_message_bytes))
}
