//! Work of a tenure that is in no hurry: a thread of its own, with a low priority and a runtime that has time, and no I/O.

use std::future::Future;
use std::io;

/// Runs what is made on such a thread, so much nicer than the others, until it ends.
///
/// # Errors
/// There is no such thread, and nothing was begun.
pub(super) fn start<F: Future>(
    name: &'static str,
    nice: i32,
    make: impl FnOnce() -> F + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        if let Err(error) = rustix::process::nice(nice) {
            tracing::debug!(%error, name, "it has the priority of the others");
        }
        runtime.block_on(make());
    })?;
    Ok(())
}
