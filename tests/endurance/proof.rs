//! What must hold once a storm is over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use redrive::domain::id::{ParkToken, RecordId, Sha256Hex};
use redrive::domain::record::{Record, State};
use redrive::domain::token::{Carried, Marker, recognise};
use redrive::port::queue::Depth;
use serde_json::Value;

use crate::crew::Fates;
use crate::message::Sent;
use crate::world::{CONCURRENCY, Entry, LOG, World, wait_until};

/// A record, and the body in its envelope.
struct Parked {
    record: Record,
    envelope_of: RecordId,
    body: String,
}

/// Everything that a storm left behind, after a full sweep.
pub(crate) struct Proof {
    source: Depth,
    stats: Value,
    entries: BTreeMap<String, Entry>,
    parked: BTreeMap<RecordId, Parked>,
    /// Of each message in the DLQ; none for one that is no token of this source.
    tokens: Vec<Option<ParkToken>>,
    /// How often each idempotency key had its effect.
    effects: HashMap<String, usize>,
    log: String,
}

impl Proof {
    pub(crate) fn gather(world: &World) -> Self {
        sweep(world);
        let stats = world.stats();
        let (entries, ids) = world.ledger();
        let parked = |id: String| {
            let id = RecordId::new(id).unwrap();
            let record = world.record(&id);
            let envelope = world.envelope(&record.envelope);
            (id, Parked { record, envelope_of: envelope.record_id, body: envelope.payload.body })
        };
        let mut effects = HashMap::new();
        for line in world.read("effects").lines() {
            *effects.entry(line.to_owned()).or_default() += 1;
        }
        let dead = world.take_dead_letters();
        let token = |carried| match carried {
            Carried::Inline(Marker::Token(token)) => Some(token.park),
            _ => None,
        };
        let tokens = dead.iter().map(|dead| {
            let own = dead.dead_letter_source.is_none();
            recognise(&dead.body, &dead.attributes, world.queue()).filter(|_| own).and_then(token)
        });
        Self {
            source: world.source_depth(),
            stats,
            entries,
            parked: ids.into_iter().map(parked).collect(),
            tokens: tokens.collect(),
            effects,
            log: world.read(LOG),
        }
    }

    /// Checks all of it against what was sent.
    pub(crate) fn check(&self, sent: &[Sent], fates: &Fates) {
        assert_eq!(self.source, Depth::default(), "the source is drained");
        sent.iter().for_each(|sent| self.check_kept(sent));
        self.check_entries(sent);
        self.check_records();
        self.check_effects(sent, fates);
        assert!(!self.log.contains("panicked"), "a worker panicked");
    }

    /// G1 and G6: a message is committed, or it is parked for a reason of its own.
    fn check_kept(&self, sent: &Sent) {
        let Sent { id, kind, body } = sent;
        let id = RecordId::from(id);
        let Some(Parked { record, envelope_of, body: evidence }) = self.parked.get(&id) else {
            let done = self.entry(body).is_some_and(|entry| !entry.origins.is_empty());
            assert!(kind.can_succeed() && done, "{sent:?} is lost");
            return;
        };
        assert_eq!((envelope_of, evidence), (&id, body), "the evidence is of {sent:?}");
        assert_eq!(record.state, State::Quarantined, "{sent:?}");
        let code = record.error_code.as_str();
        let expected = kind.code();
        assert!(expected == Some(code) || code == "WORKER_CRASHED", "{sent:?} parked as {code}");
    }

    /// G2: a body is done once, by one of the messages that have it.
    fn check_entries(&self, sent: &[Sent]) {
        let mut by_key: HashMap<String, BTreeSet<String>> = HashMap::new();
        for Sent { id, body, .. } in sent {
            by_key.entry(key(body)).or_default().insert(id.to_string());
        }
        assert_eq!(self.entries.len(), by_key.len(), "an entry for each body");
        for (key, entry) in &self.entries {
            assert!(entry.origins.len() <= 1, "{key} is committed by {:?}", entry.origins);
            assert!(entry.origins.is_subset(&by_key[key]), "{key}: {:?}", entry.origins);
            let parked =
                |origin: &String| self.parked.contains_key(&RecordId::new(origin.clone()).unwrap());
            assert!(!entry.origins.iter().any(parked), "{key} is committed and parked");
        }
    }

