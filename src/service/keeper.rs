//! Keeps what is in hand invisible: the one task that changes visibility timeouts.
//!
//! Every message is kept from its receive on: its lease is extended at a third of the timeout, together
//! with those due at about the same time, up to ten a call. Each message ends by being let go (before its
//! delete) or hidden for a while (a back-off, or zero to release it); either waits for an extension that is in
//! flight, so that none is ever sent after it. A lease that SQS refuses to extend is lost, and whoever
//! watches it learns so.
//!
//! Calls run beside one another, so that one that hangs holds up no other message than its own ten; and what
//! was refused together is tried again one by one, so that one bad handle costs no other its lease.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::domain::id::ReceiptHandle;
use crate::domain::lease::Lease;
use crate::domain::message::MAX_BATCH_ENTRIES;
use crate::domain::time::Mono;
use crate::port::clock::Clock;
use crate::port::error::PortError;
use crate::port::queue::{BatchAnswer, EntryError, Queue};

/// The pause before a change that failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// How often a hide is tried. Losing one costs the rest of the visibility timeout.
const HIDE_TRIES: u32 = 4;

/// A lease as it is now, for whoever works on its message.
#[derive(Debug, Clone)]
pub(crate) struct LiveLease(watch::Receiver<Lease>);

impl LiveLease {
    /// A lease that nobody extends.
    pub(crate) fn fixed(lease: Lease) -> Self {
        Self(watch::channel(lease).1)
    }

    /// The lease as it is now.
    pub(crate) fn get(&self) -> Lease {
        *self.0.borrow()
    }

    /// Waits until the lease is another, or cannot be trusted any more.
    pub(crate) async fn changed(&mut self, clock: &dyn Clock) -> Lease {
        loop {
            let seen = *self.0.borrow_and_update();
            let now = clock.mono();
            if !seen.is_trusted(now) {
                return seen;
            }
            tokio::select! {
                biased;
                changed = self.0.changed() => match changed {
                    Ok(()) => return self.get(),
                    // Nobody extends it: it is what it is until it ends.
                    Err(_closed) => tokio::time::sleep(seen.trusted_until().since(now)).await,
                },
                () = tokio::time::sleep(seen.trusted_until().since(now)) => {}
            }
        }
    }

    /// Waits until the lease cannot be trusted any more.
    pub(crate) async fn lost(&mut self, clock: &dyn Clock) {
        while self.changed(clock).await.is_trusted(clock.mono()) {}
    }
}

/// A message that is kept invisible until it is let go or hidden. Dropped, it is not extended any more.
#[derive(Debug)]
pub(crate) struct Kept {
    id: u64,
    lease: LiveLease,
    commands: mpsc::Sender<Command>,
}

impl Kept {
    /// Its lease.
    pub(crate) const fn lease(&self) -> &LiveLease {
        &self.lease
    }

    /// Extends it no more; when this returns no extension is in flight.
    pub(crate) async fn let_go(self) -> Lease {
        self.end(End::LetGo).await
    }

    /// Sets when it becomes visible again, counted from now. A failure costs the rest of its visibility
    /// timeout, nothing more.
    pub(crate) async fn hide(self, delay: Duration) {
        self.end(End::Hide { delay, tried: 0 }).await;
    }

    async fn end(self, how: End) -> Lease {
        let (done, ended) = oneshot::channel();
        let command = Command::End { id: self.id, how, done };
        if self.commands.send(command).await.is_ok() {
            // An error says that the keeper is gone, and with it every extension.
            drop(ended.await);
        }
        self.lease.get()
    }
}

#[derive(Debug)]
enum Command {
    Keep { id: u64, receipt: ReceiptHandle, lease: watch::Sender<Lease> },
    End { id: u64, how: End, done: oneshot::Sender<()> },
}

#[derive(Debug, Clone, Copy)]
enum End {
    LetGo,
    Hide { delay: Duration, tried: u32 },
}

/// Where messages are handed in to be kept.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    next_id: Arc<AtomicU64>,
    commands: mpsc::Sender<Command>,
}

impl Keeper {
    /// Starts the task. It ends once every [`Kept`] has and this is dropped.
    pub(crate) fn start(
        queue: Arc<dyn Queue>,
        clock: Arc<dyn Clock>,
    ) -> (Self, AbortOnDropHandle<()>) {
        let (commands, incoming) = mpsc::channel(MAX_BATCH_ENTRIES);
        let task = tokio::spawn(run(queue, clock, incoming));
        (Self { next_id: Arc::default(), commands }, AbortOnDropHandle::new(task))
    }

