//! Tells the story: text as it happens, or its outcome as one JSON value at the end.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::step::Step;
use crate::cli::exit::{CliError, Exit};
use crate::cli::render;

/// Who tells.
pub(super) struct Teller {
    /// Where text goes: nowhere, with `--json`.
    pub(super) out: Box<dyn Write + Send>,
    json: bool,
    /// The step that has begun.
    current: &'static str,
    steps: Vec<Step>,
    totals: Option<Value>,
}

impl Teller {
    /// A teller that has told nothing yet.
    pub(super) fn new(json: bool) -> Self {
        let out: Box<dyn Write + Send> =
            if json { Box::new(io::sink()) } else { Box::new(io::stdout()) };
        Self { out, json, current: "setup", steps: Vec::new(), totals: None }
    }

    /// Begins a step, with a heading and a few words.
    pub(super) fn begin(
        &mut self,
        name: &'static str,
        title: &str,
        words: &str,
    ) -> Result<Step, CliError> {
        self.current = name;
        let heading = format!("{}. {title}", self.steps.len() + 1);
        let rule = "-".repeat(heading.chars().count());
        writeln!(self.out, "\n{heading}\n{rule}\n{words}\n")?;
        Ok(Step::new(name))
    }

    /// A line of text.
    pub(super) fn say(&mut self, line: &str) -> Result<(), CliError> {
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Ends a step. The story does not go on after one that failed.
    pub(super) fn end(&mut self, step: Step) -> Result<(), CliError> {
        let problems = (!step.ok).then(|| step.problems.join("; "));
        self.steps.push(step);
        self.out.flush()?;
        match problems {
            Some(problems) => Err(CliError::Failed(problems)),
            None => Ok(()),
        }
    }

    /// Ends the last step, whose figures are the totals.
    pub(super) fn end_with_totals(&mut self, step: Step) -> Result<(), CliError> {
        self.totals = Some(step.to_figures());
        self.end(step)
    }

    /// Ends the story.
    ///
    /// # Errors
    /// A step failed.
    pub(super) fn close(mut self, told: Result<(), CliError>) -> Result<Exit, CliError> {
        let failed = told.err().map(|error| error.to_string());
        let is_noted = self.steps.last().is_some_and(|step| step.name == self.current);
        if let Some(why) = failed.clone().filter(|_| !is_noted) {
            let mut step = Step::new(self.current);
            step.fail(why);
            self.steps.push(step);
        }
        let ok = failed.is_none() && self.steps.iter().all(|step| step.ok);
        if self.json {
            let outcome = json!({"steps": self.steps, "totals": self.totals, "ok": ok});
            render::json(&mut io::stdout().lock(), &outcome)?;
        }
        match failed {
            None => Ok(Exit::Ok),
            Some(why) => {
                let name = self.current;
                Err(CliError::Failed(format!("the demo's step {name:?} failed: {why}")))
            }
        }
    }
}
