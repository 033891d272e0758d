//! SQS over HTTP: one awsJson1.0 call in, one answer out, all rules the engine's.
//!
//! Absent: permissions (AddPermission, RemovePermission) and the older query protocol, which no SDK of
//! today speaks.

mod md5;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

use self::wire::{Digests, Request, required};
use crate::domain::id::{QueueName, ReceiptHandle};
use crate::sim::shared::SharedEngine;
use crate::sim::sqs::{ACCOUNT, ReceiveMessage, SqsError};

const MAX_WAIT_SECS: u64 = 20;
const PAGE: usize = 1_000;

/// The SQS of an embedded AWS.
#[derive(Debug, Clone)]
pub(super) struct Sqs {
    engine: Arc<SharedEngine>,
    endpoint: String,
    stopping: CancellationToken,
}

type Answer = Result<Json, SqsError>;

impl Sqs {
    /// Serves `engine`; long polls end when `stopping` is cancelled.
    pub(super) const fn new(
        engine: Arc<SharedEngine>,
        endpoint: String,
        stopping: CancellationToken,
    ) -> Self {
        Self { engine, endpoint, stopping }
    }

    /// Answers one call of `operation`.
    pub(super) async fn call(&self, operation: &str, body: &[u8]) -> Response<Body> {
        let answer = match Request::parse(body) {
            Ok(request) if operation == "ReceiveMessage" => self.receive(&request).await,
            Ok(request) => self.operate(operation, request),
            Err(error) => Err(error),
        };
        answer_of(answer)
    }

    fn operate(&self, operation: &str, request: Request) -> Answer {
        match operation {
            "CreateQueue"
            | "GetQueueUrl"
            | "ListQueues"
            | "DeleteQueue"
            | "PurgeQueue"
            | "GetQueueAttributes"
            | "SetQueueAttributes"
            | "ListQueueTags"
            | "TagQueue"
            | "UntagQueue"
            | "ListDeadLetterSourceQueues" => self.on_queue(operation, request),
            "SendMessage" | "SendMessageBatch" => self.send(operation, request),
            "DeleteMessage"
            | "DeleteMessageBatch"
            | "ChangeMessageVisibility"
            | "ChangeMessageVisibilityBatch" => self.on_receipt(operation, request),
            "StartMessageMoveTask" | "ListMessageMoveTasks" | "CancelMessageMoveTask" => {
                self.on_move_task(operation, &request)
            }
            _ => Err(SqsError::UnknownOperation(operation.to_owned())),
        }
    }

    fn on_queue(&self, operation: &str, request: Request) -> Answer {
        self.engine.with(|engine, now| match operation {
            "CreateQueue" => {
                let name = required(request.queue_name.as_deref(), "QueueName")?;
                let name = engine.create_queue(now, name, &request.attributes, request.tags)?;
                Ok(json!({ "QueueUrl": self.url(&name) }))
            }
            "GetQueueUrl" => {
                let name = required(request.queue_name.as_deref(), "QueueName")?;
                let name = QueueName::new(name).map_err(|_| SqsError::QueueDoesNotExist)?;
                engine.check_exists(&name)?;
                Ok(json!({ "QueueUrl": self.url(&name) }))
            }
            "ListQueues" => {
                let prefix = request.queue_name_prefix.as_deref().unwrap_or_default();
                let names = engine.queue_names(prefix).cloned().collect();
                Ok(self.page("QueueUrls", names, &request))
            }
            "ListDeadLetterSourceQueues" => {
                let names = engine.dead_letter_sources(&request.queue()?)?;
                Ok(self.page("queueUrls", names, &request))
            }
            "DeleteQueue" => engine.delete_queue(&request.queue()?).map(empty),
            "PurgeQueue" => engine.purge_queue(now, &request.queue()?).map(empty),
            "GetQueueAttributes" => {
                let mut attributes = engine.attributes(now, &request.queue()?)?;
                let asked = &request.attribute_names;
                attributes.retain(|name, _| asked.iter().any(|a| a == "All" || a == name));
                Ok(json!({ "Attributes": attributes }))
            }
            "SetQueueAttributes" => {
                engine.set_attributes(now, &request.queue()?, &request.attributes).map(empty)
            }
            "ListQueueTags" => Ok(json!({ "Tags": engine.tags(&request.queue()?)? })),
            "TagQueue" => {
                let name = request.queue()?;
                engine.tags(&name)?.extend(request.tags);
                Ok(empty(()))
            }
            _ => {
                let tags = engine.tags(&request.queue()?)?;
                tags.retain(|key, _| !request.tag_keys.contains(key));
                Ok(empty(()))
            }
        })
    }

    fn send(&self, operation: &str, request: Request) -> Answer {
        let queue = request.queue()?;
        if operation == "SendMessage" {
            let message = request.message.into_send()?;
            let digests = Digests::of(&message.message);
            let sent = self.engine.with(|engine, now| engine.send(now, &queue, message))?;
            return Ok(Json::Object(wire::sent(&sent, &digests)));
        }
        let mut entries = Vec::new();
        for entry in request.entries {
            entries.push((entry.id, entry.message.into_send()?));
        }
        let digests: Vec<Digests> =
            entries.iter().map(|(_, send)| Digests::of(&send.message)).collect();
        let ids: Vec<String> = entries.iter().map(|(id, _)| id.clone()).collect();
        let sent = self.engine.with(|engine, now| engine.send_batch(now, &queue, entries))?;
        Ok(wire::batch(sent, |id, sent| {
            let digest = ids.iter().position(|other| other == id).and_then(|n| digests.get(n));
            digest.map(|digest| wire::sent(&sent, digest)).unwrap_or_default()
        }))
    }

