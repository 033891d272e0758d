//! Watches a run: prints its progress now and then, and holds it against its window (G5).

use std::io::{self, Write};
use std::time::Duration;

use crate::cli::redrive as runs;
use crate::domain::time::Mono;
use crate::port::clock::Clock;
use crate::service::redrive::Progress;

/// How often progress is printed.
const EVERY: Duration = Duration::from_millis(500);

/// What was seen of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Watched {
    /// The most copies that were in doubt.
    pub(super) most_in_doubt: u64,
    /// How often more were in doubt than the window allows.
    pub(super) over_window: u64,
}

/// Who watches.
pub(super) struct Watch<'a> {
    out: &'a mut (dyn Write + Send),
    clock: &'a dyn Clock,
    last: Option<Progress>,
    printed: Option<(Mono, Progress)>,
    written: io::Result<()>,
    watched: Watched,
}

impl<'a> Watch<'a> {
    /// A watch that has seen nothing yet.
    pub(super) fn new(out: &'a mut (dyn Write + Send), clock: &'a dyn Clock) -> Self {
        let watched = Watched::default();
        Self { out, clock, last: None, printed: None, written: Ok(()), watched }
    }

    /// Looks once.
    pub(super) fn look(&mut self, progress: Progress) {
        let in_doubt = progress.counts.in_doubt;
        self.watched.most_in_doubt = self.watched.most_in_doubt.max(in_doubt);
        // A failure narrows the window under what is out already.
        let is_over = in_doubt > u64::from(progress.window) && progress.counts.failed_again == 0;
        self.watched.over_window += u64::from(is_over);
        self.last = Some(progress);
        let now = self.clock.mono();
        let is_due = self.printed.is_none_or(|(at, printed)| {
            let moved = printed.phase != progress.phase || now.since(at) >= EVERY;
            moved && printed.counts != progress.counts
        });
        if is_due {
            self.print(progress, now);
        }
    }

    fn print(&mut self, progress: Progress, now: Mono) {
        self.printed = Some((now, progress));
        if self.written.is_ok() {
            self.written = writeln!(self.out, "{}", runs::line(&progress));
        }
    }

    /// Prints where the run ended.
    ///
    /// # Errors
    /// A line could not be written.
    pub(super) fn close(mut self) -> io::Result<Watched> {
        let printed = self.printed.map(|(_, printed)| printed);
        if let Some(last) = self.last.filter(|last| printed != Some(*last)) {
            self.print(last, self.clock.mono());
        }
        self.written.map(|()| self.watched)
    }
}
