//! DynamoDB: an in-memory dynoxide on a loopback port of its own, and the way there.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode, header};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::LocalError;

/// The DynamoDB of an embedded AWS.
#[derive(Debug, Clone)]
pub(super) struct DynamoDb {
    url: Arc<str>,
    client: reqwest::Client,
}

impl DynamoDb {
    /// Starts an empty DynamoDB that runs until `stopping` is cancelled.
    pub(super) async fn start(
        stopping: CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), LocalError> {
        let fault = |error: &dyn std::fmt::Display| LocalError::DynamoDb(error.to_string());
        let database = dynoxide::Database::memory().map_err(|error| fault(&error))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(|error| fault(&error))?;
        let address: SocketAddr = listener.local_addr().map_err(|error| fault(&error))?;
        let client =
            reqwest::Client::builder().no_proxy().build().map_err(|error| fault(&error))?;
        let server = tokio::spawn(async move {
            let stopped = stopping.cancelled_owned();
            if let Err(error) =
                dynoxide::server::serve_with_shutdown(listener, database, stopped).await
            {
                tracing::error!(error, "the embedded DynamoDB ended");
            }
        });
        Ok((Self { url: format!("http://{address}/").into(), client }, server))
    }

    /// Passes a call on.
    pub(super) async fn call(&self, headers: &HeaderMap, body: Bytes) -> Response<Body> {
        let mut request = self.client.post(&*self.url).body(body);
        for (name, value) in headers {
            let is_own = [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
                .contains(name)
                || [header::CONNECTION, header::EXPECT, header::ACCEPT_ENCODING].contains(name);
            if !is_own {
                request = request.header(name, value);
            }
        }
        match forward(request).await {
            Ok(response) => response,
            Err(error) => {
                let mut response = Response::new(Body::from(error.to_string()));
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            }
        }
    }
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
