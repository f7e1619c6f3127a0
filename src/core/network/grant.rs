//! `ip.allocate`, `ip.claim` and the part of `ip.acquire` that concerns one network.
//!
//! All three end in one of two acts: they *touch* what the slot already holds, or *grant* something new. Checks run in the
//! protocol's order of precedence, so the first refusal found is the one to answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Network;
use super::configure::STEP_BYTES_LEAST;
use super::draft::{Draft, held_by};
use super::holdings::covered;
use super::refused::FirstRefused;
use super::selection::Selection;
use crate::core::address::{Address, Range};
use crate::core::command::{Acquire, AcquireItem, Allocate, Claim, Context, GrantOptions, Wish};
use crate::core::forms;
use crate::core::outcome::{Decision, Grant, Outcome};
use crate::core::refusal::{Refusal, members};
use crate::core::state::{Details, EventKind, Lease, Reservation, ReservationKind, ReservedRange, SubnetConfig};
use crate::core::types::{Claimant, Slot, SlotKey};
use crate::limits::PARTED_CHANGE_BYTES;

impl Network {
    /// `ip.allocate`.
    pub(super) fn allocate(&self, ask: &Allocate, context: Context) -> Result<Decision, Refusal> {
        let mut draft = Draft::new(self, context);
        let granted = self.allocate_into(&mut draft, &ask.holder, &ask.wish, &ask.options);
        let grant = self.or_no_mac(ask.options.mac, granted)?;
        Ok(draft.finish(Outcome::Granted(Box::new(grant))))
    }

    /// `ip.claim`.
    pub(super) fn claim(&self, ask: &Claim, context: Context) -> Result<Decision, Refusal> {
        let mut draft = Draft::new(self, context);
        let wish = Wish { prefix_length: ask.prefix_length, ..Wish::default() };
        let granted = self.claim_into(&mut draft, &ask.holder, ask.address, &wish, Some(ask.force), &ask.options);
        let grant = self.or_no_mac(ask.options.mac, granted)?;
        Ok(draft.finish(Outcome::Granted(Box::new(grant))))
    }

    /// The part of `ip.acquire` that concerns this network. Named addresses are taken first. Of several refusals, the first
    /// in the protocol's order is answered, with its index in the request.
    pub(super) fn acquire(&self, ask: &Acquire, context: Context) -> Result<Decision, Refusal> {
        let options = GrantOptions { replace: ask.options.replace || ask.exact, ..ask.options.clone() };
        forms::named_once(&ask.items)?;
        forms::mac_once(ask)?;
        if ask.items.is_empty() {
            // An acquire without items (only `exact`) does not get to this check otherwise.
            self.is_open()?;
        }
        let mut draft = Draft::new(self, context);
        draft.makes_none_of(&ask.options.macs_elsewhere);
        draft.asks_for(ask.items.iter().map(|item| ask.slot(item)));
        // Everything else that the owner holds goes, so it is not handed to another slot of the owner by a promise.
        draft.letting_go = ask.exact.then(|| (ask.scope.clone(), Some(ask.owner.clone())));
        let others = if ask.exact { self.held_beside(ask) } else { Vec::new() };
        // Another object of the same name is another owner, and its holdings are not released.
        let unlike =
            others.iter().find_map(|(address, held)| self.same_owner(&held.holder, *address, held, &ask.options).err());
        for (address, held) in &others {
            draft.leaves(*address, held);
        }
        let mut grants: Vec<(usize, Grant)> = Vec::with_capacity(ask.items.len());
        let mut refused = FirstRefused::default();
        let mut beyond_limits: Vec<(usize, Refusal)> = Vec::new();
        let named = ask.items.iter().filter(|item| item.address.is_some());
        for item in named.chain(ask.items.iter().filter(|item| item.address.is_none())) {
            draft.is_optional = item.optional;
            draft.room_is_untold = item.optional || refused.before_want_of_room(item.index);
            match self.acquire_item(&mut draft, ask, item, &options) {
                Ok(grant) => grants.push((item.index, grant)),
                Err(Refusal::NotEnoughCapacity(_)) if item.optional => {}
                Err(refusal @ Refusal::QuotaExceeded { .. }) if item.optional => {
                    beyond_limits.push((item.index, refusal));
                }
                Err(refusal) => {
                    self.count_refused(&mut draft, &ask.slot(item), &refusal);
                    refused.note(item.index, refusal, |refusal| refusal);
                }
            }
        }
        if !beyond_limits.is_empty() && !is_repeat(ask, &grants) {
            beyond_limits.into_iter().for_each(|(index, refusal)| refused.note(index, refusal, |refusal| refusal));
        }
        if let Some(unlike) = unlike.filter(|unlike| !refused.not_behind(unlike)) {
            return Err(unlike);
        }
        if let Some((index, refusal)) = refused.end() {
            let refusal = Box::new(self.recount(&draft, &ask.scope, &ask.owner, refusal));
            return Err(Refusal::OfItem { index, refusal });
        }
        for (address, held) in &others {
            draft.release(*address, held, EventKind::Released);
        }
        let given = draft.settle_owed(|slot| grants.iter().any(|(_, grant)| grant.view.reservation.holder == *slot));
        let released = others.into_iter().map(|(address, _)| address).filter(|at| !given.contains(at)).collect();
        grants.sort_unstable_by_key(|(index, _)| *index);
        Ok(draft.finish(Outcome::Acquired { grants, released }))
    }

