//! The item of a redrive run, with its place in the index: one partition a source, in the order of ids.
//!
//! Rates are numbers in the shortest text that reads back as the same `f64`. Durations are whole
//! milliseconds. A run has no expiry.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;

use super::{GSI_PK, GSI_SK, Item, Kept, LEASE_UNTIL, OWNER, PK, RUN_ID, Reader, STATE};
use super::{Undecodable, item, number, text, time};
use crate::domain::dispatch::{Dispatch, Feedback};
use crate::domain::id::{QueueName, RecordId, RunId};
use crate::domain::ramp::{RampPolicy, Trip};
use crate::domain::run::{Counts, Desired, ExecutorLease, Run, State};
use crate::domain::time::{Wall, millis};

const POLICY: &str = "policy";
const COUNTS: &str = "counts";
const BATCH: &str = "batch";
const TRIPPED: &str = "tripped";
const DESIRED: &str = "desired";
const FORCE: &str = "force";
const FEEDBACK: &str = "feedback";
const TO: &str = "to";
const FENCE: &str = "fence";
const REV: &str = "rev";

/// The partition of the index that holds a source's runs.
pub(in crate::aws) fn run_partition(queue: &QueueName) -> String {
    format!("{queue}#run#0")
}

impl Kept for Run {
    type Id = RunId;

    fn pk(_queue: &QueueName, id: &RunId) -> String {
        format!("run#{id}")
    }

    fn to_item(&self, queue: &QueueName, id: &RunId) -> Item {
        let batch = self.batch.iter().cloned().map(text).collect();
        item([
            (PK, Some(text(Self::pk(queue, id)))),
            (GSI_PK, Some(text(run_partition(queue)))),
            (GSI_SK, Some(text(id.clone()))),
            (RUN_ID, Some(text(self.id.clone()))),
            ("queue", Some(text(self.queue.clone()))),
            ("plan_hash", Some(text(self.plan_hash.clone()))),
            ("note", self.note.clone().map(text)),
            ("operator", Some(text(self.operator.clone()))),
            (STATE, Some(text(self.state.name()))),
            (TRIPPED, self.tripped.map(|trip| text(trip.name()))),
            (DESIRED, self.desired.map(|desired| text(desired.name()))),
            (POLICY, Some(policy_value(&self.policy))),
            (FORCE, self.dispatch.force.then_some(AttributeValue::Bool(true))),
            (FEEDBACK, Some(text(self.dispatch.feedback.name()))),
            (TO, self.dispatch.to.clone().map(text)),
            ("max_redrives", Some(number(self.max_redrives))),
            ("rate", Some(float(self.rate))),
            ("window", Some(number(self.window))),
            ("place", Some(number(self.place))),
            (BATCH, Some(AttributeValue::L(batch))),
            ("outcome_objects", Some(number(self.outcome_objects))),
            (COUNTS, Some(counts_value(&self.counts))),
            (OWNER, self.lease.as_ref().map(|lease| text(lease.owner.clone()))),
            (LEASE_UNTIL, self.lease.as_ref().map(|lease| time(lease.until))),
            (FENCE, Some(number(self.fence))),
            (REV, Some(number(self.rev))),
            ("started_at_ms", Some(time(self.started_at))),
            ("ended_at_ms", self.ended_at.map(time)),
        ])
    }

    fn from_item(item: &Item) -> Result<Self, Undecodable> {
        let reader = Reader::of_item(item);
        Ok(Self {
            id: reader.needed(RUN_ID)?,
            queue: reader.needed("queue")?,
            plan_hash: reader.needed("plan_hash")?,
            note: reader.text("note")?.map(str::to_owned),
            operator: reader.needed_text("operator")?.to_owned(),
            state: reader.needed_named(STATE, State::from_name)?,
            tripped: reader.named(TRIPPED, Trip::from_name)?,
            policy: policy(reader)?,
            dispatch: dispatch(reader)?,
            max_redrives: reader.needed_number("max_redrives")?,
            rate: reader.needed_number("rate")?,
            window: reader.needed_number("window")?,
            place: reader.needed_number("place")?,
            batch: batch(reader)?,
            outcome_objects: reader.needed_number("outcome_objects")?,
            counts: counts(reader)?,
            lease: lease(reader)?,
            fence: reader.needed_number(FENCE)?,
            desired: reader.named(DESIRED, Desired::from_name)?,
            rev: reader.needed_number(REV)?,
            started_at: reader.needed_time("started_at_ms")?,
            ended_at: reader.time("ended_at_ms")?,
        })
    }

