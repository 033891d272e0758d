//! DynamoDB: an in-memory dynoxide on a loopback port and a thread of its own, and the way there.
//!
//! A call blocks the thread that makes it until it is answered. It costs no more than dynoxide itself, which
//! runs one operation at a time, and it keeps paused time honest: tokio moves a paused clock on while it
//! waits for a socket, so that every call would run into the caller's time-outs. It also makes the order of
//! calls the same in each run.

use std::net::Ipv4Addr;
use std::sync::{Arc, mpsc};

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode, header};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use super::LocalError;

/// The DynamoDB of an embedded AWS.
#[derive(Debug, Clone)]
pub(super) struct DynamoDb {
    url: Arc<str>,
    client: reqwest::Client,
    runtime: Handle,
}

impl DynamoDb {
    /// Starts an empty DynamoDB that runs until `stopping` is cancelled.
    pub(super) fn start(stopping: CancellationToken) -> Result<Self, LocalError> {
        let fault = |error: &dyn std::fmt::Display| LocalError::DynamoDb(error.to_string());
        let database = dynoxide::Database::memory().map_err(|error| fault(&error))?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| fault(&error))?;
        let address = listener.local_addr().map_err(|error| fault(&error))?;
        let client =
            reqwest::Client::builder().no_proxy().build().map_err(|error| fault(&error))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| fault(&error))?;
        let handle = runtime.handle().clone();
        let serve = async move {
            let listener = TcpListener::from_std(listener).map_err(|error| error.to_string())?;
            let stopped = stopping.cancelled_owned();
            dynoxide::server::serve_with_shutdown(listener, database, stopped).await
        };
        let thread = std::thread::Builder::new().name("dynamodb".to_owned());
        let serving = thread.spawn(move || {
            if let Err(error) = runtime.block_on(serve) {
                tracing::error!(error, "the embedded DynamoDB ended");
            }
        });
        serving.map_err(|error| fault(&error))?;
        Ok(Self { url: format!("http://{address}/").into(), client, runtime: handle })
    }

    /// Passes a call on.
    pub(super) fn call(&self, headers: &HeaderMap, body: Bytes) -> Response<Body> {
        let mut request = self.client.post(&*self.url).body(body);
        for (name, value) in headers {
            let is_own = [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
                .contains(name)
                || [header::CONNECTION, header::EXPECT, header::ACCEPT_ENCODING].contains(name);
            if !is_own {
                request = request.header(name, value);
            }
        }
        let (answer, answered) = mpsc::sync_channel(1);
        self.runtime.spawn(async move { answer.send(forward(request).await).ok() });
        match answered.recv() {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => unavailable(error.to_string()),
            Err(_) => unavailable("the embedded DynamoDB has ended".to_owned()),
        }
    }
}

fn unavailable(why: String) -> Response<Body> {
    let mut response = Response::new(Body::from(why));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

async fn forward(request: reqwest::RequestBuilder) -> Result<Response<Body>, reqwest::Error> {
    let answer = request.send().await?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let mut response = Response::new(Body::from(answer.bytes().await?));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().remove(header::TRANSFER_ENCODING);
    Ok(response)
}