    /// Keeps a message invisible from now on.
    pub(crate) async fn keep(&self, receipt: ReceiptHandle, lease: Lease) -> Kept {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (publish, live) = watch::channel(lease);
        let command = Command::Keep { id, receipt, lease: publish };
        if self.commands.send(command).await.is_err() {
            tracing::error!("the keeper of leases is gone: leases are not extended");
        }
        Kept { id, lease: LiveLease(live), commands: self.commands.clone() }
    }
}

/// One message.
struct Keeping {
    receipt: ReceiptHandle,
    lease: watch::Sender<Lease>,
    /// When something is to be done about it; none while a call is in flight, or when nothing is.
    due: Option<Mono>,
    in_flight: bool,
    /// Whether it goes without company, since a call for it and others was refused.
    alone: bool,
    end: Option<(End, oneshot::Sender<()>)>,
}

impl Keeping {
    fn get(&self) -> Lease {
        *self.lease.borrow()
    }
}

#[derive(Default)]
struct Keepings {
    all: HashMap<u64, Keeping>,
    due: BTreeSet<(Mono, u64)>,
}

/// Why a visibility timeout is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Extend,
    Hide,
}

/// One change of a batch.
#[derive(Debug, Clone)]
struct Change {
    id: u64,
    purpose: Purpose,
    receipt: ReceiptHandle,
    duration: Duration,
    alone: bool,
}

/// A call that was answered, or failed as a whole.
struct Answered {
    started: Mono,
    changes: Vec<Change>,
    answer: Result<BatchAnswer<()>, PortError>,
}

/// The answer to one change; none if there was none.
type Answer = Result<(), Option<EntryError>>;

