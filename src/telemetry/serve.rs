//! `/healthz`, `/readyz` and `/metrics` over HTTP, and nothing else.
//!
//! No request has a body that is read, and no answer takes a call, so one server is as good as many.
//! Deliberately absent: TLS, a password and a limit on connections: listen where only monitors come.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Telemetry, prometheus};
use crate::port::clock::Clock;

/// The address cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// An address that is held, and answers as soon as [`Server::run`] runs.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

#[derive(Debug, Clone)]
struct Answers {
    telemetry: Telemetry,
    clock: Arc<dyn Clock>,
}

impl Server {
    /// Takes the address; port 0 takes any.
    ///
    /// # Errors
    /// It is taken, or not of this machine.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let refused = |source| ListenError { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// The address that it has.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`; answers under way are finished.
    pub fn run(
        self,
        telemetry: Telemetry,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(Answers { telemetry, clock });
        async move {
            let served = axum::serve(self.listener, router);
            if let Err(error) = served.with_graceful_shutdown(stop.cancelled_owned()).await {
                tracing::error!(%error, "health and metrics are no longer served");
            }
        }
    }
}

async fn healthz(State(Answers { telemetry, clock }): State<Answers>) -> Response<Body> {
    let now = clock.mono();
    let judgement = telemetry.health.healthz(now);
    judged(&judgement, telemetry.health.report(&judgement, now))
}

async fn readyz(State(Answers { telemetry, clock }): State<Answers>) -> Response<Body> {
    let now = clock.mono();
    let judgement = telemetry.health.readyz(now);
    judged(&judgement, telemetry.health.report(&judgement, now))
}

async fn metrics(State(Answers { telemetry, .. }): State<Answers>) -> Response<Body> {
    answer(
        StatusCode::OK,
        prometheus::CONTENT_TYPE,
        prometheus::encode(&telemetry.meter.snapshot()),
    )
}

fn judged(judgement: &Result<(), String>, report: String) -> Response<Body> {
    let status = if judgement.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer(status, "application/json", report)
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::task::JoinHandle;

    use super::*;
    use crate::domain::id::QueueName;
    use crate::system::SystemClock;
    use crate::telemetry::Counter;

    const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    struct Served {
        telemetry: Telemetry,
        clock: Arc<dyn Clock>,
        address: SocketAddr,
        stop: CancellationToken,
        running: JoinHandle<()>,
    }

    async fn served() -> Served {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let queue = QueueName::new("orders").unwrap();
        let telemetry = Telemetry::new(queue, Duration::from_secs(20), clock.mono());
        let server = Server::bind(ANY_PORT).await.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        let running = server.run(telemetry.clone(), Arc::clone(&clock), stop.clone());
        Served { telemetry, clock, address, stop, running: tokio::spawn(running) }
    }

    impl Served {
        async fn get(&self, path: &str) -> (u16, String) {
            let answer = reqwest::get(format!("http://{}{path}", self.address)).await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        }
    }

    #[tokio::test]
    async fn each_path_answers_its_question() {
        let served = served().await;
        let (status, body) = served.get("/readyz").await;
        assert!(status == 503 && body.contains("no poll has been answered yet"), "{body}");
        served.telemetry.health.polled(served.clock.mono());
        for path in ["/healthz", "/readyz"] {
            let (status, body) = served.get(path).await;
            assert!(status == 200 && body.starts_with(r#"{"status":"ok","#), "{path}: {body}");
        }
        served.telemetry.meter.add(Counter::Received, 7);
        let (status, body) = served.get("/metrics").await;
        let received = "redrive_received_total{queue=\"orders\"} 7\n";
        assert!(status == 200 && body.contains(received), "{body}");
        assert_eq!(served.get("/").await, (404, String::new()));
    }

    #[tokio::test]
    async fn while_it_drains_it_answers_that_it_is_not_ready() {
        let served = served().await;
        served.telemetry.health.polled(served.clock.mono());
        served.telemetry.health.draining();
        assert_eq!(served.get("/healthz").await.0, 200);
        let (status, body) = served.get("/readyz").await;
        assert!(status == 503 && body.contains("draining"), "{body}");
        served.stop.cancel();
        served.running.await.unwrap();
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let first = Server::bind(ANY_PORT).await.unwrap();
        let error = Server::bind(first.address()).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {}: ", first.address())), "{error}");
    }
}
