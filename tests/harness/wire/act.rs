//! What goes wrong with a call, and answers in the words of each service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Response;
use super::call::Call;

/// What befalls a call.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Nothing listens: it is not forwarded.
    Refuse,
    /// The connection ends before it is forwarded.
    ResetBefore,
    /// It is never forwarded, and never answered.
    HangBefore,
    /// It arrives late, also if the caller has given up by then.
    DelayBefore(Duration),
    /// It is answered so, and not forwarded.
    Answer(Reply),
    /// It is forwarded, and the connection ends without its answer.
    LoseAnswer,
    /// It is forwarded, and its answer never comes.
    HangAfter,
    /// It is forwarded, and its answer comes late.
    DelayAfter(Duration),
    /// It is forwarded, and answered so all the same.
    ReplaceAnswer(Reply),
    /// It is forwarded, and its answer changed.
    Edit(Edit),
    /// It is forwarded, and the connection ends after so many bytes of the answer's body.
    BreakOff(usize),
}

type Change = dyn Fn(&Call, Response) -> Response + Send + Sync;

/// A change of an answer.
#[derive(Clone)]
pub(crate) struct Edit(pub(super) Arc<Change>);

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Edit")
    }
}

impl Act {
    /// The answer is changed.
    pub(crate) fn edit(edit: impl Fn(&Call, Response) -> Response + Send + Sync + 'static) -> Self {
        Self::Edit(Edit(Arc::new(edit)))
    }

    /// The answer's JSON is changed.
    pub(crate) fn json(edit: impl Fn(&Call, &mut Value) + Send + Sync + 'static) -> Self {
        Self::edit(move |call, answer| {
            let (mut parts, body) = answer.into_parts();
            let mut json = serde_json::from_slice(&body).unwrap();
            edit(call, &mut json);
            // These are of the body that was.
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.remove("x-amz-crc32");
            Response::from_parts(parts, json.to_string().into())
        })
    }

    /// Some entries of an SQS batch, by place, are reported as failed though they succeeded.
    pub(crate) fn fail_entries(
        places: impl Into<Vec<usize>>,
        code: &'static str,
        fault: Fault,
    ) -> Self {
        let places = places.into();
        Self::json(move |call, answer| {
            for id in ids(call, &places) {
                if take(answer, "Successful", &id).is_some() {
                    let entry = json!({ "Id": id, "Code": code, "SenderFault": fault == Fault::Sender, "Message": code });
                    list(answer, "Failed").push(entry);
                }
            }
        })
    }

    /// Some entries of an SQS batch, by place, are in no list of its answer.
    pub(crate) fn omit_entries(places: impl Into<Vec<usize>>) -> Self {
        let places = places.into();
        Self::json(move |call, answer| {
            for id in ids(call, &places) {
                take(answer, "Successful", &id);
                take(answer, "Failed", &id);
            }
        })
    }

    /// Received messages come without some system attributes.
    pub(crate) fn strip_attributes(names: &'static [&'static str]) -> Self {
        Self::json(move |_, answer| {
            for message in list(answer, "Messages") {
                if let Some(attributes) = message["Attributes"].as_object_mut() {
                    attributes.retain(|name, _| !names.contains(&name.as_str()));
                }
            }
        })
    }

    /// The first message of a receive comes twice in the same answer.
    pub(crate) fn duplicate_message() -> Self {
        Self::json(|_, answer| {
            let messages = list(answer, "Messages");
            messages.extend(messages.first().cloned());
        })
    }

    /// A receive that took messages says that there are none.
    pub(crate) fn no_messages() -> Self {
        Self::json(|_, answer| list(answer, "Messages").clear())
    }
}

/// Whose fault a failed entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The caller's.
    Sender,
    /// The service's.
    Service,
}

/// The ids of a batch's entries at these places.
fn ids(call: &Call, places: &[usize]) -> Vec<String> {
    let body = call.json();
    let id = |place: &usize| body["Entries"][*place]["Id"].as_str().map(str::to_owned);
    places.iter().filter_map(id).collect()
}

fn list<'a>(answer: &'a mut Value, name: &str) -> &'a mut Vec<Value> {
    if !answer[name].is_array() {
        answer[name] = json!([]);
    }
    answer[name].as_array_mut().unwrap()
}

fn take(answer: &mut Value, name: &str, id: &str) -> Option<Value> {
    let list = list(answer, name);
    let place = list.iter().position(|entry| entry["Id"] == id)?;
    Some(list.remove(place))
}

/// An answer that no service gave.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Reply {
    /// Any answer.
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self { status: StatusCode::from_u16(status).unwrap(), headers, body: body.into() }
    }

    /// With one header more.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// An error of SQS: `OverLimit`, `RequestThrottled`, `QueueDoesNotExist` and so on.
    pub(crate) fn sqs(status: u16, code: &str) -> Self {
        let fault = if status < 500 { "Sender" } else { "Receiver" };
        let body = json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": code });
        Self::new(status, "application/x-amz-json-1.0", body.to_string())
            .header("x-amzn-query-error", &format!("{code};{fault}"))
    }

    /// SQS has 120,000 messages in flight (standard), or 20,000 (FIFO).
    pub(crate) fn over_limit() -> Self {
        Self::sqs(400, "OverLimit")
    }

    /// An error of DynamoDB: `ProvisionedThroughputExceededException`, `InternalServerError` and so on.
    pub(crate) fn dynamodb(status: u16, code: &str) -> Self {
        let body = json!({ "__type": dynamodb_type(code), "message": code });
        Self::new(status, "application/x-amz-json-1.0", body.to_string())
    }

    /// DynamoDB cancelled a transaction: a reason for each of its items, `None` for one that was fine.
    pub(crate) fn transaction_canceled(reasons: &[&str]) -> Self {
        let listed: Vec<Value> = reasons.iter().map(|code| json!({ "Code": code })).collect();
        let message = format!(
            "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
            reasons.join(", ")
        );
        let body = json!({
            "__type": dynamodb_type("TransactionCanceledException"),
            "Message": message,
            "CancellationReasons": listed,
        });
        Self::new(400, "application/x-amz-json-1.0", body.to_string())
    }

    /// An error of S3: `SlowDown`, `InternalError`, `AccessDenied`, `PreconditionFailed` and so on.
    pub(crate) fn s3(status: u16, code: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{code}</Message><RequestId>FAULT</RequestId></Error>"
        );
        Self::new(status, "application/xml", body)
    }

    pub(super) fn into_response(self) -> Response {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        for (name, value) in self.headers {
            let value = HeaderValue::try_from(value).unwrap();
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
        response
    }
}

fn dynamodb_type(code: &str) -> String {
    format!("com.amazonaws.dynamodb.v20120810#{code}")
}
