//! Logs: tracing events on stderr, as text or JSON. ERROR needs a human; a refused request is no event at all.
//!
//! A panic becomes one ERROR event with its place; where a network caught it, the next event carries the id that the
//! client was answered.

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Sets the process up. Once; a second call leaves things as they are, so that tests may call it each.
pub fn init(log: &Log) {
    let filter = log.level.parse::<EnvFilter>().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    let set = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if set.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let backtrace = std::backtrace::Backtrace::capture();
            tracing::error!(place, problem = panic.payload_as_str().unwrap_or("no text"), %backtrace, "panic");
        }));
    }
}
