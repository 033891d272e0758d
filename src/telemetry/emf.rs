//! Metrics as lines of CloudWatch's embedded metric format, which CloudWatch Logs turns into metrics:
//! no call, no permission.
//!
//! Each flush says what was counted since the last. What is zero is left out, but for `Received` and
//! `InFlight`: they are there in every flush, so that an alarm on their absence finds a silent worker.
//! Durations have the form that AWS's own exporter for OpenTelemetry writes: values with their counts,
//! each the upper bound of a bucket, so that no run looks faster than it was.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::metric::{BOUNDS_MS, Counter, Gauge, HANDLER_SECONDS, Meter, Metric, Snapshot, number};
use crate::domain::time::Wall;
use crate::port::clock::Clock;

/// CloudWatch's name of what all metrics are in.
pub const NAMESPACE: &str = "Redrive";

/// How often a worker flushes: CloudWatch keeps one value a minute.
pub const EVERY: Duration = Duration::from_secs(60);

/// The lines of what was counted since the last flush: first the queue's, then one for each error code.
#[must_use]
pub fn encode(since: &Snapshot, now: Wall) -> String {
    let mut line = Line::new(since, now);
    for (counter, count) in &since.counters {
        if *count > 0 || *counter == Counter::Received {
            line.add(counter.metric(), json!(count));
        }
    }
    let mut gauges = since.gauges.clone();
    gauges.entry(Gauge::InFlight).or_insert(0.0);
    for (gauge, value) in gauges {
        line.add(gauge.metric(), Value::Number(number(value)));
    }
    if let Some(durations) = durations(since) {
        line.add(HANDLER_SECONDS, durations);
    }
    let mut lines = line.end(&["Queue"]);
    for (code, count) in &since.parked {
        let mut line = Line::new(since, now);
        line.members.insert("ErrorCode".to_owned(), json!(code.as_str()));
        line.add(Counter::Parked.metric(), json!(count));
        lines.push_str(&line.end(&["Queue", "ErrorCode"]));
    }
    lines
}

/// Runs of the handler, if there were any.
fn durations(since: &Snapshot) -> Option<Value> {
    let seconds = |ms| number(Duration::from_millis(ms).as_secs_f64());
    let taken = || since.took.iter().filter(|(_, count)| *count > 0);
    let (first, last) = (taken().next()?.0, taken().next_back()?.0);
    // The true least and greatest are not known: their buckets' ends are.
    let least = BOUNDS_MS.iter().rev().find(|bound| **bound < first).copied().unwrap_or(0);
    Some(json!({
        "Values": taken().map(|(bound, _)| seconds(*bound)).collect::<Vec<_>>(),
        "Counts": taken().map(|(_, count)| *count).collect::<Vec<_>>(),
        "Min": seconds(least),
        "Max": seconds(last),
        "Count": taken().map(|(_, count)| *count).sum::<u64>(),
        "Sum": number(since.took_sum.as_secs_f64()),
    }))
}

/// One line being written.
struct Line {
    now: Wall,
    metrics: Vec<Value>,
    members: Map<String, Value>,
}

impl Line {
    fn new(since: &Snapshot, now: Wall) -> Self {
        let queue = ("Queue".to_owned(), json!(since.queue.as_str()));
        Self { now, metrics: Vec::new(), members: Map::from_iter([queue]) }
    }

    fn add(&mut self, metric: Metric, value: Value) {
        self.metrics.push(json!({ "Name": metric.name, "Unit": metric.unit.as_str() }));
        self.members.insert(metric.name.to_owned(), value);
    }

    /// The whole line, with its end.
    fn end(self, dimensions: &[&str]) -> String {
        let Self { now, metrics, mut members } = self;
        let directive =
            json!({ "Namespace": NAMESPACE, "Dimensions": [dimensions], "Metrics": metrics });
        let aws = json!({ "Timestamp": now.as_ms(), "CloudWatchMetrics": [directive] });
        members.insert("_aws".to_owned(), aws);
        format!("{}\n", Value::Object(members))
    }
}

