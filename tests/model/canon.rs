//! One representative for worlds that differ in names and order alone, and time that passes by itself.
//!
//! Three reductions, each of which keeps every reachable breach. Names (lease tokens, park tokens, message
//! ids) are only ever compared, so they are renumbered. Workers, executors and messages have no order.
//! What runs out because its actor is dead runs out at once: a lease or a visibility that is over only
//! allows more, and whoever does not use it waits.

use redrive::domain::record::State;

use crate::world::{At, Exec, GONE, Record, RunState, Stage, Sweep, World};

impl World {
    /// The representative of this world.
    pub(crate) fn canonical(mut self) -> Self {
        self.pass_time();
        self.source.sort_unstable();
        self.workers.sort_unstable();
        self.executors.sort_unstable();
        self.forget_holders();
        self.forget_marks();
        self.rename_leases();
        self.rename_parks(0);
        self.rename_parks(1);
        self
    }

    fn pass_time(&mut self) {
        let entry = self.entry.filter(|entry| entry.stage == Stage::InProgress);
        let held = |token| self.workers.iter().any(|w| w.at != At::Idle && w.token == token);
        self.lease_over = entry.is_some_and(|e| self.lease_over || !held(e.token));
        for slot in 0..self.source.len() {
            let Some(message) = self.source[slot] else { continue };
            let claimed = entry.is_some_and(|e| e.holder == message.id) && !self.lease_over;
            let in_flight = message.in_flight && (claimed || self.in_hand(message.id));
            self.source[slot].iter_mut().for_each(|m| m.in_flight = in_flight);
        }
        for slot in 0..self.runs.len() {
            let alive = |fence| {
                let mut executors = self.executors.iter().filter(|e| e.at != Exec::Idle);
                executors.any(|e| usize::from(e.run) == slot + 1 && e.fence == fence)
            };
            let Some(run) = self.runs[slot].filter(|run| run.state == RunState::Running) else {
                continue;
            };
            let over = run.over || !alive(run.fence);
            self.runs[slot].iter_mut().for_each(|run| run.over = over);
        }
    }

    /// A message that is in no queue and no hand never comes back: who held the entry is nobody.
    fn forget_holders(&mut self) {
        let mut lives = 0_u16;
        for message in self.source.iter().flatten() {
            lives |= 1 << message.id;
        }
        for worker in self.workers.iter().filter(|w| w.at != At::Idle) {
            lives |= 1 << worker.message.id;
        }
        let entries = self.workers.iter_mut().filter_map(|w| w.entry.as_mut());
        for entry in entries.chain(self.entry.as_mut()) {
            if lives & (1 << entry.holder) == 0 {
                entry.holder = GONE;
            }
        }
    }

    /// Where a record has moved on for good, nobody asks whether its token was accepted or marked.
    fn forget_marks(&mut self) {
        let workers = self.workers.iter_mut().filter(|w| w.at != At::Token);
        let workers = workers.filter_map(|w| w.record.as_mut());
        let executors = self.executors.iter_mut().filter_map(|e| e.record.as_mut());
        for record in workers.chain(executors).chain(self.records.iter_mut().flatten()) {
            record.sent &= matches!(record.state, State::Quarantined | State::Redriving);
        }
        for (record, accepted) in self.records.iter().zip(&mut self.accepted) {
            let waits = |r: Record| matches!(r.state, State::Quarantined | State::Redriving);
            *accepted *= u8::from(record.is_none_or(waits));
        }
    }

    fn rename_leases(&mut self) {
        let mut names = Names::default();
        if let Some(entry) = &mut self.entry {
            names.rename(&mut entry.token);
        }
        for worker in &mut self.workers {
            names.rename(&mut worker.token);
            if let Some(entry) = &mut worker.entry {
                names.rename(&mut entry.token);
            }
        }
    }

