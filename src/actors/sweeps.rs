//! What sweeps remember between one request and the next: who was marked alive, and how many first misses there are.
//!
//! In memory of the owner only. A restart, a take-over or the hour that a mark lasts makes it forget, and all of it at
//! once: a name is known with everything that was marked under it, or not known at all, and then a sweep by that name is
//! `not_found`. First misses are forgotten by the same restart or take-over. So what is forgotten makes a sweep late,
//! never early: where half of the marks of a sweep are lost, so are the misses of the sweep before it, and what the half
//! list misses is missed for the first time.
//!
//! Written and read by `coordinator::sweep`; `network::sweeping` keeps the first misses of each network and counts them
//! here. Bounded by [`crate::limits`], `SWEEP_`.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use compact_str::CompactString;

use crate::core::types::{Claimant, Scope};
use crate::limits::{
    SWEEP_MARKED_MAX, SWEEP_MARKED_OF_SCOPE_MAX, SWEEP_MARKS_LAST_MS, SWEEP_MISSES_MAX, SWEEP_NAMES_MAX,
};

/// Who was marked under one name.
#[derive(Debug)]
struct Marked {
    claimants: Arc<BTreeSet<Claimant>>,
    /// Boot time of the last mark: the hour begins anew with each, so that a long list never loses its beginning.
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
}

impl Sweeps {
    /// Notes who is alive, beside those who were marked under this name before. Answers how many that are.
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
        // Every change is one call of the map: what a panic left behind is whole.
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.retain(|_, marked| now_ms.saturating_sub(marked.marked_ms) < SWEEP_MARKS_LAST_MS);
        let key = (scope.clone(), sweep.clone());
        let present = marks.get(&key);
        let more = alive.iter().filter(|claimant| present.is_none_or(|p| !p.claimants.contains(*claimant))).count();
        let count = |of: &dyn Fn(&Scope) -> bool| -> usize {
            let counted = marks.iter().filter(|((scope, _), _)| of(scope));
            counted.map(|(_, marked)| marked.claimants.len()).sum()
        };
        if count(&|_| true) + more > SWEEP_MARKED_MAX {
            return Err(NoRoom(format!("{SWEEP_MARKED_MAX} claimants are marked, no more can be")));
        }
        if count(&|of| of == scope) + more > SWEEP_MARKED_OF_SCOPE_MAX {
            return Err(NoRoom(format!(
                "{SWEEP_MARKED_OF_SCOPE_MAX} claimants of scope `{scope}` are marked, no more can be"
            )));
        }
        if present.is_none() && marks.len() >= SWEEP_NAMES_MAX {
            return Err(NoRoom(format!("claimants are marked for {SWEEP_NAMES_MAX} sweeps, no more can be")));
        }
        let marked = marks.entry(key).or_insert_with(|| Marked { claimants: Arc::default(), marked_ms: now_ms });
        marked.marked_ms = now_ms;
        // A sweep under way keeps the list that it began with.
        let claimants = Arc::make_mut(&mut marked.claimants);
        claimants.extend(alive);
        Ok(claimants.len())
    }

    /// Everybody who was marked under this name; none if nobody was, or too long ago.
    pub fn marked(&self, scope: &Scope, sweep: &CompactString, now_ms: u64) -> Option<Arc<BTreeSet<Claimant>>> {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let marked = marks.get(&(scope.clone(), sweep.clone()))?;
        (now_ms.saturating_sub(marked.marked_ms) < SWEEP_MARKS_LAST_MS).then(|| Arc::clone(&marked.claimants))
    }

    /// Takes the place of one first miss, if there is one.
    pub(super) fn note_miss(&self) -> bool {
        let more = |misses: usize| (misses < SWEEP_MISSES_MAX).then_some(misses + 1);
        self.misses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives so many places back.
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
        assert_eq!(sweeps.marked(&scope, &name, late).map(|all| all.len()), Some(5), "its beginning is there still");
        assert_eq!(sweeps.marked(&scope, &name, late + 1), None);
        assert_eq!(sweeps.marked(&"other".parse().unwrap(), &name, late), None);
        assert_eq!(sweeps.mark(&scope, &name, claimants(7..8), late + 1), Ok(1), "a new beginning");
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
