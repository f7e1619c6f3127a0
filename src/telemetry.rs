//! Logs: tracing events on stderr, as text or JSON. ERROR needs a human; a refused request is no event at all.
//!
//! A panic becomes one ERROR event with its place; where a network caught it, the next event carries the id that the
//! client was answered. What goes on for long is said [`Seldom`]. The level is [switched](switch) while the process runs.

use std::ops::RangeInclusive;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::{Log, LogFormat};

/// The filter in force, once the process is set up.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Sets the process up. Once; a second call leaves things as they are, so that tests may call it each.
pub fn init(log: &Log) {
    let filter = filter(&log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, handle) = reload::Layer::new(filter);
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // Where stderr cannot be written (the terminal is gone, a pipe has no reader) there is nobody to be told: to complain of
    // it on stderr would be a panic in whichever thread had something to say.
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(colours).log_internal_errors(false);
    let lines = match log.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        // It is the first: whoever comes second set nothing up.
        let _ = FILTER.set(handle);
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let backtrace = std::backtrace::Backtrace::capture();
            tracing::error!(place, problem = panic.payload_as_str().unwrap_or("no text"), %backtrace, "panic");
        }));
    }
}

/// From now on events are logged by this level or filter.
///
/// # Errors
/// A sentence; then all is as it was.
pub fn switch(level: &str) -> Result<(), String> {
    let filter = filter(level)?;
    let Some(handle) = FILTER.get() else { return Err("this process logs in a way of its own".to_owned()) };
    handle.reload(filter).map_err(|error| error.to_string())
}

/// What `log.level` may be, for whoever wrote something else.
const LEVELS: &str = "`off`, `error`, `warn`, `info`, `debug` or `trace`, or a filter that begins with one, as \
                      `info,allod::peer=debug`";

/// Reads a level or a filter. A bare word is a level: by itself the crate takes any other for the name of a part that is to
/// log all it has, so that a slip as `debgu` silences all else. For the same reason a filter says what is logged of this
/// program: parts of others alone would leave it mute.
///
/// # Errors
/// A sentence that says what it is and what is allowed.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let parts = || level.split(',').filter(|part| !part.is_empty());
    let word = |part: &&str| !part.contains(['=', '[', ']', '{', '}', '"']);
    if let Some(slip) = parts().filter(word).find(|part| !is_level(part)) {
        let which = if slip == level { String::new() } else { format!(", where {slip:?} is no level") };
        return Err(format!("is {level:?}{which}; allowed is {LEVELS}"));
    }
    let filter = level.parse().map_err(|error| format!("is {level:?}; allowed is {LEVELS}: {error}"))?;
    if !parts().any(|part| is_level(part) || part.starts_with("allod") || part.starts_with('[')) {
        return Err(format!("is {level:?}, which logs nothing of the server itself; allowed is {LEVELS}"));
    }
    Ok(filter)
}

/// How often something that happens again and again is said: at once the first time, then after pauses that double from the
/// shortest to the longest. When nothing of it happened for the longest pause, the next is a first time again.
#[derive(Debug)]
pub struct Seldom {
    pauses: RangeInclusive<Duration>,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    /// When it happened last, and when it was said last with the pause that it began.
    happened: Option<Instant>,
    said: Option<(Instant, Duration)>,
    unsaid: u64,
}

impl Seldom {
    /// With these pauses.
    pub const fn new(pauses: RangeInclusive<Duration>) -> Self {
        Self { pauses, said: Mutex::new(Said { happened: None, said: None, unsaid: 0 }) }
    }

    /// It happened. Is it to be said now? Then how often it went unsaid since it was said last.
    pub fn turn(&self) -> Option<u64> {
        self.turn_at(Instant::now())
    }

    fn turn_at(&self, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = said.happened.replace(now).is_none_or(|before| now - before >= *self.pauses.end());
        let pause = match said.said {
            Some((at, pause)) if !quiet && now - at < pause => {
                said.unsaid += 1;
                return None;
            }
            Some((_, pause)) if !quiet => (2 * pause).min(*self.pauses.end()),
            Some(_) | None => *self.pauses.start(),
        };
        said.said = Some((now, pause));
        Some(std::mem::take(&mut said.unsaid))
    }
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

    #[test]
    fn what_goes_on_is_said_at_growing_pauses_with_what_went_unsaid() {
        let seldom = Seldom::new(Duration::from_secs(1)..=Duration::from_secs(4));
        let begun = Instant::now();
        let mut told = Vec::new();
        // Every tenth of a second.
        for tenth in 0..200 {
            if let Some(unsaid) = seldom.turn_at(begun + Duration::from_millis(100 * tenth)) {
                told.push((tenth, unsaid));
            }
        }
        assert_eq!(told, [(0, 0), (10, 9), (30, 19), (70, 39), (110, 39), (150, 39), (190, 39)]);
        // It was over for a while.
        let again = begun + Duration::from_secs(24);
        assert_eq!(seldom.turn_at(again), Some(9));
        assert_eq!(seldom.turn_at(again + Duration::from_millis(900)), None);
        assert_eq!(seldom.turn_at(again + Duration::from_millis(1_100)), Some(1));
    }
}