    fn rename_parks(&mut self, of: u8) {
        let mut names = Names::default();
        if let Some(record) = &mut self.records[usize::from(of)] {
            names.rename(&mut record.park);
        }
        for worker in self.workers.iter_mut().filter(|w| w.message.origin == of) {
            names.rename(&mut worker.park);
            worker.record.iter_mut().for_each(|r| names.rename(&mut r.park));
        }
        for executor in self.executors.iter_mut().filter(|e| e.target == of) {
            executor.record.iter_mut().for_each(|r| names.rename(&mut r.park));
        }
        match &mut self.sweep {
            Sweep::Reissue { record, park, read } if *record == of => {
                names.rename(park);
                names.rename(&mut read.park);
            }
            Sweep::Send { record, wrote } | Sweep::Mark { record, wrote } if *record == of => {
                names.rename(&mut wrote.park);
            }
            Sweep::Idle | Sweep::Reissue { .. } | Sweep::Send { .. } | Sweep::Mark { .. } => {}
        }
        let mut dlq = self.dlq[usize::from(of)];
        let mut renamed = 0;
        while dlq != 0 {
            let mut park = u8::try_from(dlq.trailing_zeros()).unwrap();
            dlq &= dlq - 1;
            names.rename(&mut park);
            renamed |= 1 << park;
        }
        self.dlq[usize::from(of)] = renamed;
    }

    /// A lease token that nothing remembers: names are numbered from 1.
    pub(crate) fn fresh_lease(&self) -> u8 {
        let entries = self.workers.iter().filter_map(|w| w.entry).chain(self.entry);
        let tokens = entries.map(|e| e.token).chain(self.workers.iter().map(|w| w.token));
        smallest(1, tokens)
    }

    /// A park token of a record that nothing remembers.
    pub(crate) fn fresh_park(&self, of: u8) -> u8 {
        let workers = self.workers.iter().filter(|w| w.message.origin == of);
        let parks = workers.clone().map(|w| w.park);
        let executors = self.executors.iter().filter(|e| e.target == of).filter_map(|e| e.record);
        let swept = match self.sweep {
            Sweep::Idle => None,
            Sweep::Reissue { record, park, .. } => Some((record, park)),
            Sweep::Send { record, wrote } | Sweep::Mark { record, wrote } => {
                Some((record, wrote.park))
            }
        };
        let read = match self.sweep {
            Sweep::Reissue { read, record, .. } if record == of => Some(read),
            _ => None,
        };
        let records = workers.filter_map(|w| w.record).chain(executors).chain(self.record(of));
        let dlq = self.dlq[usize::from(of)];
        let known = records.chain(read).map(|r| r.park).chain(parks);
        let known = known.chain(swept.filter(|(record, _)| *record == of).map(|(_, park)| park));
        smallest(1, known.chain((0..16).filter(move |park| dlq & (1 << park) != 0)))
    }

    /// A message id that nothing remembers.
    pub(crate) fn fresh_message(&self) -> u8 {
        let entries = self.workers.iter().filter_map(|w| w.entry).chain(self.entry);
        let held = self.workers.iter().map(|w| w.message.id);
        let source = self.source.iter().flatten().map(|m| m.id);
        smallest(2, entries.map(|e| e.holder).chain(held).chain(source))
    }
}

fn smallest(from: u8, used: impl Iterator<Item = u8>) -> u8 {
    let used = used.fold(0_u16, |set, id| set | (1 << id));
    (from..GONE).find(|id| used & (1 << id) == 0).unwrap()
}

/// New names in the order of the first use; 0 is no name.
#[derive(Default)]
struct Names {
    names: [u8; 16],
    count: u8,
}

impl Names {
    fn rename(&mut self, name: &mut u8) {
        if *name == 0 {
            return;
        }
        let new = &mut self.names[usize::from(*name)];
        if *new == 0 {
            self.count += 1;
            *new = self.count;
        }
        *name = *new;
    }
}
