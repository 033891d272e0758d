//! The world of the search: queues, ledger, vault, actors, what may still go wrong, and what must hold.
//!
//! Two messages with one key, hence one entry; two workers, two executors, one sweep. The vault is the
//! `enveloped` of a record: an envelope's key is new for each parking and nothing deletes one.
//!
//! Deliberately absent: SQS's own move to the DLQ (bare messages, adoption, AWS's button), receive counts
//! beyond "seen before", TTL, operators' moves but `resume`, settling a run, FIFO, forced copies, pointers.

use redrive::domain::record::State;
use redrive::domain::run;

use crate::core::Core;
pub(crate) use crate::limit::{Breach, Budget};

/// How many messages the source can hold at once: a world with more is a mistake of the model.
pub(crate) const SLOTS: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stage {
    InProgress,
    Open,
    Parked,
    Committed,
}

/// Which messages there are at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    One,
    Two,
    /// The first is committed and deleted, the second was parked and its copy is there.
    Copy,
}

/// The holder of an entry whose message is gone for good.
pub(crate) const GONE: u8 = 15;

/// The entry. `commits`: by origin, the place in the order of commits, 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entry {
    pub(crate) stage: Stage,
    pub(crate) token: u8,
    pub(crate) holder: u8,
    pub(crate) generation: u8,
    pub(crate) attempts: u8,
    pub(crate) crashes: u8,
    pub(crate) commits: [u8; 2],
}

/// A record; `run` is 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Record {
    pub(crate) state: State,
    pub(crate) n: u8,
    pub(crate) run: u8,
    pub(crate) park: u8,
    pub(crate) sent: bool,
    pub(crate) blocked: bool,
    pub(crate) duplicate: bool,
    pub(crate) enveloped: bool,
}

/// A message of the source; `n` is 0 for a plain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Message {
    pub(crate) id: u8,
    pub(crate) origin: u8,
    pub(crate) n: u8,
    pub(crate) run: u8,
    pub(crate) seen: bool,
    pub(crate) in_flight: bool,
}

/// A run's item; `plan` and `touched` are sets of records, `over`: its executor's lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) state: RunState,
    pub(crate) fence: u8,
    pub(crate) rev: u8,
    pub(crate) over: bool,
    pub(crate) plan: u8,
    pub(crate) touched: u8,
    pub(crate) batch: Option<u8>,
}

/// What became of a record in a run, as far as the ramp cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fate {
    NotSent,
    InDoubt,
    Resolved,
    Duplicate,
    FailedAgain,
    /// Discarded, skipped or errored.
    Out,
}

/// Where a worker is in `service::process`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) enum At {
    #[default]
    Idle,
    Claim,
    GiveBack,
    ReadRecord,
    Run,
    CommitRead,
    Commit,
    Transient,
    Release,
    ParkRead,
    Vault,
    Park,
    ParkEntry,
    /// The same, but the message stays.
    ParkEntryAlone,
    Token,
    Mark,
    DoneRead,
    Done,
    Delete,
}

/// A worker with a message in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Worker {
    pub(crate) at: At,
    pub(crate) message: Message,
    pub(crate) token: u8,
    /// Before the claim what it expects, after it what it holds.
    pub(crate) entry: Option<Entry>,
    /// The claim is ours.
    pub(crate) owns: bool,
    /// It finishes a parking.
    pub(crate) resumes: bool,
    pub(crate) duplicate: bool,
    /// Its record has moved on.
    pub(crate) leftover: bool,
    /// The record as last read or written.
    pub(crate) record: Option<Record>,
    pub(crate) park: u8,
    pub(crate) put: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) enum Exec {
    #[default]
    Idle,
    Load,
    Tick,
    Take,
    Send,
    Confirm,
    Refused,
    Trip,
    Complete,
}

/// An executor of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Executor {
    pub(crate) at: Exec,
    pub(crate) run: u8,
    pub(crate) fence: u8,
    pub(crate) rev: u8,
    pub(crate) touched: u8,
    /// Records whose outcomes feed this executor's ramp.
    pub(crate) watched: u8,
    pub(crate) sends: u8,
    pub(crate) fates: [Option<Fate>; 2],
    /// The record in hand, as last read or written.
    pub(crate) target: u8,
    pub(crate) record: Option<Record>,
    /// An earlier send of this copy may have got through.
    pub(crate) earlier: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) enum Sweep {
    #[default]
    Idle,
    Reissue {
        record: u8,
        park: u8,
        read: Record,
    },
    Send {
        record: u8,
        wrote: Record,
    },
    Mark {
        record: u8,
        wrote: Record,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) source: [Option<Message>; SLOTS],
    pub(crate) entry: Option<Entry>,
    pub(crate) lease_over: bool,
    pub(crate) records: [Option<Record>; 2],
    /// By record, the park tokens in the DLQ as a set.
    pub(crate) dlq: [u16; 2],
    pub(crate) runs: [Option<Run>; 2],
    pub(crate) workers: [Worker; 2],
    pub(crate) executors: [Executor; 2],
    pub(crate) sweep: Sweep,
    /// The handler was seen to be fixed: from then on it runs well.
    pub(crate) fixed: bool,
    pub(crate) budget: Budget,
    /// Generations and origins that were committed, as sets.
    pub(crate) generations: u8,
    pub(crate) origins: u8,
    /// By record, one more than the newest copy of which a token was accepted.
    pub(crate) accepted: [u8; 2],
    pub(crate) breach: Option<Breach>,
}

