//! Tells the supervisor of this process (systemd, `Type=notify`) that the server is ready, that it lives, and that it stops.
//!
//! Without a socket in `NOTIFY_SOCKET` nothing is sent. With `WATCHDOG_USEC` the supervisor expects a sign of life at least
//! that often, and restarts a process that stays silent. The sign is sent only after each reactor has run a task: a thread
//! that is stuck or gone, along with the connections and networks that it runs, is something that a restart mends. The disk
//! and Redis are not checked: if they stand still the server refuses requests, and a restart would not help.
//!
//! A stop may take longer than the supervisor allows: because of `server.shutdown_seconds`, or because it waits until the
//! register is written again. Then it is asked for more time (`EXTEND_TIMEOUT_USEC`), in the second case for as long as that
//! lasts, which `anew` bounds.
//!
//! A server that starts over in the same process does not announce a stop: a process that did would be killed after a while.
//! It sends no signs of life until it serves, so the supervisor is asked for as much patience as with a start.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Running;
use super::reactors::all_run;
use crate::actors::reactor::Reactor;

/// Signs of life within the time after which the supervisor takes silence for death: so a late one does no harm.
const SIGNS_PER_LIMIT: u32 = 4;

/// How long a server may take to start over: it loads a large register.
const BEGINS_WITHIN: Duration = Duration::from_secs(600);

/// How long a stop may take by deploy/allod.service. A request for more time asks for at least as much, from then on.
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// How often more time is requested, well before the last grant ends.
const EXTENDS_EVERY: Duration = Duration::from_secs(5);

/// The thread that speaks to the supervisor.
pub struct Watched {
    stop: CancellationToken,
    /// When the process ends.
    ends: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Announces that the server is ready, perhaps `again`, and sends signs of life until it is asked to stop; then announces
/// the stop, if the process `ends` with it.
pub fn watch(running: &Running, ends: &CancellationToken, again: bool) -> Watched {
    let status = format!("serving: JSON-RPC {}, HTTP {}", running.tcp, running.http);
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
    if let Some(limit) = sd_notify::watchdog_enabled().filter(|_| again) {
        tell(&[patience(limit)]);
    }
    let (stop, reactors, writes_anew) = (running.stopper(), running.reactors.clone(), running.writes_anew.clone());
    let (is_over, stops_within) = (ends.clone(), running.stops_within.max(STOPS_WITHIN));
    let thread = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        let speak = async {
            give_signs(&reactors, &stop).await;
            if is_over.is_cancelled() {
                tell_of_stop();
                if stops_within > STOPS_WITHIN {
                    tell(&[longer(stops_within)]);
                }
                extend_stop(stops_within, writes_anew).await;
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
    /// Waits until the supervisor was told of the end, whatever its cause; or that the server starts over, if it does.
    pub fn end(self, begins_again: bool) {
        self.stop.cancel();
        // A thread that panicked has already logged it.
        let _ = self.thread.map(std::thread::JoinHandle::join);
        if begins_again {
            tell(&[NotifyState::Status("starting again: Redis was emptied, and the register was written to it again")]);
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

/// A request for so much time from now on.
fn longer(within: Duration) -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(within.as_micros().try_into().unwrap_or(u32::MAX))
}

/// Asks for more time whenever the register is written until the server has ended, and then once more for what follows.
async fn extend_stop(stops_within: Duration, mut writes_anew: watch::Receiver<bool>) {
    let longer = || longer(stops_within);
    let status = "stopping, but first writing the register again, which Redis lost; if this process is killed now, the register \
     is lost";
    let (mut asked, mut lives) = (false, true);
    while lives {
        let writes = *writes_anew.borrow_and_update();
        if writes {
            tell(&[longer(), NotifyState::Status(status)]);
        } else if asked {
            tell(&[longer(), NotifyState::Status(ANSWERS)]);
        }
        asked = writes;
        // Even late in a stop it may turn out that the register must be written. A sender that is gone writes nothing any
        // more.
        let within = if writes { EXTENDS_EVERY } else { Duration::MAX };
        lives = !tokio::time::timeout(within, writes_anew.changed()).await.is_ok_and(|told| told.is_err());
    }
    if asked {
        tell(&[longer(), NotifyState::Status(ANSWERS)]);
    }
}

/// The status during a stop.
const ANSWERS: &str = "stopping: answering the requests that were read";

fn tell_of_stop() {
    tell(&[NotifyState::Stopping, NotifyState::Status(ANSWERS)]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, ?state, "the supervisor cannot be told");
    }
}
