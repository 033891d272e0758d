//! The command line's grammar. Every help has an example.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::cmd;

/// SQS-native dead-letter worker and redriver.
#[derive(Debug, Parser)]
#[command(
    name = "redrive",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_help = "Example:\n  redrive init && redrive local\n\n\
        Exit codes: 0 ok; 1 partial or failed check; 2 threshold exceeded; 64 usage; 66 id not found;\n\
        69 endpoint unreachable; 75 try again; 77 no permission; 78 configuration; 130 Ctrl-C"
)]
pub struct Args {
    /// The configuration file; redrive.toml if it is there.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON rather than text.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Tell the whole story on an AWS in memory: messages fail, are parked, fixed and recovered.
    #[cfg(feature = "local")]
    #[command(after_help = "Example:\n  redrive demo\n  redrive --json demo | jq .totals")]
    Demo(cmd::demo::Demo),
    /// Serve an AWS in memory on this machine: SQS, S3 and DynamoDB, with the configured names.
    #[cfg(feature = "local")]
    #[command(after_help = "Example:\n  redrive local --port 4566\n  \
        aws --endpoint-url http://127.0.0.1:4566 sqs list-queues")]
    Local(cmd::local::Local),
    /// Write a commented configuration file.
    #[command(after_help = "Example:\n  redrive init\n  redrive --config orders.toml init")]
    Init(cmd::init::Init),
    /// Create queues, bucket and table, or check that they are there (for local use and tests).
    #[command(after_help = "Example:\n  redrive setup\n  redrive setup --change-identity")]
    Setup(cmd::setup::Setup),
    /// Handle the source's messages until SIGTERM or Ctrl-C; park what cannot succeed.
    #[command(after_help = "Example:\n  redrive worker\n  \
        REDRIVE_SOURCE_QUEUE=orders redrive --config base.toml worker")]
    Worker(cmd::worker::Worker),
    /// Count what is parked, by state, error code and label.
    #[command(after_help = "Example:\n  redrive stats\n  redrive --json stats | jq .by_code")]
    Stats(cmd::stats::Stats),
    /// List records, oldest parking first.
    #[command(after_help = "Example:\n  redrive ls --code ISRC_MALFORMED --since 2h\n  \
        redrive --json ls --state any --label territory_code=DE | jq .record_id")]
    Ls(cmd::ls::Ls),
    /// Show one record with its envelope.
    #[command(
        after_help = "Example:\n  redrive show 5f1c2a\n  redrive --json show 5f1c2a | jq .envelope"
    )]
    Show(cmd::show::Show),
    /// Print a record's payload, byte for byte.
    #[command(after_help = "Example:\n  redrive payload 5f1c2a > body.json")]
    Payload(cmd::payload::Payload),
    /// Say what a run would do: how many records, by code, how long. Writes nothing.
    #[command(after_help = "Example:\n  redrive plan --code ISRC_MALFORMED\n  \
        redrive --json plan --all | jq -r .plan_hash")]
    Plan(cmd::plan::Plan),
    /// Send quarantined records back to the source: a canary first, then a ramp.
    #[command(after_help = "Example:\n  redrive start --code ISRC_MALFORMED\n  \
        redrive start --all --execute --note 'parser fixed in 1.4.2'")]
    Start(cmd::start::Start),
    /// Go on with a run that is paused, has tripped, or whose executor died.
    #[command(after_help = "Example:\n  redrive resume")]
    Resume(cmd::resume::Resume),
    /// Send nothing more of a run for now; `resume` goes on.
    #[command(after_help = "Example:\n  redrive pause --note 'the database is slow'")]
    Pause(cmd::pause::Pause),
    /// Set the highest rate of an open run.
    #[command(after_help = "Example:\n  redrive set-rate 5")]
    SetRate(cmd::set_rate::SetRate),
    /// End an open run. What it has not sent stays parked.
    #[command(after_help = "Example:\n  redrive abort --note 'wrong selection'")]
    Abort(cmd::abort::Abort),
    /// Say where a run is.
    #[command(after_help = "Example:\n  redrive status\n  redrive --json status | jq .phase")]
    Status(cmd::report::Status),
    /// Follow a run until it stops.
    #[command(after_help = "Example:\n  redrive watch")]
    Watch(cmd::watch::Watch),
    /// List the runs of this source, newest first.
    #[command(after_help = "Example:\n  redrive runs")]
    Runs(cmd::runs::Runs),
    /// Prove what became of every record of a run.
    #[command(after_help = "Example:\n  redrive report\n  \
        redrive report --expect-file must-be-resolved.txt")]
    Report(cmd::report::Report),
    /// Give quarantined records up: they are kept, leave the DLQ, and can be restored.
    #[command(after_help = "Example:\n  redrive discard 5f1c2a --execute --note 'test data'\n  \
        redrive discard --code NOT_FOUND --since 2h --note 'deleted accounts'")]
    Discard(cmd::discard::Discard),
    /// Take the discarding of records back: they are quarantined again.
    #[command(
        after_help = "Example:\n  redrive restore 5f1c2a --execute --note 'needed after all'"
    )]
    Restore(cmd::restore::Restore),
    /// Say that the work of quarantined records is done; of discarded ones, if they are named.
    #[command(after_help = "Example:\n  redrive resolve 5f1c2a --execute --note 'booked by hand'")]
    Resolve(cmd::resolve::Resolve),
    /// Take redriven records back to quarantine whose copies are lost.
    #[command(
        after_help = "Example:\n  redrive rescue --older 6h --execute --note 'the source was purged'"
    )]
    Rescue(cmd::rescue::Rescue),
    /// Reconcile the DLQ with the ledger, now.
    #[command(after_help = "Example:\n  redrive sweep")]
    Sweep(cmd::sweep::Sweep),
}
