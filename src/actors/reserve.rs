//! What a full store keeps for what lets go, and what is said where something is refused for want of room.
//!
//! Whoever decides claims the bytes of it first, until that is durable or was given up. So nothing is decided that finds no room
//! then: it is refused while memory is as the store is, nothing is loaded again, and however often something large is refused, what
//! is small and fits goes on. What was decided before the store was full has no claim: `committer::cut` sees to that.
//!
//! Review notes: does what is claimed go with its unit to the end? Is what is said true while the reserve lasts, and after it?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::actors::{Applied, Fault};
use crate::core::state::Step;
use crate::store::{Store, StoreHealth, size};

/// How much of what the store keeps is claimed.
#[derive(Debug, Clone, Default)]
pub struct Reserve(Arc<AtomicU64>);

/// A part of it, for what is not definite yet. Given back when it is dropped.
#[derive(Debug, Default)]
pub struct Claimed(Option<(Reserve, u64)>);

impl Reserve {
    /// Claims what these steps take, where the store is full and room is bounded.
    ///
    /// # Errors
    /// They do not fit beside what was claimed before.
    pub fn claim(&self, steps: &[Step], store: &dyn Store) -> Result<Claimed, Box<Fault>> {
        if steps.is_empty() {
            return Ok(Claimed::default());
        }
        loop {
            // Read before the room: what is definite meanwhile shows in both, and is looked at anew.
            let before = self.0.load(Ordering::Acquire);
            let Some(room) = store.room() else { return Ok(Claimed::default()) };
            let (bytes, left) = (size::alone(steps), room.saturating_sub(before));
            if bytes > left {
                let problem = does_not_fit(store, bytes, left);
                return Err(Box::new(Fault::Unavailable { applied: Applied::No, problem }));
            }
            if self.0.compare_exchange(before, before + bytes, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(Claimed(Some((self.clone(), bytes))));
            }
        }
    }
}

impl Claimed {
    /// Both are for one unit.
    pub fn join(&mut self, mut other: Self) {
        match (&mut self.0, &mut other.0) {
            (Some((_, bytes)), Some((_, more))) => *bytes += std::mem::take(more),
            (None, _) => std::mem::swap(self, &mut other),
            (Some(_), None) => {}
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some((Reserve(claimed), bytes)) = self.0.take() {
            claimed.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}

/// How much is left for what lets go, where some of that may find no room: less than the longest release takes.
fn nearly_used_up(store: &dyn Store) -> Option<u64> {
    store.room().filter(|left| *left < size::RELEASE_BYTES_MAX)
}

/// What stands in the way of a store that takes nothing new: a sentence without its full stop.
pub fn obstacle(store: &dyn Store) -> Arc<str> {
    match nearly_used_up(store) {
        Some(left) => format!(
            "{}, and what the log keeps for releases is used up but for {left} bytes: what does not fit into these is refused as well",
            store.obstacle()
        )
        .into(),
        None => store.obstacle(),
    }
}

/// What is said to whoever asks it for something new.
pub fn nothing_new(store: &dyn Store) -> String {
    match (store.health(), nearly_used_up(store)) {
        (StoreHealth::Hindered, _) => format!("{}: nothing new is taken", store.obstacle()),
        (_, None) => format!("{}: releases go on, nothing new is taken", store.obstacle()),
        (_, Some(_)) => format!("{}; {}", obstacle(store), goes_on(store)),
    }
}

/// What is said to whoever lets go of so much that it finds no room.
pub fn does_not_fit(store: &dyn Store, bytes: u64, left: u64) -> String {
    format!(
        "{}: this may take {bytes} bytes of the log, and of what that keeps for releases {left} are left; {}",
        store.obstacle(),
        goes_on(store)
    )
}

/// What to do.
fn goes_on(store: &dyn Store) -> &'static str {
    if store.lacks_room() {
        "make room there, and all goes on by itself"
    } else {
        "see to that, and all goes on by itself"
    }
}
