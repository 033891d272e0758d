//! Log lines on stderr: stdout is for results.
//!
//! `REDRIVE_LOG` filters them like `info,redrive=debug`; without it they begin at `info`. The SDKs and
//! what carries them speak from `warn` on, for at lower levels they print whole requests.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// The variable with the filter.
pub const FILTER_VARIABLE: &str = "REDRIVE_LOG";

const DEFAULT_FILTER: &str = "info";
/// `aws_config` prints whole answers where it looks for a region in vain; the error that follows says it.
const QUIET: &str = "aws_config=error,aws_runtime=warn,aws_sdk=warn,aws_sigv4=warn,aws_smithy=warn,\
                     dynoxide=error,hyper=warn,rustls=warn,s3s=warn";

/// Begins to log, once for the process. `format`: none is text on a terminal, else JSON.
pub fn start(format: Option<LogFormat>, filter: Option<&str>) {
    let format = format.unwrap_or(if std::io::stderr().is_terminal() {
        LogFormat::Text
    } else {
        LogFormat::Json
    });
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter_of(filter))
        .with_writer(std::io::stderr)
        .with_ansi(false);
    // A second start changes nothing: the first one's lines go on.
    let _started = match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.try_init(),
    };
}

fn filter_of(filter: Option<&str>) -> EnvFilter {
    let asked = filter.filter(|text| !text.is_empty()).unwrap_or(DEFAULT_FILTER);
    // What is asked for stands last and wins.
    EnvFilter::builder().parse_lossy(format!("{QUIET},{asked}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdks_are_quiet_unless_asked() {
        let filter = filter_of(Some("debug")).to_string();
        assert!(filter.contains("aws_smithy=warn") && filter.contains("debug"), "{filter}");
        let filter = filter_of(Some("aws_smithy=trace")).to_string();
        assert!(
            filter.contains("aws_smithy=trace") && !filter.contains("aws_smithy=warn"),
            "{filter}"
        );
    }
}
