//! `limits.per_owner` and `limits.per_scope`: how many current reservations one owner, or one scope, may hold in a network.
//!
//! Counted is what will be held after the request, and what a deployment has promised to a slot that holds nothing yet
//! (`holdings::promised`). What is obsolete does not count, as a deploy could not replace anything within a limit otherwise. So a
//! revert that makes it current again is not bound by a limit that others have used meanwhile, like whoever held more before it
//! was lowered: else a deploy that failed could not be taken back. Nobody is granted anything until it is kept again.

use super::Network;
use super::draft::Draft;
use crate::core::address::Address;
use crate::core::refusal::Refusal;
use crate::core::types::{Owner, Scope, SlotKey};

const PER_OWNER: &str = "per_owner";
const PER_SCOPE: &str = "per_scope";

impl Network {
    /// Limits per owner and scope, counted as after this draft and `more` current reservations in this slot. What is
    /// refused is noted in the draft: [`Self::recount`] tells then what the whole request comes to.
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

    /// Counts what one part of a request does not get for want of room: a limit that the request exceeds comes before that,
    /// whichever part is looked at first.
    pub(super) fn count_refused(&self, draft: &mut Draft<'_>, holder: &SlotKey, refusal: &Refusal) {
        let stays = |&(address, _): &(Address, _)| !draft.has_let_go(address);
        if matches!(refusal, Refusal::NotEnoughCapacity(_)) && self.holdings.slot(holder).filter(stays).is_none() {
            draft.fills(holder);
        }
    }

    /// What an owner and its scope hold once a draft is done.
    fn after(&self, draft: &Draft<'_>, scope: &Scope, owner: &Owner) -> (u64, u64) {
        let (by_owner, by_scope) = (draft.balance_of_owner(scope, owner), draft.balance_of_scope(scope));
        let of_owner = self.holdings.owner_load(scope, owner).saturating_add_signed(by_owner);
        (of_owner, self.holdings.scope_load(scope).saturating_add_signed(by_scope))
    }

    /// A refusal of one part of a request: of a limit, it tells what the whole request would come to.
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

    /// May an owner hold so many?
    pub(super) fn quota_of_owner(&self, owner: &Owner, would_hold: u64) -> Result<(), Refusal> {
        self.quota(PER_OWNER, self.config.limits.per_owner, would_hold, || format!("owner `{owner}`"))
    }

    /// May a scope hold so many?
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
