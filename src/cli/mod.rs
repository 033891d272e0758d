//! The command line: reads the arguments, wires configuration and adapters together, prints results.
//!
//! stdout is the result, a table or JSON; stderr is log and progress. Every error is one line that names
//! the thing and the next step, and decides the exit code ([`Exit`]).

mod args;
mod cmd;
mod confirm;
#[cfg(feature = "local")]
mod demo;
mod exit;
mod operate;
mod patience;
mod ramp;
mod redrive;
mod render;
mod select;
mod shape;
mod wiring;
mod world;

use std::ffi::OsString;
use std::io::Write as _;

use clap::Parser as _;

pub use args::{Args, Command};
pub use exit::{CliError, Exit};

/// Reads the command line. Help and mistakes in the usage are printed here.
///
/// # Errors
/// There is nothing to run: the exit code to end with.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Args, Exit> {
    Args::try_parse_from(arguments).map_err(|e| {
        // Nobody is left to be told that the terminal is gone.
        let _gone = e.print();
        if e.use_stderr() { Exit::Usage } else { Exit::Ok }
    })
}

/// Runs a command to its end and prints its error, if any.
pub async fn run(args: Args) -> Exit {
    match cmd::run(args).await {
        Ok(exit) => exit,
        Err(error) => {
            let exit = error.exit();
            if exit != Exit::Ok {
                // As above.
                let _gone = writeln!(std::io::stderr().lock(), "redrive: {error}");
            }
            exit
        }
    }
}
