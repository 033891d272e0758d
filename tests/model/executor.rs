//! An executor of a run: take → send → confirm, outcomes read from the records, takeover.
//!
//! A fenced executor stops at its first refused write of the run; what it had taken it may still send,
//! which is what the copies' claims are there for.

use redrive::domain::record::State;

use crate::core::{Core, RecordEvent, RecordStep, RunEvent};
use crate::step::{Kind, Mutation, Rules, Steps};
use crate::world::{Breach, Exec, Executor, Fate, Message, Record, Run, RunState, World};

pub(crate) fn steps(world: &World, e: usize, rules: Rules, core: &mut Core, out: &mut Steps) {
    let executor = world.executors[e];
    let run = executor.run;
    let mut next = *world;
    match executor.at {
        Exec::Idle => return idle(world, e, core, out),
        Exec::Load => load(&mut next, e, rules, core),
        Exec::Tick => {
            if tick(&mut next, e, rules, core) {
                out.push(Kind::Own, "run ticks", run, next);
            }
            return;
        }
        Exec::Take => take(&mut next, e, rules, core),
        Exec::Send => return send(world, e, out),
        Exec::Confirm => answered(&mut next, e, true, rules, core),
        Exec::Refused => answered(&mut next, e, false, rules, core),
        Exec::Trip => end(&mut next, e, RunEvent::Trip, core),
        Exec::Complete => end(&mut next, e, RunEvent::Complete, core),
    }
    let what = match executor.at {
        Exec::Idle | Exec::Tick | Exec::Send => "",
        Exec::Load => "run's records are read again",
        Exec::Take => "run takes a record",
        Exec::Confirm => "run confirms a send",
        Exec::Refused => "run notes a refused send",
        Exec::Trip => "run trips",
        Exec::Complete => "run completes",
    };
    out.push(Kind::Own, what, run, next);
    let is_write = matches!(executor.at, Exec::Take | Exec::Confirm | Exec::Trip | Exec::Complete);
    if is_write && world.budget.lost > 0 {
        let mut lost = next;
        lost.executors[e] = executor;
        lost.budget.lost -= 1;
        out.push(Kind::Fault, "run makes a write whose answer is lost", run, lost);
    }
}

/// Starts a run, resumes one, or takes one over.
fn idle(world: &World, e: usize, core: &mut Core, out: &mut Steps) {
    if e == 1 && world.executors[0].at == Exec::Idle {
        return;
    }
    for (slot, run) in world.runs.iter().enumerate() {
        let Some(run) = *run else { continue };
        let (kind, what) = match run.state {
            RunState::Running if run.over => (Kind::Own, "run is taken over"),
            RunState::Tripped if world.budget.resumes > 0 => (Kind::Outside, "run is resumed"),
            _ => continue,
        };
        let Some(claimed) = core.run(run, RunEvent::Claim) else { continue };
        let mut next = *world;
        next.budget.resumes -= u8::from(kind == Kind::Outside);
        next.runs[slot] = Some(claimed);
        next.executors[e] = Executor {
            at: Exec::Load,
            run: u8::try_from(slot).unwrap() + 1,
            fence: claimed.fence,
            rev: claimed.rev,
            touched: claimed.touched,
            ..Executor::default()
        };
        out.push(kind, what, next.executors[e].run, next);
    }
    start(world, e, out);
}

fn start(world: &World, e: usize, out: &mut Steps) {
    let open = world.runs.iter().flatten().any(|run| run.state.is_open());
    let quarantined = |of: &u8| world.record(*of).is_some_and(|r| r.state == State::Quarantined);
    let plan = [0, 1].iter().filter(|of| quarantined(of)).fold(0, |set, of| set | (1 << of));
    let Some(slot) = world.runs.iter().position(Option::is_none) else { return };
    if open || plan == 0 || world.budget.runs == 0 {
        return;
    }
    let mut next = *world;
    next.budget.runs -= 1;
    let state = RunState::Running;
    next.runs[slot] =
        Some(Run { state, fence: 1, rev: 0, over: false, plan, touched: 0, batch: None });
    let run = u8::try_from(slot).unwrap() + 1;
    next.executors[e] = Executor { at: Exec::Tick, run, fence: 1, ..Executor::default() };
    out.push(Kind::Outside, "run is started", run, next);
}

/// After a takeover: reads the records of the plan up to its place, and sends the batch in hand again.
fn load(world: &mut World, e: usize, rules: Rules, core: &mut Core) {
    let mut executor = world.executors[e];
    executor.at = Exec::Tick;
    for of in (0..2).filter(|of| executor.touched & (1 << of) != 0) {
        match core.standing(world.record(of), executor.run) {
            Fate::InDoubt => executor.watched |= 1 << of,
            fate => executor.fates[usize::from(of)] = Some(fate),
        }
    }
    let batch = world.runs[usize::from(executor.run) - 1].and_then(|run| run.batch);
    if let Some(of) = batch {
        let record = world
            .record(of)
            .filter(|record| record.state == State::Redriving && record.run == executor.run)
            .map(|record| taken(record, rules));
        if record.is_some() {
            executor = Executor { at: Exec::Send, target: of, record, earlier: true, ..executor };
        }
    }
    world.executors[e] = executor;
}

