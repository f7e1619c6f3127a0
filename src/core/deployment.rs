//! Deployments: the record that outlives a run, what a run wishes of one network, and what became of each wish.
//!
//! A deployment `D` is the scope `D`; the id of an instance is its owner. The state of a plan is written in the reservations
//! themselves: which plan granted one ([`Reservation::granted_by`]), which made it [obsolete], for whom it is kept
//! ([`Planned`]). So a commit or revert needs no list of what the plan did, and it sees whatever happened in between (a
//! release, a renewal, a transfer). The record says only which plan is the latest and how it ended.
//!
//! Neighbours: `network::deploy` and `network::settle` decide in one network; `actors::coordinator` joins the networks of a
//! deployment and its record into one commit.
//!
//! [`Reservation::granted_by`]: crate::core::state::Reservation::granted_by
//! [obsolete]: crate::core::state::Obsolete
//! [`Planned`]: crate::core::state::Planned

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::address::{Address, Range};
use super::command::Wish;
use super::outcome::View;
use super::refusal::Refusal;
use super::state::Reservation;
use super::types::{NetworkId, Owner, Scope, Slot, Version, WallTime};
use crate::limits::{SETTLED_INSTANCES_MAX, WHOLE_ANSWER_BYTES_MAX};

/// Identity of a deployment's record, derived from its name, so that two acts on one name meet even before there is a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeploymentId(pub u128);

impl DeploymentId {
    /// The id under which the record is stored, among those of the networks. It can never be a network's: networks have
    /// random ids (UUID version 4), these are version 8.
    pub fn as_network(self) -> NetworkId {
        NetworkId((self.0 & !(0xf << 76) & !(0b11 << 62)) | (0x8 << 76) | (0b10 << 62))
    }
}

/// How the latest plan of a deployment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Neither committed nor reverted.
    Open,
    /// Committed, or it had nothing to commit.
    Committed,
    /// Reverted.
    Reverted,
}

/// The record of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Its name, which is the scope of what it holds.
    pub name: Scope,
    /// The latest plan. Its number is never given again, not even after the deployment was deleted and made anew.
    pub plan: u64,
    /// Hash of the wishes of that plan: the same wishes again are the same plan.
    pub wishes: u128,
    /// How that plan ended.
    pub stage: Stage,
    /// Since when something that is granted, promised or made obsolete has not been committed.
    pub uncommitted_since: Option<WallTime>,
    /// Instances that were committed or reverted one by one under that plan, ordered by number. Once the plan counts as
    /// reverted, its reverted instances stay listed only if others kept what they had: a commit then finds everything as it
    /// would leave it.
    pub settled: Vec<SettledInstance>,
    /// Rises by one with each change of the record.
    pub version: Version,
}

/// An instance that was committed or reverted on its own, before the plan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SettledInstance {
    /// Hash of its id, because the record is written with all of them.
    pub instance: u64,
    /// Reverted rather than committed.
    pub reverted: bool,
}

impl Deployment {
    /// How this instance was settled on its own, if it was.
    pub fn how_settled(&self, instance: &Owner) -> Option<Stage> {
        let number = number_of(instance);
        let at = self.settled.binary_search_by_key(&number, |settled| settled.instance).ok()?;
        Some(if self.settled[at].reverted { Stage::Reverted } else { Stage::Committed })
    }

    /// The instances that were committed on their own: a revert of the others leaves them as they are.
    pub fn committed(&self) -> BTreeSet<u64> {
        self.settled.iter().filter(|settled| !settled.reverted).map(|settled| settled.instance).collect()
    }

    /// The instances that were reverted on their own.
    pub fn reverted(&self) -> BTreeSet<u64> {
        self.settled.iter().filter(|settled| settled.reverted).map(|settled| settled.instance).collect()
    }

    /// Records that these instances were settled. Too many for one plan are refused, because a forgotten one could be ended
    /// both ways.
    ///
    /// # Errors
    /// `invalid_argument`, saying what to do.
    pub fn settle<'a>(
        &mut self,
        instances: impl IntoIterator<Item = &'a Owner>,
        reverted: bool,
    ) -> Result<(), Refusal> {
        let new = instances.into_iter().map(|instance| SettledInstance { instance: number_of(instance), reverted });
        self.settled.extend(new);
        self.settled.sort_unstable();
        self.settled.dedup_by_key(|settled| settled.instance);
        let count = self.settled.len();
        if count <= SETTLED_INSTANCES_MAX {
            return Ok(());
        }
        let problem = format!(
            "would make {count} instances that were committed or reverted one by one under plan {}, and at most \
             {SETTLED_INSTANCES_MAX} are allowed; end the plan for the rest together, without `instances`",
            self.plan
        );
        Err(Refusal::invalid("instances", problem))
    }
}

