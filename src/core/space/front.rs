//! The lowest free run of a space, from which numbers are taken without touching the tree.
//!
//! A pool that is filled from below takes one number after the other. In the tree, each one costs a way down and up again.
//! Here it is one step along a run that the tree knows to be free, and the tree is updated once for many steps. Everything
//! below the run is taken, so everything free lies at `next` or above, and searches begin there.
//!
//! ```text
//!   taken          taken, the tree        free                 as the tree says
//!                  does not know it
//! ---------------[first ......... next [ next ......... last ]-----------------
//! ```
//!
//! The run is looked for once numbers are seen to be taken in order; short runs are not worth it.
//!
//! This module owns the run. The tree belongs to `Space`, which paints into it what the functions here return.

use super::bits::NumberRange;

/// After this many numbers in order, the run is looked for.
const STREAK: i16 = 4;
/// Shorter runs are left to the tree.
const RUN_MIN: u128 = 16;
/// If there was no run, this many more numbers are taken before it is looked for again.
const BACKOFF: i16 = 64;
/// The most taken numbers that the tree may not know of yet.
const UNTOLD_MAX: u128 = 4_096;

/// The lowest run of numbers that are free in the tree; those before `next` are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u128,
    /// Not above `last`.
    pub next: u128,
    pub last: u128,
}

impl Run {
    /// The numbers that the tree believes to be free although they are taken.
    fn untold(self) -> Option<NumberRange> {
        (self.first < self.next).then(|| NumberRange { first: self.first, last: self.next - 1 })
    }
}

/// What happens to a number that is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// It is taken.
    Taken,
    /// It is taken, and now the tree must be told of this range.
    Tell(NumberRange),
    /// It is not the next number of a run, so the tree has to take it.
    NotNext,
}

/// The run, if there is one, and whether it is time to look for one.
#[derive(Debug, Clone, Default)]
pub(super) struct Front {
    run: Option<Run>,
    /// How many numbers were taken in order, the last of them being `previous`. If negative, how many more before it looks
    /// again.
    streak: i16,
    previous: u128,
}

impl Front {
    pub fn run(&self) -> Option<Run> {
        self.run
    }

    /// No number below this is free. If there is a run, this one is.
    pub fn floor(&self) -> u128 {
        self.run.map_or(0, |run| run.next)
    }

    /// How many numbers are taken that the tree believes to be free.
    pub fn untold(&self) -> u128 {
        self.run.map_or(0, |run| run.next - run.first)
    }

    /// Takes a number if it is the next one of the run and not its last.
    pub fn take(&mut self, number: u128) -> Taking {
        let Some(run) = self.run.as_mut().filter(|run| run.next == number && number < run.last) else {
            return Taking::NotNext;
        };
        run.next += 1;
        match run.untold().filter(|_| run.next - run.first >= UNTOLD_MAX) {
            Some(untold) => {
                run.first = run.next;
                Taking::Tell(untold)
            }
            None => Taking::Taken,
        }
    }

    /// Shortens or drops the run before a change that conflicts with it: a range vacated below it, or taken inside it.
    /// Returns what has to be painted as taken before that change is.
    pub fn give_way(&mut self, range: NumberRange, taken: bool) -> Option<NumberRange> {
        let run = self.run.as_mut()?;
        let meets = if taken { range.first <= run.last && range.last >= run.next } else { range.first < run.next };
        if !meets {
            return None;
        }
        if taken && range.first > run.next {
            run.last = range.first - 1;
            return None;
        }
        self.run.take().and_then(Run::untold)
    }

    /// Notes a number that the tree took. Is it time to look for a run after it?
    pub fn note_taken(&mut self, number: u128) -> bool {
        if self.run.is_some() {
            return false;
        }
        let in_order = self.previous.checked_add(1) == Some(number);
        self.previous = number;
        self.streak = if in_order || self.streak < 0 { self.streak + 1 } else { 0 };
        self.streak >= STREAK
    }

    /// Starts with this lowest free run, if there is one, provided that it is long and begins where numbers are being taken.
    pub fn begin(&mut self, run: Option<(u128, u128)>) {
        let goes_on = |first| self.previous.checked_add(1) == Some(first);
        self.run = run.filter(|(first, last)| last - first >= RUN_MIN && goes_on(*first)).map(|(first, last)| Run {
            first,
            next: first,
            last,
        });
        self.streak = if self.run.is_some() { 0 } else { -BACKOFF };
    }
}