    fn on_receipt(&self, operation: &str, request: Request) -> Answer {
        let queue = request.queue()?;
        let handle_of = |handle: Option<String>| ReceiptHandle::new(handle.unwrap_or_default());
        self.engine.with(|engine, now| match operation {
            "DeleteMessage" => engine.delete(now, &queue, &request.handle()?).map(empty),
            "ChangeMessageVisibility" => {
                let secs = request
                    .visibility_timeout
                    .ok_or(SqsError::MissingParameter("VisibilityTimeout"))?;
                let timeout = Duration::from_secs(secs);
                engine.change_visibility(now, &queue, &request.handle()?, timeout).map(empty)
            }
            "DeleteMessageBatch" => {
                let entries = request.entries.into_iter();
                let entries = entries.map(|e| (e.id, handle_of(e.receipt_handle))).collect();
                let done = engine.delete_batch(now, &queue, entries)?;
                Ok(wire::batch(done, |_, ()| Map::new()))
            }
            _ => {
                let entries = request.entries.into_iter();
                let entries = entries.map(|entry| {
                    let timeout = Duration::from_secs(entry.visibility_timeout.unwrap_or(0));
                    (entry.id, handle_of(entry.receipt_handle), timeout)
                });
                let done = engine.change_visibility_batch(now, &queue, entries.collect())?;
                Ok(wire::batch(done, |_, ()| Map::new()))
            }
        })
    }

    fn on_move_task(&self, operation: &str, request: &Request) -> Answer {
        self.engine.with(|engine, now| match operation {
            "StartMessageMoveTask" => {
                let source = required(request.source_arn.as_deref(), "SourceArn")?;
                let destination = request.destination_arn.as_deref();
                let rate = request.max_number_of_messages_per_second;
                let task = engine.start_move_task(now, source, destination, rate)?;
                Ok(json!({ "TaskHandle": task.handle }))
            }
            "ListMessageMoveTasks" => {
                let source = required(request.source_arn.as_deref(), "SourceArn")?;
                let tasks = engine.move_tasks(now, source, request.max_results.unwrap_or(1))?;
                let tasks: Vec<Json> = tasks.iter().map(wire::move_task).collect();
                Ok(json!({ "Results": tasks }))
            }
            _ => {
                let handle = required(request.task_handle.as_deref(), "TaskHandle")?;
                let moved = engine.cancel_move_task(now, handle)?;
                Ok(json!({ "ApproximateNumberOfMessagesMoved": moved }))
            }
        })
    }

    async fn receive(&self, request: &Request) -> Answer {
        let queue = request.queue()?;
        if request.wait_time_seconds.is_some_and(|secs| secs > MAX_WAIT_SECS) {
            return Err(SqsError::InvalidParameterValue {
                parameter: "WaitTimeSeconds",
                reason: "it must be between 0 and 20".to_owned(),
            });
        }
        let wanted = ReceiveMessage {
            max: request.max_number_of_messages.unwrap_or(1),
            visibility: request.visibility_timeout.map(Duration::from_secs),
            attempt_id: request.receive_request_attempt_id.clone(),
        };
        let wait = request.wait_time_seconds.map(Duration::from_secs);
        let received = tokio::select! {
            biased;
            received = self.engine.receive(&queue, &wanted, wait) => received?,
            () = self.stopping.cancelled() => Vec::new(),
        };
        if received.is_empty() {
            return Ok(json!({}));
        }
        let system = match request.message_system_attribute_names.as_slice() {
            [] => &request.attribute_names,
            _ => &request.message_system_attribute_names,
        };
        let names = &request.message_attribute_names;
        let messages: Vec<Json> =
            received.iter().map(|message| wire::received(message, system, names)).collect();
        Ok(json!({ "Messages": messages }))
    }

    fn url(&self, name: &QueueName) -> String {
        format!("{}/{ACCOUNT}/{name}", self.endpoint)
    }

    /// One page of queues; a token is the name after which the next page begins.
    fn page(&self, field: &str, names: Vec<QueueName>, request: &Request) -> Json {
        let after = request.next_token.as_deref().unwrap_or_default();
        let size = request.max_results.unwrap_or(PAGE).clamp(1, PAGE);
        let mut names = names.into_iter().filter(|name| name.as_str() > after);
        let page: Vec<QueueName> = names.by_ref().take(size).collect();
        let urls: Vec<String> = page.iter().map(|name| self.url(name)).collect();
        let mut answer = json!({ field: urls });
        if let (Some(last), Some(_), Json::Object(answer)) =
            (page.last(), names.next(), &mut answer)
        {
            answer.insert("NextToken".to_owned(), last.as_str().into());
        }
        answer
    }
}

fn empty((): ()) -> Json {
    json!({})
}

fn answer_of(answer: Answer) -> Response<Body> {
    let (status, body, error) = match answer {
        Ok(body) => (200, body, None),
        Err(error) => {
            let body = json!({ "__type": error.shape(), "message": error.to_string() });
            (error.status(), body, Some(error))
        }
    };
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0"));
    if let Some(error) = error
        && let Ok(value) = HeaderValue::try_from(format!("{};Sender", error.query_code()))
    {
        headers.insert("x-amzn-query-error", value);
    }
    response
}
