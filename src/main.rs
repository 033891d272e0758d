//! Picks the command and runs it to its exit code.

use std::io::Write as _;
use std::process::ExitCode;

use redrive::cli::{self, Exit};

fn main() -> ExitCode {
    let args = match cli::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(exit) => return exit.into(),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            // Nobody is left to be told if stderr is gone too.
            let _gone = writeln!(std::io::stderr().lock(), "redrive: cannot start: {error}");
            return Exit::TryAgain.into();
        }
    };
    let exit = runtime.block_on(cli::run(args));
    // A name that is still being looked up would hold the process.
    runtime.shutdown_background();
    exit.into()
}
