//! The thread that makes segments ahead of need.
//!
//! Making one takes as long as writing all of it; a commit must never wait for that. The disk does one flush after the other,
//! so what is written is flushed piece by piece, with a rest behind each: measured, 33 ms of a flush of all of it was what the
//! slowest commits waited for. When it cannot be made the store is
//! *full*: what is left of the present segment is the reserve, and only what lets go may use it. Tried again every second.
//!
//! Neighbours: `writer` takes the spare segments, `segment` knows what one looks like.

use std::time::Duration;

use super::segment;
use super::shared::EmbeddedShared;

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
        if catalog.stopping || catalog.failure.is_some() {
            return;
        }
        let number = catalog.next_number;
        drop(catalog);
        let made = segment::create(&*shared.disk, &shared.dir, number, shared.options.segment_bytes, |file| {
            file.sync()?;
            rest(shared);
            Ok(())
        });
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

/// Leaves the disk to the commits for a while, unless one of them waits for the segment.
fn rest(shared: &EmbeddedShared) {
    let catalog = shared.catalog();
    if !catalog.is_awaited && !catalog.stopping {
        drop(shared.wait(catalog, REST));
    }
}