/// Reads outcomes and decides what is next. Says whether anything changed.
fn tick(world: &mut World, e: usize, rules: Rules, core: &mut Core) -> bool {
    let mut executor = world.executors[e];
    let Some(run) = world.runs[usize::from(executor.run) - 1] else { return false };
    let mut in_doubt = 0;
    let mut outcomes = [None; 2];
    for of in (0..2_u8).filter(|of| executor.watched & (1 << of) != 0) {
        let slot = usize::from(of);
        if executor.fates[slot].is_none() {
            let fate = core.standing(world.record(of), executor.run);
            executor.fates[slot] = Some(fate).filter(|fate| *fate != Fate::InDoubt);
        }
        in_doubt += u8::from(executor.fates[slot].is_none());
        outcomes[slot] = executor.fates[slot];
    }
    let allowed = core.ramps.allowed(executor.sends, outcomes, in_doubt);
    let ignores = rules.mutation == Mutation::IgnoredDoubt;
    let left = run.plan & !executor.touched;
    let target = (0..2_u8).find(|of| left & (1 << of) != 0);
    if allowed.trips {
        executor.at = Exec::Trip;
    } else if let Some(of) = target.filter(|_| allowed.copies > 0 || ignores) {
        let record = world.record(of);
        let event = RecordEvent::Take { run: executor.run, cap: rules.max_redrives };
        match core.record(record, event) {
            RecordStep::Write(_) => {
                executor = Executor { at: Exec::Take, target: of, record, ..executor };
            }
            _ => {
                executor.touched |= 1 << of;
                let fate = core.standing(record, executor.run);
                executor.fates[usize::from(of)] = Some(fate);
            }
        }
    } else if left == 0 && in_doubt == 0 {
        executor.at = Exec::Complete;
    }
    let changed = executor != world.executors[e];
    world.executors[e] = executor;
    changed
}

/// The record and the run in one transaction.
fn take(world: &mut World, e: usize, rules: Rules, core: &mut Core) {
    let mut executor = world.executors[e];
    let slot = usize::from(executor.run) - 1;
    let Some(run) = world.runs[slot] else { return };
    let of = executor.target;
    let event = RecordEvent::Take { run: executor.run, cap: rules.max_redrives };
    let RecordStep::Write(next) = core.record(executor.record, event) else { return };
    let own = run.rev == executor.rev + 1 && run.fence == executor.fence && run.batch == Some(of);
    let fenced = run.rev != executor.rev && rules.mutation != Mutation::UnfencedTake;
    if own {
        // Our own earlier try got through.
    } else if fenced {
        world.executors[e] = Executor::default();
        return;
    } else if core.same_record(world.record(of), executor.record) {
        if run.fence != executor.fence || run.state != RunState::Running {
            world.breach = Some(Breach::StaleTake);
        }
        let rev = executor.rev + 1;
        world.runs[slot] =
            Some(Run { rev, touched: run.touched | 1 << of, batch: Some(of), ..run });
        world.put_record(of, next);
    } else {
        world.executors[e] = Executor { at: Exec::Tick, target: 0, record: None, ..executor };
        return;
    }
    executor.rev += 1;
    executor.touched |= 1 << of;
    executor.watched |= 1 << of;
    let sends = next.state == State::Redriving;
    executor.sends += 1;
    executor.at = if sends { Exec::Send } else { Exec::Tick };
    executor.record = sends.then_some(taken(next, rules));
    executor.target = if sends { of } else { 0 };
    world.executors[e] = executor;
}

/// What an executor needs of a record that it took; to forget an outcome it must know all of it.
fn taken(record: Record, rules: Rules) -> Record {
    if rules.mutation == Mutation::SettledOnce {
        return record;
    }
    Record { park: 0, sent: false, ..record }
}

fn send(world: &World, e: usize, out: &mut Steps) {
    let executor = world.executors[e];
    let Some(record) = executor.record else { return };
    let of = executor.target;
    let mut next = *world;
    let id = next.fresh_message();
    let copy = Message { id, origin: of, n: record.n, run: executor.run, ..Message::default() };
    *next.source.iter_mut().find(|slot| slot.is_none()).unwrap() = Some(copy);
    next.executors[e].at = Exec::Confirm;
    out.push(Kind::Own, "copy is sent of record", of, next);
    if world.budget.lost > 0 {
        next.executors[e] = Executor { earlier: true, ..executor };
        next.budget.lost -= 1;
        out.push(Kind::Fault, "copy is sent, its answer lost, of record", of, next);
    }
    if world.budget.refusals > 0 {
        let mut next = *world;
        next.executors[e].at = Exec::Refused;
        next.budget.refusals -= 1;
        out.push(Kind::Fault, "copy is refused of record", of, next);
    }
}

/// The source answered: `redriving → redriven`, or back to quarantine. A record that has changed is looked
/// at again: it may be that its token alone was marked.
fn answered(world: &mut World, e: usize, accepted: bool, rules: Rules, core: &mut Core) {
    let executor = world.executors[e];
    let (of, run) = (executor.target, executor.run);
    let n = executor.record.map_or(0, |record| record.n);
    let event = if accepted {
        RecordEvent::SendConfirmed { run, n }
    } else {
        RecordEvent::SendRefused { run, n, earlier: executor.earlier }
    };
    let unmoved = core.same_record(world.record(of), executor.record);
    let again = rules.mutation != Mutation::SettledOnce;
    if let RecordStep::Write(next) = core.record(world.record(of), event)
        && (unmoved || again)
    {
        world.put_record(of, next);
    }
    let executor = Executor { at: Exec::Tick, target: 0, record: None, earlier: false, ..executor };
    world.executors[e] = executor;
}

fn end(world: &mut World, e: usize, event: RunEvent, core: &mut Core) {
    let executor = world.executors[e];
    let slot = usize::from(executor.run) - 1;
    let run = world.runs[slot].filter(|run| run.rev == executor.rev);
    if let Some(next) = run.and_then(|run| core.run(run, event)) {
        world.runs[slot] = Some(Run { batch: None, ..next });
    }
    world.executors[e] = Executor::default();
}
