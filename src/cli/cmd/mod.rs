//! The commands, one file each.

pub(super) mod abort;
#[cfg(feature = "local")]
pub(super) mod demo;
pub(super) mod discard;
pub(super) mod init;
#[cfg(feature = "local")]
pub(super) mod local;
pub(super) mod ls;
pub(super) mod pause;
pub(super) mod payload;
pub(super) mod plan;
pub(super) mod record;
pub(super) mod report;
pub(super) mod rescue;
pub(super) mod resolve;
pub(super) mod restore;
pub(super) mod resume;
pub(super) mod runs;
pub(super) mod set_rate;
pub(super) mod setup;
pub(super) mod show;
pub(super) mod start;
pub(super) mod stats;
pub(super) mod sweep;
pub(super) mod watch;
pub(super) mod worker;

use std::path::Path;

use super::args::{Args, Command};
use super::exit::{CliError, Exit};
use super::world::World;

/// Runs a command.
pub(super) async fn run(args: Args) -> Result<Exit, CliError> {
    let (file, json) = (args.config.as_deref(), args.json);
    match args.command {
        #[cfg(feature = "local")]
        Command::Demo(command) => command.run(json).await,
        #[cfg(feature = "local")]
        Command::Local(command) => command.run(file).await,
        Command::Init(command) => command.run(file),
        Command::Setup(command) => command.run(&World::connect(file).await?, json).await,
        Command::Worker(command) => command.run(&World::connect(file).await?).await,
        Command::Stats(command) => {
            unless_interrupted(file, async |world| command.run(world, json).await).await
        }
        Command::Ls(command) => {
            unless_interrupted(file, async |world| command.run(world, json).await).await
        }
        Command::Show(command) => {
            unless_interrupted(file, async |world| command.run(world, json).await).await
        }
        Command::Payload(command) => {
            unless_interrupted(file, async |world| command.run(world).await).await
        }
        Command::Plan(command) => {
            unless_interrupted(file, async |world| command.run(world, json).await).await
        }
        Command::Start(command) => command.run(&World::connect(file).await?, json).await,
        Command::Resume(command) => command.run(&World::connect(file).await?, json).await,
        Command::Pause(command) => command.run(&World::connect(file).await?, json).await,
        Command::SetRate(command) => command.run(&World::connect(file).await?, json).await,
        Command::Abort(command) => command.run(&World::connect(file).await?, json).await,
        Command::Status(command) => {
            unless_interrupted(file, async |world| command.run(world, json).await).await
        }
        Command::Watch(command) => {
            unless_interrupted(file, async |world| command.run(world, json).await).await
        }
        Command::Runs(command) => {
            unless_interrupted(file, async |world| command.run(world, json).await).await
        }
        Command::Report(command) => {
            unless_interrupted(file, async |world| command.run(world, json).await).await
        }
        Command::Discard(command) => command.run(&World::connect(file).await?, json).await,
        Command::Restore(command) => command.run(&World::connect(file).await?, json).await,
        Command::Resolve(command) => command.run(&World::connect(file).await?, json).await,
        Command::Rescue(command) => command.run(&World::connect(file).await?, json).await,
        Command::Sweep(command) => command.run(&World::connect(file).await?, json).await,
    }
}

/// Runs a command that only reads. Ctrl-C gives it up.
async fn unless_interrupted(
    file: Option<&Path>,
    command: impl AsyncFnOnce(&World) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    let connected = async { command(&World::connect(file).await?).await };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted),
        ended = connected => ended,
    }
}