    /// The least number of bytes of a commit that an `exact` acquire counts for because of what it releases.
    ///
    /// Cost: O(1).
    pub fn lets_go_bytes_least(&self, ask: &Acquire) -> usize {
        if !ask.exact {
            return 0;
        }
        let goes = self.holdings.owner_count(&ask.scope, &ask.owner).saturating_sub(ask.items.len() as u64) as usize;
        let texts = ask.scope.as_str().len() + ask.owner.as_str().len();
        goes.saturating_mul(PARTED_CHANGE_BYTES.max(STEP_BYTES_LEAST + texts))
    }

    /// What the owner holds in slots that an acquire does not name.
    fn held_beside(&self, ask: &Acquire) -> Vec<(Address, Arc<Reservation>)> {
        let named: BTreeSet<&Slot> = ask.items.iter().map(|item| &item.slot).collect();
        let beside = |held: &Reservation| held.obsolete.is_none() && !named.contains(&held.holder.slot);
        let of_owner = self.holdings.of_owner(&ask.scope, &ask.owner).filter(|(_, held)| beside(held));
        let mut others: Vec<_> = of_owner.map(|(address, held)| (address, Arc::clone(held))).collect();
        others.sort_unstable_by_key(|(address, _)| *address);
        others
    }

    fn acquire_item(
        &self,
        draft: &mut Draft<'_>,
        ask: &Acquire,
        item: &AcquireItem,
        options: &GrantOptions,
    ) -> Result<Grant, Refusal> {
        let holder = ask.slot(item);
        let granted = match item.address {
            Some(address) => self.claim_into(draft, &holder, address, &item.wish, None, options),
            None => self.allocate_into(draft, &holder, &item.wish, options),
        };
        self.or_no_mac(options.mac, granted)
    }

    /// Grants what the slot asks for, or finds that the slot already holds it.
    pub(super) fn allocate_into(
        &self,
        draft: &mut Draft<'_>,
        holder: &SlotKey,
        wish: &Wish,
        options: &GrantOptions,
    ) -> Result<Grant, Refusal> {
        let selection = self.select(wish)?;
        let held = self.holdings.slot(holder).filter(|(address, _)| !draft.has_let_go(*address));
        self.require_pool(wish, &selection, held)?;
        self.is_open()?;
        let Some((address, held)) = held else {
            return self.grant_picked(draft, holder, wish, &selection, options, None);
        };
        self.same_owner(holder, address, held, options)?;
        let differs = self.differences(wish, &selection, address, held);
        if differs.is_empty() && !options.must_create {
            return self.touch(draft, address, held, None, options);
        }
        if !differs.is_empty() {
            draft.mac_for(options.mac, Some(address))?;
        }
        if options.must_create || !options.replace {
            return Err(self.slot_taken(holder, address, differs));
        }
        let mut grant = self.grant_picked(draft, holder, wish, &selection, options, Some((address, held)))?;
        draft.release(address, held, EventKind::Released);
        grant.replaced = Some(address);
        Ok(grant)
    }

    fn grant_picked(
        &self,
        draft: &mut Draft<'_>,
        holder: &SlotKey,
        wish: &Wish,
        selection: &Selection,
        options: &GrantOptions,
        replaced: Option<(Address, &Arc<Reservation>)>,
    ) -> Result<Grant, Refusal> {
        draft.mac_for(options.mac, replaced.map(|(address, _)| address))?;
        let picked = self.pick(draft, selection, holder, options.owner_uid.as_ref());
        // An optional item that finds no room is left out, so it does not count within the limits.
        if picked.is_some() || !draft.is_optional {
            self.within_limits(draft, holder, i64::from(replaced.is_none()))?;
        }
        let Some(picked) = picked else {
            return Err(self.no_capacity(draft, wish, selection));
        };
        if let Some((address, held)) = replaced {
            // The new reservation may get the MAC of the old one.
            draft.leaves(address, held);
        }
        let view = if picked.is_free {
            draft.grant_free(picked.range, holder, ReservationKind::Dynamic, options)?
        } else {
            draft.grant(picked.range, holder, ReservationKind::Dynamic, options)?
        };
        Ok(Grant { view, created: true, previous_claimant: None, replaced: None })
    }

