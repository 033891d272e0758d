//! Consent: what would be done is shown, and somebody types the queue's name.

use std::io::{self, IsTerminal as _, Write as _};

use super::exit::CliError;

/// Asks for the queue's name on a terminal. Where there is none, nobody consents.
pub(super) async fn confirmed(queue: &str, to: &str) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    write!(io::stderr().lock(), "type the queue's name ({queue}) to {to}: ")?;
    // A thread of its own, so that Ctrl-C is heard while it waits.
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_| answer)
    });
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted),
        answer = answer => {
            let answer = answer.map_err(|e| CliError::Failed(e.to_string()))??;
            Ok(answer.trim() == queue)
        }
    }
}
