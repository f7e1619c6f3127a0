//! Tells the supervisor of this process (systemd, `Type=notify`) that the server is ready, that it lives, and that it stops.
//!
//! A supervisor that named no socket in `NOTIFY_SOCKET` is told nothing. With `WATCHDOG_USEC` it wants a sign of life at
//! least so often, and kills and starts what stays silent. The sign is given only after each reactor ran a task: a thread
//! that is stuck, or gone, with the connections and networks it runs, is what another start mends. The disk and Redis are
//! not asked: where they stand still the server refuses, and another start would not help.
//!
//! A stop that waits until the register is written anew takes longer than the supervisor grants one: it is asked for more time
//! (`EXTEND_TIMEOUT_USEC`) for as long as that lasts, which `anew` bounds.
//!
//! A server that begins once more in the same process has not stopped: who says that he stops is killed after a while. It gives
//! no signs until it serves, so the supervisor is asked for as much patience as with a start.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Running;
use super::reactors::all_run;
use crate::actors::reactor::Reactor;

/// Signs of life in the time after which the supervisor takes silence for death: one that comes late harms nothing.
const SIGNS_PER_LIMIT: u32 = 4;

/// How long a server may take to begin once more: a large register is loaded.
const BEGINS_WITHIN: Duration = Duration::from_secs(600);

/// How much longer a stop may take from when the supervisor is told so: as long as deploy/allod.service grants one.
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// How often it is told, well before that is over.
const EXTENDS_EVERY: Duration = Duration::from_secs(5);

/// The thread that speaks to the supervisor.
pub struct Watched {
    stop: CancellationToken,
    /// Of the process.
    ends: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Says that the server is ready, perhaps `again`, and goes on saying that it lives until it is asked to stop; and that it stops,
/// if the process `ends` with it.
pub fn watch(running: &Running, ends: &CancellationToken, again: bool) -> Watched {
    let status = format!("serving: JSON-RPC {}, HTTP {}", running.tcp, running.http);
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
    if let Some(limit) = sd_notify::watchdog_enabled().filter(|_| again) {
        tell(&[patience(limit)]);
    }
    let (stop, reactors, writes_anew) = (running.stopper(), running.reactors.clone(), running.writes_anew.clone());
    let is_over = ends.clone();
    let thread = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        let speak = async {
            give_signs(&reactors, &stop).await;
            if is_over.is_cancelled() {
                tell_of_stop();
                extend_stop(writes_anew).await;
            }
        };
        match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime.block_on(speak),
            Err(error) => tracing::error!(%error, "no runtime to speak to the supervisor"),
        }
    });
    let thread = thread.inspect_err(|error| tracing::error!(%error, "no thread to speak to the supervisor")).ok();
    Watched { stop: running.stopper(), ends: ends.clone(), thread }
}

impl Watched {
    /// Waits until the supervisor was told of the end, whatever the server ended of; or that it begins once more, if it does.
    pub fn end(self, begins_again: bool) {
        self.stop.cancel();
        // A thread that crashed has said so itself.
        let _ = self.thread.map(std::thread::JoinHandle::join);
        if begins_again {
            tell(&[NotifyState::Status("beginning once more: Redis was emptied, and the register was written anew")]);
            if sd_notify::watchdog_enabled().is_some() {
                tell(&[patience(BEGINS_WITHIN)]);
            }
        } else if !self.ends.is_cancelled() {
            tell_of_stop();
        }
    }
}

/// Returns when the server is asked to stop.
async fn give_signs(reactors: &[Reactor], stop: &CancellationToken) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return stop.cancelled().await };
    let give = async {
        loop {
            if !all_run(reactors).await {
                tracing::error!("a reactor thread is gone: no more signs of life for the supervisor");
                return std::future::pending().await;
            }
            tell(&[NotifyState::Watchdog]);
            tokio::time::sleep(limit / SIGNS_PER_LIMIT).await;
        }
    };
    tokio::select! {
        () = give => {}
        () = stop.cancelled() => {}
    }
}

/// How long the supervisor is to wait for a sign of life from now on.
fn patience(limit: Duration) -> NotifyState<'static> {
    NotifyState::WatchdogUsec(limit.as_micros().try_into().unwrap_or(u32::MAX))
}

/// Asks for more time until the register is written, and then once more for what comes behind it.
async fn extend_stop(mut writes_anew: watch::Receiver<bool>) {
    let longer = || NotifyState::ExtendTimeoutUsec(STOPS_WITHIN.as_micros().try_into().unwrap_or(u32::MAX));
    let status = "stopping: first writes the register anew, which Redis lost; killed now, it is gone";
    let mut asked = false;
    while *writes_anew.borrow_and_update() {
        tell(&[longer(), NotifyState::Status(status)]);
        asked = true;
        // One that is gone writes nothing any more.
        if tokio::time::timeout(EXTENDS_EVERY, writes_anew.changed()).await.is_ok_and(|told| told.is_err()) {
            break;
        }
    }
    if asked {
        tell(&[longer(), NotifyState::Status(ANSWERS)]);
    }
}

/// What it does when it stops.
const ANSWERS: &str = "stopping: answers what was read";

fn tell_of_stop() {
    tell(&[NotifyState::Stopping, NotifyState::Status(ANSWERS)]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, ?state, "the supervisor cannot be told");
    }
}