/// Flushes `every` so often, and once more at `stop`. Ends early when nobody reads any more.
pub async fn flush_every(
    meter: Meter,
    clock: Arc<dyn Clock>,
    every: Duration,
    stop: CancellationToken,
    mut out: impl AsyncWrite + Unpin,
) {
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut flushed: Option<Snapshot> = None;
    loop {
        let is_last = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            _ = ticks.tick() => false,
        };
        let now = meter.snapshot();
        let since = flushed.map_or_else(|| now.clone(), |flushed| now.since(&flushed));
        let lines = encode(&since, clock.wall());
        let written = async {
            out.write_all(lines.as_bytes()).await?;
            out.flush().await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "metrics cannot be written: no more are");
            return;
        }
        if is_last {
            return;
        }
        flushed = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use crate::domain::failure::ErrorCode;
    use crate::domain::id::QueueName;
    use crate::sim::clock::SimClock;

    const NOW: Wall = Wall::from_ms(1_700_000_000_000);

    fn meter() -> Meter {
        Meter::new(QueueName::new("orders").unwrap())
    }

    fn lines(text: &str) -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_idle_worker_says_that_it_is_there() {
        let text = encode(&meter().snapshot(), NOW);
        let expected = json!({
            "_aws": {
                "Timestamp": 1_700_000_000_000_u64,
                "CloudWatchMetrics": [{
                    "Namespace": "Redrive",
                    "Dimensions": [["Queue"]],
                    "Metrics": [
                        { "Name": "Received", "Unit": "Count" },
                        { "Name": "InFlight", "Unit": "Count" },
                    ],
                }],
            },
            "Queue": "orders",
            "Received": 0,
            "InFlight": 0,
        });
        assert_eq!(lines(&text), [expected]);
        assert!(text.ends_with("}\n"), "{text}");
    }

    #[test]
    fn what_happened_is_said_with_its_unit() {
        let meter = meter();
        meter.add(Counter::Received, 12);
        meter.add(Counter::Committed, 9);
        meter.set(Gauge::InFlight, 3.0);
        meter.set(Gauge::DlqResolutionRate, 0.25);
        meter.set(Gauge::OldestQuarantinedSeconds, 61.5);
        let line = lines(&encode(&meter.snapshot(), NOW)).remove(0);
        let metrics = &line["_aws"]["CloudWatchMetrics"][0]["Metrics"];
        let expected = json!([
            { "Name": "Received", "Unit": "Count" },
            { "Name": "Committed", "Unit": "Count" },
            { "Name": "InFlight", "Unit": "Count" },
            { "Name": "OldestQuarantinedSeconds", "Unit": "Seconds" },
            { "Name": "DlqResolutionRate", "Unit": "None" },
        ]);
        assert_eq!(*metrics, expected);
        for (name, value) in [
            ("Received", json!(12)),
            ("Committed", json!(9)),
            ("InFlight", json!(3)),
            ("DlqResolutionRate", json!(0.25)),
            ("OldestQuarantinedSeconds", json!(61.5)),
        ] {
            assert_eq!(line[name], value, "{name}");
        }
    }

    #[test]
    fn parkings_are_counted_for_the_queue_and_for_each_code() {
        let meter = meter();
        for code in ["B", "A", "B"] {
            meter.parked(&ErrorCode::from(code));
        }
        let lines = lines(&encode(&meter.snapshot(), NOW));
        let said: Vec<_> = lines
            .iter()
            .map(|line| {
                let dimensions = &line["_aws"]["CloudWatchMetrics"][0]["Dimensions"];
                (dimensions.clone(), line["ErrorCode"].as_str(), line["Parked"].as_u64())
            })
            .collect();
        let by_code = json!([["Queue", "ErrorCode"]]);
        let expected = [
            (json!([["Queue"]]), None, Some(3)),
            (by_code.clone(), Some("A"), Some(1)),
            (by_code, Some("B"), Some(2)),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn durations_are_values_with_counts_within_the_limit_of_cloudwatch() {
        let meter = meter();
        for ms in [4, 4, 900] {
            meter.handler_took(Duration::from_millis(ms));
        }
        let line = lines(&encode(&meter.snapshot(), NOW)).remove(0);
        let expected = json!({
            "Values": [0.005, 1], "Counts": [2, 1], "Min": 0.003, "Max": 1, "Count": 3, "Sum": 0.908,
        });
        assert_eq!(line["HandlerSeconds"], expected);

        for bound in BOUNDS_MS {
            meter.handler_took(Duration::from_millis(bound));
        }
        let line = lines(&encode(&meter.snapshot(), NOW)).remove(0);
        let values = line["HandlerSeconds"]["Values"].as_array().unwrap().len();
        assert!(values == BOUNDS_MS.len() && values <= 100, "{values}");
    }

    #[test]
    fn a_worker_that_says_everything_stays_within_the_metrics_of_a_line() {
        let meter = meter();
        for counter in Counter::ALL {
            meter.add(*counter, 1);
        }
        for gauge in Gauge::ALL {
            meter.set(*gauge, 1.0);
        }
        meter.handler_took(Duration::from_secs(1));
        let line = lines(&encode(&meter.snapshot(), NOW)).remove(0);
        let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        assert_eq!(metrics.len(), super::super::metric::all().count());
        assert!(metrics.len() <= 100);
        for metric in metrics {
            assert!(line.get(metric["Name"].as_str().unwrap()).is_some(), "{metric}");
        }
    }

    /// Flushes into memory; ends when `stop` does.
    async fn flushed(meter: Meter, stop: CancellationToken) -> Vec<Value> {
        let mut out = Vec::new();
        flush_every(meter, Arc::new(SimClock::starting_at(NOW)), EVERY, stop, &mut out).await;
        lines(std::str::from_utf8(&out).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn each_flush_says_what_is_new_and_the_last_one_comes_at_the_stop() {
        let (meter, stop) = (meter(), CancellationToken::new());
        let flushing = tokio::spawn(flushed(meter.clone(), stop.clone()));
        let mut second = tokio::time::interval(Duration::from_secs(1));
        for _ in 0..=130 {
            second.tick().await;
            meter.add(Counter::Received, 1);
        }
        stop.cancel();
        let lines = flushing.await.unwrap();
        let received: Vec<_> =
            lines.iter().map(|line| line["Received"].as_u64().unwrap()).collect();
        assert_eq!((received.len(), received.iter().sum::<u64>()), (3, 131), "{received:?}");
        assert!(received.iter().all(|count| *count <= 61), "{received:?}");
    }

    /// A pipe that nobody reads.
    struct Closed;

    impl AsyncWrite for Closed {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_pipe_ends_the_flushing_alone() {
        let never = CancellationToken::new();
        flush_every(meter(), Arc::new(SimClock::starting_at(NOW)), EVERY, never, Closed).await;
    }
}
