//! Faults around any port, at chosen calls, and a log of all calls.
//!
//! A crash is a call that never ends: the test drops the task that waits for it, before or after its
//! effect. All wrappers of one test share one [`Faults`], so that a plan can name the k-th call of all.
//! Calls are named `ledger.put_both`, `vault.put`, `queue.send orders`; a plan for `queue.send` means
//! every queue's.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::domain::entry::Entry;
use crate::domain::failure::ErrorClass;
use crate::domain::id::{EntryKey, EnvelopeKey, QueueName, ReceiptHandle, RecordId};
use crate::domain::message::{Outgoing, Received};
use crate::domain::record::Record;
use crate::domain::time::Wall;
use crate::port::error::{PortError, Reached, Target};
use crate::port::evidence::{Deletable, Stored};
use crate::port::ledger::{
    Cursor, EntryWrite, Ledger, Page, Range, RecordWrite, Shard, TransactError, WriteError,
};
use crate::port::queue::{Accepted, BatchAnswer, Queue, QueueFacts};
use crate::port::vault::Vault;

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
    /// It is not made; the service answers with this class and code.
    Refuse(ErrorClass, &'static str),
}

#[derive(Debug, Clone, Copy)]
enum When {
    Call(usize),
    CallOf(&'static str, usize),
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
    call.strip_prefix(operation).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// A queue with faults.
#[derive(Debug, Clone)]
pub struct FaultQueue {
    inner: Arc<dyn Queue>,
    faults: Faults,
}

/// A vault with faults.
#[derive(Debug, Clone)]
pub struct FaultVault {
    inner: Arc<dyn Vault>,
    faults: Faults,
}

/// A ledger with faults.
#[derive(Debug, Clone)]
pub struct FaultLedger {
    inner: Arc<dyn Ledger>,
    faults: Faults,
}

impl FaultQueue {
    /// Wraps a queue.
    #[must_use]
    pub const fn new(inner: Arc<dyn Queue>, faults: Faults) -> Self {
        Self { inner, faults }
    }

    async fn around<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, PortError>>,
    ) -> Result<T, PortError> {
        self.faults.around(Target::Sqs, operation, self.inner.name().as_str(), call).await
    }
}

impl FaultVault {
    /// Wraps a vault.
    #[must_use]
    pub const fn new(inner: Arc<dyn Vault>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

impl FaultLedger {
    /// Wraps a ledger.
    #[must_use]
    pub const fn new(inner: Arc<dyn Ledger>, faults: Faults) -> Self {
        Self { inner, faults }
    }

    async fn around<T, E: From<PortError>>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.faults.around(Target::DynamoDb, operation, "", call).await
    }
}

#[async_trait]
impl Queue for FaultQueue {
    fn name(&self) -> &QueueName {
        self.inner.name()
    }

    async fn facts(&self) -> Result<QueueFacts, PortError> {
        self.around("queue.facts", self.inner.facts()).await
    }

    async fn receive(
        &self,
        max: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, PortError> {
        self.around("queue.receive", self.inner.receive(max, wait, visibility)).await
    }

    async fn send(
        &self,
        messages: &[Outgoing],
    ) -> Result<BatchAnswer<Stored<Accepted>>, PortError> {
        self.around("queue.send", self.inner.send(messages)).await
    }

    async fn delete(&self, messages: &[Deletable]) -> Result<BatchAnswer<()>, PortError> {
        self.around("queue.delete", self.inner.delete(messages)).await
    }

    async fn change_visibility(
        &self,
        changes: &[(ReceiptHandle, Duration)],
    ) -> Result<BatchAnswer<()>, PortError> {
        self.around("queue.change_visibility", self.inner.change_visibility(changes)).await
    }
}

#[async_trait]
impl Vault for FaultVault {
    async fn put(&self, key: &EnvelopeKey, body: Bytes) -> Result<Stored<EnvelopeKey>, PortError> {
        self.faults.around(Target::S3, "vault.put", "", self.inner.put(key, body)).await
    }

    async fn check(&self, folder: &str) -> Result<(), PortError> {
        self.faults.around(Target::S3, "vault.check", "", self.inner.check(folder)).await
    }

    async fn get(&self, key: &EnvelopeKey) -> Result<Bytes, PortError> {
        self.faults.around(Target::S3, "vault.get", "", self.inner.get(key)).await
    }

    async fn list(&self, beginning: &str) -> Result<Vec<EnvelopeKey>, PortError> {
        self.faults.around(Target::S3, "vault.list", "", self.inner.list(beginning)).await
    }
}

#[async_trait]
impl Ledger for FaultLedger {
    async fn entry(&self, key: &EntryKey, now: Wall) -> Result<Option<Stored<Entry>>, PortError> {
        self.around("ledger.entry", self.inner.entry(key, now)).await
    }

    async fn record(&self, id: &RecordId, now: Wall) -> Result<Option<Stored<Record>>, PortError> {
        self.around("ledger.record", self.inner.record(id, now)).await
    }

    async fn put_entry(
        &self,
        write: &EntryWrite,
        now: Wall,
    ) -> Result<Stored<Entry>, WriteError<Entry>> {
        self.around("ledger.put_entry", self.inner.put_entry(write, now)).await
    }

    async fn put_record(
        &self,
        write: &RecordWrite,
        now: Wall,
    ) -> Result<Stored<Record>, WriteError<Record>> {
        self.around("ledger.put_record", self.inner.put_record(write, now)).await
    }

    async fn put_both(
        &self,
        entry: &EntryWrite,
        record: &RecordWrite,
        now: Wall,
    ) -> Result<(Stored<Entry>, Stored<Record>), TransactError> {
        self.around("ledger.put_both", self.inner.put_both(entry, record, now)).await
    }

    async fn page(
        &self,
        range: &Range,
        shard: Shard,
        after: Option<&Cursor>,
    ) -> Result<Page, PortError> {
        self.around("ledger.page", self.inner.page(range, shard, after)).await
    }

    async fn identity(&self) -> Result<Option<String>, PortError> {
        self.around("ledger.identity", self.inner.identity()).await
    }

    async fn put_identity(
        &self,
        fingerprint: &str,
        replaces: Option<&str>,
    ) -> Result<String, PortError> {
        let call = self.inner.put_identity(fingerprint, replaces);
        self.around("ledger.put_identity", call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    }
}
