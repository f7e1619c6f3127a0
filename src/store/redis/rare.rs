//! Something that is almost never there, such as a reason why nothing may be granted.
//!
//! Several threads check before each grant whether it is there. They read this without a lock, which they would otherwise
//! pass to one another.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::shared::locked;

#[derive(Debug)]
pub(super) struct Rare<T> {
    /// As the last change left `value`.
    there: AtomicBool,
    value: Mutex<Option<T>>,
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self { there: AtomicBool::new(false), value: Mutex::new(None) }
    }
}

impl<T> Rare<T> {
    pub(super) fn is_there(&self) -> bool {
        self.there.load(Ordering::Acquire)
    }

    pub(super) fn get(&self) -> Option<T>
    where
        T: Clone,
    {
        if self.is_there() { locked(&self.value).clone() } else { None }
    }

    /// Changes the value; changes exclude one another. Once this returns, every reader finds the result.
    pub(super) fn change<R>(&self, with: impl FnOnce(&mut Option<T>) -> R) -> R {
        let mut value = locked(&self.value);
        let told = with(&mut value);
        self.there.store(value.is_some(), Ordering::Release);
        told
    }

    pub(super) fn set(&self, value: Option<T>) {
        self.change(|now| *now = value);
    }

    /// Removes the value. If there is none, nothing is written.
    pub(super) fn clear(&self) {
        if self.is_there() {
            self.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_as_long_as_the_last_change_left_something() {
        let rare = Rare::default();
        assert_eq!((rare.is_there(), rare.get()), (false, None));
        rare.set(Some(1));
        assert_eq!((rare.is_there(), rare.get()), (true, Some(1)));
        assert_eq!(rare.change(|now| now.replace(2)), Some(1));
        assert_eq!((rare.is_there(), rare.get()), (true, Some(2)));
        assert_eq!(rare.change(Option::take), Some(2));
        assert_eq!((rare.is_there(), rare.get()), (false, None));
        rare.set(Some(3));
        rare.clear();
        assert_eq!((rare.is_there(), rare.get()), (false, None));
    }
}
