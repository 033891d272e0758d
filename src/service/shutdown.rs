//! From signals to stages: the first asks to drain, the second to let go at once.

use tokio::sync::watch;

/// How far the stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// No stop was asked for.
    Running,
    /// Receive no more, finish what is in hand.
    Draining,
    /// Release what is in hand.
    Releasing,
}

/// Watches SIGTERM and SIGINT.
///
/// # Errors
/// The signals cannot be watched.
pub fn watch_signals() -> std::io::Result<watch::Receiver<Stage>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (sender, receiver) = watch::channel(Stage::Running);
    tokio::spawn(async move {
        for stage in [Stage::Draining, Stage::Releasing] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            sender.send_replace(stage);
        }
        // Keeps the sender alive, so that watchers never see the channel close.
        std::future::pending::<()>().await;
    });
    Ok(receiver)
}
