//! The embedded AWS: SQS, S3 and DynamoDB over HTTP on one loopback port, all in memory.
//!
//! It is for `demo`, for tests, and for trying things out: `AWS_ENDPOINT_URL` alone points any SDK at it.
//! A call goes by its headers: `x-amz-target` names SQS or DynamoDB, a form is the query protocol (of which
//! only `GetCallerIdentity` is answered), all else is S3. It begins empty. Bodies are bounded; only
//! 127.0.0.1 is listened on. Signatures are checked by S3 alone, against the key and secret `test`.
//!
//! A test may also call it without a socket (`LocalAws::call`), and then on tokio's paused time.

mod dynamodb;
mod s3;
mod sqs;
mod sts;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use s3s::service::S3Service;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::dynamodb::DynamoDb;
use self::sqs::Sqs;
use crate::port::clock::Clock;
use crate::sim::shared::SharedEngine;
use crate::sim::sqs::Engine;

/// The access key, and its secret.
pub const KEY: &str = "test";

/// The largest request of SQS, DynamoDB or STS, in bytes: DynamoDB's own limit, and ten SQS messages that
/// fill a batch with characters that JSON escapes sixfold.
const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;

const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
const FORM: &str = "application/x-www-form-urlencoded";

/// The embedded AWS could not start.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The port is taken, or may not be listened on.
    #[error("cannot listen on 127.0.0.1:{port}: {source}")]
    Listen {
        /// The port.
        port: u16,
        /// Why.
        source: std::io::Error,
    },
    /// DynamoDB did not start.
    #[error("the embedded DynamoDB cannot start: {0}")]
    DynamoDb(String),
}

/// A running embedded AWS. Dropping it stops it, without waiting for calls that run.
#[derive(Debug)]
pub struct LocalAws {
    endpoint: String,
    engine: Arc<SharedEngine>,
    services: Services,
    server: JoinHandle<()>,
    stopping: DropGuard,
}

#[derive(Debug, Clone)]
struct Services {
    sqs: Sqs,
    dynamodb: DynamoDb,
    s3: S3Service,
    calls: Arc<AtomicU64>,
}

impl LocalAws {
    /// Starts it on a port of 127.0.0.1; 0 takes any.
    ///
    /// # Errors
    /// The port cannot be had, or DynamoDB does not start.
    pub async fn start(port: u16, clock: Arc<dyn Clock>, seed: u64) -> Result<Self, LocalError> {
        let refused = |source| LocalError::Listen { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(refused)?;
        let endpoint = format!("http://{}", listener.local_addr().map_err(refused)?);
        let stopping = CancellationToken::new();
        let engine = Arc::new(SharedEngine::new(Engine::new(seed), Arc::clone(&clock)));
        let dynamodb = DynamoDb::start(stopping.clone())?;
        let services = Services {
            sqs: Sqs::new(Arc::clone(&engine), endpoint.clone(), stopping.clone()),
            dynamodb,
            s3: s3::service(clock),
            calls: Arc::default(),
        };
        let stopped = stopping.clone().cancelled_owned();
        let router = Router::new().fallback(route).with_state(services.clone());
        let server = tokio::spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(stopped).await;
            if let Err(error) = served {
                tracing::error!(%error, "the embedded AWS ended");
            }
        });
        Ok(Self { endpoint, engine, services, server, stopping: stopping.drop_guard() })
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// The SQS engine behind it.
    #[must_use]
    pub fn engine(&self) -> Arc<SharedEngine> {
        Arc::clone(&self.engine)
    }

    /// Answers one call as a caller of the endpoint would be answered, without a socket between: nothing
    /// here waits for more than tokio's time, so a test may pause it.
    pub async fn call(&self, request: axum::http::Request<bytes::Bytes>) -> Response<Body> {
        route(State(self.services.clone()), request.map(Body::from)).await
    }

    /// Stops it: running calls end first, long polls at once.
    pub async fn stop(self) {
        self.stopping.disarm().cancel();
        if let Err(error) = self.server.await {
            tracing::error!(%error, "the embedded AWS did not end well");
        }
    }
}

async fn route(State(services): State<Services>, request: Request) -> Response<Body> {
    let call = services.calls.fetch_add(1, Ordering::Relaxed);
    let request_id = format!("00000000-0000-4000-8000-{call:012x}");
    let headers = request.headers();
    let text = |name| headers.get(name)?.to_str().ok();
    let target = text(TARGET).map(str::to_owned);
    let is_form = text(header::CONTENT_TYPE).is_some_and(|form| form.starts_with(FORM));
    let is_query = is_form && request.uri().path() == "/";
    let mut response = match target.as_deref() {
        Some(target) => services.json(target, request).await,
        None if is_query => match bounded(request).await {
            Ok((_, body)) => sts::call(&body, &request_id),
            Err(refused) => *refused,
        },
        None => services.s3(request).await,
    };
    if let Ok(id) = HeaderValue::try_from(request_id) {
        response.headers_mut().entry("x-amzn-requestid").or_insert(id);
    }
    response
}

impl Services {
    async fn json(&self, target: &str, request: Request) -> Response<Body> {
        let (headers, body) = match bounded(request).await {
            Ok(parts) => parts,
            Err(refused) => return *refused,
        };
        match target.split_once('.') {
            Some(("AmazonSQS", operation)) => self.sqs.call(operation, &body).await,
            Some((service, _)) if service.starts_with("DynamoDB") => {
                self.dynamodb.call(&headers, body)
            }
            _ => plain(
                StatusCode::BAD_REQUEST,
                r#"{"__type":"UnknownOperationException","message":"the embedded AWS has SQS, S3 and DynamoDB"}"#,
            ),
        }
    }

    async fn s3(&self, request: Request) -> Response<Body> {
        let request = request.map(s3s::Body::http_body_unsync);
        match self.s3.call(request).await {
            Ok(response) => response.map(Body::new),
            Err(error) => {
                tracing::debug!(?error, "an S3 call broke off");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "")
            }
        }
    }
}

type Refused = Box<Response<Body>>;

/// A request's headers and whole body.
async fn bounded(request: Request) -> Result<(axum::http::HeaderMap, bytes::Bytes), Refused> {
    let (parts, body) = request.into_parts();
    match to_bytes(body, MAX_REQUEST_BYTES).await {
        Ok(body) => Ok((parts.headers, body)),
        Err(_) => Err(Box::new(plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            r#"{"__type":"RequestEntityTooLargeException"}"#,
        ))),
    }
}

fn plain(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}
