//! SIGTERM and SIGINT ask the server to stop. SIGHUP makes it read its configuration again, and apply the log level.
//!
//! ```text
//! SIGHUP ▶ read the file, with environment and flags of the start ▶ check all of it ▶ switch the level
//!        ▶ name the keys that wait for the next start
//! ```
//!
//! Only the level is applied: clients and other nodes were told of ports, bounds and store, and a value may be right only
//! together with another one. A file that cannot be read, or is wrong, changes nothing.
//!
//! Review notes: can a SIGHUP ever end the process? Does any value of a refused file take effect?

use std::path::PathBuf;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Sources};
use crate::telemetry;

/// The settings of the start, and how to read them again.
pub(super) struct ReadSettings {
    /// The file, if one was named.
    pub file: Option<PathBuf>,
    /// Flags of the command line.
    pub flags: Vec<(String, String)>,
    /// What the server runs with.
    pub config: Config,
}

/// Handles signals in a thread of its own. The handlers are in place when this returns: a signal that comes the moment after
/// is not lost, and does not end the process.
fn listen<F>(
    name: &str,
    kinds: &[SignalKind],
    deal: impl FnOnce(Vec<Signal>) -> F + Send + 'static,
) -> std::io::Result<()>
where
    F: Future<Output = ()>,
{
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals: Vec<Signal> = {
        let _inside = runtime.enter();
        kinds.iter().map(|kind| signal(*kind)).collect::<Result<_, _>>()?
    };
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || runtime.block_on(deal(signals))).map(drop)
}

/// From now on these signals ask the server to stop, also while it starts.
pub(super) fn stop_on_signals(stop: CancellationToken) {
    let listened = listen("signals", &[SignalKind::terminate(), SignalKind::interrupt()], |mut signals| async move {
        let (Some(mut interrupt), Some(mut terminate)) = (signals.pop(), signals.pop()) else { return };
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            () = stop.cancelled() => {}
        }
        stop.cancel();
    });
    if let Err(error) = listened {
        tracing::error!(%error, "signals cannot be listened for");
    }
}

/// From now on a SIGHUP makes the server read its configuration again; before, it ends the process.
pub(super) fn on_hangup(mut reading: ReadSettings) {
    let listened = listen("hangups", &[SignalKind::hangup()], |mut signals| async move {
        let Some(mut hangups) = signals.pop() else { return };
        while hangups.recv().await.is_some() {
            reading.again();
        }
    });
    if let Err(error) = listened {
        tracing::error!(%error, "SIGHUP cannot be listened for");
    }
}

impl ReadSettings {
    fn again(&mut self) {
        let Some(file) = self.file.clone() else {
            return tracing::warn!("SIGHUP: there is nothing to read again, because no file was named by --config");
        };
        let read = Sources::gather(Some(file.clone()), self.flags.clone())
            .and_then(|sources| Config::load(&sources).map(|config| (sources, config)));
        let file = file.display();
        let (sources, config) = match read {
            Ok(read) => read,
            Err(problem) => return tracing::error!(problem, "SIGHUP: the configuration is refused, nothing changed"),
        };
        let level = config.log.level.clone();
        if level == self.config.log.level {
            let set_by = sources.origin("log.level").to_string();
            tracing::info!(%file, log_level = level, set_by, "SIGHUP: the configuration was read, the log level is unchanged");
        } else if let Err(problem) = self.switch(level) {
            return tracing::error!(problem, "SIGHUP: the log level cannot be switched, nothing changed");
        }
        let waiting = self.config.differing(&config).join(", ");
        if !waiting.is_empty() {
            tracing::warn!(%file, keys = waiting, "SIGHUP: these keys were changed, and take effect at the next start");
        }
    }

    /// Logged when it is visible: before the switch if the old level shows it, otherwise after it.
    fn switch(&mut self, to: String) -> Result<(), String> {
        let from = std::mem::replace(&mut self.config.log.level, to.clone());
        let say = || tracing::info!(from, to, "SIGHUP: the log level is switched");
        let said = tracing::enabled!(tracing::Level::INFO);
        if said {
            say();
        }
        if let Err(problem) = telemetry::switch(&to) {
            self.config.log.level = from;
            return Err(problem);
        }
        if !said {
            say();
        }
        Ok(())
    }
}
