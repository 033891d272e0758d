//! The wire under the SDK's clients of this process: no socket, so a test may pause tokio's time.

use std::io;
use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, header};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use redrive::local::LocalAws;

use super::{Carried, Request, Response, Upstream, Wire};

/// An HTTP client whose requests go over this wire to this embedded AWS.
pub(crate) fn client(wire: &Wire, local: &Arc<LocalAws>) -> SharedHttpClient {
    let upstream = Upstream::Local(Arc::clone(local));
    SharedHttpClient::new(Connector { wire: wire.clone(), upstream })
}

#[derive(Debug, Clone)]
struct Connector {
    wire: Wire,
    upstream: Upstream,
}

impl HttpClient for Connector {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Self { wire, upstream } = self.clone();
        HttpConnectorFuture::new(async move {
            let request = whole(request).await?;
            match wire.carry(&upstream, request).await {
                Carried::Answered(answer) => answered(answer.map(SdkBody::from)),
                Carried::BrokenOff(answer, length) => answered(broken_off(answer, length)),
                Carried::Refused => Err(failed(io::ErrorKind::ConnectionRefused).never_connected()),
                Carried::Reset => Err(failed(io::ErrorKind::ConnectionReset)),
            }
        })
    }
}

/// The request as a server would see it.
async fn whole(request: HttpRequest) -> Result<Request, ConnectorError> {
    let request = request.try_into_http1x().map_err(|e| ConnectorError::user(e.into()))?;
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(Body::new(body), usize::MAX).await;
    let body = body.map_err(|e| ConnectorError::user(e.into()))?;
    let host = parts.uri.authority().map(|host| host.as_str().to_owned());
    if let Some(host) = host.and_then(|host| HeaderValue::try_from(host).ok()) {
        parts.headers.entry(header::HOST).or_insert(host);
    }
    parts.headers.entry(header::CONTENT_LENGTH).or_insert(body.len().into());
    if let Some(path) = parts.uri.path_and_query() {
        parts.uri = path.as_str().parse().map_err(|_| failed(io::ErrorKind::InvalidInput))?;
    }
    Ok(Request::from_parts(parts, body))
}

fn answered(answer: axum::http::Response<SdkBody>) -> Result<HttpResponse, ConnectorError> {
    HttpResponse::try_from(answer).map_err(|e| ConnectorError::user(e.into()))
}

/// The answer whose connection ends after so many bytes of its body.
fn broken_off(answer: Response, length: usize) -> axum::http::Response<SdkBody> {
    answer.map(|body| SdkBody::from_body_1_x(cut_short(&body, length)))
}

/// A body that fails after so many bytes.
pub(super) fn cut_short(body: &Bytes, length: usize) -> reqwest::Body {
    let kept = std::future::ready(io::Result::Ok(body.slice(..length.min(body.len()))));
    let broken = async {
        // What came before is sent before the end is seen.
        tokio::task::yield_now().await;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    };
    reqwest::Body::wrap_stream(stream::once(kept).chain(stream::once(broken)))
}

fn failed(kind: io::ErrorKind) -> ConnectorError {
    ConnectorError::io(io::Error::from(kind).into())
}
