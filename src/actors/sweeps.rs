//! What sweeps remember between requests: who was marked alive, and how many first misses there are.
//!
//! In memory of the owner only. A restart, a take-over or the hour that a mark lasts ends it, all at once: then a sweep by
//! that name is `not_found`. The same restart or take-over ends first misses. Forgetting makes a sweep late, never early.
//!
//! *Eight of forty machines are marked, the owner changes, the other thirty-two are marked under the same name: then twenty
//! percent of those that live are missing from that list, and two sweeps of that one list would release them.* So for an hour
//! after another tenure nobody knows whether a list that was begun then is missing its beginning: such a list is *doubted*.
//! What it misses counts as a first miss only. *The eight are marked under two names, and the others under both.* So the
//! second miss needs a list that is not doubted, given with the sweep or begun after that hour: two doubted lists lack the
//! same, if both were begun before the change.
//!
//! Written and read by `coordinator::sweep`; `network::sweeping` keeps the first misses of each network and counts them here.
//! Bounded by [`crate::limits`], `SWEEP_`.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use compact_str::CompactString;

use crate::core::command::MissNumber;
use crate::core::types::{Claimant, Scope};
use crate::limits::{
    SWEEP_MARKED_MAX, SWEEP_MARKED_OF_SCOPE_MAX, SWEEP_MARKS_LAST_MS, SWEEP_MISSES_MAX, SWEEP_NAMES_MAX,
};

/// The claimants that were marked under one name, as a sweep uses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedList {
    /// The claimants that are alive.
    pub claimants: Arc<BTreeSet<Claimant>>,
    /// Whether the list may lack what was marked before this tenure.
    pub doubted: bool,
}

#[derive(Debug)]
struct Marked {
    list: MarkedList,
    /// Boot time of the last mark: each mark begins the hour again, so that a long list never loses its beginning.
    marked_ms: u64,
}

/// There is no room for more marks. `Display` says which bound it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoRoom(String);

/// See the module.
#[derive(Debug, Default)]
pub struct Sweeps {
    marks: Mutex<HashMap<(Scope, CompactString), Marked>>,
    misses: AtomicUsize,
    /// Number of first misses so far.
    missed: AtomicU64,
    /// Boot time until which marks under an unknown name may have begun before this tenure.
    doubted_until_ms: u64,
}

impl Sweeps {
    /// For a tenure that follows another one, and begins now.
    pub fn behind_another(now_ms: u64) -> Self {
        Self { doubted_until_ms: now_ms + SWEEP_MARKS_LAST_MS, ..Self::default() }
    }

    /// Notes claimants that are alive, in addition to those marked under this name before. Returns how many there are in all.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing was noted.
    pub fn mark(
        &self,
        scope: &Scope,
        sweep: &CompactString,
        alive: Vec<Claimant>,
        now_ms: u64,
    ) -> Result<usize, NoRoom> {
        // Every change is one call of the map, so a panic leaves it consistent.
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.retain(|_, marked| now_ms.saturating_sub(marked.marked_ms) < SWEEP_MARKS_LAST_MS);
        let key = (scope.clone(), sweep.clone());
        let present = marks.get(&key);
        let more =
            alive.iter().filter(|claimant| present.is_none_or(|p| !p.list.claimants.contains(*claimant))).count();
        let count = |of: &dyn Fn(&Scope) -> bool| -> usize {
            let counted = marks.iter().filter(|((scope, _), _)| of(scope));
            counted.map(|(_, marked)| marked.list.claimants.len()).sum()
        };
        if count(&|_| true) + more > SWEEP_MARKED_MAX {
            return Err(NoRoom(format!("{SWEEP_MARKED_MAX} claimants are marked, which is the most")));
        }
        if count(&|of| of == scope) + more > SWEEP_MARKED_OF_SCOPE_MAX {
            return Err(NoRoom(format!(
                "{SWEEP_MARKED_OF_SCOPE_MAX} claimants of scope `{scope}` are marked, which is the most"
            )));
        }
        if present.is_none() && marks.len() >= SWEEP_NAMES_MAX {
            return Err(NoRoom(format!("claimants are marked for {SWEEP_NAMES_MAX} sweeps, which is the most")));
        }
        let marked = marks.entry(key).or_insert_with(|| {
            let doubted = now_ms < self.doubted_until_ms;
            Marked { list: MarkedList { claimants: Arc::default(), doubted }, marked_ms: now_ms }
        });
        marked.marked_ms = now_ms;
        // A sweep that is under way keeps the list with which it began.
        let claimants = Arc::make_mut(&mut marked.list.claimants);
        claimants.extend(alive);
        Ok(claimants.len())
    }

