//! What a worker of this thread says in its log.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

/// One line: its level, and its text with all fields.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// The lines of `redrive` itself, down to `info`, while this lives and on this thread.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    _guard: DefaultGuard,
}

struct Capture(Arc<Mutex<Vec<Line>>>);

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl<S: Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target().starts_with("redrive") && *metadata.level() <= Level::INFO {
            let mut text = Text::default();
            event.record(&mut text);
            self.0.lock().unwrap().push(Line { level: *metadata.level(), text: text.0 });
        }
    }
}

impl Log {
    pub(crate) fn capture() -> Self {
        let lines = Arc::<Mutex<Vec<Line>>>::default();
        let subscriber = tracing_subscriber::registry().with(Capture(lines.clone()));
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines of this level that say so.
    pub(crate) fn lines(&self, level: Level, what: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap().clone().into_iter();
        lines.filter(|l| l.level == level && l.text.contains(what)).map(|l| l.text).collect()
    }

    /// All warnings and errors.
    pub(crate) fn complaints(&self) -> Vec<String> {
        [Level::WARN, Level::ERROR].iter().flat_map(|level| self.lines(*level, "")).collect()
    }
}
