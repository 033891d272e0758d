//! The same for runs: keys left out of a batch read, reasons of a cancelled take, failures without items.

use std::time::Duration;

use redrive::domain::run::{Run, State};
use redrive::port::runs::{OpenError, Runs, SweepLock, TakeError};
use serde_json::{Value, json as value};

use super::{C, NOW, Wire, WriteError, id, json, parked, record_write, wire};
use crate::item::{is, started, written};

/// A BatchGetItem that leaves these keys out.
fn left_out(pks: &[&str]) -> super::Answer {
    let keys: Vec<Value> = pks.iter().map(|pk| value!({"pk": {"S": pk}})).collect();
    let keys = value!({"ledger": {"Keys": keys, "ConsistentRead": true}});
    json(200, value!({"Responses": {"ledger": []}, "UnprocessedKeys": keys}).to_string())
}

fn asked(wire: &Wire, place: usize) -> (Vec<String>, Value) {
    let body: Value = serde_json::from_slice(&wire.requests.lock().unwrap()[place].1).unwrap();
    let asked = &body["RequestItems"]["ledger"];
    let pk = |key: &Value| key["pk"]["S"].as_str().unwrap().to_owned();
    let mut pks: Vec<_> = asked["Keys"].as_array().unwrap().iter().map(pk).collect();
    pks.sort();
    (pks, asked["ConsistentRead"].clone())
}

#[tokio::test]
async fn keys_that_were_left_out_are_asked_for_again() {
    let done = json(200, r#"{"Responses":{"ledger":[]},"UnprocessedKeys":{}}"#);
    let wire = wire(vec![left_out(&["rec#orders#m-2"]), done]).await;
    let ids = ["m-2", "m-1", "m-2"].map(id);
    let records = wire.ledger().records(&ids, NOW).await.unwrap();
    assert!(records.len() == 3 && records.iter().all(Option::is_none));
    assert_eq!(wire.count(), 2);
    let both = ["rec#orders#m-1", "rec#orders#m-2"].map(str::to_owned);
    assert_eq!(asked(&wire, 0), (both.to_vec(), Value::Bool(true)));
    assert_eq!(asked(&wire, 1), (vec!["rec#orders#m-2".to_owned()], Value::Bool(true)));
}

#[tokio::test]
async fn a_read_that_stays_incomplete_is_throttled_and_not_absent() {
    let wire = wire(vec![left_out(&["rec#orders#m-1"])]).await;
    let error = wire.ledger().records(&[id("m-1")], NOW).await.unwrap_err();
    assert_eq!(error.class(), C::Throttled, "{error}");
    assert_eq!(wire.count(), 6);
}

fn cancelled(codes: &[&str]) -> super::Answer {
    let reasons: Vec<Value> = codes.iter().map(|code| value!({"Code": code})).collect();
    let kind = "TransactionCanceledException";
    json(400, value!({"__type": kind, "CancellationReasons": reasons}).to_string())
}

#[tokio::test]
async fn a_take_with_any_other_reason_is_unknown() {
    let run = started("run-1");
    let record = parked("p-1", NOW);
    let writes = ["m-1", "m-2"].map(|name| record_write(&id(name), is(&record), &record));
    let lost = "ConditionalCheckFailed";
    for (codes, class) in [
        (&["None", lost, "TransactionConflict"][..], C::Transient),
        (&[lost, "None", "ThrottlingError"], C::Throttled),
        (&[lost, "None"], C::Transient),
        (&["None", "None", "None"], C::Transient),
    ] {
        let wire = wire(vec![cancelled(codes)]).await;
        match wire.ledger().take(&run, &written(&run), &writes, NOW).await {
            Err(TakeError::Unknown(error)) => assert_eq!(error.class(), class, "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn failed_conditions_without_their_items_are_read_after() {
    let run = started("run-1");
    let lock = json(200, r#"{"Item":{"pk":{"S":"lock#orders"},"run_id":{"S":"run-0"}}}"#);
    let both = cancelled(&["ConditionalCheckFailed", "ConditionalCheckFailed"]);
    let opening = wire(vec![both.clone(), lock]).await;
    let answer = opening.ledger().open(&run).await;
    assert!(matches!(&answer, Err(OpenError::Held(id)) if id.as_str() == "run-0"), "{answer:?}");
    let putting = wire(vec![both, json(200, "{}")]).await;
    let aborted = Run { state: State::Aborted, ..written(&run) };
    let answer = putting.ledger().put_run(&run, &aborted).await;
    assert!(matches!(answer, Err(WriteError::Lost(None))), "{answer:?}");

    let lost = json(400, r#"{"__type":"ConditionalCheckFailedException"}"#);
    let lock =
        r#"{"Item":{"pk":{"S":"lock#orders#sweep"},"owner":{"S":"b"},"lease_until_ms":{"N":"7"}}}"#;
    let sweeping = wire(vec![lost.clone(), json(200, lock)]).await;
    let answer = sweeping.ledger().lock_sweep("a", Duration::from_secs(1), NOW).await.unwrap();
    assert!(matches!(&answer, SweepLock::Held { owner, .. } if owner == "b"), "{answer:?}");
    let gone = wire(vec![lost, json(200, "{}")]).await;
    let error = gone.ledger().lock_sweep("a", Duration::from_secs(1), NOW).await.unwrap_err();
    assert_eq!(error.class(), C::Transient, "{error}");
}
