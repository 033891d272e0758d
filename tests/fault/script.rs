//! A handler that does what the body says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use redrive::domain::failure::{Done, Failure};
use redrive::port::handler::{Handler, HandlerError, Job};
use tokio::time::Instant;

/// One run of the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) idempotency_key: String,
    pub(crate) record_id: String,
    pub(crate) message_id: String,
    pub(crate) attempt: u32,
    pub(crate) body: String,
    pub(crate) receive_count: Option<u32>,
    pub(crate) at: Instant,
}

/// `bad…` fails for good, `flaky…` fails once a message, `never…` fails always, `panic…` panics once,
/// `slow…` takes 100 s; all else is done. How long a run takes may be made to differ from run to run.
#[derive(Debug, Default)]
pub(crate) struct Script {
    runs: Mutex<Vec<Run>>,
    seen: Mutex<BTreeMap<String, usize>>,
    /// How long runs take, in turn.
    takes: Mutex<Vec<Duration>>,
    sick: Mutex<bool>,
    running: Mutex<BTreeSet<String>>,
    overlaps: Mutex<usize>,
}

/// A run that has begun; dropped, it has ended.
struct Running<'a>(&'a Script, String);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().remove(&self.1);
    }
}

impl Script {
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// From now on runs take so long, in turn.
    pub(crate) fn set_takes(&self, takes: impl IntoIterator<Item = Duration>) {
        *self.takes.lock().unwrap() = takes.into_iter().collect();
    }

    /// From now on everything fails, and may succeed later; or not any more.
    pub(crate) fn set_sick(&self, sick: bool) {
        *self.sick.lock().unwrap() = sick;
    }

    /// How often a run of a message began before an earlier one of it had ended.
    pub(crate) fn overlaps(&self) -> usize {
        *self.overlaps.lock().unwrap()
    }

    fn begin(&self, job: &Job) -> Running<'_> {
        let id = job.message_id.to_string();
        if !self.running.lock().unwrap().insert(id.clone()) {
            *self.overlaps.lock().unwrap() += 1;
        }
        Running(self, id)
    }

    fn takes(&self) -> Duration {
        let (takes, turn) = (self.takes.lock().unwrap(), self.runs.lock().unwrap().len());
        takes.get(turn % takes.len().max(1)).copied().unwrap_or_default()
    }

    /// Notes a run: its body, and how many runs of its message there were before.
    fn note(&self, job: &Job) -> (String, usize) {
        let body = String::from_utf8(job.payload.to_vec()).unwrap();
        let message_id = job.message_id.to_string();
        let mut seen = self.seen.lock().unwrap();
        let before = seen.entry(message_id.clone()).or_default();
        *before += 1;
        self.runs.lock().unwrap().push(Run {
            idempotency_key: job.idempotency_key(),
            record_id: job.record_id.to_string(),
            message_id,
            attempt: job.attempt,
            body: body.clone(),
            receive_count: job.receive_count,
            at: Instant::now(),
        });
        (body, *before - 1)
    }
}

#[async_trait]
impl Handler for Script {
    fn kind(&self) -> &'static str {
        "library"
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, job: &Job, _timeout: Duration) -> Result<Done, HandlerError> {
        let (body, before) = self.note(job);
        let _running = self.begin(job);
        let takes = self.takes();
        pass(if body.starts_with("slow") { Duration::from_secs(100) } else { takes }).await;
        let failed = |failure| Err(HandlerError::Failed(Box::new(failure)));
        match body.get(..3) {
            _ if *self.sick.lock().unwrap() => failed(Failure::transient("SICK", "try later")),
            Some("bad") => failed(Failure::permanent("BAD", "text with \u{0} and \u{1b}[31m")),
            Some("nev") => failed(Failure::transient("NEVER", "try later")),
            Some("fla") if before == 0 => failed(Failure::transient("FLAKY", "try later")),
            Some("pan") if before == 0 => panic!("the handler panics"),
            _ => Ok(Done::default()),
        }
    }
}

/// Lets so much of tokio's time pass.
pub(crate) async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
    }
}
