//! One step of the demo: its figures, each read from a service, and what they should have been.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// A step that is over.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Step {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether every figure is as it must be.
    pub(super) ok: bool,
    /// What is not as it must be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<String>,
    #[serde(flatten)]
    figures: Map<String, Value>,
}

impl Step {
    /// A step without figures.
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, ok: true, problems: Vec::new(), figures: Map::new() }
    }

    /// Notes a figure.
    pub(super) fn note(&mut self, figure: &str, found: impl Into<Value>) {
        self.figures.insert(figure.to_owned(), found.into());
    }

    /// Notes a figure and holds it against what it must be.
    pub(super) fn check(
        &mut self,
        figure: &str,
        found: impl Into<Value>,
        expected: impl Into<Value>,
    ) {
        let (found, expected) = (found.into(), expected.into());
        if found != expected {
            self.fail(format!("{figure}: {found} found, {expected} expected"));
        }
        self.note(figure, found);
    }

    /// Notes that something is not as it must be.
    pub(super) fn fail(&mut self, problem: String) {
        self.ok = false;
        self.problems.push(problem);
    }

    /// All figures.
    pub(super) fn to_figures(&self) -> Value {
        json!(self.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_figure_that_is_wrong_fails_the_step() {
        let mut step = Step::new("send");
        step.check("sent", 2_u64, 2_u64);
        assert!(step.ok);
        step.check("parked", 1_u64, 0_u64);
        step.check("kept", 3_u64, 3_u64);
        assert!(!step.ok);
        assert_eq!(step.problems, ["parked: 1 found, 0 expected"]);
        assert_eq!(step.to_figures(), json!({"sent": 2, "parked": 1, "kept": 3}));
    }
}
