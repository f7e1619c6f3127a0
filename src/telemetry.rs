//! Logs: tracing events on stderr, as text or JSON. An ERROR needs a human; a refused request is not logged at all.
//!
//! A panic becomes one ERROR event with its place. If a network caught it, the next event carries the id that the client was
//! answered. Lasting conditions are logged through [`Seldom`](crate::seldom::Seldom). The level can be [switched](switch)
//! while the process runs. In the [journal] of systemd each line has the priority of its level.

pub mod journal;

use std::sync::OnceLock;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The filter in force, once logging is set up.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Sets up logging for the process, by this level or filter, as JSON or as text. Only the first call counts, so that each
/// test may call this.
pub fn init(level: &str, as_json: bool) {
    let filter = filter(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, handle) = reload::Layer::new(filter);
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // If stderr cannot be written (the terminal is gone, a pipe has no reader), nobody can be told: complaining on stderr
    // would be a panic in whatever thread had something to log.
    let lines = fmt::layer().with_writer(journal::Stderr::of_process()).with_ansi(colours).log_internal_errors(false);
    let lines = if as_json { lines.json().flatten_event(true).boxed() } else { lines.boxed() };
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        // This was the first call; later ones set nothing up.
        let _ = FILTER.set(handle);
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let backtrace = std::backtrace::Backtrace::capture();
            tracing::error!(place, problem = panic.payload_as_str().unwrap_or("no text"), %backtrace, "panic");
        }));
    }
}

/// Logs by this level or filter from now on.
///
/// # Errors
/// A sentence; then nothing has changed.
pub fn switch(level: &str) -> Result<(), String> {
    let filter = filter(level)?;
    let Some(handle) = FILTER.get() else { return Err("this process already has a logger".to_owned()) };
    handle.reload(filter).map_err(|error| error.to_string())
}

/// The allowed values of `log.level`, for the error message.
const LEVELS: &str = "`off`, `error`, `warn`, `info`, `debug` or `trace`, or a filter that begins with one, for example \
 `info,allod::peer=debug`";

/// Reads a level or a filter. A bare word must be a level: the crate would take any other for the name of a module whose
/// events are all to be logged, so a slip such as `debgu` would silence everything else. For the same reason a filter must
/// say what to log of this program: one that names only other modules would leave it mute.
///
/// # Errors
/// A sentence with the value and what is allowed.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let parts = || level.split(',').filter(|part| !part.is_empty());
    let word = |part: &&str| !part.contains(['=', '[', ']', '{', '}', '"']);
    if let Some(slip) = parts().filter(word).find(|part| !is_level(part)) {
        let which = if slip == level { String::new() } else { format!(", where {slip:?} is no level") };
        return Err(format!("is {level:?}{which}; it must be {LEVELS}"));
    }
    let filter = level.parse().map_err(|error| format!("is {level:?}; it must be {LEVELS}: {error}"))?;
    if !parts().any(|part| is_level(part) || part.starts_with("allod") || part.starts_with('[')) {
        return Err(format!("is {level:?}, which logs nothing of the server itself; it must be {LEVELS}"));
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_and_not_taken_for_the_name_of_a_part() {
        for good in
            ["info", "WARN", "off", "info,allod::actors=debug", "allod=debug", "warn,redis=info,", "[span]=trace"]
        {
            assert!(filter(good).is_ok(), "{good}");
        }
        for wrong in ["loud", "debgu", "info,debgu", "allod", "", ",", " info", "a=b=c", "alod=debug", "allod=loud"] {
            let refused = filter(wrong).expect_err(wrong);
            assert!(refused.starts_with(&format!("is {wrong:?}")) && refused.contains("`debug`"), "{refused}");
        }
        let refused = filter("info,debgu").unwrap_err();
        assert!(refused.contains("\"debgu\" is no level"), "{refused}");
    }
}
