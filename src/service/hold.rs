//! What is held in hand until a dependency answers.

use std::time::Duration;

use rand::RngExt as _;
use tokio_util::sync::CancellationToken;

use crate::domain::backoff::Backoff;
use crate::domain::breaker::{Outcome, Reporter};
use crate::domain::message::Received;
use crate::port::error::{PortError, Target};
use crate::service::claim::Doubt;
use crate::service::heartbeat::keep_alive;
use crate::service::held::{Held, Interrupted};
use crate::service::process::Process;

/// The pauses of what is held until a dependency answers.
const HOLD: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(30) };

/// What is left of a claim that came to nothing.
pub(crate) enum Left {
    /// Nothing was written.
    Nothing,
    /// It is ours.
    Claim(Box<Held>),
    /// It may be ours.
    Doubt(Box<Doubt>),
}

impl Process<'_> {
    /// Gives a claim back, its attempt not counted, however long the ledger takes to say so.
    pub(crate) async fn give_back(&mut self, mut left: Left) -> Result<(), Interrupted> {
        let mut tried = 0_u32;
        loop {
            let released = match &mut left {
                Left::Nothing => return Ok(()),
                Left::Claim(held) => held.release(self.ctx).await,
                Left::Doubt(doubt) => doubt.release(self.ctx).await,
            };
            let Err(error) = released else {
                if tried > 0 {
                    self.report(Outcome::Good).await;
                }
                return Ok(());
            };
            tracing::debug!(%error, "claim not given back yet");
            self.fault(&error).await;
            tried = tried.saturating_add(1);
            let pause = self.hold_pause(tried);
            self.wait(pause, &self.stops.draining).await?;
        }
    }

    /// Gives back the claim of a lost lease, if it is still ours: its condition knows. Left as it is, it
    /// would look like a crash. Tried once, since the next delivery may come at any time.
    pub(crate) async fn let_go(&self, left: Left) {
        let Left::Claim(mut held) = left else { return };
        if let Err(error) = held.release(self.ctx).await {
            tracing::debug!(key = %held.key, %error, "claim not given back: its lease runs out");
        }
    }

    /// Waits before the next try of a write that must not be given up, since what it tells has happened
    /// already: at least `floor`, longer each time, the claim kept alive.
    pub(crate) async fn hold(
        &mut self,
        held: &mut Held,
        error: &PortError,
        tried: &mut u32,
        floor: Duration,
    ) -> Result<(), Interrupted> {
        tracing::warn!(key = %held.key, %error, "not written yet: held");
        self.fault(error).await;
        *tried = tried.saturating_add(1);
        let pause = tokio::time::sleep(self.hold_pause(*tried).max(floor));
        keep_alive(self.ctx, held, &self.stops.releasing, pause).await
    }

    /// Waits while the message stays ours.
    pub(crate) async fn wait(
        &self,
        pause: Duration,
        stop: &CancellationToken,
    ) -> Result<(), Interrupted> {
        let mut lease = self.lease.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Interrupted::Stopped),
            () = lease.lost(self.ctx.ports.clock.as_ref()) => Err(Interrupted::LeaseLost),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    /// Reports a dependency's fault. From then on the message is a probe: it is held until all is well.
    pub(crate) async fn fault(&mut self, error: &PortError) {
        self.report(Outcome::Dependency(error.target())).await;
        self.by = Reporter::Probe;
    }

    pub(crate) async fn report(&self, outcome: Outcome<Target>) {
        // Nobody listens once the worker lets go.
        let _heard = self.reports.send((outcome, self.by)).await;
    }

    pub(crate) fn is_last_receive(&self, received: &Received) -> bool {
        self.ctx.limits.is_last_receive(received.receive_count)
    }

    pub(crate) fn hold_pause(&mut self, tried: u32) -> Duration {
        HOLD.ceiling(tried).mul_f64(0.5 + self.rng.random::<f64>() / 2.0)
    }
}