/// The time since when a deployment has something uncommitted, if it had nothing before. It lies after every earlier plan,
/// even if plans follow within a millisecond or the clock went back. `before` is the latest of those plans.
pub fn uncommitted_from(before: Option<u64>, wall: WallTime) -> WallTime {
    WallTime(before.map_or(0, |plan| plan.saturating_add(1)).max(wall.0))
}

/// The number of an instance in [`SettledInstance`].
pub(crate) fn number_of(instance: &Owner) -> u64 {
    xxhash_rust::xxh3::xxh3_64(instance.as_str().as_bytes())
}

/// What one wish asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// An address that the network picks.
    Automatic(Box<Wish>),
    /// This one.
    Static(Address),
    /// An address from the list of its group with this index, which is dealt.
    Dealt(usize),
}

/// What an instance wishes of a network, for one slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployWish {
    /// Its index among all wishes of the request.
    pub place: usize,
    /// The instance.
    pub owner: Owner,
    /// The slot.
    pub slot: Slot,
    /// The zone in which the instance lives.
    pub zone: Option<CompactString>,
    /// An address that it already holds is not to be kept.
    pub fresh: bool,
    /// What it asks for.
    pub wanted: Wanted,
}

impl DeployWish {
    /// The address that the wish names, if it names one.
    pub fn named(&self) -> Option<Address> {
        match self.wanted {
            Wanted::Static(address) => Some(address),
            Wanted::Automatic(_) | Wanted::Dealt(_) => None,
        }
    }

    /// The same wish, when this many lists of others come before its own.
    pub fn behind(mut self, lists: usize) -> Self {
        if let Wanted::Dealt(list) = &mut self.wanted {
            *list += lists;
        }
        self
    }
}

/// The `static_ips` of a group in one of its networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticList {
    /// Index of the group in the request.
    pub group: usize,
    /// Index of the network in the group.
    pub network: usize,
    /// The addresses, in order.
    pub ranges: Vec<Range>,
}

impl StaticList {
    /// The path of the list in the request.
    pub fn field(&self) -> String {
        format!("groups[{}].networks[{}].static_ips", self.group, self.network)
    }
}

/// The part of a `deployment.plan` or `deployment.apply` that concerns one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deploy {
    /// The deployment.
    pub scope: Scope,
    /// Number of this plan.
    pub plan: u64,
    /// The request repeats the latest plan.
    pub again: bool,
    /// The latest plan is not committed yet: what it granted still counts as new and as its wish.
    pub open: bool,
    /// The wishes for this network.
    pub wishes: Vec<DeployWish>,
    /// Addresses that a group deals to its instances here, in order.
    pub lists: Vec<StaticList>,
    /// Every instance that the request names, for this network or another. When zones are dealt: the instances that get one.
    pub listed: Arc<BTreeSet<Owner>>,
}

impl Deploy {
    /// Is the same plan requested again before its commit? Then nothing that it did changes.
    pub fn is_repeat(&self) -> bool {
        self.again && self.open
    }

    /// Is the latest plan requested again after its commit?
    pub fn is_behind_commit(&self) -> bool {
        self.again && !self.open
    }
}

/// The result of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotState {
    /// The instance held what it wishes for.
    Kept,
    /// Granted by this plan.
    New,
    /// Kept for the instance until its present holder lets it go.
    Promised,
    /// The infrastructure picks the address.
    None,
}

/// The result of a wish, with the reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// Index of the wish.
    pub place: usize,
    /// What became of it.
    pub state: SlotState,
    /// The reservation, held or promised. A promise is shown as the future reservation, with generation 0.
    pub view: Option<View>,
    /// The address that the instance held in this slot and gives up.
    pub replaces: Option<Address>,
}

