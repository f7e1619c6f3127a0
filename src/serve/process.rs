//! A server as this process: its settings, its signals, and what it ends with. Where it wrote its register anew it begins once
//! more, as the next process would.
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
use crate::cli::failure::Failure;
use crate::config::{Config, Sources, StoreKind};
use crate::core::command::NetworkInput;
use crate::store::Store;
use crate::telemetry;

/// Runs a server as this process: until a signal, or until it cannot go on. Answers the exit code.
pub fn run(args: ServeArgs) -> u8 {
    let (file, flags) = (args.config.clone(), args.flags.clone());
    let loaded = Sources::gather(args.config, args.flags)
        .map_err(CannotStart::no_configuration)
        .and_then(|sources| Config::load(&sources).map_err(|problem| CannotStart::configuration(&problem)));
    let mut config = match loaded {
        Ok(config) => config,
        Err(cannot) => return cannot.end(),
    };
    config.store.accept_restored = args.accept_restored;
    config.store.accept_new_store = args.accept_new_store;
    config.store.accept_rollback = args.accept_rollback;
    config.store.give_up_history = args.give_up_history;
    config.store.give_up_snapshot = args.give_up_snapshot;
    telemetry::init(&config.log);
    // Before anything that takes long: it is no reason to end.
    signals::on_hangup(signals::ReadSettings { file, flags, config: config.clone() });
    let stop = CancellationToken::new();
    // A start may read for long, or wait for others, and the first process of a container hears no signal that it does not listen for.
    signals::stop_on_signals(stop.clone());
    let mut healed = 0;
    loop {
        match round(&mut config, (args.networks.clone(), healed), &stop) {
            ControlFlow::Break(exit) => return exit,
            ControlFlow::Continue(batches) => healed += batches,
        }
    }
}

/// Runs a server until it ends: with this exit code; or it wrote its register anew, in so many batches, and is to be started with
/// it, where it was.
fn round(
    config: &mut Config,
    (networks, healed_before): (Vec<NetworkInput>, u64),
    stop: &CancellationToken,
) -> ControlFlow<u8, u64> {
    let started = take_ports(config).and_then(|ports| {
        let mut options = Options::new(config.clone(), open_until(config, stop)?);
        (options.networks, options.healed_before) = (networks, healed_before);
        start_until(options, Some(ports), stop.child_token())
    });
    let running = match started {
        Ok(running) => running,
        Err(cannot) if stop.is_cancelled() => {
            tracing::info!(problem = cannot.problem, "stopped before it was ready");
            return ControlFlow::Break(0);
        }
        Err(cannot) => return ControlFlow::Break(cannot.end()),
    };
    // A pipe may have no reader any more, that took the first such line and ended: nothing depends on it.
    if let Err(error) = writeln!(io::stdout(), "ready tcp={} http={}", running.tcp, running.http) {
        tracing::warn!(%error, tcp = %running.tcp, http = %running.http, "ready, and nobody reads on stdout that it is");
    }
    (config.server.listen, config.server.http_listen) = (running.tcp.to_string(), running.http.to_string());
    let watched = supervisor::watch(&running, stop, healed_before > 0);
    let ended = running.wait();
    let begins_again = matches!(ended, Ended::WrittenAnew(_)) && !stop.is_cancelled();
    watched.end(begins_again);
    match ended {
        Ended::WrittenAnew(batches) if begins_again => {
            // What an operator accepted was for the first start.
            let settings = &mut config.store;
            (settings.accept_restored, settings.accept_new_store, settings.accept_rollback) = (false, false, false);
            (settings.give_up_history, settings.give_up_snapshot) = (false, false);
            ControlFlow::Continue(batches)
        }
        Ended::Stopped | Ended::WrittenAnew(_) => ControlFlow::Break(0),
        Ended::Failed(problem) => {
            let hint = match config.store.kind {
                StoreKind::Redis => {
                    "start it again with `allod serve`: it reads what Redis has. If that lost something or was emptied, \
                     deploy/README.md has what to do first, under \"The store is lost\" and \"Redis was emptied\", and which of several \
                     nodes to start first"
                }
                StoreKind::Embedded | StoreKind::Memory => {
                    "start it again with `allod serve`: it reads what the store has"
                }
            };
            Failure::new("go on serving", problem, hint).print();
            ControlFlow::Break(EXIT_STORE_FAILED)
        }
    }
}

/// Before the store is opened, which begins a register where there is none: a server that then cannot start would have thrown out
/// the one whose register was there, and may be written there anew.
fn take_ports(config: &Config) -> Result<Ports, CannotStart> {
    let ports = Ports::take(config, config.store.kind == StoreKind::Redis);
    // A server that has the directory has the ports, too, and it is the directory that there is only one of.
    ports.map_err(|cannot| in_use(config).unwrap_or(cannot))
}

/// Opens the store in a thread of its own: that reads all of a register in files. Where it is asked to stop meanwhile nobody
/// waits for the end of it, and it ends with the process, its lock with it: nothing was served, and a start that is broken
/// off anywhere is one that the next start goes on from.
fn open_until(config: &Config, stop: &CancellationToken) -> Result<Arc<dyn Store>, CannotStart> {
    let of_machine =
        |error: std::io::Error| CannotStart::of_machine(format!("no thread to open the store in: {error}"));
    let waiting = tokio::runtime::Builder::new_current_thread().build().map_err(of_machine)?;
    let (told, opened) = tokio::sync::oneshot::channel();
    let config = config.clone();
    let opening = std::thread::Builder::new().name("opening".to_owned());
    // Nobody waits for it any more where it was asked to stop.
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
