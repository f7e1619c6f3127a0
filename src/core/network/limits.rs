//! `limits.per_owner` and `limits.per_scope`: how many current reservations one owner, or one scope, may hold in a network.
//!
//! The count is what will be held after the request, plus what a deployment has promised to slots that hold nothing yet
//! (`holdings::promised`). Obsolete reservations do not count, because otherwise a deploy could not replace anything within
//! a limit. So a revert that makes them current again may exceed a limit that others have used up in the meantime, as may
//! holders from before the limit was lowered; otherwise a failed deploy could not be taken back. Until the limit is met
//! again, nobody is granted anything.

use super::Network;
use super::draft::Draft;
use crate::core::address::Address;
use crate::core::refusal::Refusal;
use crate::core::types::{Owner, Scope, SlotKey};

const PER_OWNER: &str = "per_owner";
const PER_SCOPE: &str = "per_scope";

impl Network {
    /// Checks the limits per owner and scope, counting this draft and `more` current reservations in this slot. A refusal is
    /// noted in the draft, so that [`Self::recount`] can then tell what the whole request would come to.
    pub(super) fn within_limits(&self, draft: &mut Draft<'_>, holder: &SlotKey, more: i64) -> Result<(), Refusal> {
        let limits = self.config.limits;
        if limits.per_owner.is_none() && limits.per_scope.is_none() {
            return Ok(());
        }
        let more = if draft.is_counted(holder) { 0 } else { more };
        let (scope, owner) = (&holder.scope, &holder.owner);
        let (of_owner, of_scope) = self.after(draft, scope, owner);
        let judged = self.quota_of_owner(owner, of_owner.saturating_add_signed(more));
        let judged = judged.and_then(|()| self.quota_of_scope(scope, of_scope.saturating_add_signed(more)));
        if judged.is_err() {
            draft.count(holder, more);
        }
        judged
    }

    /// Counts a part of a request that was refused for lack of room. A limit that the request exceeds takes precedence over
    /// that, whichever part is looked at first.
    pub(super) fn count_refused(&self, draft: &mut Draft<'_>, holder: &SlotKey, refusal: &Refusal) {
        let stays = |&(address, _): &(Address, _)| !draft.has_let_go(address);
        if matches!(refusal, Refusal::NotEnoughCapacity(_)) && self.holdings.slot(holder).filter(stays).is_none() {
            draft.fills(holder);
        }
    }

    /// What an owner and its scope hold after this draft.
    fn after(&self, draft: &Draft<'_>, scope: &Scope, owner: &Owner) -> (u64, u64) {
        let (by_owner, by_scope) = (draft.balance_of_owner(scope, owner), draft.balance_of_scope(scope));
        let of_owner = self.holdings.owner_load(scope, owner).saturating_add_signed(by_owner);
        (of_owner, self.holdings.scope_load(scope).saturating_add_signed(by_scope))
    }

    /// The refusal of one part of a request. If it is about a limit, it gets the count that the whole request would lead to.
    pub(super) fn recount(&self, draft: &Draft<'_>, scope: &Scope, owner: &Owner, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::QuotaExceeded { network, who, limit, max, .. } => {
                let (of_owner, of_scope) = self.after(draft, scope, owner);
                let would_hold = if limit == PER_OWNER { of_owner } else { of_scope };
                Refusal::QuotaExceeded { network, who, limit, would_hold, max }
            }
            other => other,
        }
    }

    /// May an owner hold this many?
    pub(super) fn quota_of_owner(&self, owner: &Owner, would_hold: u64) -> Result<(), Refusal> {
        self.quota(PER_OWNER, self.config.limits.per_owner, would_hold, || format!("owner `{owner}`"))
    }

    /// May a scope hold this many?
    pub(super) fn quota_of_scope(&self, scope: &Scope, would_hold: u64) -> Result<(), Refusal> {
        self.quota(PER_SCOPE, self.config.limits.per_scope, would_hold, || format!("scope `{scope}`"))
    }

    fn quota(
        &self,
        limit: &'static str,
        max: Option<u64>,
        would_hold: u64,
        who: impl FnOnce() -> String,
    ) -> Result<(), Refusal> {
        match max.filter(|max| would_hold > *max) {
            Some(max) => {
                let (network, who) = (self.config.name.clone(), who());
                Err(Refusal::QuotaExceeded { network, who, limit: limit.into(), would_hold, max })
            }
            None => Ok(()),
        }
    }
}