pub(crate) use run::State as RunState;

impl World {
    /// A message that is not there counts as done.
    pub(crate) fn new(start: Start, budget: Budget) -> Self {
        let message = |origin| Some(Message { id: origin, origin, ..Message::default() });
        let mut source = [None; SLOTS];
        let mut entry = None;
        let mut records = [None; 2];
        match start {
            Start::One => source[0] = message(0),
            Start::Two => (source[0], source[1]) = (message(0), message(1)),
            Start::Copy => {
                source[0] = message(1).map(|copy| Message { n: 1, run: 1, ..copy });
                records[1] = Some(Record {
                    state: State::Redriven,
                    n: 1,
                    run: 1,
                    park: 1,
                    sent: true,
                    blocked: false,
                    duplicate: false,
                    enveloped: true,
                });
                entry = Some(Entry {
                    stage: Stage::Committed,
                    token: 1,
                    holder: GONE,
                    generation: 1,
                    attempts: 1,
                    crashes: 0,
                    commits: [1, 0],
                });
            }
        }
        Self {
            source,
            entry,
            lease_over: false,
            records,
            dlq: [0; 2],
            runs: [None; 2],
            workers: [Worker::default(); 2],
            executors: [Executor::default(); 2],
            sweep: Sweep::Idle,
            fixed: false,
            budget,
            generations: if start == Start::Copy { 2 } else { 0 },
            origins: match start {
                Start::One => 2,
                Start::Two => 0,
                Start::Copy => 1,
            },
            accepted: [0; 2],
            breach: None,
        }
    }

    pub(crate) fn record(&self, of: u8) -> Option<Record> {
        self.records[usize::from(of)]
    }

    pub(crate) fn put_record(&mut self, of: u8, record: Record) {
        self.records[usize::from(of)] = Some(record);
    }

    /// Whether the DLQ has the token that counts of this record.
    pub(crate) fn has_token(&self, of: u8) -> bool {
        let set = self.dlq[usize::from(of)];
        self.record(of).is_some_and(|record| set & (1 << record.park) != 0)
    }

    /// Whether a worker has this message in hand.
    pub(crate) fn in_hand(&self, message: u8) -> bool {
        self.workers.iter().any(|w| w.at != At::Idle && w.message.id == message)
    }

    /// Notes a commit of the entry as it is now.
    pub(crate) fn note_commit(&mut self, origin: u8, generation: u8) {
        let (generation, origin) = (1 << generation, 1 << origin);
        if self.generations & generation != 0 {
            self.breach = Some(Breach::GenerationTwice);
        } else if self.origins & origin != 0 {
            self.breach = Some(Breach::OriginTwice);
        }
        self.generations |= generation;
        self.origins |= origin;
    }

    /// Whether it may be deleted, whatever becomes of its record.
    pub(crate) fn evidence_lasts(&self, message: Message, core: &mut Core) -> bool {
        let recorded = self.record(message.origin).is_some_and(|record| {
            let accepted = self.accepted[usize::from(message.origin)] > message.n;
            let moved = match record.state {
                State::Resolved | State::Discarded => true,
                State::Quarantined | State::Redriven => record.n > message.n,
                State::Redriving => false,
            };
            record.enveloped && (moved || accepted)
        });
        recorded
            || self.origins & (1 << message.origin) != 0
            || core.is_done(self.entry, message.origin, message.n)
    }

    /// Whether this message may be deleted: the rule of G1, from the facts and not from what its worker
    /// believes.
    pub(crate) fn may_delete(&self, message: Message, core: &mut Core) -> bool {
        let recorded = self.record(message.origin).is_some_and(|record| {
            let superseded = match record.state {
                State::Quarantined => record.n > message.n,
                // A refused send brings it back as it was.
                State::Redriving => {
                    let mut source = self.source.iter().flatten();
                    self.has_token(message.origin)
                        || source.any(|m| m.origin == message.origin && m.id != message.id)
                }
                State::Redriven | State::Resolved | State::Discarded => true,
            };
            let accepted = self.accepted[usize::from(message.origin)] > message.n;
            record.enveloped && (superseded || accepted)
        });
        recorded
            || self.origins & (1 << message.origin) != 0
            || core.is_done(self.entry, message.origin, message.n)
    }
}
