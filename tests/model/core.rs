//! The real pure core behind small copies of its types.
//!
//! The search keeps millions of worlds, so a world holds an entry, a record and a run as a few bytes. Each
//! call lifts them to the types of [`redrive::domain`], asks the real function, and lowers the answer;
//! answers are remembered. One key, one table, no expiry: times are constants but for "the lease is over".

use std::hash::Hash;
use std::time::Duration;

use redrive::domain::delivery::{ClaimRequest, Meeting, Then, decide_claim};
use redrive::domain::entry::{self, Claim};
use redrive::domain::id::{MessageId, RecordId};
use redrive::domain::identity::{Content, Judgement, Provenance};
use redrive::domain::record;
use redrive::domain::run::{self, Standing};
use redrive::domain::sweep::{TokenVerdict, decide_token};
use redrive::domain::time::Wall;

use crate::lift::{self, LEASE, REMEMBER, WINDOW};
use crate::mixer::Map;
use crate::ramp::Ramps;
use crate::world::{Entry, Fate, Message, Record, Run};

/// What the content of the second message is, as against the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// The same, sent within the window of repeats.
    RepeatedSoon,
    /// The same, sent a day later: work of its own.
    RepeatedLate,
    /// Another payload under the same key.
    Other,
}

/// What a claim meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    Done { by: u8 },
    Mismatch,
    Refused,
    Finish,
    Take(Entry, Then),
}

/// What happens to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EntryEvent {
    Success { origin: u8 },
    Transient,
    Release,
    Park,
}

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryStep {
    Write(Entry),
    Own,
    Lost,
    Illegal,
}

/// What happens to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RecordEvent {
    /// A parking; `n` is 0 for a plain message, `again` keeps the envelope, `put`: the envelope is there.
    Park {
        n: u8,
        run: u8,
        park: u8,
        again: bool,
        put: bool,
    },
    /// A token is issued again.
    Reissue {
        park: u8,
    },
    Committed {
        duplicate: bool,
    },
    TokenSent {
        park: u8,
    },
    Take {
        run: u8,
        cap: u8,
    },
    SendConfirmed {
        run: u8,
        n: u8,
    },
    SendRefused {
        run: u8,
        n: u8,
        earlier: bool,
    },
}

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordStep {
    Write(Record),
    Finish(Record),
    DeleteMessage,
    Nothing,
    Refused,
    Illegal,
}

/// What happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RunEvent {
    Claim,
    Trip,
    Complete,
}

/// The core with its memory.
pub(crate) struct Core {
    second: Second,
    crash_limit: u32,
    pub(crate) ramps: Ramps,
    met: Map<(Option<Entry>, Message, u8, bool), Met>,
    entries: Map<(Entry, u8, EntryEvent), EntryStep>,
    records: Map<(Option<Record>, RecordEvent), RecordStep>,
    same_entries: Map<(Entry, Entry), (bool, bool)>,
    same_records: Map<(Record, Record), bool>,
    standings: Map<(Option<Record>, u8), Fate>,
    verdicts: Map<(u8, Option<Record>), TokenVerdict>,
    runs: Map<(Run, RunEvent), Option<Run>>,
    done: Map<(Option<Entry>, u8, u8), bool>,
}

fn memo<K: Hash + Eq, V: Copy>(map: &mut Map<K, V>, key: K, ask: impl FnOnce(&K) -> V) -> V {
    if let Some(answer) = map.get(&key) {
        return *answer;
    }
    let answer = ask(&key);
    map.insert(key, answer);
    answer
}

impl Core {
    pub(crate) fn new(second: Second, crash_limit: u32, max_failure_ratio: f64) -> Self {
        Self {
            second,
            crash_limit,
            ramps: Ramps::new(max_failure_ratio),
            met: Map::default(),
            entries: Map::default(),
            records: Map::default(),
            same_entries: Map::default(),
            same_records: Map::default(),
            standings: Map::default(),
            verdicts: Map::default(),
            runs: Map::default(),
            done: Map::default(),
        }
    }

    /// `decide_claim`.
    pub(crate) fn meet(&mut self, entry: Option<Entry>, m: Message, token: u8, over: bool) -> Met {
        let (second, crash_limit) = (self.second, self.crash_limit);
        memo(&mut self.met, (entry, m, token, over), |_| {
            let now = lift::now(over);
            let request = ClaimRequest {
                claim: Claim {
                    token: lift::lease_token(token),
                    holder: MessageId::new(format!("m{}", m.id)).unwrap(),
                    owner: "worker".into(),
                    payload_sha256: lift::payload(second, m.origin),
                    lease: LEASE,
                    remember: REMEMBER,
                },
                content: content(second, m.origin, m.n),
                receive_count: Some(if m.seen { 2 } else { 1 }),
                repeat_window: WINDOW,
                crash_limit,
            };
            let existing = entry.map(|entry| lift::entry(second, &entry));
            match decide_claim(existing.as_ref(), &request, now) {
                Meeting::Done(by) => Met::Done { by: lift::number(by.as_str()) },
                Meeting::Mismatch => Met::Mismatch,
                Meeting::Refused { .. } => Met::Refused,
                Meeting::FinishParking => Met::Finish,
                Meeting::Take { next, then } => Met::Take(lift::lower_entry(&next), then),
            }
        })
    }

