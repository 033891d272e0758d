//! Metrics in the text format of Prometheus, version 0.0.4: names in snake case, counters since the start.
//!
//! Label values are queue names and error codes, whose letters need no escaping.

use std::fmt::Write as _;
use std::time::Duration;

use super::metric::{Counter, Gauge, HANDLER_SECONDS, Metric, Snapshot};

/// The media type of what [`encode`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics. A gauge that is not set has a type and no value.
#[must_use]
pub fn encode(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _written = write(&mut text, snapshot);
    text
}

fn write(out: &mut String, snapshot: &Snapshot) -> std::fmt::Result {
    let queue = &snapshot.queue;
    for (counter, count) in &snapshot.counters {
        let name = format!("{}_total", name(counter.metric()));
        head(out, &name, counter.metric(), "counter")?;
        if *counter == Counter::Parked {
            for (code, count) in &snapshot.parked {
                writeln!(out, "{name}{{queue=\"{queue}\",error_code=\"{code}\"}} {count}")?;
            }
        } else {
            writeln!(out, "{name}{{queue=\"{queue}\"}} {count}")?;
        }
    }
    for gauge in Gauge::ALL {
        let name = name(gauge.metric());
        head(out, &name, gauge.metric(), "gauge")?;
        if let Some(value) = snapshot.gauges.get(gauge) {
            writeln!(out, "{name}{{queue=\"{queue}\"}} {value}")?;
        }
    }
    let name = name(HANDLER_SECONDS);
    head(out, &name, HANDLER_SECONDS, "histogram")?;
    let mut count = 0;
    for (bound_ms, more) in &snapshot.took {
        count += more;
        let bound = Duration::from_millis(*bound_ms).as_secs_f64();
        writeln!(out, "{name}_bucket{{queue=\"{queue}\",le=\"{bound}\"}} {count}")?;
    }
    writeln!(out, "{name}_bucket{{queue=\"{queue}\",le=\"+Inf\"}} {count}")?;
    writeln!(out, "{name}_sum{{queue=\"{queue}\"}} {}", snapshot.took_sum.as_secs_f64())?;
    writeln!(out, "{name}_count{{queue=\"{queue}\"}} {count}")
}

fn head(out: &mut String, name: &str, metric: Metric, kind: &str) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", metric.meaning)
}

/// `DuplicatesSkipped` is `redrive_duplicates_skipped`.
fn name(metric: Metric) -> String {
    let mut name = "redrive".to_owned();
    for letter in metric.name.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::ErrorCode;
    use crate::domain::id::QueueName;
    use crate::telemetry::metric::{self, Meter};

    fn meter() -> Meter {
        Meter::new(QueueName::new("orders").unwrap())
    }

    #[test]
    fn counters_and_gauges_have_help_type_and_value() {
        let meter = meter();
        meter.add(Counter::Received, 7);
        meter.set(Gauge::DlqResolutionRate, 0.5);
        meter.parked(&ErrorCode::from("BAD_DATE"));
        let text = encode(&meter.snapshot());
        for lines in [
            "# HELP redrive_received_total Messages received from the source.\n\
             # TYPE redrive_received_total counter\n\
             redrive_received_total{queue=\"orders\"} 7\n",
            "# HELP redrive_parked_total Messages parked.\n\
             # TYPE redrive_parked_total counter\n\
             redrive_parked_total{queue=\"orders\",error_code=\"BAD_DATE\"} 1\n\
             # HELP",
            "# HELP redrive_dlq_resolution_rate Resolved records of all records held, 0 to 1.\n\
             # TYPE redrive_dlq_resolution_rate gauge\n\
             redrive_dlq_resolution_rate{queue=\"orders\"} 0.5\n",
            // One that was never set.
            "# TYPE redrive_in_flight gauge\n# HELP",
        ] {
            assert!(text.contains(lines), "{lines}\nis missing in\n{text}");
        }
    }

    #[test]
    fn the_histogram_is_cumulative_and_ends_with_all() {
        let meter = meter();
        for ms in [4, 5, 900] {
            meter.handler_took(Duration::from_millis(ms));
        }
        let text = encode(&meter.snapshot());
        let lines: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("redrive_handler_seconds"))
            .filter(|line| {
                ["\"0.003\"", "\"0.005\"", "\"1\"", "Inf", "_sum", "_count"]
                    .iter()
                    .any(|part| line.contains(part))
            })
            .collect();
        let expected = [
            "_bucket{queue=\"orders\",le=\"0.003\"} 0",
            "_bucket{queue=\"orders\",le=\"0.005\"} 2",
            "_bucket{queue=\"orders\",le=\"1\"} 3",
            "_bucket{queue=\"orders\",le=\"+Inf\"} 3",
            "_sum{queue=\"orders\"} 0.909",
            "_count{queue=\"orders\"} 3",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_metric_is_there_once_and_each_line_is_of_the_format() {
        let meter = meter();
        meter.parked(&ErrorCode::from("A"));
        let text = encode(&meter.snapshot());
        assert_eq!(text.matches("# TYPE ").count(), metric::all().count());
        let line = regex::Regex::new(
            r#"^(# (HELP|TYPE) redrive_[a-z_]+ .+|redrive_[a-z_]+\{([a-z_]+="[^"\\]*",?)+\} [0-9.]+)$"#,
        )
        .unwrap();
        for text in text.lines() {
            assert!(line.is_match(text), "{text}");
        }
    }
}
