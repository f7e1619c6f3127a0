//! Deployments made from numbers, and what must hold after each.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::asks::{Dice, everything};
use crate::core::address::Range;
use crate::core::command::*;
use crate::core::deployment::*;
use crate::core::network::Network;
use crate::core::outcome::Outcome;
use crate::core::state::*;
use crate::core::types::*;

impl Dice<'_> {
    /// Up to six instances of a scope, which wish for what may exist, what others hold, and what their group is dealt.
    pub(super) fn deploy(&mut self, network: &Network, plan: u64) -> Deploy {
        let scope = self.scope();
        let mut wishes: Vec<DeployWish> = Vec::new();
        let mut listed = BTreeSet::new();
        let list: Vec<Range> = (0..self.below(3)).map(|_| self.range(network)).collect();
        for place in 0..self.below(7) {
            let (owner, slot) = (self.owner(), self.slot());
            listed.insert(owner.clone());
            let wanted = match self.below(5) {
                0 | 1 => Wanted::Automatic(Box::default()),
                2 if !list.is_empty() => Wanted::Dealt(0),
                _ => Wanted::Static(self.address(network)),
            };
            let (zone, fresh) = (self.once_in(7).then(|| "z1".into()), self.once_in(7));
            wishes.push(DeployWish { place, owner, slot, zone, fresh, wanted });
        }
        let (again, open) = (self.once_in(9), self.once_in(2));
        let lists = if list.is_empty() { Vec::new() } else { vec![StaticList { group: 0, network: 0, ranges: list }] };
        Deploy { scope, plan, again, open, wishes, lists, listed: Arc::new(listed) }
    }

    pub(super) fn settle(&mut self, plan: u64) -> Settle {
        let some = self.once_in(2).then(|| Arc::new((0..self.below(4)).map(|_| self.owner()).collect()));
        let (committed, reverted) = (Arc::default(), Arc::default());
        let (scope, uncommitted_since) = (self.scope(), None);
        Settle { scope, plan, instances: some, committed, reverted, uncommitted_since, revert: self.once_in(3) }
    }
}

/// What must hold after a command, whatever was there before.
pub(super) fn check(network: &Network, command: &Command, outcome: &Outcome) {
    let held: Vec<(crate::core::address::Address, Arc<Reservation>)> = everything(network)
        .into_iter()
        .filter_map(|(address, entry)| match entry {
            Entry::Held(held) => Some((address, held)),
            Entry::Released(_) | Entry::Declined(_) => None,
        })
        .collect();
    match (command, outcome) {
        (Command::Deploy(ask), Outcome::Deployed { slots, obsolete, .. }) => {
            assert_eq!(slots.len(), ask.wishes.len(), "every wish is answered");
            for done in slots {
                let wish = ask.wishes.iter().find(|wish| wish.place == done.place).expect("it was wished");
                let Some(view) = &done.view else {
                    assert_eq!(network.config().kind, NetworkKind::Dynamic, "{done:?}");
                    continue;
                };
                let there = held.iter().find(|(at, _)| *at == view.address).map(|(_, held)| held);
                let there = there.unwrap_or_else(|| panic!("{} is held by nobody: {command:?}", view.address));
                let to = |owner: &Owner, slot: &Slot| (owner, slot) == (&wish.owner, &wish.slot);
                if done.state == SlotState::Promised {
                    let promise = there.promise().expect("it is promised");
                    assert!(to(&promise.owner, &promise.slot), "{promise:?}: {command:?}");
                } else {
                    assert!(to(&there.holder.owner, &there.holder.slot) && there.obsolete.is_none());
                    assert_eq!(there.leaving(), None, "{command:?}");
                }
            }
            let gone = held.iter().filter(|(_, held)| held.holder.scope == ask.scope && held.obsolete.is_some());
            assert_eq!(obsolete.len(), gone.count(), "{command:?}");
        }
        (Command::Settle(ask), Outcome::Settled { released, .. }) => {
            assert!(released.iter().all(|gone| held.iter().all(|(at, _)| at != gone)), "{command:?}");
            let covered = |held: &Reservation| held.holder.scope == ask.scope && ask.covers(&held.holder.owner);
            for (at, held) in held.iter().filter(|(_, held)| covered(held)) {
                let of_it = held.obsolete.as_ref().is_some_and(|obsolete| obsolete.plan == ask.plan);
                if ask.revert {
                    let another = network.slot_holder(&held.holder).is_some();
                    assert!(!of_it || another, "{at} is obsolete still: {command:?}");
                    assert!(held.leaving() != Some(ask.plan), "{at} leaves still: {command:?}");
                    assert!(held.granted_by.map(|plan| plan.get()) != Some(ask.plan), "{at} was granted by it");
                } else if ask.instances.is_none() {
                    assert!(held.obsolete.is_none() && held.leaving().is_none(), "{at} was to go: {command:?}");
                    assert!(held.promise().is_none(), "{at} is promised still: {command:?}");
                }
            }
        }
        _ => {}
    }
    if matches!(command, Command::Deploy(_) | Command::Settle(_)) && !network.config().closed {
        let goes = |held: &Reservation| held.obsolete.is_some() || held.leaving().is_some();
        for (at, waits) in held.iter().filter(|(_, held)| held.leaving().is_some()) {
            let to_it = |held: &Reservation| {
                let slot = |promise: &Promise| (promise.owner.clone(), promise.slot.clone());
                held.holder.scope == waits.holder.scope
                    && held.promise().map(slot) == Some((waits.holder.owner.clone(), waits.holder.slot.clone()))
            };
            let comes = held.iter().any(|(_, held)| goes(held) && to_it(held));
            let asked = match command {
                Command::Deploy(ask) => ask.scope == waits.holder.scope,
                // An instance that is not covered may wait in vain: its own commit will be refused.
                Command::Settle(ask) => {
                    ask.scope == waits.holder.scope && (ask.revert || ask.covers(&waits.holder.owner))
                }
                _ => false,
            };
            assert!(comes || !asked, "{at} is let go for an address that nobody lets go: {command:?}");
        }
    }
    for (at, held) in &held {
        if let Some(promise) = held.promise() {
            let to =
                SlotKey { scope: held.holder.scope.clone(), owner: promise.owner.clone(), slot: promise.slot.clone() };
            assert!(to != held.holder || held.obsolete.is_some(), "{at} is promised to who holds it: {command:?}");
        }
        assert!(held.leaving().is_none() || held.obsolete.is_none(), "{at} is obsolete, and leaves: {command:?}");
    }
}