    /// Grants a slot another address in place of `lost`, which it is about to lose in the same commit. What the request for
    /// that one named is not known, so the other one is as near as there is room: what is reserved for the slot where that
    /// one's zones are served, then in its pool, or in its subnet, or in a subnet that serves every zone which that one serves,
    /// or anywhere.
    pub(super) fn grant_another(
        &self,
        draft: &mut Draft<'_>,
        holder: &SlotKey,
        lost: Address,
        wish: &Wish,
        options: &GrantOptions,
    ) -> Result<Grant, Refusal> {
        let (layout, uid) = (&self.layout, options.owner_uid.as_ref());
        let pool = layout.pool_of(lost).map(|index| layout.only(index));
        let subnet = layout.subnet_of(lost);
        let alike = subnet.map(|index| layout.serving_all(&self.subnets[index]));
        let near = [pool, subnet.map(|index| layout.of_subnet(index)), alike];
        let mut selection = self.select(wish)?;
        // It may lie outside every pool.
        selection.like = subnet;
        if self.pick_kept(draft, &selection, holder, uid).is_none() {
            selection.like = None;
            for pools in near.into_iter().flatten().map(Some).chain([None]) {
                selection.pool = pools;
                if self.pick(draft, &selection, holder, uid).is_some() {
                    break;
                }
            }
        }
        self.grant_picked(draft, holder, wish, &selection, options, None)
    }

    /// Grants a slot the named address, or finds that the slot already holds it. `force` is none for requests without that
    /// member.
    pub(super) fn claim_into(
        &self,
        draft: &mut Draft<'_>,
        holder: &SlotKey,
        address: Address,
        wish: &Wish,
        force: Option<bool>,
        options: &GrantOptions,
    ) -> Result<Grant, Refusal> {
        let length = wish.prefix_length.unwrap_or(address.family().width());
        let block = forms::block(address, length)?;
        if wish.prefix_length.is_some() {
            self.fits_a_subnet(length, Some(address.family()))?;
        }
        let subnet = self.claim_filters(address, wish)?;
        self.takes_claims()?;
        // Most claims name one address with no entry; then no further lookups are needed there.
        let is_free = block.size() == 1 && self.holdings.covering(address).is_none();
        let of_slot = self.holdings.slot(holder);
        let own = of_slot.filter(|&(at, held)| at == address && held.prefix_length == length);
        if own.is_none() {
            self.claimable_place(block, address)?;
        }
        self.claim_admitted(address, subnet, wish)?;
        self.is_open()?;
        if let Some((_, held)) = own {
            self.same_owner(holder, address, held, options)?;
            if options.must_create {
                return Err(self.slot_taken(holder, address, Vec::new()));
            }
            return self.touch(draft, address, held, Some(ReservationKind::Static), options);
        }
        self.in_the_way(draft, holder, block, is_free)?;
        let slot_holds = of_slot.filter(|(held, _)| !draft.has_let_go(*held));
        if let Some((held_address, held)) = slot_holds {
            self.same_owner(holder, held_address, held, options)?;
        }
        draft.mac_for(options.mac, slot_holds.map(|(held, _)| held))?;
        let replaced = match slot_holds {
            Some((held_address, held)) if options.replace && !options.must_create => {
                Some((held_address, Arc::clone(held)))
            }
            Some((held_address, _)) => {
                let differs = if held_address == address { vec!["prefix_length"] } else { vec!["address"] };
                return Err(self.slot_taken(holder, held_address, differs));
            }
            None => None,
        };
        self.claimable_address(block, holder, force, is_free)?;
        self.within_limits(draft, holder, i64::from(replaced.is_none()))?;
        let overlapping =
            replaced.as_ref().filter(|(held_address, held)| covered(*held_address, held.prefix_length).overlaps(block));
        if let Some((held_address, held)) = overlapping {
            // What the new holding does not cover is released first, so that no two entries ever overlap.
            draft.release_around(*held_address, held, block);
        } else if let Some((held_address, held)) = &replaced {
            // The new reservation may get the MAC of the old one.
            draft.leaves(*held_address, held);
        }
        let view = if is_free {
            draft.grant_free(block, holder, ReservationKind::Static, options)?
        } else {
            draft.grant(block, holder, ReservationKind::Static, options)?
        };
        let mut grant = Grant { view, created: true, previous_claimant: None, replaced: None };
        if let Some((held_address, held)) = &replaced {
            if overlapping.is_none() {
                draft.release(*held_address, held, EventKind::Released);
            }
            grant.replaced = Some(*held_address);
        }
        Ok(grant)
    }

