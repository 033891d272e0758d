//! From a selection to an open run: the draft writes nothing; opening it freezes the plan.
//!
//! A limit counts in the order of the plan. Of a FIFO source that order is known only once everything that
//! is selected has been read; otherwise reading stops at the limit.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::Rng;

use super::{RedriveError, Redriver};
use crate::domain::dispatch::Dispatch;
use crate::domain::failure::ErrorCode;
use crate::domain::id::{EnvelopeKey, IdError, RunId, Sha256Hex};
use crate::domain::plan::{Candidate, Plan, count_groups, in_group_order};
use crate::domain::ramp::RampPolicy;
use crate::domain::record::State as RecordState;
use crate::domain::run::{self, Counts, ExecutorLease, Run, State};
use crate::domain::selection::Selection;
use crate::domain::time::Wall;
use crate::port::evidence::Stored;
use crate::port::runs::OpenError;
use crate::service::audit::{Act, By};
use crate::service::query::{Parked, Records};
use crate::service::scope::Scope;

/// What a run would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The records.
    pub plan: Plan,
    /// How many have which code.
    pub by_code: BTreeMap<ErrorCode, u64>,
    /// How many are at their cap and would be discarded.
    pub at_cap: u64,
    /// How many message groups of a FIFO source they are of; none for a standard one.
    pub groups: Option<usize>,
    /// Records parked later are not in it.
    pub cutoff: Wall,
    /// When the oldest DLQ message of these was accepted.
    pub oldest_token: Option<Wall>,
    /// What was asked for.
    pub scope: Scope,
}

/// What a run is opened with.
#[derive(Debug, Clone, PartialEq)]
pub struct Opening {
    /// Why.
    pub note: Option<String>,
    /// Who.
    pub operator: String,
    /// The bounds.
    pub policy: RampPolicy,
    /// How copies are sent; where to is the redriver's own.
    pub dispatch: Dispatch,
    /// The cap on redrives.
    pub max_redrives: u32,
    /// The hash that was agreed to, if one was.
    pub plan_hash: Option<Sha256Hex>,
}

impl Redriver {
    /// Selects quarantined records that were parked before now, `limit` at most: in parked order, or in
    /// the order of the groups of a FIFO source.
    ///
    /// # Errors
    /// The index cannot be read.
    pub async fn draft(
        &self,
        selection: &Selection,
        parked: Parked,
        limit: u64,
        max_redrives: u32,
    ) -> Result<Draft, RedriveError> {
        let cutoff = self.clock.wall();
        let scope = Scope {
            selection: selection.clone(),
            parked,
            limit: Some(limit).filter(|limit| *limit != u64::MAX),
            ..Scope::default()
        };
        let until = parked.until.map_or(cutoff, |until| until.min(cutoff));
        let parked = Parked { until: Some(until), ..parked };
        let mut records = Records::new(self.ledger.as_ref(), &[RecordState::Quarantined], parked);
        let is_fifo = self.queue().is_fifo();
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut selected = Vec::new();
        while is_fifo || selected.len() < most {
            let Some((id, record)) = records.next_of(selection).await? else { break };
            selected.push(Candidate::new(id, record, max_redrives));
        }
        if is_fifo {
            selected = in_group_order(selected);
            selected.truncate(most);
        }
        let groups = is_fifo.then(|| count_groups(&selected));
        let (mut by_code, mut at_cap) = (BTreeMap::new(), 0);
        for Candidate { planned, is_at_cap, .. } in &selected {
            *by_code.entry(planned.error_code.clone()).or_default() += 1;
            at_cap += u64::from(*is_at_cap);
        }
        let oldest_token = selected.iter().filter_map(|candidate| candidate.token_sent).min();
        let plan = Plan::new(selected.into_iter().map(|candidate| candidate.planned).collect());
        Ok(Draft { plan, by_code, at_cap, groups, cutoff, oldest_token, scope })
    }

    /// Freezes the plan and opens the run, executed by us from the start.
    ///
    /// # Errors
    /// Another run is open, the plan is not the agreed one, or a call failed.
    pub async fn open(
        &self,
        draft: &Draft,
        opening: Opening,
        rng: &mut impl Rng,
    ) -> Result<Stored<Run>, RedriveError> {
        let found = draft.plan.hash();
        if let Some(expected) = opening.plan_hash.filter(|expected| *expected != found) {
            return Err(RedriveError::PlanHash { expected, found });
        }
        if let Some(open) = self.insist(|| self.runs.open_run()).await? {
            return Err(RedriveError::Open(open));
        }
        let now = self.clock.wall();
        let id = RunId::generate(now, rng);
        let key = run::plan_key(&self.prefix, &id);
        let key = key.map_err(|e| unusable("plan", &e))?;
        let bytes = draft.plan.encode().map_err(|e| unusable(key.as_str(), &e))?;
        let frozen = self.put(&key, Bytes::from(bytes)).await?;
        tracing::debug!(key = %frozen.get(), "plan frozen");
        let planned = u64::try_from(draft.plan.records().len()).unwrap_or(u64::MAX);
        let run = Run {
            id,
            queue: self.queue().clone(),
            plan_hash: found,
            note: opening.note,
            operator: opening.operator,
            state: State::Running,
            tripped: None,
            rate: opening.policy.start_rate,
            window: opening.policy.canary,
            policy: opening.policy,
            dispatch: Dispatch { to: self.to.clone(), ..opening.dispatch },
            max_redrives: opening.max_redrives,
            place: 0,
            batch: Vec::new(),
            outcome_objects: 0,
            counts: Counts { planned, not_sent: planned, ..Counts::default() },
            lease: Some(ExecutorLease { owner: self.owner.clone(), until: now.plus(self.lease) }),
            fence: 1,
            desired: None,
            rev: 1,
            started_at: now,
            ended_at: None,
        };
        let by = By { operator: run.operator.clone(), note: run.note.clone() };
        self.audit(Act::Start, &run, &by, Some(&draft.scope), rng).await?;
        match self.insist(|| self.runs.open(&run)).await {
            Ok(stored) => Ok(stored),
            Err(OpenError::Held(id)) => Err(RedriveError::Open(id)),
            Err(OpenError::Unknown(e)) => Err(e.into()),
        }
    }

    async fn put(
        &self,
        key: &EnvelopeKey,
        bytes: Bytes,
    ) -> Result<Stored<EnvelopeKey>, RedriveError> {
        Ok(self.insist(|| self.vault.put(key, bytes.clone())).await?)
    }

    /// Reads the frozen plan of a run, and holds it against the run's hash.
    pub(super) async fn plan_of(&self, run: &Run) -> Result<Plan, RedriveError> {
        let key =
            run::plan_key(&self.prefix, &run.id).map_err(|e: IdError| unusable("plan", &e))?;
        let bytes = self.insist(|| self.vault.get(&key)).await?;
        let plan = Plan::decode(&bytes).map_err(|e| unusable(key.as_str(), &e))?;
        if plan.hash() == run.plan_hash {
            Ok(plan)
        } else {
            Err(unusable(key.as_str(), &"it is not the plan that the run was started with"))
        }
    }
}

pub(super) fn unusable(object: &str, why: &dyn std::fmt::Display) -> RedriveError {
    RedriveError::Unusable { object: object.to_owned(), why: why.to_string() }
}