    fn version(&self) -> Vec<(&'static str, Option<AttributeValue>)> {
        vec![(REV, Some(number(self.rev))), (FENCE, Some(number(self.fence)))]
    }

    fn is_expired(&self, _now: Wall) -> bool {
        false
    }
}

fn float(value: f64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn duration(value: Duration) -> AttributeValue {
    number(millis(value))
}

fn policy_value(policy: &RampPolicy) -> AttributeValue {
    AttributeValue::M(item([
        ("canary", Some(number(policy.canary))),
        ("start_rate", Some(float(policy.start_rate))),
        ("growth", Some(float(policy.growth))),
        ("step_ms", Some(duration(policy.step))),
        ("max_rate", Some(float(policy.max_rate))),
        ("max_in_doubt", Some(number(policy.max_in_doubt))),
        ("max_failure_ratio", Some(float(policy.max_failure_ratio))),
        ("max_backlog", Some(number(policy.max_backlog))),
        ("outcome_timeout_ms", Some(duration(policy.outcome_timeout))),
    ]))
}

fn policy(reader: Reader<'_>) -> Result<RampPolicy, Undecodable> {
    let reader = within(reader, POLICY)?;
    Ok(RampPolicy {
        canary: reader.needed_number("canary")?,
        start_rate: reader.needed_number("start_rate")?,
        growth: reader.needed_number("growth")?,
        step: Duration::from_millis(reader.needed_number("step_ms")?),
        max_rate: reader.needed_number("max_rate")?,
        max_in_doubt: reader.needed_number("max_in_doubt")?,
        max_failure_ratio: reader.needed_number("max_failure_ratio")?,
        max_backlog: reader.needed_number("max_backlog")?,
        outcome_timeout: Duration::from_millis(reader.needed_number("outcome_timeout_ms")?),
    })
}

/// Runs that were started before these were stored have none of them.
fn dispatch(reader: Reader<'_>) -> Result<Dispatch, Undecodable> {
    Ok(Dispatch {
        force: reader.attributes.get(FORCE) == Some(&AttributeValue::Bool(true)),
        feedback: reader.named(FEEDBACK, Feedback::from_name)?.unwrap_or_default(),
        to: reader.parsed(TO)?,
    })
}

fn counts_value(counts: &Counts) -> AttributeValue {
    AttributeValue::M(item([
        ("planned", Some(number(counts.planned))),
        ("not_sent", Some(number(counts.not_sent))),
        ("sent", Some(number(counts.sent))),
        ("in_doubt", Some(number(counts.in_doubt))),
        ("resolved", Some(number(counts.resolved))),
        ("duplicates", Some(number(counts.duplicates))),
        ("assumed", Some(number(counts.assumed))),
        ("failed_again", Some(number(counts.failed_again))),
        ("discarded", Some(number(counts.discarded))),
        ("skipped", Some(number(counts.skipped))),
        ("errored", Some(number(counts.errored))),
    ]))
}

fn counts(reader: Reader<'_>) -> Result<Counts, Undecodable> {
    let reader = within(reader, COUNTS)?;
    Ok(Counts {
        planned: reader.needed_number("planned")?,
        not_sent: reader.needed_number("not_sent")?,
        sent: reader.needed_number("sent")?,
        in_doubt: reader.needed_number("in_doubt")?,
        resolved: reader.needed_number("resolved")?,
        duplicates: reader.needed_number("duplicates")?,
        assumed: reader.number("assumed")?.unwrap_or_default(),
        failed_again: reader.needed_number("failed_again")?,
        discarded: reader.needed_number("discarded")?,
        skipped: reader.needed_number("skipped")?,
        errored: reader.needed_number("errored")?,
    })
}

fn within<'a>(reader: Reader<'a>, name: &'static str) -> Result<Reader<'a>, Undecodable> {
    let value = reader.attributes.get(name).ok_or_else(|| reader.bad(name))?;
    reader.within(value, name)
}

fn batch(reader: Reader<'_>) -> Result<Vec<RecordId>, Undecodable> {
    let id = |value: &AttributeValue| {
        let id = value.as_s().ok().and_then(|id| RecordId::new(id).ok());
        id.ok_or_else(|| reader.bad(BATCH))
    };
    reader.list(BATCH)?.iter().map(id).collect()
}

fn lease(reader: Reader<'_>) -> Result<Option<ExecutorLease>, Undecodable> {
    let Some(until) = reader.time(LEASE_UNTIL)? else { return Ok(None) };
    Ok(Some(ExecutorLease { owner: reader.needed_text(OWNER)?.to_owned(), until }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::item::EXPIRES_AT;
    use crate::domain::id::Sha256Hex;

    fn emptiest() -> Run {
        Run {
            id: RunId::new("run-1").unwrap(),
            queue: QueueName::new("orders").unwrap(),
            plan_hash: Sha256Hex::of(b"plan"),
            note: None,
            operator: "alice".to_owned(),
            state: State::Running,
            tripped: None,
            policy: RampPolicy {
                canary: 5,
                start_rate: 0.1,
                growth: 2.0,
                step: Duration::from_secs(30),
                max_rate: 50.0,
                max_in_doubt: 1_000,
                max_failure_ratio: 0.2,
                max_backlog: 10_000,
                outcome_timeout: Duration::from_secs(900),
            },
            dispatch: Dispatch::default(),
            max_redrives: 3,
            rate: 1e-3,
            window: 5,
            place: 0,
            batch: Vec::new(),
            outcome_objects: 0,
            counts: Counts::default(),
            lease: None,
            fence: 2,
            desired: None,
            rev: 7,
            started_at: Wall::from_ms(1_700_000_000_123),
            ended_at: None,
        }
    }

    fn fullest() -> Run {
        let at = Wall::from_ms(1_700_000_000_124);
        Run {
            note: Some("fixed".to_owned()),
            state: State::Tripped,
            tripped: Some(Trip::FailureRatio),
            batch: vec![RecordId::new("m-1").unwrap()],
            lease: Some(ExecutorLease { owner: "worker-1".to_owned(), until: at }),
            desired: Some(Desired::Pause),
            dispatch: Dispatch {
                force: true,
                feedback: Feedback::Queue,
                to: Some(QueueName::new("elsewhere").unwrap()),
            },
            ended_at: Some(at),
            ..emptiest()
        }
    }

    fn stored(run: &Run) -> Item {
        run.to_item(&run.queue, &run.id)
    }

    #[test]
    fn every_run_comes_back_and_absent_is_absent() {
        for run in [fullest(), emptiest()] {
            let item = stored(&run);
            assert_eq!(Run::from_item(&item), Ok(run.clone()));
            for (name, value) in run.version() {
                assert_eq!(item.get(name), value.as_ref(), "{name}");
            }
            assert!(!item.contains_key(EXPIRES_AT));
        }
        let item = stored(&emptiest());
        for name in ["note", TRIPPED, DESIRED, OWNER, LEASE_UNTIL, "ended_at_ms"] {
            assert!(!item.contains_key(name), "{name}");
        }
    }

    #[test]
    fn names_are_the_documented_ones() {
        let item = stored(&fullest());
        let field = |name: &str| item.get(name).cloned().unwrap();
        assert_eq!(field("pk"), text("run#run-1"));
        assert_eq!(field("gsi_pk"), text("orders#run#0"));
        assert_eq!(field("gsi_sk"), text("run-1"));
        assert_eq!(field("tripped"), text("failure_ratio"));
        assert_eq!(field("desired"), text("pause"));
        assert_eq!(field("rate"), AttributeValue::N("0.001".to_owned()));
        assert_eq!(field("batch"), AttributeValue::L(vec![text("m-1")]));
        let policy = field("policy");
        let step = policy.as_m().unwrap().get("step_ms").cloned();
        assert_eq!(step, Some(AttributeValue::N("30000".to_owned())));
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        for attribute in [STATE, TRIPPED, DESIRED, POLICY, COUNTS] {
            let mut item = stored(&fullest());
            item.insert(attribute.to_owned(), text("from_the_future"));
            let error = Run::from_item(&item).unwrap_err();
            assert_eq!(error, Undecodable { pk: "run#run-1".into(), attribute });
        }
    }
}
