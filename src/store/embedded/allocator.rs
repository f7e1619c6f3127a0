//! The thread that makes segments ahead of need.
//!
//! Making one takes as long as writing all of it; a commit must never wait for that. The disk does one flush after the other,
//! so what is written is flushed piece by piece, with a rest behind each: measured, 33 ms of a flush of all of it was what the
//! slowest commits waited for. When it cannot be made the store is
//! *full*: what is left of the present segment is the reserve, and only what lets go may use it, but for what some starts need
//! (`shared`). Tried again every second.
//!
//! Neighbours: `writer` takes the spare segments, `segment` knows what one looks like.

use std::time::Duration;

use super::disk::DiskFile;
use super::segment;
use super::shared::{EmbeddedShared, LogFiles};

/// Segments that wait for their use.
const SPARES: usize = 1;
/// Between two pieces the disk is left to the commits: longer than the flush of one takes, and so short that a segment is
/// made long before the one in use is full.
const REST: Duration = Duration::from_millis(3);

pub(super) fn run(shared: &EmbeddedShared) {
    loop {
        let mut catalog = shared.catalog();
        while !catalog.stopping && catalog.failure.is_none() && catalog.spares.len() >= SPARES {
            catalog = shared.wait(catalog, shared.options.idle);
        }
        if has_ended(&catalog) {
            return;
        }
        let number = catalog.next_number;
        drop(catalog);
        let lengths = shared.options.lengths();
        let create = || segment::create(&*shared.disk, &shared.dir, number, lengths, |file| between(shared, file));
        let made = shared.check_place().and_then(|()| create());
        match made {
            Ok(spare) => {
                let mut catalog = shared.catalog();
                catalog.is_awaited = false;
                catalog.spares.push_back(spare);
                catalog.next_number = number + 1;
                drop(catalog);
                if shared.set_full(false) {
                    tracing::info!(dir = %shared.dir.display(), "the log is continued again");
                }
                shared.notify();
            }
            // The next look ends the thread.
            Err(_) if has_ended(&shared.catalog()) => {}
            Err(error) => {
                shared.note_obstacle(&error);
                if shared.set_full(true) {
                    tracing::error!(dir = %shared.dir.display(), bytes = shared.options.segment_bytes, %error,
                        "cannot make the next log segment: only what lets go is taken until it can be made");
                }
                shared.notify();
                let catalog = shared.catalog();
                if !catalog.stopping {
                    drop(shared.wait(catalog, shared.options.full_retry));
                }
            }
        }
    }
}

/// Behind a piece of a segment: it is flushed, and the disk left to the commits for a while. Who waits for the segment itself
/// waits least where all that is left is flushed at once.
///
/// # Errors
/// The disk's; or the segment is not needed any more.
fn between(shared: &EmbeddedShared, file: &dyn DiskFile) -> std::io::Result<()> {
    let files = shared.catalog();
    if has_ended(&files) {
        return Err(std::io::ErrorKind::Interrupted.into());
    }
    if files.is_awaited {
        return Ok(());
    }
    drop(files);
    file.sync()?;
    let files = shared.catalog();
    if !files.is_awaited && !has_ended(&files) {
        drop(shared.wait(files, REST));
    }
    Ok(())
}

/// Nothing is committed any more.
fn has_ended(files: &LogFiles) -> bool {
    files.stopping || files.failure.is_some()
}
