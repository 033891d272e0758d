//! The exhaustive search: breadth first, so that the first breach found has a shortest path.
//!
//! Worlds are known by 64 bits of their hash: with two million of them a collision, which would hide a
//! world, has a chance of about one in ten million. A path is found again by taking the same steps.

use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault};

use crate::core::{Core, Second};
use crate::invariant;
use crate::mixer::{Map, Mixer};
use crate::step::{Kind, Rules, Steps};
use crate::world::{Breach, Budget, Start, World};
use crate::{executor, sweep, worker};

/// One search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) start: Start,
    pub(crate) second: Second,
    pub(crate) budget: Budget,
    pub(crate) rules: Rules,
    pub(crate) crash_limit: u32,
    pub(crate) max_failure_ratio: f64,
}

/// A breach, and the steps that lead to it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) breach: Breach,
    pub(crate) path: Vec<String>,
    pub(crate) world: World,
}

/// What a search saw.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) worlds: usize,
    /// Worlds in which nothing more happens by itself.
    pub(crate) ends: usize,
    pub(crate) found: Option<Found>,
}

struct Search {
    scenario: Scenario,
    core: Core,
    known: Map<u64, u32>,
    /// By world: the one it was reached from, and by which of its steps.
    from: Vec<(u32, u8)>,
    /// Steps that need neither a fault nor anybody outside, backwards: to, from.
    own: Vec<(u32, u32)>,
    ends: Vec<u32>,
}

/// Searches until a breach is found or nothing is left.
pub(crate) fn search(scenario: Scenario) -> Report {
    let core = Core::new(scenario.second, scenario.crash_limit, scenario.max_failure_ratio);
    let mut search = Search {
        scenario,
        core,
        known: Map::default(),
        from: Vec::new(),
        own: Vec::new(),
        ends: Vec::new(),
    };
    let found = search.explore().or_else(|| search.first_without_end());
    let found = found.map(|(breach, at)| search.retrace(breach, at));
    Report { worlds: search.from.len(), ends: search.ends.len(), found }
}

fn successors(world: &World, scenario: &Scenario, core: &mut Core) -> Steps {
    let mut steps = Steps::default();
    if let Some((of, next)) = sweep::outdated(world, scenario.rules, core) {
        steps.push(Kind::Own, "sweep deletes a token of record", of, next.canonical());
        return steps;
    }
    if let Some(i) = worker::surely(world, scenario.rules, core) {
        let (worker, next) = (world.workers[i], worker::act(world, i, scenario.rules, core));
        steps.push(Kind::Own, worker.at.name(), worker.message.id, next.canonical());
        return steps;
    }
    for i in 0..2 {
        worker::steps(world, i, scenario.rules, core, &mut steps);
        executor::steps(world, i, scenario.rules, core, &mut steps);
    }
    sweep::steps(world, core, &mut steps);
    sweep::fate(world, &mut steps);
    steps.0.retain_mut(|(_, next)| {
        *next = next.canonical();
        next != world
    });
    steps
}

impl Search {
    /// The number of a world, and whether it is new.
    fn enter(&mut self, world: &World, from: (u32, u8)) -> (u32, bool) {
        let hash = BuildHasherDefault::<Mixer>::default().hash_one(world);
        let next = u32::try_from(self.from.len()).unwrap();
        let number = *self.known.entry(hash).or_insert(next);
        if number == next {
            self.from.push(from);
        }
        (number, number == next)
    }

    fn explore(&mut self) -> Option<(Breach, u32)> {
        let first = World::new(self.scenario.start, self.scenario.budget).canonical();
        self.enter(&first, (0, 0));
        let mut queue = VecDeque::from([(0, first)]);
        while let Some((number, world)) = queue.pop_front() {
            let steps = successors(&world, &self.scenario, &mut self.core);
            let mut rests = true;
            for (step, (label, next)) in (0_u8..).zip(steps.0) {
                let (to, new) = self.enter(&next, (number, step));
                if label.kind == Kind::Own {
                    rests = false;
                    self.own.push((to, number));
                }
                if new {
                    let breach = invariant::breach(&next, &self.scenario, &mut self.core);
                    if let Some(breach) = breach {
                        return Some((breach, to));
                    }
                    queue.push_back((to, next));
                }
            }
            if rests {
                self.ends.push(number);
                if !invariant::is_settled(&world, &mut self.core) {
                    return Some((Breach::Stuck, number));
                }
            }
        }
        None
    }

    /// A world from which no path without faults and outside help comes to rest.
    fn first_without_end(&mut self) -> Option<(Breach, u32)> {
        self.own.sort_unstable();
        let mut comes_to_rest = vec![false; self.from.len()];
        let mut queue = self.ends.clone();
        while let Some(to) = queue.pop() {
            let seen = &mut comes_to_rest[usize::try_from(to).unwrap()];
            if std::mem::replace(seen, true) {
                continue;
            }
            let begin = self.own.partition_point(|(end, _)| *end < to);
            let edges = self.own[begin..].iter().take_while(|(end, _)| *end == to);
            queue.extend(edges.map(|(_, from)| *from));
        }
        let first = comes_to_rest.iter().position(|rests| !rests)?;
        Some((Breach::Stuck, u32::try_from(first).unwrap()))
    }

    fn retrace(&mut self, breach: Breach, at: u32) -> Found {
        let mut numbers = Vec::new();
        let mut number = at;
        while number != 0 {
            let (from, step) = self.from[usize::try_from(number).unwrap()];
            numbers.push(step);
            number = from;
        }
        let mut world = World::new(self.scenario.start, self.scenario.budget).canonical();
        let mut path = Vec::new();
        for step in numbers.into_iter().rev() {
            let steps = successors(&world, &self.scenario, &mut self.core);
            let (label, next) = steps.0[usize::from(step)];
            let fault = if label.kind == Kind::Fault { " (fault)" } else { "" };
            path.push(format!("{} {}{fault}", label.what, label.of));
            world = next;
        }
        Found { breach, path, world }
    }
}
