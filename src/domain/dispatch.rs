//! How the copies of a run are sent, beside their pace: forced or not, where to, and where it is read what
//! became of them.

use super::id::QueueName;

/// Where the outcome of a copy is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Feedback {
    /// In the ledger, which our own workers write.
    #[default]
    Ledger,
    /// In the queues: the consumer is another's, and says nothing to the ledger.
    Queue,
}

impl Feedback {
    /// Its name in every stored format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::Queue => "queue",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ledger, Self::Queue].into_iter().find(|feedback| feedback.name() == name)
    }
}

/// How copies are sent. Fixed for a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dispatch {
    /// Whether they run even where another payload was committed under their key.
    pub force: bool,
    /// Where outcomes are read.
    pub feedback: Feedback,
    /// Another queue that they go to instead of their source.
    pub to: Option<QueueName>,
}
