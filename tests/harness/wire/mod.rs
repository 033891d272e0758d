//! A wire with faults, between the worker and the embedded AWS.
//!
//! Every request is logged as a [`Call`]. The rules say which calls go wrong, and how: the first rule that
//! applies acts, and every rule counts what it matches. [`client`] puts the wire under the SDK's clients of
//! this process; [`proxy`] puts it before a process of its own.
//!
//! A binary that uses it takes it in by `#[path]`.

pub(crate) mod act;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod proxy;
pub(crate) mod rule;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header;
use bytes::Bytes;
use redrive::local::LocalAws;
use tokio::time::Instant;

use self::act::Act;
use self::call::{Call, Service};
use self::rule::{Rule, RuleId};

/// A request, its body in hand.
pub(crate) type Request = axum::http::Request<Bytes>;
/// An answer, its body in hand.
pub(crate) type Response = axum::http::Response<Bytes>;

/// Where a wire ends.
#[derive(Debug, Clone)]
pub(crate) enum Upstream {
    /// An embedded AWS of this process, reached without a socket.
    Local(Arc<LocalAws>),
    /// An embedded AWS of another process, at this endpoint.
    Endpoint(String, reqwest::Client),
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Carried {
    /// It is answered.
    Answered(Response),
    /// Its answer breaks off after so many bytes of the body.
    BrokenOff(Response, usize),
    /// The connection was refused.
    Refused,
    /// The connection ended without an answer.
    Reset,
}

/// A wire: its rules and its log. Clones are the same wire.
#[derive(Debug, Clone)]
pub(crate) struct Wire(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    started: Instant,
    rules: Vec<(RuleId, Rule)>,
    next_rule: u64,
    calls: Vec<Call>,
    next_call: u64,
}

impl Wire {
    /// A wire without a fault, whose time begins now.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            started: Instant::now(),
            rules: Vec::new(),
            next_rule: 0,
            calls: Vec::new(),
            next_call: 0,
        })))
    }

    /// From now on this rule holds, after all that were added before.
    pub(crate) fn add(&self, rule: Rule) -> RuleId {
        let mut inner = self.inner();
        inner.next_rule += 1;
        let id = RuleId(inner.next_rule);
        inner.rules.push((id, rule));
        id
    }

    /// The rule no longer holds.
    pub(crate) fn remove(&self, id: RuleId) {
        self.inner().rules.retain(|(other, _)| *other != id);
    }

    /// How often a rule has acted.
    pub(crate) fn acted(&self, id: RuleId) -> u64 {
        let inner = self.inner();
        let rule = inner.rules.iter().find(|(other, _)| *other == id);
        rule.map_or(0, |(_, rule)| rule.acted())
    }

    /// All calls, in the order of their arrival.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.inner().calls.clone()
    }

    /// The calls of one operation.
    pub(crate) fn calls_of(&self, service: Service, operation: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.is(service, operation));
        calls
    }

    /// How many calls of one operation there were.
    pub(crate) fn count(&self, service: Service, operation: &str) -> usize {
        self.calls_of(service, operation).len()
    }

    /// How many entries the calls of one operation carried.
    pub(crate) fn entries(&self, service: Service, operation: &str) -> usize {
        self.calls_of(service, operation).iter().map(|call| call.entries).sum()
    }

    /// Forgets the calls up to now. Rules count on, and so do sequence numbers.
    pub(crate) fn clear_log(&self) {
        self.inner().calls.clear();
    }

    /// Carries one request, as the rules say.
    pub(crate) async fn carry(&self, upstream: &Upstream, request: Request) -> Carried {
        let (call, act) = self.arrived(&request);
        let carried = perform(act, &call, upstream, request).await;
        if let Carried::Answered(answer) | Carried::BrokenOff(answer, _) = &carried {
            let status = Some(answer.status().as_u16());
            let mut inner = self.inner();
            if let Some(logged) = inner.calls.iter_mut().rev().find(|other| other.seq == call.seq) {
                logged.status = status;
            }
        }
        carried
    }

    /// Logs a request and asks the rules.
    fn arrived(&self, request: &Request) -> (Call, Option<Act>) {
        let mut inner = self.inner();
        inner.next_call += 1;
        let call = Call::new(inner.next_call, inner.started.elapsed(), request);
        inner.calls.push(call.clone());
        let mut act = None;
        for (_, rule) in &mut inner.rules {
            let chosen = rule.chooses(&call);
            if chosen && act.is_none() {
                act = Some(rule.act());
            }
        }
        (call, act)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }
}

async fn perform(act: Option<Act>, call: &Call, upstream: &Upstream, request: Request) -> Carried {
    let Some(act) = act else { return Carried::Answered(upstream.forward(request).await) };
    match act {
        Act::Refuse => Carried::Refused,
        Act::ResetBefore => Carried::Reset,
        Act::HangBefore => std::future::pending().await,
        Act::Answer(reply) => Carried::Answered(reply.into_response()),
        Act::DelayBefore(delay) => {
            // It is on its way: it arrives even if the caller has given up meanwhile.
            let upstream = upstream.clone();
            let late = tokio::spawn(async move {
                wait(delay).await;
                upstream.forward(request).await
            });
            Carried::Answered(late.await.unwrap())
        }
        Act::LoseAnswer => {
            upstream.forward(request).await;
            Carried::Reset
        }
        Act::HangAfter => {
            upstream.forward(request).await;
            std::future::pending().await
        }
        Act::DelayAfter(delay) => {
            let answer = upstream.forward(request).await;
            wait(delay).await;
            Carried::Answered(answer)
        }
        Act::ReplaceAnswer(reply) => {
            upstream.forward(request).await;
            Carried::Answered(reply.into_response())
        }
        Act::Edit(edit) => {
            let answer = upstream.forward(request).await;
            Carried::Answered((edit.0)(call, answer))
        }
        Act::BreakOff(length) => {
            let answer = upstream.forward(request).await;
            Carried::BrokenOff(answer, length)
        }
    }
}

/// Lets time pass, by tokio's clock.
async fn wait(time: Duration) {
    tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
}

impl Upstream {
    /// An embedded AWS of another process.
    pub(crate) fn endpoint(endpoint: &str) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self::Endpoint(endpoint.to_owned(), client)
    }

    /// Passes a request on. Its Host stays, since a signature covers it.
    async fn forward(&self, request: Request) -> Response {
        match self {
            Self::Local(local) => whole(local.call(request).await).await,
            Self::Endpoint(endpoint, client) => {
                let (mut parts, body) = request.into_parts();
                for name in [header::EXPECT, header::CONNECTION, header::TRANSFER_ENCODING] {
                    parts.headers.remove(name);
                }
                let path = parts.uri.path_and_query().unwrap().as_str();
                let url = format!("{endpoint}{path}");
                let request = client.request(parts.method, url).headers(parts.headers).body(body);
                let answer: axum::http::Response<reqwest::Body> =
                    request.send().await.unwrap().into();
                whole(answer.map(Body::new)).await
            }
        }
    }
}

/// An answer with its body in hand, framed anew by whoever sends it.
async fn whole(answer: axum::http::Response<Body>) -> Response {
    let (mut parts, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    parts.headers.remove(header::TRANSFER_ENCODING);
    Response::from_parts(parts, body)
}
