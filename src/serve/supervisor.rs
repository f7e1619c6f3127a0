//! Tells the supervisor of this process (systemd, `Type=notify`) that the server is ready, that it lives, and that it stops.
//!
//! A supervisor that named no socket in `NOTIFY_SOCKET` is told nothing. With `WATCHDOG_USEC` it wants a sign of life at
//! least so often, and kills and starts what stays silent. The sign is given only after each reactor ran a task: a thread
//! that is stuck, or gone, with the connections and networks it runs, is what another start mends. The disk and Redis are
//! not asked: where they stand still the server refuses, and another start would not help.

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;

use super::Running;
use super::reactors::all_run;
use crate::actors::reactor::Reactor;

/// Signs of life in the time after which the supervisor takes silence for death: one that comes late harms nothing.
const SIGNS_PER_LIMIT: u32 = 4;

/// The thread that speaks to the supervisor.
pub struct Watched {
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Says that the server is ready, and goes on saying that it lives until it is asked to stop.
pub fn watch(running: &Running) -> Watched {
    let status = format!("serving: JSON-RPC {}, HTTP {}", running.tcp, running.http);
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
    let (stop, reactors) = (running.stopper(), running.reactors.clone());
    let thread = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime.block_on(give_signs(&reactors, &stop)),
            Err(error) => tracing::error!(%error, "no runtime to speak to the supervisor"),
        }
        tell(&[NotifyState::Stopping, NotifyState::Status("stopping: answers what was read")]);
    });
    let thread = thread.inspect_err(|error| tracing::error!(%error, "no thread to speak to the supervisor")).ok();
    Watched { stop: running.stopper(), thread }
}

impl Watched {
    /// Waits until the supervisor was told of the end, whatever the server ended of.
    pub fn end(self) {
        self.stop.cancel();
        // A thread that crashed has said so itself.
        let _ = self.thread.map(std::thread::JoinHandle::join);
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

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, ?state, "the supervisor cannot be told");
    }
}
