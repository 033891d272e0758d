//! What may go wrong on a path, and what never may.

/// What may still go wrong or be asked for on this path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Budget {
    pub(crate) crashes: u8,
    pub(crate) lost: u8,
    pub(crate) stalls: u8,
    pub(crate) transients: u8,
    pub(crate) refusals: u8,
    pub(crate) resumes: u8,
    pub(crate) runs: u8,
    /// Reissues by the full sweep while workers work.
    pub(crate) early: u8,
}

/// What must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Breach {
    /// G1: deleted from the source without evidence.
    DeletedWithoutEvidence,
    /// G1: in no queue, not committed, no record with an envelope.
    Lost,
    /// G1: a quarantined record whose token is marked as sent has none in the DLQ.
    TokenGone,
    /// G1: a quarantined record without its token in the DLQ, and nobody who is about to send it.
    Hidden,
    /// A resolved record without a commit.
    ResolvedWithoutCommit,
    /// G2: one generation committed twice.
    GenerationTwice,
    /// G2: one origin committed twice.
    OriginTwice,
    /// G2: two commits of one content, or of a key that a person must decide about.
    WorkTwice,
    /// G5: more in doubt than max(canary, proven good).
    Doubt,
    /// G5: a copy taken by an executor that was fenced, or for a run that does not run.
    StaleTake,
    /// Nothing more happens, and a message is neither done nor quarantined with its token.
    Stuck,
    /// A transition that no table lists.
    Illegal,
}
