//! Faults around any port, at chosen calls, and a log of all calls.
//!
//! A crash is a call that never ends: the test drops the task that waits for it, before or after its
//! effect. All wrappers of one test share one [`Faults`], so that a plan can name the k-th call of all.
//! Calls are named `ledger.put_both`, `runs.take`, `vault.put`, `queue.send orders`; a plan for `queue.send` means
//! every queue's.

mod ledger;
mod queue;
mod runs;
mod vault;

pub use ledger::FaultLedger;
pub use queue::FaultQueue;
pub use runs::FaultRuns;
pub use vault::FaultVault;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::domain::failure::ErrorClass;
use crate::port::error::{PortError, Reached, Target};

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not made; no answer comes.
    FailBefore,
    /// It is made; no answer comes.
    LostAnswer,
    /// It is not made and never ends.
    HangBefore,
    /// It is made and never ends.
    HangAfter,
    /// It is made only after this time: its caller was paused, or the network was slow.
    Late(Duration),
    /// It is not made; the service answers with this class and code.
    Refuse(ErrorClass, &'static str),
}

#[derive(Debug, Clone, Copy)]
enum When {
    Call(usize),
    CallOf(&'static str, usize),
    Every(&'static str),
}

#[derive(Debug, Default)]
struct Script {
    log: Vec<String>,
    plan: Vec<(When, Fault)>,
}

/// The plan and the log that all wrappers of a test share.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Script>>);

impl Faults {
    /// No faults, an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans a fault for the `k`-th call of all, from 1.
    pub fn at(&self, k: usize, fault: Fault) {
        self.lock().plan.push((When::Call(k), fault));
    }

    /// Plans a fault for the `k`-th call, from 1, of those that `operation` names.
    pub fn at_call_of(&self, operation: &'static str, k: usize, fault: Fault) {
        self.lock().plan.push((When::CallOf(operation, k), fault));
    }

    /// From now on, until [`Faults::mend`], every call that `operation` names has this fault: an outage.
    /// `ledger` names all calls of the ledger.
    pub fn at_every(&self, operation: &'static str, fault: Fault) {
        self.lock().plan.push((When::Every(operation), fault));
    }

    /// Ends all outages.
    pub fn mend(&self) {
        self.lock().plan.retain(|(when, _)| !matches!(when, When::Every(_)));
    }

    /// All calls so far, in order.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a call and says what is to go wrong with it.
    fn begin(&self, call: String) -> Option<Fault> {
        let mut script = self.lock();
        script.log.push(call);
        let script = &*script;
        let is_now = |when: &When| match *when {
            When::Call(k) => script.log.len() == k,
            When::CallOf(operation, k) => {
                let is_one = |call: &String| names(operation, call);
                script.log.last().is_some_and(is_one)
                    && script.log.iter().filter(|call| is_one(call)).count() == k
            }
            When::Every(operation) => script.log.last().is_some_and(|call| names(operation, call)),
        };
        script.plan.iter().find(|(when, _)| is_now(when)).map(|(_, fault)| *fault)
    }

    async fn around<T, E: From<PortError>>(
        &self,
        target: Target,
        operation: &'static str,
        object: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let name = format!("{operation} {object}");
        let lost = || {
            PortError::new(ErrorClass::Transient, target, operation, object, "timeout")
                .with_reached(Reached::NoAnswer)
        };
        match self.begin(name.trim_end().to_owned()) {
            None => call.await,
            Some(Fault::Late(by)) => {
                tokio::time::sleep(by).await;
                call.await
            }
            Some(Fault::FailBefore) => Err(lost().into()),
            Some(Fault::LostAnswer) => {
                drop(call.await);
                Err(lost().into())
            }
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::HangAfter) => {
                drop(call.await);
                std::future::pending().await
            }
            Some(Fault::Refuse(class, code)) => {
                Err(PortError::new(class, target, operation, object, code).into())
            }
        }
    }
}

fn names(operation: &str, call: &str) -> bool {
    call.strip_prefix(operation).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '.']))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::domain::id::EnvelopeKey;
    use crate::port::vault::Vault;
    use crate::sim::vault::SimVault;

    fn key(name: &str) -> EnvelopeKey {
        EnvelopeKey::new(name).unwrap()
    }

    fn vault() -> (Arc<SimVault>, Faults, FaultVault) {
        let (inner, faults) = (Arc::new(SimVault::new()), Faults::new());
        let vault = FaultVault::new(Arc::<SimVault>::clone(&inner), faults.clone());
        (inner, faults, vault)
    }

    async fn put(vault: &FaultVault, name: &str) -> Option<Result<(), PortError>> {
        let (key, body) = (key(name), Bytes::from_static(b"{}"));
        let answer = tokio::time::timeout(Duration::from_secs(60), vault.put(&key, body)).await;
        answer.ok().map(|answer| answer.map(|_| ()))
    }

    #[tokio::test(start_paused = true)]
    async fn each_fault_does_what_it_says_once() {
        let denied = Fault::Refuse(ErrorClass::Denied, "AccessDenied");
        for (fault, made, answered) in [
            (Fault::FailBefore, false, true),
            (Fault::LostAnswer, true, true),
            (Fault::HangBefore, false, false),
            (Fault::HangAfter, true, false),
            (Fault::Late(Duration::from_secs(61)), false, false),
            (denied, false, true),
        ] {
            let (inner, faults, vault) = vault();
            faults.at(2, fault);
            assert!(matches!(put(&vault, "first").await, Some(Ok(()))));
            let answer = put(&vault, "second").await;
            assert_eq!(answer.is_some(), answered, "{fault:?}");
            assert_eq!(inner.objects().contains_key(&key("second")), made, "{fault:?}");
            if let Some(answer) = answer {
                let unknown = answer.unwrap_err().reached() == Reached::NoAnswer;
                assert_eq!(unknown, fault != denied, "{fault:?}");
            }
            assert!(matches!(put(&vault, "third").await, Some(Ok(()))));
            assert_eq!(faults.log(), ["vault.put"; 3]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_call_is_made_after_its_time() {
        let (inner, faults, vault) = vault();
        faults.at(1, Fault::Late(Duration::from_secs(59)));
        assert!(matches!(put(&vault, "late").await, Some(Ok(()))));
        assert!(inner.objects().contains_key(&key("late")));
    }

    #[tokio::test]
    async fn an_outage_lasts_until_it_is_mended() {
        let (_, faults, vault) = vault();
        faults.at_every("vault", Fault::FailBefore);
        for name in ["one", "two"] {
            assert!(put(&vault, name).await.unwrap().is_err());
        }
        faults.mend();
        put(&vault, "three").await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_plan_counts_the_calls_that_it_names() {
        let (inner, faults, vault) = vault();
        faults.at_call_of("vault.get", 2, Fault::FailBefore);
        put(&vault, "one").await.unwrap().unwrap();
        for succeeds in [true, false, true] {
            assert_eq!(vault.get(&key("one")).await.is_ok(), succeeds);
        }
        assert_eq!(inner.objects().len(), 1);
        assert!(names("queue.send", "queue.send orders") && names("queue.send", "queue.send"));
        assert!(!names("ledger.put", "ledger.put_both"));
        assert!(names("ledger", "ledger.put_both"));
    }
}