    /// All claimants that were marked under this name; none if there are none, or the marks are too old.
    pub fn marked(&self, scope: &Scope, sweep: &CompactString, now_ms: u64) -> Option<MarkedList> {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let marked = marks.get(&(scope.clone(), sweep.clone()))?;
        (now_ms.saturating_sub(marked.marked_ms) < SWEEP_MARKS_LAST_MS).then(|| marked.list.clone())
    }

    /// Takes a place for one first miss, if one is left. Its number is unique over all networks.
    pub(super) fn note_miss(&self) -> Option<MissNumber> {
        let more = |misses: usize| (misses < SWEEP_MISSES_MAX).then_some(misses + 1);
        self.misses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(MissNumber(self.missed.fetch_add(1, Ordering::Relaxed)))
    }

    /// Gives places back.
    pub(super) fn forget_misses(&self, count: usize) {
        self.misses.fetch_sub(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimants(range: std::ops::Range<usize>) -> Vec<Claimant> {
        range.map(|at| format!("vm-{at}").parse().unwrap()).collect()
    }

    #[test]
    fn marks_of_a_name_add_up_and_are_gone_together_an_hour_after_the_last() {
        let (sweeps, scope, name) = (Sweeps::default(), Scope::default(), CompactString::from("nightly"));
        assert_eq!(sweeps.marked(&scope, &name, 0), None);
        assert_eq!(sweeps.mark(&scope, &name, claimants(0..3), 0), Ok(3));
        assert_eq!(sweeps.mark(&scope, &name, claimants(2..5), SWEEP_MARKS_LAST_MS - 1), Ok(5));
        let late = 2 * SWEEP_MARKS_LAST_MS - 2;
        assert_eq!(
            sweeps.marked(&scope, &name, late).map(|list| list.claimants.len()),
            Some(5),
            "its beginning is there"
        );
        assert_eq!(sweeps.marked(&scope, &name, late + 1), None);
        assert_eq!(sweeps.marked(&"other".parse().unwrap(), &name, late), None);
        assert_eq!(sweeps.mark(&scope, &name, claimants(7..8), late + 1), Ok(1), "a new beginning");
    }

    #[test]
    fn a_list_is_doubted_that_was_begun_within_an_hour_behind_another_tenure() {
        let (scope, began) = (Scope::default(), 5_000);
        let doubted = |sweeps: &Sweeps, name: &'static str, now_ms| {
            sweeps.mark(&scope, &CompactString::from(name), Vec::new(), now_ms).unwrap();
            sweeps.marked(&scope, &CompactString::from(name), now_ms).unwrap().doubted
        };
        assert!(!doubted(&Sweeps::default(), "a", 0), "the first tenure of a register");
        let sweeps = Sweeps::behind_another(began);
        let last = began + SWEEP_MARKS_LAST_MS - 1;
        assert!(doubted(&sweeps, "a", began) && doubted(&sweeps, "b", last));
        assert!(doubted(&sweeps, "b", last + 1), "as long as it lasts");
        assert!(!doubted(&sweeps, "c", last + 1));
    }

    #[test]
    fn marks_are_bounded_by_name_by_scope_and_in_all() {
        let (sweeps, scope, name) = (Sweeps::default(), Scope::default(), CompactString::from("x"));
        let many = claimants(0..SWEEP_MARKED_OF_SCOPE_MAX);
        assert_eq!(sweeps.mark(&scope, &name, many.clone(), 0), Ok(SWEEP_MARKED_OF_SCOPE_MAX));
        assert_eq!(sweeps.mark(&scope, &name, many[..9].to_vec(), 0), Ok(SWEEP_MARKED_OF_SCOPE_MAX), "a repeat");
        let problem = sweeps.mark(&scope, &"y".into(), vec!["late".parse().unwrap()], 0).unwrap_err();
        assert!(problem.to_string().contains("of scope `default`"), "{problem}");
        let other: Scope = "other".parse().unwrap();
        for at in 1..SWEEP_NAMES_MAX {
            sweeps.mark(&other, &compact_str::format_compact!("{at}"), Vec::new(), 0).unwrap();
        }
        let problem = sweeps.mark(&other, &"one-more".into(), Vec::new(), 0).unwrap_err();
        assert!(problem.to_string().contains("sweeps"), "{problem}");
        assert!(sweeps.mark(&other, &"one-more".into(), Vec::new(), SWEEP_MARKS_LAST_MS).is_ok(), "an hour later");
    }
}
