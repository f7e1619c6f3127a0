//! A server as this process: its settings, its signals, and how it ends, which the command line prints. After it wrote its
//! register again it starts over, as the next process would.
//!
//! Neighbour: `serve`, which starts and stops a server, here or inside another process.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::cannot::CannotStart;
use super::listening::Ports;
use super::opening::{in_use, open_store};
use super::{EXIT_STORE_FAILED, Ended, Options, ServeArgs, signals, start_until, supervisor};
use crate::config::{Config, LogFormat, Once, Sources, StoreKind};
use crate::core::command::NetworkInput;
use crate::store::Store;
use crate::telemetry;

/// Why this process does not serve, or cannot go on.
#[derive(Debug)]
pub struct Unserved {
    /// What it was asked to do.
    pub asked: &'static str,
    /// What stands in the way.
    pub problem: String,
    /// What to do: a sentence without full stop.
    pub hint: String,
    /// The exit code.
    pub exit: u8,
}

/// Runs a server as this process: until a signal, or until it cannot go on.
///
/// # Errors
/// Why it cannot start, or go on.
pub fn run(args: ServeArgs) -> Result<(), Unserved> {
    let (file, flags) = (args.config.clone(), args.flags.clone());
    let loaded = Sources::gather(args.config, args.flags)
        .map_err(CannotStart::no_configuration)
        .and_then(|sources| Config::load(&sources).map_err(|problem| CannotStart::configuration(&problem)));
    let mut config = match loaded {
        Ok(config) => config,
        Err(cannot) => return Err(cannot.end()),
    };
    config.store.once = args.once;
    telemetry::init(&config.log.level, config.log.format == LogFormat::Json);
    // Before anything that takes long, because until then a SIGHUP ends the process.
    signals::on_hangup(signals::ReadSettings { file, flags, config: config.clone() });
    let stop = CancellationToken::new();
    // A start may read for long or wait for others, and the first process of a container ignores a signal that it does not
    // handle.
    signals::stop_on_signals(stop.clone());
    let mut healed = 0;
    loop {
        match round(&mut config, (args.networks.clone(), healed), &stop) {
            ControlFlow::Break(ended) => return ended,
            ControlFlow::Continue(batches) => healed += batches,
        }
    }
}

/// Runs a server until it ends, and returns how; or continues with the number of batches if it wrote its register again, and
/// is to be started with that at the same addresses.
fn round(
    config: &mut Config,
    (networks, healed_before): (Vec<NetworkInput>, u64),
    stop: &CancellationToken,
) -> ControlFlow<Result<(), Unserved>, u64> {
    let started = take_ports(config).and_then(|ports| {
        let mut options = Options::new(config.clone(), open_until(config, stop)?);
        (options.networks, options.healed_before) = (networks, healed_before);
        start_until(options, Some(ports), stop.child_token())
    });
    let running = match started {
        Ok(running) => running,
        Err(cannot) if stop.is_cancelled() => {
            tracing::info!(problem = cannot.problem, "stopped before it was ready");
            return ControlFlow::Break(Ok(()));
        }
        Err(cannot) => return ControlFlow::Break(Err(cannot.end())),
    };
    // The reader of a pipe may have taken the first such line and ended: nothing depends on it.
    if let Err(error) = writeln!(io::stdout(), "ready tcp={} http={}", running.tcp, running.http) {
        tracing::warn!(%error, tcp = %running.tcp, http = %running.http, "ready, but nobody reads stdout, where it says so");
    }
    (config.server.listen, config.server.http_listen) = (running.tcp.to_string(), running.http.to_string());
    let watched = supervisor::watch(&running, stop, healed_before > 0);
    let ended = running.wait();
    let begins_again = matches!(ended, Ended::WrittenAnew(_)) && !stop.is_cancelled();
    watched.end(begins_again);
    match ended {
        Ended::WrittenAnew(batches) if begins_again => {
            // One-time flags were for the first start.
            config.store.once = Once::default();
            ControlFlow::Continue(batches)
        }
        Ended::Stopped | Ended::WrittenAnew(_) => ControlFlow::Break(Ok(())),
        Ended::Failed(problem) => {
            let hint = match config.store.kind {
                StoreKind::Redis => {
                    "start it again with `allod serve`: it reads what Redis has. If that lost something or was emptied, \
                     deploy/README.md says what to do first, under \"The store is lost\" and \"Redis was emptied\", and which \
                     of several \
                     nodes to start first"
                }
                StoreKind::Embedded | StoreKind::Memory => {
                    "start it again with `allod serve`: it reads what the store has"
                }
            };
            let (asked, hint) = ("go on serving", hint.to_owned());
            ControlFlow::Break(Err(Unserved { asked, problem, hint, exit: EXIT_STORE_FAILED }))
        }
    }
}

/// Takes the ports before the store is opened, because opening may begin a register: a server that then failed to start
/// would have shut out the one that had the register, and may still write it there again.
fn take_ports(config: &Config) -> Result<Ports, CannotStart> {
    let ports = Ports::take(config, config.store.kind == StoreKind::Redis);
    // A server that uses the directory uses the ports, too; the directory, of which there is only one, is the better
    // explanation.
    ports.map_err(|cannot| in_use(config).unwrap_or(cannot))
}

/// Opens the store in a thread of its own, because that reads all of a register in files. If a stop comes meanwhile nobody
/// waits for the thread, and it ends with the process, and its lock with it: nothing was served, and the next start goes on
/// from wherever this one broke off.
fn open_until(config: &Config, stop: &CancellationToken) -> Result<Arc<dyn Store>, CannotStart> {
    let of_machine =
        |error: std::io::Error| CannotStart::of_machine(format!("no thread to open the store in: {error}"));
    let waiting = tokio::runtime::Builder::new_current_thread().build().map_err(of_machine)?;
    let (told, opened) = tokio::sync::oneshot::channel();
    let config = config.clone();
    let opening = std::thread::Builder::new().name("opening".to_owned());
    // After a stop nobody waits for the result.
    let opening = opening.spawn(move || drop(told.send(open_store(&config)))).map_err(of_machine)?;
    let opened = waiting.block_on(async {
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            opened = opened => Some(opened),
        }
    });
    match opened {
        None => Err(CannotStart::new("it was asked to stop while the store was opened", "start it again")),
        Some(Ok(opened)) => opened,
        Some(Err(_)) => match opening.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(CannotStart::new("the store was opened and not handed over", "report this, with the log")),
        },
    }
}
