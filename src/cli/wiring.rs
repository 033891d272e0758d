//! From the configuration to what the worker's service takes.
//!
//! What is configured and not built yet is refused rather than passed over.

use std::sync::Arc;
use std::time::Duration;

use super::exit::CliError;
use crate::config::{Config, ErrorText, ExecMode, HandlerKind, PayloadFrom};
use crate::domain::backoff::Backoff;
use crate::domain::breaker::Bounds;
use crate::handler::exec::ExecHandler;
use crate::port::handler::Handler;
use crate::service::settings::{self, Settings};

/// The configured handler.
pub(super) fn handler(config: &Config) -> Result<Arc<dyn Handler>, CliError> {
    let Some(handler) = &config.handler else {
        return Err(CliError::Misfit(
            "no handler: set kind and command in [handler] of redrive.toml".to_owned(),
        ));
    };
    match &handler.kind {
        HandlerKind::Exec { command, mode: ExecMode::Once, permanent_exit_codes } => {
            Ok(Arc::new(ExecHandler::new(command.clone(), permanent_exit_codes.clone())))
        }
        HandlerKind::Exec { mode: ExecMode::Stream, .. } => {
            Err(not_built("handler.mode = \"stream\""))
        }
        HandlerKind::Http { .. } => Err(not_built("handler.kind = \"http\"")),
        HandlerKind::Lambda { .. } => Err(not_built("handler.kind = \"lambda\"")),
    }
}

/// The settings of a worker.
pub(super) fn settings(config: &Config) -> Result<Settings, CliError> {
    refuse_what_is_not_built(config)?;
    let Some(handler) = &config.handler else {
        return Err(CliError::Misfit("no handler: set [handler] in redrive.toml".to_owned()));
    };
    Ok(Settings { handler_timeout: handler.timeout, ..handlerless(config) })
}

/// The settings of those who sweep and run no handler.
pub(super) fn sweep_settings(config: &Config) -> Result<Settings, CliError> {
    match config.payload.from {
        PayloadFrom::Body => Ok(handlerless(config)),
        PayloadFrom::S3Event => Err(not_built("payload.from = \"s3-event\"")),
    }
}

fn handlerless(config: &Config) -> Settings {
    let schema = config.schema.version.clone().filter(|_| !config.schema.supported.is_empty());
    Settings {
        wait: config.source.wait,
        visibility: config.source.visibility_timeout,
        concurrency: config.source.concurrency,
        pollers_max: config.source.pollers_max,
        breaker: Bounds {
            window: config.breaker.window,
            min_outcomes: usize::try_from(config.breaker.min_outcomes).unwrap_or(usize::MAX),
            open_ratio: config.breaker.open_ratio,
            probe_after: config.breaker.probe_after,
        },
        handler_timeout: Duration::ZERO,
        max_attempts: config.limits.max_attempts,
        crash_limit: config.limits.crash_limit,
        confidence_floor: config.limits.confidence_floor,
        grace: config.limits.grace,
        retry: Backoff { base: config.retry.base, cap: config.retry.cap },
        strategy: config.identity.key.clone(),
        repeat_window: config.identity.repeat_window,
        remember: config.identity.remember,
        labels: config.labels.clone().into_iter().collect(),
        schema: schema.map(|version| settings::Schema {
            version,
            supported: config.schema.supported.clone(),
        }),
        prefix: config.vault.prefix.as_str().to_owned(),
        error_text: match config.vault.error_text {
            ErrorText::Ledger => settings::ErrorText::Ledger,
            ErrorText::Vault => settings::ErrorText::Vault,
        },
        sweep_every: config.sweep.every,
        sweep_full_every: config.sweep.full_every,
        run_lease: config.redriver.lease,
        runs: match config.redriver.enabled {
            true => settings::ExecuteRuns::Yes,
            false => settings::ExecuteRuns::No,
        },
        owner: owner(),
        host: host(),
    }
}

fn refuse_what_is_not_built(config: &Config) -> Result<(), CliError> {
    let asked = [
        (config.payload.from == PayloadFrom::S3Event, "payload.from = \"s3-event\""),
        (!config.classify.is_empty(), "[[classify]]"),
        (config.ledger.batch, "ledger.batch"),
        (config.alerts.sns_topic_arn.is_some(), "alerts.sns_topic_arn"),
    ];
    match asked.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, what)) => Err(not_built(what)),
        None => Ok(()),
    }
}

pub(super) fn not_built(what: &str) -> CliError {
    CliError::Misfit(format!("{what} is not in this version yet: take it out of the configuration"))
}

/// The name of this machine.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Who this process is, as the owner of claims and locks.
pub(super) fn owner() -> String {
    format!("{}-{}", host(), std::process::id())
}

/// The user of this machine, as far as the environment tells.
pub(super) fn user() -> String {
    let named = crate::config::environment().find(|(name, _)| name == "USER" || name == "LOGNAME");
    let user = named.map_or_else(|| "somebody".to_owned(), |(_, user)| user);
    format!("{user}@{}", host())
}
