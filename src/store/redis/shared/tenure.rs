//! Who owns the register, as far as this process knows: whether another node may have owned it since this one did, and on
//! which connections this is known.

use std::sync::atomic::Ordering;

use super::{RedisShared, locked};

impl RedisShared {
    /// From now on another node may own the register (true), or this process owns it again (false).
    pub(in crate::store::redis) fn yields(&self, yields: bool) {
        self.may_have_yielded.store(false, Ordering::Release);
        self.yielded.store(yields, Ordering::Release);
    }

    /// From here on another node may take the register.
    pub(in crate::store::redis) fn may_yield(&self) {
        self.may_have_yielded.store(true, Ordering::Release);
    }

    /// May another node have owned the register since this process did?
    pub(in crate::store::redis) fn may_have_yielded(&self) -> bool {
        self.may_have_yielded.load(Ordering::Acquire)
    }

    /// Did this process take the register from this run of Redis? Then that run knows of all later owners.
    pub(in crate::store::redis) fn is_taken_from(&self, run: Option<&str>) -> bool {
        run.is_some() && locked(&self.taken_from).as_deref() == run
    }

    /// This process took the register from this run of Redis, if Redis says which run it is.
    pub(in crate::store::redis) fn took_from(&self, run: Option<String>) {
        *locked(&self.taken_from) = run;
    }

    pub(in crate::store::redis) fn has_yielded(&self) -> bool {
        self.yielded.load(Ordering::Acquire)
    }

    /// Redis said on the connection of this number that the register has an owner.
    pub(in crate::store::redis) fn sees_owner_on(&self, number: u64) {
        self.saw_owner.store(number, Ordering::Release);
    }

    pub(in crate::store::redis) fn saw_owner_on(&self) -> u64 {
        self.saw_owner.load(Ordering::Acquire)
    }

    /// Batches are confirmed on the connection of this number.
    pub(in crate::store::redis) fn confirming(&self, number: u64) {
        self.confirming.store(number, Ordering::Release);
    }

    pub(in crate::store::redis) fn confirms_on(&self) -> u64 {
        self.confirming.load(Ordering::Acquire)
    }
}