    fn slot_taken(&self, holder: &SlotKey, address: Address, differs: Vec<&'static str>) -> Refusal {
        Refusal::SlotTaken {
            network: self.config.name.clone(),
            holder: holder.clone(),
            address,
            differs: members(differs),
        }
    }

    /// Refuses another object of the same name, which is another owner.
    fn same_owner(
        &self,
        holder: &SlotKey,
        address: Address,
        held: &Reservation,
        options: &GrantOptions,
    ) -> Result<(), Refusal> {
        let stored = held.details.as_ref().and_then(|details| details.owner_uid.as_ref());
        match (stored, &options.owner_uid) {
            (Some(stored), Some(asked)) if stored != asked => Err(Refusal::Taken {
                problem: format!(
                    "{address} of network `{}` is held by {holder} with another owner_uid (`{stored}`, not `{asked}`): two objects with the same name are two owners; release it, or name another owner",
                    self.config.name
                ),
                network: None,
                address: Some(address),
                held_by: Some(Box::new(held_by(held))),
                used_in: None,
            }),
            _ => Ok(()),
        }
    }

    /// Answers a repeated request for what is held: binds, renews and relabels it as asked. An address that was chosen and
    /// is now named becomes a static one.
    fn touch(
        &self,
        draft: &mut Draft<'_>,
        address: Address,
        held: &Arc<Reservation>,
        kind: Option<ReservationKind>,
        options: &GrantOptions,
    ) -> Result<Grant, Refusal> {
        let mut now = Arc::clone(held);
        let lease = match (now.lease, options.ttl_seconds) {
            (Some(lease), Some(ttl)) => {
                let later = |asked: &Lease| self.holdings.end_of(*asked) > self.holdings.end_of(lease);
                Some(draft.lease(ttl)).filter(later).or(Some(lease))
            }
            (Some(_), None) | (None, _) => None,
        };
        if lease != now.lease {
            now = draft.change(address, &now, Reservation { lease, ..Reservation::clone(&now) }, EventKind::Renewed);
        }
        let mut previous: Option<Claimant> = None;
        if options.claimant.is_some() && now.claimant != options.claimant {
            previous = now.claimant.clone();
            let bound = Reservation { claimant: options.claimant.clone(), ..Reservation::clone(&now) };
            now = draft.change(address, &now, bound, EventKind::Bound);
        }
        let before = now.details.as_deref().cloned().unwrap_or_default();
        let details = Details {
            labels: options.labels.clone().unwrap_or_else(|| before.labels.clone()),
            owner_uid: before.owner_uid.clone().or_else(|| options.owner_uid.clone()),
            ..before.clone()
        };
        let kind = kind.unwrap_or(now.kind);
        if details != before || kind != now.kind {
            let details = (details != Details::default()).then(|| Box::new(details));
            let updated = Reservation { details, kind, ..Reservation::clone(&now) };
            now = draft.change(address, &now, updated, EventKind::Updated);
        }
        Ok(Grant { view: draft.view(address, now), created: false, previous_claimant: previous, replaced: None })
    }
}

/// Does an acquire ask for what is already held, so that it may repeat a request whose answer was lost? An optional item
/// that found no room the first time may find some now, in what that request released, but exceed a limit: that is no reason
/// to refuse the repeat.
fn is_repeat(ask: &Acquire, grants: &[(usize, Grant)]) -> bool {
    let held = |index: usize| grants.iter().any(|(at, grant)| *at == index && !grant.created);
    let mut required = ask.items.iter().filter(|item| !item.optional);
    grants.iter().any(|(_, grant)| !grant.created) && required.all(|item| held(item.index))
}

impl SubnetConfig {
    /// Does it serve a zone? A subnet without zones serves every zone.
    pub fn serves(&self, zone: &str) -> bool {
        self.zones.is_empty() || self.zones.iter().any(|served| served == zone)
    }

    /// Does it serve every zone that the other one serves? One without zones serves all.
    pub(super) fn serves_all_of(&self, other: &Self) -> bool {
        self.zones.is_empty() || !other.zones.is_empty() && other.zones.iter().all(|zone| self.serves(zone))
    }

    /// Its reserved ranges that share addresses with a range. Reserved ranges are ascending and disjoint. Cost: O(log).
    pub(super) fn reserved_over(&self, range: Range) -> &[ReservedRange] {
        let from = self.reserved.partition_point(|reserved| reserved.range.last() < range.first());
        let over = &self.reserved[from..];
        &over[..over.partition_point(|reserved| reserved.range.first() <= range.last())]
    }
}

impl ReservedRange {
    /// Is it set aside for this slot?
    pub fn is_for(&self, holder: &SlotKey) -> bool {
        self.reserved_for.as_ref().is_some_and(|kept| {
            kept.scope == holder.scope
                && kept.owner == holder.owner
                && kept.slot.as_ref().is_none_or(|slot| *slot == holder.slot)
        })
    }
}
