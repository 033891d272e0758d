//! `init`: writes a commented configuration file.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use crate::cli::exit::{CliError, Exit};
use crate::config::{DEFAULT_FILE, SAMPLE};

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// Overwrite the file if it is there.
    #[arg(long)]
    force: bool,
}

impl Init {
    pub(super) fn run(&self, file: Option<&Path>) -> Result<Exit, CliError> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let shown = path.display();
        let mut options = OpenOptions::new();
        if self.force {
            options.write(true).create(true).truncate(true);
        } else {
            options.write(true).create_new(true);
        }
        match options.open(path).and_then(|mut file| file.write_all(SAMPLE.as_bytes())) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let problem = format!("{shown} is already there; --force overwrites it");
                return Err(CliError::Usage(problem));
            }
            Err(e) => return Err(CliError::Failed(format!("{shown} cannot be written: {e}"))),
        }
        writeln!(std::io::stdout().lock(), "{shown}")?;
        writeln!(std::io::stderr().lock(), "set source.queue and vault.bucket in it")?;
        Ok(Exit::Ok)
    }
}