    /// `Content::judge`: whether copy `n` of an origin is done; 0 is the plain message.
    pub(crate) fn is_done(&mut self, entry: Option<Entry>, origin: u8, n: u8) -> bool {
        let second = self.second;
        memo(&mut self.done, (entry, origin, n), |_| {
            entry.is_some_and(|entry| {
                let judgement =
                    content(second, origin, n).judge(&lift::entry(second, &entry), WINDOW);
                matches!(judgement, Judgement::Done(_))
            })
        })
    }

    /// `Entry::apply`.
    pub(crate) fn entry(&mut self, entry: Entry, token: u8, event: EntryEvent) -> EntryStep {
        let second = self.second;
        memo(&mut self.entries, (entry, token, event), |_| {
            let real = lift::entry(second, &entry);
            let event = lift::entry_event(second, &entry, event);
            match real.apply(&lift::lease_token(token), &event, REMEMBER, lift::now(false)) {
                Ok(entry::Step::Write(next)) => EntryStep::Write(lift::lower_entry(&next)),
                Ok(entry::Step::OwnRetry) => EntryStep::Own,
                Ok(entry::Step::LostLease) => EntryStep::Lost,
                Err(_) => EntryStep::Illegal,
            }
        })
    }

    /// `record::apply`.
    pub(crate) fn record(&mut self, record: Option<Record>, event: RecordEvent) -> RecordStep {
        memo(&mut self.records, (record, event), |_| {
            let existing = record.map(|record| lift::record(&record));
            let event = lift::record_event(existing.as_ref(), event);
            match record::apply(existing.as_ref(), &event, REMEMBER, lift::now(false)) {
                Ok(record::Step::Write(next)) => RecordStep::Write(lift::lower_record(&next)),
                Ok(record::Step::FinishParking(next)) => {
                    RecordStep::Finish(lift::lower_record(&next))
                }
                Ok(record::Step::DeleteMessage) => RecordStep::DeleteMessage,
                Ok(record::Step::EntryOnly | record::Step::CountsAsSent) => RecordStep::Nothing,
                Ok(record::Step::Refused(_)) => RecordStep::Refused,
                Err(_) => RecordStep::Illegal,
            }
        })
    }

    /// `Entry::is_version_of` and `Entry::is_own_write_of`.
    pub(crate) fn same_entry(&mut self, left: Option<Entry>, right: Option<Entry>) -> (bool, bool) {
        let (Some(left), Some(right)) = (left, right) else {
            return (left.is_none() && right.is_none(), false);
        };
        let second = self.second;
        memo(&mut self.same_entries, (left, right), |_| {
            let (left, right) = (lift::entry(second, &left), lift::entry(second, &right));
            (left.is_version_of(&right), left.is_own_write_of(&right))
        })
    }

    /// `Record::is_version_of`.
    pub(crate) fn same_record(&mut self, left: Option<Record>, right: Option<Record>) -> bool {
        match (left, right) {
            (Some(left), Some(right)) => memo(&mut self.same_records, (left, right), |_| {
                lift::record(&left).is_version_of(&lift::record(&right))
            }),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// `run::standing`.
    pub(crate) fn standing(&mut self, record: Option<Record>, run: u8) -> Fate {
        memo(&mut self.standings, (record, run), |_| {
            match run::standing(record.map(|r| lift::record(&r)).as_ref(), &lift::run_id(run)) {
                Standing::NotSent => Fate::NotSent,
                Standing::InDoubt => Fate::InDoubt,
                Standing::Resolved | Standing::Assumed => Fate::Resolved,
                Standing::Duplicate => Fate::Duplicate,
                Standing::FailedAgain => Fate::FailedAgain,
                Standing::Discarded | Standing::Skipped | Standing::Errored => Fate::Out,
            }
        })
    }

    /// `decide_token`.
    pub(crate) fn verdict(&mut self, park: u8, record: Option<Record>) -> TokenVerdict {
        memo(&mut self.verdicts, (park, record), |_| {
            decide_token(&lift::park_token(park), record.map(|r| lift::record(&r)).as_ref())
        })
    }

    /// `Run::apply`.
    pub(crate) fn run(&mut self, run: Run, event: RunEvent) -> Option<Run> {
        memo(&mut self.runs, (run, event), |_| lift::apply_run(run, event))
    }
}

fn content(second: Second, origin: u8, n: u8) -> Content {
    Content {
        origin: RecordId::new(format!("m{origin}")).unwrap(),
        sent: lift::sent(second, origin),
        hash: lift::payload(second, origin),
        payload: lift::payload(second, origin),
        provenance: if n == 0 { Provenance::Plain } else { Provenance::Redriven },
    }
}

/// A day, between the two messages of [`Second::RepeatedLate`].
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// When the first message was sent.
pub(crate) const FIRST_SENT: Wall = Wall::from_ms(1_000);
