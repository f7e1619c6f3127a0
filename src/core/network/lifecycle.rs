//! What happens to a holding after its grant: renewal, binding, update, transfer, decline.
//!
//! Before: `target`, which finds the holding that a client names. `release` has how holdings end.
//!
//! Review notes: does a new path carry the generation that it saw (`Step::expect`)? Is it safe to repeat?

use std::sync::Arc;

use compact_str::CompactString;

use super::Network;
use super::draft::{Draft, held_by};
use super::record::bound_to;
use super::target::check_generation;
use crate::core::address::Address;
use crate::core::command::{
    Context, Decline, GrantOptions, LabelsPatch, MacWish, Patch, ReservationPatch, Target, Transfer, Wish,
};
use crate::core::outcome::{Decision, Grant, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{Declined, Details, Entry, Event, EventKind, Reservation};
use crate::core::types::{Claimant, Labels, Owner, Scope, Slot, SlotKey};
use crate::limits;

impl Network {
    /// `ip.renew`. A lease runs from now; none makes the reservation permanent.
    pub(super) fn renew(
        &self,
        target: &Target,
        ttl_seconds: Option<u64>,
        context: Context,
    ) -> Result<Decision, Refusal> {
        let (address, held) = self.find_to_change(target)?;
        let mut draft = Draft::new(self, context);
        let lease = ttl_seconds.map(|ttl| draft.lease(ttl));
        let mut now = Arc::clone(held);
        if lease != now.lease {
            now = draft.change(address, held, Reservation { lease, ..Reservation::clone(held) }, EventKind::Renewed);
        }
        let view = draft.view(address, now);
        Ok(draft.finish(Outcome::Reservation(Box::new(view))))
    }

    /// `ip.bind`.
    pub(super) fn bind(&self, target: &Target, claimant: &Claimant, context: Context) -> Result<Decision, Refusal> {
        if let Some((address, holder)) = self.records(target) {
            return self.record(address, &holder, claimant, context);
        }
        let found = self.find_to_change(target);
        let (address, held) = found.map_err(|refusal| self.with_how_to_record(refusal))?;
        let mut draft = Draft::new(self, context);
        let now = match &held.claimant {
            Some(bound) if bound == claimant => Arc::clone(held),
            Some(bound) => return Err(bound_to(address, held, bound)),
            None => {
                let bound = Reservation { claimant: Some(claimant.clone()), ..Reservation::clone(held) };
                draft.change(address, held, bound, EventKind::Bound)
            }
        };
        let view = draft.view(address, now);
        Ok(draft.finish(Outcome::Reservation(Box::new(view))))
    }

    /// `ip.unbind`. Unbinding something that is not bound succeeds.
    pub(super) fn unbind(
        &self,
        target: &Target,
        claimant: Option<&Claimant>,
        context: Context,
    ) -> Result<Decision, Refusal> {
        let (address, held) = self.find_held(target)?;
        let mut draft = Draft::new(self, context);
        match (&held.claimant, claimant) {
            (Some(bound), Some(named)) if bound != named => Err(Refusal::Taken {
                problem: format!(
                    "{address} is bound to `{bound}`, not to `{named}`; name `{bound}` if that claimant is meant"
                ),
                network: None,
                address: Some(address),
                held_by: Some(Box::new(held_by(held))),
                used_in: None,
            }),
            (None, _) => {
                let view = draft.view(address, Arc::clone(held));
                Ok(draft.finish(Outcome::Unbound { view: Box::new(view), released: false }))
            }
            (Some(_), _) if held.release_with_claimant => {
                let view = Box::new(draft.view(address, Arc::clone(held)));
                draft.release(address, held, EventKind::Released);
                Ok(self.and_vanish(draft, Outcome::Unbound { view, released: true }))
            }
            (Some(_), _) => {
                let unbound = Reservation { claimant: None, ..Reservation::clone(held) };
                let now = draft.change(address, held, unbound, EventKind::Unbound);
                let view = Box::new(draft.view(address, now));
                Ok(draft.finish(Outcome::Unbound { view, released: false }))
            }
        }
    }

    /// `ip.update`.
    pub(super) fn update(
        &self,
        target: &Target,
        set: &ReservationPatch,
        context: Context,
    ) -> Result<Decision, Refusal> {
        if *set == ReservationPatch::default() {
            return Err(Refusal::invalid("set", "is empty: nothing to change"));
        }
        let found = self.find_to_change(target);
        // That no MAC can be made takes precedence over any refusal of what is found. What has a MAC needs none.
        if set.mac == Patch::Set(MacWish::Auto) && !self.named(target).is_some_and(|(_, held)| has_mac(held)) {
            self.mac_prefix("set.mac")?;
        }
        let (address, held) = found?;
        let mut draft = Draft::new(self, context);
        let before = held.details.as_deref().cloned().unwrap_or_default();
        let mut after = before.clone();
        match &set.labels {
            Patch::Keep => {}
            Patch::Clear => after.labels.clear(),
            Patch::Set(patch) => merge_labels("set.labels", &mut after.labels, patch)?,
        }
        patch_text(&mut after.note, &set.note);
        patch_text(&mut after.hostname, &set.hostname);
        match &set.mac {
            Patch::Keep => {}
            Patch::Clear => after.mac = None,
            // A generated MAC is stable: asking for one again changes nothing.
            Patch::Set(MacWish::Auto) if after.mac.is_some() => {}
            Patch::Set(wish) => after.mac = draft.mac_for(Some(*wish), Some(address))?,
        }
        match &set.owner_uid {
            Patch::Keep => {}
            Patch::Clear => after.owner_uid = None,
            Patch::Set(uid) => after.owner_uid = Some(uid.clone()),
        }
        let mut now = Arc::clone(held);
        if after != before {
            let details = (after != Details::default()).then(|| Box::new(after));
            now = draft.change(address, held, Reservation { details, ..Reservation::clone(held) }, EventKind::Updated);
        }
        let view = draft.view(address, now);
        Ok(draft.finish(Outcome::Reservation(Box::new(view))))
    }

    /// `ip.transfer`.
    pub(super) fn transfer(&self, ask: &Transfer, context: Context) -> Result<Decision, Refusal> {
        let target = Target { address: Some(ask.address), ..Target::default() };
        let Some((address, held)) = self.find(&target)? else { return Err(self.nothing_held(&target)) };
        let mut draft = Draft::new(self, context);
        let is_done = held.holder == ask.to && held.obsolete.is_none();
        let other = self.holdings.slot(&ask.to);
        if ask.exchange && !is_done && other.is_none() {
            let what = format!("of {} in network `{}`", ask.to, self.config.name);
            let hint = Some(
                "an exchange needs an address on both sides; leave `exchange` out to hand the address over".to_owned(),
            );
            return Err(Refusal::NotFound { missing: Missing::Reservation, what, hint });
        }
        self.is_open()?;
        if is_done {
            // A repeat may name the generation that was handed over, and hands over nothing.
            let unknown = ask.if_generation.filter(|expected| *expected > held.generation);
            check_generation(address, Some(held), unknown)?;
            let received = if ask.exchange { self.exchanged_for(held, &ask.from) } else { None };
            let all = [Some((address, held)), received];
            let views =
                all.into_iter().flatten().map(|(address, held)| draft.view(address, Arc::clone(held))).collect();
            return Ok(draft.finish(Outcome::Transferred(views)));
        }
        let (scope, owner, slot) = &ask.from;
        self.is_held_by(address, held, scope, owner, slot.as_ref())?;
        check_generation(address, Some(held), ask.if_generation)?;
        is_promised_to_nobody(address, held)?;
        let Some((other_address, other)) = other else {
            self.transfer_within_limits(held, &ask.to)?;
            let view = draft.hand_over(address, held, &ask.to, None);
            return Ok(draft.finish(Outcome::Transferred(vec![view])));
        };
        if ask.exchange {
            is_promised_to_nobody(other_address, other)?;
        }
        // A slot that gives away an obsolete address may hold another one, which must not get a second beside it.
        let own = self.holdings.slot(&held.holder).filter(|(own, _)| *own != address);
        let in_the_way =
            if ask.exchange { own.map(|own| (own, &held.holder)) } else { Some(((other_address, other), &ask.to)) };
        if let Some(((taken, _), holder)) = in_the_way {
            let (network, holder) = (self.config.name.clone(), holder.clone());
            return Err(Refusal::SlotTaken { network, holder, address: taken, differs: Vec::new() });
        }
        if held.obsolete.is_some() {
            // The obsolete address did not count for the giver, but the one that it gets does.
            self.transfer_within_limits(held, &held.holder)?;
        }
        let views = vec![
            draft.hand_over(address, held, &ask.to, Some(other)),
            draft.hand_over(other_address, other, &held.holder, Some(held)),
        ];
        Ok(draft.finish(Outcome::Transferred(views)))
    }

    /// What the giver got in exchange, if it still holds that: both were granted at once, that one directly after this.
    fn exchanged_for(
        &self,
        given: &Reservation,
        (scope, owner, slot): &(Scope, Owner, Option<Slot>),
    ) -> Option<(Address, &Arc<Reservation>)> {
        let is_it = |held: &Reservation| {
            held.generation.0 == given.generation.0 + 1
                && held.created_at == given.created_at
                && slot.as_ref().is_none_or(|slot| held.holder.slot == *slot)
        };
        self.holdings.of_owner(scope, owner).find(|(_, held)| is_it(held))
    }

    /// Checks the receiver's limits. If giver and receiver share owner or scope, the number there does not change. What is
    /// promised to a slot counts as long as that slot holds nothing.
    fn transfer_within_limits(&self, held: &Reservation, to: &SlotKey) -> Result<(), Refusal> {
        let current = held.obsolete.is_none();
        let same_scope = held.holder.scope == to.scope && current;
        let same_owner = same_scope && held.holder.owner == to.owner;
        let comes = i64::from(!self.holdings.awaits(to));
        let goes = i64::from(current && !self.holdings.is_promised(&held.holder));
        let more = |same: bool| comes - if same { goes } else { 0 };
        let load = (self.holdings.owner_load(&to.scope, &to.owner), self.holdings.scope_load(&to.scope));
        if more(same_owner) > 0 {
            self.quota_of_owner(&to.owner, load.0.saturating_add_signed(more(same_owner)))?;
        }
        if more(same_scope) > 0 {
            self.quota_of_scope(&to.scope, load.1.saturating_add_signed(more(same_scope)))?;
        }
        Ok(())
    }

    /// `ip.decline`.
    pub(super) fn decline(&self, ask: &Decline, context: Context) -> Result<Decision, Refusal> {
        let (scope, owner, slot) = &ask.from;
        let mut draft = Draft::new(self, context);
        let held = match self.holdings.at(ask.address) {
            Some(Entry::Held(held)) => held,
            Some(Entry::Declined(declined)) => {
                let by = &declined.by;
                let same =
                    by.owner == *owner && by.scope == *scope && slot.as_ref().is_none_or(|slot| *slot == by.slot);
                self.is_open()?;
                return if same {
                    let granted = self.decline_again(&mut draft, ask, by, None)?;
                    Ok(draft.finish(Outcome::Declined { address: ask.address, granted }))
                } else {
                    let slot = slot.as_ref().unwrap_or(&by.slot).clone();
                    let asked = SlotKey { scope: scope.clone(), owner: owner.clone(), slot };
                    Err(Refusal::DeclinedByOther { address: ask.address, asked, by: by.clone() })
                };
            }
            Some(Entry::Released(_)) | None => {
                return Err(self.nothing_held(&Target { address: Some(ask.address), ..Target::default() }));
            }
        };
        self.is_open()?;
        self.is_held_by(ask.address, held, scope, owner, slot.as_ref())?;
        draft.leaves(ask.address, held);
        let granted = self.decline_again(&mut draft, ask, &held.holder, Some(held))?;
        let declined = Entry::Declined(Arc::new(Declined {
            prefix_length: held.prefix_length,
            by: held.holder.clone(),
            generation: held.generation,
            until: context.now.after_seconds(ask.probation_seconds),
            seen: ask.seen.clone(),
            promise: held.promise().cloned().map(Box::new),
        }));
        let event = Event { kind: EventKind::Declined, before: Some(Arc::clone(held)) };
        draft.put(ask.address, Some(&Entry::Held(Arc::clone(held))), Some(declined), Some(event));
        Ok(draft.finish(Outcome::Declined { address: ask.address, granted }))
    }

    /// Grants another address in place of a declined one. For a repeat, returns what the slot holds.
    fn decline_again(
        &self,
        draft: &mut Draft<'_>,
        ask: &Decline,
        holder: &SlotKey,
        held: Option<&Arc<Reservation>>,
    ) -> Result<Option<Box<Grant>>, Refusal> {
        if !ask.again {
            return Ok(None);
        }
        // The declined address was obsolete, or this is a repeat: the slot may already have its address.
        let settled = self.holdings.slot(holder).filter(|(address, _)| *address != ask.address);
        if let Some((address, held)) = settled {
            let view = draft.view(address, Arc::clone(held));
            return Ok(Some(Box::new(Grant { view, created: false, previous_claimant: None, replaced: None })));
        }
        let family = ask.address.family();
        let block = held.map(|held| held.prefix_length).filter(|length| *length != family.width());
        let wish = Wish { family: Some(family), prefix_length: block, ..Wish::default() };
        let options = held.map(|held| carried_over(held.as_ref())).unwrap_or_default();
        draft.carried_lease = held.and_then(|held| held.lease);
        Ok(Some(Box::new(self.grant_another(draft, holder, ask.address, &wish, &options)?)))
    }
}

/// What the successor of a holding keeps when its address was declined.
fn carried_over(held: &Reservation) -> GrantOptions {
    let details = held.details.as_deref().cloned().unwrap_or_default();
    GrantOptions {
        owner_uid: details.owner_uid,
        transient: held.transient,
        mac: details.mac.map(MacWish::Given),
        macs_elsewhere: Vec::new(),
        claimant: held.claimant.clone(),
        release_with_claimant: held.release_with_claimant,
        labels: Some(details.labels),
        note: Some(details.note),
        hostname: Some(details.hostname),
        ..GrantOptions::default()
    }
}

fn has_mac(held: &Reservation) -> bool {
    held.details.as_ref().is_some_and(|details| details.mac.is_some())
}

fn patch_text(text: &mut CompactString, patch: &Patch<CompactString>) {
    match patch {
        Patch::Keep => {}
        Patch::Clear => text.clear(),
        Patch::Set(new) => new.clone_into(text),
    }
}

/// Merges labels or tags, and checks the number of entries in the result.
///
/// # Errors
/// `invalid_argument` if there would be too many.
pub(super) fn merge_labels(field: &str, labels: &mut Labels, patch: &LabelsPatch) -> Result<(), Refusal> {
    for (key, value) in patch {
        match value {
            Some(value) => {
                labels.insert(key.clone(), value.clone());
            }
            None => {
                labels.remove(key);
            }
        }
    }
    if labels.len() > limits::LABEL_ENTRIES_MAX {
        return Err(Refusal::invalid(
            field,
            format!("leads to {} entries, but at most {} are allowed", labels.len(), limits::LABEL_ENTRIES_MAX),
        ));
    }
    Ok(())
}

/// Refuses an address that a deployment's plan has promised: nobody else gets it before the plan is ended.
pub(super) fn is_promised_to_nobody(address: Address, held: &Reservation) -> Result<(), Refusal> {
    held.promise().map_or(Ok(()), |promise| {
        let problem = format!(
            "{address} is promised to instance `{}` of deployment `{}`; commit or revert its plan first",
            promise.owner, held.holder.scope
        );
        Err(Refusal::Taken {
            problem,
            network: None,
            address: Some(address),
            held_by: Some(Box::new(held_by(held))),
            used_in: None,
        })
    })
}