/// The refusal of a plan whose answer would be too long: at least `bytes` by an upper estimate, with `let_go` reservations
/// that are no longer wished for.
pub(crate) fn too_long_to_tell(bytes: usize, let_go: usize) -> Refusal {
    let also = if let_go > 0 {
        format!(
            ", which includes {let_go} that are no longer listed: release those first (owner.release, ip.release), or"
        )
    } else {
        ";".to_owned()
    };
    let problem = format!(
        "would need an answer of some {bytes} bytes, and an answer has at most {WHOLE_ANSWER_BYTES_MAX}{also} make several \
         deployments of it"
    );
    Refusal::invalid("instances", problem)
}

/// The part of a `deployment.commit` or `deployment.revert` that concerns one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// The deployment.
    pub scope: Scope,
    /// Its latest plan.
    pub plan: u64,
    /// Only these instances; none means all.
    pub instances: Option<Arc<BTreeSet<Owner>>>,
    /// Hashes of the ids of instances that were committed on their own. What they got is not taken back with the others, and
    /// does not wait for a commit.
    pub committed: Arc<BTreeSet<u64>>,
    /// The same for instances that were reverted on their own. What this plan made obsolete of theirs and could not be made
    /// current again waits for nothing.
    pub reverted: Arc<BTreeSet<u64>>,
    /// Since when something of the deployment has not been committed.
    pub uncommitted_since: Option<WallTime>,
    /// Take the plan back, rather than let go of what it leaves.
    pub revert: bool,
}

impl Settle {
    /// The end of a deployment's latest plan, for all of its instances or for some.
    pub fn of(record: &Deployment, instances: Option<&[Owner]>, revert: bool) -> Self {
        Self {
            scope: record.name.clone(),
            plan: record.plan,
            instances: instances.map(|instances| Arc::new(instances.iter().cloned().collect())),
            committed: Arc::new(record.committed()),
            reverted: Arc::new(record.reverted()),
            uncommitted_since: record.uncommitted_since,
            revert,
        }
    }

    /// Is this instance named explicitly?
    pub fn names(&self, owner: &Owner) -> bool {
        self.instances.as_ref().is_some_and(|instances| instances.contains(owner))
    }

    /// Does the end apply to this instance?
    pub fn covers(&self, owner: &Owner) -> bool {
        let named = self.instances.as_ref().is_none_or(|instances| instances.contains(owner));
        named && !(self.revert && self.was_committed(owner))
    }

    /// Was this instance committed on its own before?
    pub fn was_committed(&self, owner: &Owner) -> bool {
        !self.committed.is_empty() && self.committed.contains(&number_of(owner))
    }

    /// Was this instance reverted on its own before?
    pub fn was_reverted(&self, owner: &Owner) -> bool {
        !self.reverted.is_empty() && self.reverted.contains(&number_of(owner))
    }

    /// Is this an earlier plan that was neither committed nor reverted? The number of a plan is never less than the time of
    /// its apply, nor than the `uncommitted_since` that it set; plans before that have lower numbers ([`uncommitted_from`]).
    pub fn is_earlier_and_open(&self, plan: u64) -> bool {
        plan != self.plan && self.uncommitted_since.is_some_and(|since| plan >= since.0)
    }

    /// Was it granted by an earlier plan that was neither committed nor reverted, and not committed for its instance by this
    /// one?
    pub fn was_granted_earlier(&self, held: &Reservation) -> bool {
        let by_it = |plan: NonZeroU64| self.is_earlier_and_open(plan.get());
        held.granted_by.is_some_and(by_it) && !self.was_committed(&held.holder.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_instance_that_was_settled_by_itself_is_forgotten_and_more_than_are_remembered_are_refused() {
        let owner = |at: usize| format!("web/{at}").parse::<Owner>().unwrap();
        let all: Vec<Owner> = (0..=SETTLED_INSTANCES_MAX).map(owner).collect();
        let mut record = Deployment {
            name: "shop".parse().unwrap(),
            plan: 7,
            wishes: 1,
            stage: Stage::Open,
            uncommitted_since: None,
            settled: Vec::new(),
            version: Version(1),
        };
        record.settle(&all[1..], false).unwrap();
        assert!(all[1..].iter().all(|one| record.how_settled(one) == Some(Stage::Committed)));
        let refused = record.settle(&all[..1], true).unwrap_err().to_string();
        assert!(refused.contains("are allowed; end the plan for the rest together"), "{refused}");
    }
}
