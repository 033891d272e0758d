//! One step of the world and what it is called; the rules of the shell that a mutation breaks.

use crate::world::{At, World};

/// Why a step happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By itself: an actor, or time passing.
    Own,
    /// Somebody outside does it: the fix, a run, a resume.
    Outside,
    /// Something goes wrong.
    Fault,
}

/// A step, for the path: what, and the message, record or run it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) kind: Kind,
    pub(crate) what: &'static str,
    pub(crate) of: u8,
}

/// The steps out of one world.
#[derive(Default)]
pub(crate) struct Steps(pub(crate) Vec<(Label, World)>);

impl Steps {
    pub(crate) fn push(&mut self, kind: Kind, what: &'static str, of: u8, world: World) {
        self.0.push((Label { kind, what, of }, world));
    }
}

/// Which rule of the shell is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// None.
    None,
    /// A commit is not conditional on the claim's lease token.
    UnconditionalCommit,
    /// A batch is taken without the run's condition.
    UnfencedTake,
    /// The executor sends whatever is in doubt.
    IgnoredDoubt,
    /// The message is deleted before its token was accepted.
    DeleteBeforeToken,
    /// The sweep takes a redriving record's token for outdated.
    SweepTakesRedriving,
    /// A message whose record is redriving is deleted without the token that was never sent.
    SupersededWithoutToken,
    /// A parking that is finished but for its delete gets a new token.
    RenewsMarked,
    /// A message is deleted though the mark of its token was refused.
    DeletesUnmarked,
    /// The outcome of a send is given up when the record has changed.
    SettledOnce,
    /// A plain message that is done as a repeat is deleted, its record left as it is.
    RepeatUnresolved,
}

/// What differs between searches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rules {
    pub(crate) mutation: Mutation,
    pub(crate) max_redrives: u8,
}

impl At {
    /// What a worker does there.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            At::Idle | At::Run => "",
            At::Claim => "claims",
            At::GiveBack => "gives an unknown claim back",
            At::ReadRecord => "reads its record",
            At::CommitRead => "reads the record to resolve",
            At::Commit => "commits",
            At::Transient => "notes a transient failure",
            At::Release => "releases its claim",
            At::ParkRead => "reads the record to park",
            At::Vault => "puts the envelope",
            At::Park => "parks",
            At::ParkEntry => "parks the entry alone",
            At::ParkEntryAlone => "parks the entry alone, and leaves the message",
            At::Token => "sends the token",
            At::Mark => "marks the token as sent",
            At::DoneRead => "reads the record of a duplicate",
            At::Done => "resolves the record of a duplicate",
            At::Delete => "deletes the message",
        }
    }

    /// Whether that is a call whose answer can be lost.
    pub(crate) const fn is_call(self) -> bool {
        matches!(
            self,
            At::Claim
                | At::Commit
                | At::Park
                | At::ParkEntry
                | At::ParkEntryAlone
                | At::Token
                | At::Mark
                | At::Done
                | At::Delete
        )
    }
}
