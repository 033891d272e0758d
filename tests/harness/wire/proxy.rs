//! The wire before the built binary: an HTTP proxy on loopback, for `AWS_ENDPOINT_URL`.
//!
//! A connection that a fault ends is closed without a byte of an answer, by a reset.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, State};
use axum::http::header;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::client::cut_short;
use super::{Carried, Response, Upstream, Wire};

/// A running proxy, on a thread of its own, for tests that wait for processes. Dropping it stops it.
pub(crate) struct Proxy {
    endpoint: String,
    _runtime: Runtime,
}

impl Proxy {
    /// Starts a proxy that applies the rules of `wire` and forwards to the embedded AWS at `endpoint`.
    pub(crate) fn start(wire: &Wire, endpoint: &str) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let proxied = (wire.clone(), Upstream::endpoint(endpoint));
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(pass).with_state(proxied);
        let router = router.into_make_service_with_connect_info::<Switch>();
        runtime.spawn(async move { axum::serve(Switched(listener), router).await });
        Self { endpoint, _runtime: runtime }
    }

    /// Where it listens.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

async fn pass(
    State((wire, upstream)): State<(Wire, Upstream)>,
    ConnectInfo(switch): ConnectInfo<Switch>,
    request: axum::extract::Request,
) -> axum::http::Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        // The caller hung up.
        switch.cut();
        return axum::http::Response::new(Body::empty());
    };
    match wire.carry(&upstream, super::Request::from_parts(parts, body)).await {
        Carried::Answered(answer) => answer.map(Body::from),
        Carried::BrokenOff(answer, length) => broken_off(answer, length),
        Carried::Refused | Carried::Reset => {
            switch.cut();
            axum::http::Response::new(Body::empty())
        }
    }
}

/// The answer whose connection ends after so many bytes of its body.
fn broken_off(mut answer: Response, length: usize) -> axum::http::Response<Body> {
    let whole = answer.body().len();
    answer.headers_mut().insert(header::CONTENT_LENGTH, whole.into());
    answer.map(|body| Body::new(cut_short(&body, length)))
}

/// Ends its connection.
#[derive(Debug, Clone, Default)]
struct Switch(Arc<AtomicBool>);

impl Switch {
    fn cut(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// An error once the connection is to end.
    fn check(&self) -> io::Result<()> {
        let is_cut = self.0.load(Ordering::SeqCst);
        if is_cut { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl Connected<IncomingStream<'_, Switched>> for Switch {
    fn connect_info(stream: IncomingStream<'_, Switched>) -> Self {
        stream.io().switch.clone()
    }
}

/// A listener whose connections have a switch each.
struct Switched(TcpListener);

impl Listener for Switched {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (Connection { stream, switch: Switch::default() }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// A connection that fails once it is cut.
struct Connection {
    stream: TcpStream,
    switch: Switch,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.switch.check().is_err() {
            // A reset rather than an orderly end. Where it cannot be had, the end has no answer either.
            self.stream.set_zero_linger().ok();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.switch.check()?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.switch.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.switch.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