    /// Every quarantined record has its token in the DLQ, where all can see it. Beside these there may be
    /// some that no longer count: what a sweep held when it died with its worker stays hidden for minutes, so
    /// the next full one sends it again.
    fn check_records(&self) {
        let found: BTreeSet<_> = self.tokens.iter().flatten().collect();
        for Parked { record, envelope_of, .. } in self.parked.values() {
            assert!(found.contains(&record.park_token), "{envelope_of} has no token that counts");
        }
        assert!(self.tokens.iter().all(Option::is_some), "only tokens are in the DLQ");
        let count = |path: &str| self.stats.pointer(path).and_then(Value::as_u64);
        let all = u64::try_from(self.parked.len()).unwrap();
        assert_eq!(count("/states/quarantined"), Some(all), "{}", self.stats);
        for state in ["redriving", "redriven", "resolved", "discarded"] {
            assert_eq!(count(&format!("/states/{state}")), Some(0), "{}", self.stats);
        }
    }

    /// A commit has its effect, under one idempotency key; an effect is repeated for a death alone.
    fn check_effects(&self, sent: &[Sent], fates: &Fates) {
        for (key, entry) in self.entries.iter().filter(|(_, entry)| !entry.origins.is_empty()) {
            let own = format!("{key}-{}", entry.generation);
            assert!(self.effects.contains_key(&own), "{key} is committed without its effect");
        }
        let bodies: HashMap<String, &str> =
            sent.iter().map(|sent| (key(&sent.body), sent.body.as_str())).collect();
        let crashed: BTreeSet<&str> = self.parked.values().map(|p| p.body.as_str()).collect();
        let mut keys: HashMap<&str, &str> = HashMap::new();
        for idempotency_key in self.effects.keys() {
            let (key, generation) = idempotency_key.rsplit_once('-').unwrap();
            let body = bodies[key];
            let other = keys.insert(key, generation);
            // What parks a crashed twin ends its generation.
            assert!(other.is_none() || crashed.contains(body), "{body:?} had two generations");
        }
        let deaths = (fates.killed + fates.stopped) * CONCURRENCY;
        assert!(self.repeated() <= deaths, "{} effects were repeated", self.repeated());
        assert!(self.crashed() * 3 <= deaths, "{} messages crashed workers", self.crashed());
    }

    fn entry(&self, body: &str) -> Option<&Entry> {
        self.entries.get(&key(body))
    }

    fn repeated(&self) -> usize {
        self.effects.values().map(|times| times - 1).sum()
    }

    fn crashed(&self) -> usize {
        let codes = self.parked.values().map(|parked| parked.record.error_code.as_str());
        codes.filter(|code| *code == "WORKER_CRASHED").count()
    }
}

/// One full sweep. One that died with its worker may have the lock for a while.
fn sweep(world: &World) {
    let mut swept = None;
    wait_until("sweep", || {
        let output = world.run(&["--json", "sweep", "--full"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(0 | 75)), "{text}{error}");
        swept = output.status.success().then_some(text);
        swept.is_some()
    });
    println!("sweep: {}", swept.unwrap().trim());
}

fn key(body: &str) -> String {
    Sha256Hex::of(body.as_bytes()).to_string()
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let committed: usize = self.entries.values().map(|entry| entry.origins.len()).sum();
        let (parked, tokens) = (self.parked.len(), self.tokens.len());
        write!(f, "{committed} committed, {parked} parked, {} as crashed, ", self.crashed())?;
        write!(f, "{tokens} in the DLQ, {} effects repeated", self.repeated())
    }
}