impl Keepings {
    fn schedule(&mut self, id: u64, at: Option<Mono>) {
        let Some(keeping) = self.all.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut keeping.due, at) {
            self.due.remove(&(before, id));
        }
        if let Some(at) = at {
            self.due.insert((at, id));
        }
    }

    fn remove(&mut self, id: u64) {
        self.schedule(id, None);
        if let Some(Keeping { end: Some((_, done)), .. }) = self.all.remove(&id) {
            // Nobody waits for it if the worker lets go at once.
            let _heard = done.send(());
        }
    }

    fn obey(&mut self, command: Command, now: Mono) {
        match command {
            Command::Keep { id, receipt, lease } => {
                let at = lease.borrow().extend_at();
                let keeping = Keeping {
                    receipt,
                    lease,
                    due: None,
                    in_flight: false,
                    alone: false,
                    end: None,
                };
                self.all.insert(id, keeping);
                self.schedule(id, Some(at));
            }
            Command::End { id, how, done } => {
                let Some(keeping) = self.all.get_mut(&id) else { return };
                keeping.end = Some((how, done));
                match (keeping.in_flight, how) {
                    (true, _) => {}
                    (false, End::LetGo) => self.remove(id),
                    (false, End::Hide { .. }) => self.schedule(id, Some(now)),
                }
            }
        }
    }

    fn next_due(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The changes that are due, and the extensions that soon will be, in batches.
    fn take_due(&mut self, now: Mono) -> Vec<Vec<Change>> {
        if self.next_due().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut changes: Vec<Change> = Vec::new();
        // A batch that is on its way takes others along, up to a twelfth of the timeout early.
        while let Some((at, id)) = self.due.first().copied() {
            let Some(keeping) = self.all.get(&id) else { break };
            let company = !changes.len().is_multiple_of(MAX_BATCH_ENTRIES);
            let lease = keeping.get();
            if at > now && !(company && at <= now.plus(lease.timeout().div_f64(12.0))) {
                break;
            }
            self.schedule(id, None);
            changes.extend(self.change(id, lease, now));
        }
        let (alone, together): (Vec<_>, Vec<_>) = changes.into_iter().partition(|c| c.alone);
        let together = together.chunks(MAX_BATCH_ENTRIES).map(<[Change]>::to_vec);
        alone.into_iter().map(|change| vec![change]).chain(together).collect()
    }

    /// What is to be changed about a message that is due.
    fn change(&mut self, id: u64, lease: Lease, now: Mono) -> Option<Change> {
        let keeping = self.all.get_mut(&id)?;
        let (purpose, duration) = match keeping.end {
            Some((End::Hide { delay, .. }, _)) => (Purpose::Hide, delay),
            None if lease.is_trusted(now) && !keeping.lease.is_closed() => {
                (Purpose::Extend, lease.next_extension(now)?)
            }
            Some((End::LetGo, _)) => return None,
            None => {
                // Over, or dropped without an end: whoever worked on it is gone.
                if keeping.lease.is_closed() {
                    self.remove(id);
                }
                return None;
            }
        };
        keeping.in_flight = true;
        let (receipt, alone) = (keeping.receipt.clone(), keeping.alone);
        Some(Change { id, purpose, receipt, duration, alone })
    }

    fn answered(&mut self, answered: Answered, now: Mono) {
        let Answered { started, changes, answer } = answered;
        let is_refused = matches!(&answer, Err(error) if error.is_of_an_entry());
        let answers = answer.unwrap_or_else(|error| {
            tracing::debug!(%error, entries = changes.len(), "visibility not changed");
            Vec::new()
        });
        let mut answers = answers.into_iter().map(|entry| entry.map_err(Some));
        for Change { id, purpose, duration, .. } in changes {
            let answer = answers.next().unwrap_or(Err(None));
            let Some(keeping) = self.all.get_mut(&id) else { continue };
            keeping.in_flight = false;
            keeping.alone = is_refused;
            match (purpose, &keeping.end) {
                (Purpose::Hide, _) => self.hidden(id, answer, now),
                (Purpose::Extend, None) => self.extended(id, started, duration, answer, now),
                (Purpose::Extend, Some((End::LetGo, _))) => self.remove(id),
                (Purpose::Extend, Some((End::Hide { .. }, _))) => self.schedule(id, Some(now)),
            }
        }
    }

    fn extended(&mut self, id: u64, started: Mono, by: Duration, answer: Answer, now: Mono) {
        let Some(keeping) = self.all.get(&id) else { return };
        let before = keeping.get();
        match answer {
            Ok(()) => {
                let lease = before.extended(started, by);
                keeping.lease.send_replace(lease);
                self.schedule(id, Some(lease.extend_at()));
            }
            Err(Some(EntryError { sender_fault: true, code })) => {
                tracing::debug!(code, "a message is not ours any more");
                keeping.lease.send_replace(before.lost());
            }
            Err(_) => self.schedule(id, Some(now.plus(PAUSE))),
        }
    }

    fn hidden(&mut self, id: u64, answer: Answer, now: Mono) {
        let Some(Keeping { end: Some((End::Hide { tried, .. }, _)), .. }) = self.all.get_mut(&id)
        else {
            return;
        };
        *tried = tried.saturating_add(1);
        match answer {
            Ok(()) => self.remove(id),
            Err(error)
                if *tried >= HIDE_TRIES || error.as_ref().is_some_and(|e| e.sender_fault) =>
            {
                let code = error.map_or_else(|| "no answer".to_owned(), |e| e.code);
                tracing::warn!(code, "visibility not changed: a message comes back with its lease");
                self.remove(id);
            }
            Err(_) => self.schedule(id, Some(now.plus(PAUSE))),
        }
    }

    fn has_ends(&self) -> bool {
        self.all.values().any(|keeping| keeping.end.is_some())
    }
}

async fn run(queue: Arc<dyn Queue>, clock: Arc<dyn Clock>, mut incoming: mpsc::Receiver<Command>) {
    let mut keepings = Keepings::default();
    let mut calls: FuturesUnordered<BoxFuture<'static, Answered>> = FuturesUnordered::new();
    let mut is_open = true;
    loop {
        let now = clock.mono();
        let pause = keepings.next_due().map(|at| at.since(now));
        tokio::select! {
            biased;
            command = incoming.recv(), if is_open => match command {
                Some(command) => {
                    keepings.obey(command, clock.mono());
                    // What else has come goes along in the same calls.
                    while let Ok(command) = incoming.try_recv() {
                        keepings.obey(command, clock.mono());
                    }
                }
                None => is_open = false,
            },
            Some(answered) = calls.next(), if !calls.is_empty() => {
                keepings.answered(answered, clock.mono());
            }
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            else => return,
        }
        let now = clock.mono();
        for batch in keepings.take_due(now) {
            calls.push(Box::pin(change(Arc::clone(&queue), batch, now)));
        }
        if !is_open && calls.is_empty() && !keepings.has_ends() {
            return;
        }
    }
}

async fn change(queue: Arc<dyn Queue>, changes: Vec<Change>, started: Mono) -> Answered {
    let asked: Vec<_> = changes.iter().map(|c| (c.receipt.clone(), c.duration)).collect();
    let answer = queue.change_visibility(&asked).await;
    Answered { started, changes, answer }
}
