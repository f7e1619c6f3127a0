//! A thread for work of a tenure that is in no hurry: it has a low priority, and a runtime with timers and without I/O.

use std::future::Future;
use std::io;
use std::sync::Once;

/// Whether it was said that such a thread has the priority of all others: it is what this process may do, and does not change.
static IS_SAID: Once = Once::new();

/// Runs what `make` creates on such a thread, with the given niceness above the other threads', until it ends.
///
/// # Errors
/// No such thread could be started, and nothing was begun.
pub(super) fn start<F: Future>(
    name: &'static str,
    nice: i32,
    make: impl FnOnce() -> F + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        if let Err(error) = rustix::process::nice(nice) {
            IS_SAID.call_once(|| {
                tracing::warn!(%error, name, "threads for work in no hurry compete with those that serve: none may lower its priority");
            });
        }
        runtime.block_on(make());
    })?;
    Ok(())
}
