//! How holdings end: a holder is named, everything of an owner or a scope is released, a lease ends, or a deleted network is
//! emptied. Also how addresses become free after their cooldown or probation.
//!
//! Each command lets go of a bounded number at a time and says whether more is left. A deleted network that is only remembered
//! ends with its last reservation ([`Network::and_vanish`]); `lifecycle`, `sweep` and `settle` finish with that as well.
//!
//! Review notes: does a new path that lets go carry the generation that it saw (`Step::expect`)? Is it safe to repeat?

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Network;
use super::draft::Draft;
use super::read::OF_OWNER_SORTED_MAX;
use crate::core::address::Address;
use crate::core::command::{Context, Release};
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, EventKind, Key, Reservation, State, Step};
use crate::core::types::{Owner, Scope, Version};
use crate::limits;

impl Network {
    /// `ip.release`.
    pub(super) fn release(&self, ask: &Release, context: Context) -> Result<Decision, Refusal> {
        let target = &ask.target;
        if target.address.is_some() && target.owner.is_none() && target.if_generation.is_none() && !ask.force {
            let problem = "or `if_generation` or `force` must be given with an address, so that nobody else's reservation is released";
            return Err(Refusal::invalid("owner", problem));
        }
        let mut draft = Draft::new(self, context);
        let Some((address, held)) = self.find(target)? else {
            return if ask.strict {
                Err(self.nothing_held(target))
            } else {
                Ok(draft.finish(Outcome::Released(Vec::new())))
            };
        };
        draft.release(address, held, EventKind::Released);
        Ok(self.and_vanish(draft, Outcome::Released(vec![address])))
    }

    /// `owner.release`: everything, or the first `limit` holdings; also what was promised to the owner, which otherwise
    /// would hold it again after a commit.
    pub(super) fn release_owner(&self, scope: &Scope, owner: &Owner, limit: usize, context: Context) -> Decision {
        // The first by address, unless there are too many to sort.
        let held = self.holdings.of_owner(scope, owner).take(limit.max(OF_OWNER_SORTED_MAX) + 1);
        self.release_all(held, limit, (scope.clone(), Some(owner.clone())), context)
    }

    /// `scope.release`: everything, or the first `limit` holdings.
    pub(super) fn release_scope(&self, scope: &Scope, limit: usize, context: Context) -> Decision {
        // One more than the limit shows whether more is held, without following the chain to its end.
        let held = self.holdings.of_scope(scope).take(limit + 1);
        self.release_all(held, limit, (scope.clone(), None), context)
    }

    fn release_all<'a>(
        &self,
        held: impl Iterator<Item = (Address, &'a Arc<Reservation>)>,
        limit: usize,
        whose: (Scope, Option<Owner>),
        context: Context,
    ) -> Decision {
        let mut held: Vec<_> = held.collect();
        let mut more = held.len() > limit;
        held.sort_unstable_by_key(|(address, _)| *address);
        held.truncate(limit);
        let mut draft = Draft::new(self, context);
        draft.letting_go = Some(whose.clone());
        for &(address, held) in &held {
            draft.release(address, held, EventKind::Released);
        }
        more |= !draft.forget_promises_to(&whose, limit - held.len());
        let released = held.into_iter().map(|(address, _)| address).collect();
        self.and_vanish(draft, Outcome::LetGo { released, more })
    }

    /// Empties a deleted network step by step: at most `limit` entries of any kind.
    pub(super) fn purge(&self, limit: usize, context: Context) -> Decision {
        let mut draft = Draft::new(self, context);
        let mut released = Vec::new();
        for (address, entry) in self.holdings.ascending(std::ops::Bound::Unbounded).take(limit) {
            match entry {
                Entry::Held(held) => {
                    draft.release_for_good(address, held, EventKind::Released);
                    // Nothing of this network comes back, so nothing needs to cool.
                    draft.steps.last_mut().expect("a release is a step").state = None;
                    released.push(address);
                }
                Entry::Released(_) | Entry::Declined(_) => draft.put(address, Some(entry), None, None),
            }
        }
        let more = self.holdings.len() > limit;
        self.and_vanish(draft, Outcome::LetGo { released, more })
    }

    /// Ends the leases, cooldowns and probations that are due, in at most [`limits::EXPIRE_STEPS_MAX`] steps.
    pub(super) fn expire(&self, context: Context) -> Decision {
        let mut draft = Draft::new(self, context);
        let cooldown = self.config.cooldown_seconds;
        let room = |draft: &Draft<'_>| draft.steps.len() < limits::EXPIRE_STEPS_MAX;
        let mut leases = 0;
        for (_, address) in self.holdings.leases().take_while(|(ends, _)| *ends <= context.now) {
            if !room(&draft) {
                break;
            }
            if let Some(Entry::Held(held)) = self.holdings.at(address) {
                draft.release(address, held, EventKind::Expired);
                leases += 1;
            }
        }
        let cooled =
            self.holdings.cooling().take_while(|(released_at, _)| released_at.after_seconds(cooldown) <= context.now);
        let probed = self.holdings.declined().take_while(|(until, _)| *until <= context.now);
        for (_, address) in cooled.chain(probed) {
            if !room(&draft) {
                break;
            }
            if let Some(entry) = self.holdings.at(address) {
                draft.put(address, Some(entry), None, None);
            }
        }
        let more = !room(&draft);
        self.and_vanish(draft, Outcome::Expired { leases, more })
    }

    /// Finishes a draft. If the network is deleted and only remembered, it goes with its last reservation, unless late claims
    /// are undecided: they exist nowhere else.
    pub(super) fn and_vanish(&self, mut draft: Draft<'_>, outcome: Outcome) -> Decision {
        if !self.config.closed || !self.config.conflicts.is_empty() {
            return draft.finish(outcome);
        }
        // Releases leave cooling entries, because the network may be restored.
        let is_release =
            |step: &&Step| step.event.is_some() && !matches!(step.state, Some(State::Entry(Entry::Held(_))));
        let released = draft.steps.iter().filter(is_release).count() as u64;
        if released == self.holdings.held() {
            // The last reservation takes along what cools or is declined, as much of it as one commit can carry.
            draft.steps.iter_mut().for_each(|step| step.state = None);
            let leaving: BTreeSet<Key> = draft.steps.iter().map(|step| step.key).collect();
            let rest = self.holdings.ascending(std::ops::Bound::Unbounded);
            for (address, entry) in rest.filter(|(address, _)| !leaving.contains(&Key::Address(*address))) {
                if draft.steps.len() >= limits::EXPIRE_STEPS_MAX {
                    break;
                }
                draft.put(address, Some(entry), None, None);
            }
        }
        let is_away = |step: &Step| step.state.is_none();
        if draft.steps.len() == self.holdings.len() && draft.steps.iter().all(is_away) {
            draft.steps.extend(self.end());
        }
        draft.finish(outcome)
    }

    /// The steps by which a network ends in which nothing lies.
    pub(super) fn end(&self) -> impl Iterator<Item = Step> {
        let away = |key, version: Version| Step { key, expect: Some(version.0), state: None, event: None };
        let subnets = self.subnets.iter().map(move |subnet| away(Key::Subnet(subnet.id), subnet.version));
        subnets.chain([away(Key::Config, self.config.version)])
    }
}
