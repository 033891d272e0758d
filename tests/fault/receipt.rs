//! Which message each receipt handle is of, and the calls that name it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use redrive::domain::id::MessageId;
use serde_json::Value;

use crate::wire::act::Act;
use crate::wire::call::{Call, Service};
use crate::wire::rule::Rule;
use crate::world::World;

/// The receipt handles that workers were given. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receipts(Arc<Mutex<Vec<(String, String)>>>);

impl Receipts {
    /// Notes what is received over the wire from now on.
    pub(crate) fn noted(world: &World) -> Self {
        let receipts = Self::default();
        let noted = receipts.clone();
        let note = Act::json(move |_, answer| {
            for message in answer["Messages"].as_array().into_iter().flatten() {
                let text = |name: &str| message[name].as_str().unwrap().to_owned();
                noted.0.lock().unwrap().push((text("ReceiptHandle"), text("MessageId")));
            }
        });
        world.wire.add(Rule::on(Service::Sqs, "ReceiveMessage", note));
        receipts
    }

    /// The handles of one message, in the order of its deliveries.
    pub(crate) fn of(&self, id: &MessageId) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let own = all.iter().filter(|(_, other)| other == id.as_str());
        own.map(|(receipt, _)| receipt.clone()).collect()
    }

    /// The message of a handle.
    pub(crate) fn message(&self, receipt: &str) -> String {
        let all = self.0.lock().unwrap();
        all.iter().find(|(other, _)| other == receipt).unwrap().1.clone()
    }
}

/// The handles that a batch names, in order.
pub(crate) fn handles(call: &Call) -> Vec<String> {
    let body = call.json();
    let entries = body["Entries"].as_array().into_iter().flatten();
    entries.map(|entry| entry["ReceiptHandle"].as_str().unwrap().to_owned()).collect()
}

/// The changes of visibility, by handle: the call's place and time, and the seconds asked for.
pub(crate) fn changes(world: &World) -> BTreeMap<String, Vec<(Call, u64)>> {
    let mut changes: BTreeMap<String, Vec<(Call, u64)>> = BTreeMap::new();
    for call in world.wire.calls_of(Service::Sqs, "ChangeMessageVisibilityBatch") {
        for entry in call.json()["Entries"].as_array().into_iter().flatten() {
            let Value::String(handle) = &entry["ReceiptHandle"] else { panic!("{entry}") };
            let seconds = entry["VisibilityTimeout"].as_u64().unwrap();
            changes.entry(handle.clone()).or_default().push((call.clone(), seconds));
        }
    }
    changes
}

/// No visibility is changed once its message's delete is on its way.
pub(crate) fn assert_none_changed_after_its_delete(world: &World) {
    let changes = changes(world);
    for delete in world.wire.calls_of(Service::Sqs, "DeleteMessageBatch") {
        for handle in handles(&delete) {
            let all = changes.get(&handle).into_iter().flatten();
            let late = all.filter(|(change, _)| change.seq > delete.seq).count();
            assert_eq!(late, 0, "visibility changed after the delete of {handle}");
        }
    }
}

/// Every batch of SQS has one to ten entries.
pub(crate) fn assert_batches_are_whole(world: &World) {
    for call in world.wire.calls() {
        if call.service == Service::Sqs && call.operation.ends_with("Batch") {
            assert!((1..=10).contains(&call.entries), "{} {}", call.operation, call.entries);
        }
    }
}
