//! The thread that makes segments ahead of need.
//!
//! Making a segment takes as long as writing all of it, and a commit must never wait for that. A disk does one flush after
//! another, so the zeros are flushed piece by piece, with a rest after each piece: with a single flush at the end, the
//! slowest commits were measured to wait 33 ms for it.
//!
//! If the next segment cannot be made, the store is *full*. The rest of the present segment is then a reserve: part of it is
//! kept for the next starts (`shared`), and only changes that let go may use the remainder. Making the segment is tried
//! again every second.
//!
//! Neighbours: `writer` takes the spare segments, `segment` has their format.

use std::time::Duration;

use super::disk::DiskFile;
use super::segment;
use super::shared::{EmbeddedShared, LogFiles};

/// How many segments are kept ready for use.
const SPARES: usize = 1;
/// The rest after each piece, during which the disk is left to the commits. It is longer than the flush of a commit takes,
/// yet so short that a segment is finished long before the one in use is full.
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
            // The next turn of the loop ends the thread.
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

/// Called after each piece of a segment: flushes it, and then leaves the disk to the commits for a while. If a commit is
/// waiting for this segment, there is no rest: flushing all the remaining pieces at once makes that wait shortest.
///
/// # Errors
/// The disk's errors; or the segment is no longer needed.
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

/// Has the store stopped committing?
fn has_ended(files: &LogFiles) -> bool {
    files.stopping || files.failure.is_some()
}
