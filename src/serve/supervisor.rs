//! Tells the supervisor of this process (systemd, `Type=notify`) that the server is ready, that it lives, and that it stops.
//!
//! A supervisor that named no socket in `NOTIFY_SOCKET` is told nothing. With `WATCHDOG_USEC` it wants a sign of life at
//! least so often, and kills and starts what stays silent. The sign is given only after each reactor ran a task: a thread
//! that is stuck, or gone, with the connections and networks it runs, is what another start mends. The disk and Redis are
//! not asked: where they stand still the server refuses, and another start would not help.
//!
//! A server that begins once more in the same process has not stopped: who says that he stops is killed after a while. It gives
//! no signs until it serves, so the supervisor is asked for as much patience as with a start.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;

use super::Running;
use super::reactors::all_run;
use crate::actors::reactor::Reactor;

/// Signs of life in the time after which the supervisor takes silence for death: one that comes late harms nothing.
const SIGNS_PER_LIMIT: u32 = 4;

/// How long a server may take to begin once more: a large register is loaded.
const BEGINS_WITHIN: Duration = Duration::from_secs(600);

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
    let (stop, reactors) = (running.stopper(), running.reactors.clone());
    let is_over = ends.clone();
    let thread = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime.block_on(give_signs(&reactors, &stop)),
            Err(error) => tracing::error!(%error, "no runtime to speak to the supervisor"),
        }
        if is_over.is_cancelled() {
            tell_of_stop();
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

fn tell_of_stop() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping: answers what was read")]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, ?state, "the supervisor cannot be told");
    }
}
