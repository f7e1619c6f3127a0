//! How much the subscriptions of one connection have in memory that its client has not taken: a few pages and some bytes of
//! lines, however many there are of them.
//!
//! A page is asked for by whoever has a place for it, and each waits its turn. Nobody is to keep a place while nothing happens, so
//! who has been told all there is waits without one; where something comes then and no place is free, the page is given back, and
//! asked for once more when one is. Lines take as much room as they are long, and give it back when all is written; a line that is
//! longer than all the room takes all of it. Who waits for room has a place, and who has room waits for nobody but the client: so
//! none of them waits for another for good.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{WATCH_BYTES_MAX, WATCH_PAGES_MAX};

/// A place or some room, until it is dropped.
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

    /// A place for a page, behind those who wait for one. Nobody closes them: there is always one at last.
    pub(super) async fn page(&self) -> Option<Taken> {
        Arc::clone(&self.pages).acquire_owned().await.ok()
    }

    /// A place for a page, if one is free.
    pub(super) fn page_now(&self) -> Option<Taken> {
        Arc::clone(&self.pages).try_acquire_owned().ok()
    }

    /// Room for lines of so many bytes, behind those who wait for some.
    pub(super) async fn lines(&self, bytes: usize) -> Option<Taken> {
        Arc::clone(&self.bytes).acquire_many_owned(bytes.min(WATCH_BYTES_MAX) as u32).await.ok()
    }
}
