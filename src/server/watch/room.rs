//! Bounds the memory that the subscriptions of one connection take for events which the client has not read: a few pages and some
//! bytes of lines, however many subscriptions there are.
//!
//! A subscription asks for a page only when it has a place for it, and waits its turn for one. A subscription that has sent
//! everything waits without a place, so that none is kept while nothing happens; if an event comes then and no place is free, the
//! page is given back, and asked for again when there is one. Lines take as much room as they have bytes, and give it back when
//! all is written; a line that is longer than all the room takes all of it. A subscription that waits for room has a place, and one
//! that has room waits only for the client: so no two of them wait for each other.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{WATCH_BYTES_MAX, WATCH_PAGES_MAX};

/// A place or some room, held until it is dropped.
pub(super) type Taken = OwnedSemaphorePermit;

#[derive(Debug, Clone)]
pub(super) struct Room {
    pages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

impl Room {
    pub(super) fn new() -> Self {
        let of = |count| Arc::new(Semaphore::new(count));
        Self { pages: of(WATCH_PAGES_MAX), bytes: of(WATCH_BYTES_MAX) }
    }

    /// Waits for a place for a page, after those that wait already. The semaphore is never closed, so there is always one in the end.
    pub(super) async fn page(&self) -> Option<Taken> {
        Arc::clone(&self.pages).acquire_owned().await.ok()
    }

    /// A place for a page, if one is free.
    pub(super) fn page_now(&self) -> Option<Taken> {
        Arc::clone(&self.pages).try_acquire_owned().ok()
    }

    /// Waits for room for lines of this many bytes, after those that wait already.
    pub(super) async fn lines(&self, bytes: usize) -> Option<Taken> {
        Arc::clone(&self.bytes).acquire_many_owned(bytes.min(WATCH_BYTES_MAX) as u32).await.ok()
    }
}
