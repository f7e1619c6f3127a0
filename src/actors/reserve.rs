//! What a full store reserves for releases, and what a client is told when something is refused for want of room.
//!
//! A network that decides something first claims the bytes that it takes, until the decision is durable or given up; so does a
//! deployment for its record. So nothing is decided that would find no room: it is refused while memory agrees with the store,
//! nothing is loaded again, and however often something large is refused, small changes that fit go on. What was decided
//! before the store was full has no claim: `committer::cut` handles that.
//!
//! Review notes: does a claim go with its unit to the end? Is what the client is told true while the reserve lasts, and after
//! it?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::actors::{Applied, Fault};
use crate::core::state::Step;
use crate::store::{Store, StoreHealth, size, step_lets_go};

/// How much of the store's reserve is claimed.
#[derive(Debug, Clone, Default)]
pub struct Reserve(Arc<AtomicU64>);

/// A claim on the reserve, for something that is not definite yet. Given back when it is dropped.
#[derive(Debug, Default)]
pub struct Claimed(Option<(Reserve, u64)>);

impl Reserve {
    /// Claims what these steps take, if the store is full and its room is bounded.
    ///
    /// # Errors
    /// The steps do not fit in addition to what was claimed before.
    pub fn claim(&self, steps: &[Step], store: &dyn Store) -> Result<Claimed, Box<Fault>> {
        if steps.is_empty() {
            return Ok(Claimed::default());
        }
        loop {
            // Read before the room: what becomes definite meanwhile shows in both, and is checked again.
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

impl Reserve {
    /// Claims what these steps take, if the store takes them at all: while it takes nothing new, it still takes what lets go.
    ///
    /// # Errors
    /// It does not, or they do not fit.
    pub fn claim_if_taken(&self, steps: &[Step], store: &dyn Store) -> Result<Claimed, Box<Fault>> {
        if steps.iter().all(step_lets_go) {
            return self.claim(steps, store);
        }
        match store.health() {
            StoreHealth::Ready => Ok(Claimed::default()),
            health => Err(Box::new(refused_by_store(health, store))),
        }
    }
}

impl Claimed {
    /// Joins two claims that are for one unit.
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

/// How much is left for releases, if some of them may find no room: less than the longest release takes.
fn nearly_used_up(store: &dyn Store) -> Option<u64> {
    store.room().filter(|left| *left < size::RELEASE_BYTES_MAX)
}

/// What keeps a store from taking anything new: a sentence without its full stop.
pub fn obstacle(store: &dyn Store) -> Arc<str> {
    match nearly_used_up(store) {
        Some(left) => format!(
            "{}, and what the log keeps for releases is used up but for {left} bytes: what does not fit into these is refused \
             as well",
            store.obstacle()
        )
        .into(),
        None => store.obstacle(),
    }
}

/// The refusal while the store takes nothing, or nothing new.
pub fn refused_by_store(health: StoreHealth, store: &dyn Store) -> Fault {
    let problem = match health {
        StoreHealth::Hindered | StoreHealth::Full => nothing_new(store),
        StoreHealth::Failed | StoreHealth::Ready => "the store failed and the server is stopping".to_owned(),
    };
    Fault::Unavailable { applied: Applied::No, problem }
}

/// The text for a client that asks for something new.
pub fn nothing_new(store: &dyn Store) -> String {
    match (store.health(), nearly_used_up(store)) {
        (StoreHealth::Hindered, _) => format!("{}: nothing new is granted", store.obstacle()),
        (_, None) => format!("{}: releases go on, nothing new is granted", store.obstacle()),
        (_, Some(_)) => format!("{}; {}", obstacle(store), goes_on(store)),
    }
}

/// The text for a client whose release is so large that it finds no room.
pub fn does_not_fit(store: &dyn Store, bytes: u64, left: u64) -> String {
    format!(
        "{}: this may take {bytes} bytes of the log, and of what that keeps for releases {left} are left; {}",
        store.obstacle(),
        goes_on(store)
    )
}

/// What to do about it.
fn goes_on(store: &dyn Store) -> &'static str {
    if store.lacks_room() {
        "make room there; the rest resumes by itself"
    } else {
        "mend that; the rest resumes by itself"
    }
}
