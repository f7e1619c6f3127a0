//! Deployments: the record that outlives a run, what a run wishes of one network, and what became of each wish.
//!
//! A deployment `D` is the scope `D`; an instance's id is its owner. What is held is written in the reservations
//! themselves: which plan granted one ([`Reservation::granted_by`]), which made it [obsolete], for whom it is kept
//! ([`Planned`]). So a commit or revert needs no list of what a plan did, and whatever happens between (a release, a
//! renewal, a transfer) is seen by it. The record says only which plan is the latest and how it ended.
//!
//! Neighbours: `network::deploy` and `network::settle` decide in one network; `actors::coordinator` joins the networks of
//! a deployment and its record into one commit.
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

/// Identity of a deployment's record: made of its name, so that two acts on one name meet before there is a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeploymentId(pub u128);

impl DeploymentId {
    /// The id under which its record is stored: among those of the networks, of which it is none. Networks have random
    /// ids (version 4 of UUID), these are version 8.
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
    /// The latest plan. Never given again, not even after the deployment was deleted and made anew.
    pub plan: u64,
    /// Hash of what that plan wished: the same wishes again are the same plan.
    pub wishes: u128,
    /// How that plan ended.
    pub stage: Stage,
    /// Since when something granted, promised or made obsolete is not committed.
    pub uncommitted_since: Option<WallTime>,
    /// Instances of that plan that were committed or reverted by themselves, in order of their numbers. Behind a revert those that
    /// were reverted are there only where it took back nothing of others, who keep what they had: a commit finds those as it
    /// would leave them.
    pub settled: Vec<SettledInstance>,
    /// Rises by one with each change of the record.
    pub version: Version,
}

/// An instance that was committed or reverted by itself, before the plan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SettledInstance {
    /// Hash of its id: the record is written with each of them.
    pub instance: u64,
    /// Reverted, instead of committed.
    pub reverted: bool,
}

impl Deployment {
    /// How an instance was settled by itself, if it was.
    pub fn how_settled(&self, instance: &Owner) -> Option<Stage> {
        let number = number_of(instance);
        let at = self.settled.binary_search_by_key(&number, |settled| settled.instance).ok()?;
        Some(if self.settled[at].reverted { Stage::Reverted } else { Stage::Committed })
    }

    /// Those that were committed by themselves: a revert of the others leaves them as they are.
    pub fn committed(&self) -> BTreeSet<u64> {
        self.settled.iter().filter(|settled| !settled.reverted).map(|settled| settled.instance).collect()
    }

    /// Those that were reverted by themselves.
    pub fn reverted(&self) -> BTreeSet<u64> {
        self.settled.iter().filter(|settled| settled.reverted).map(|settled| settled.instance).collect()
    }

    /// Notes that these were. More of one plan than are remembered are a refusal, as one that is forgotten could end both ways.
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
            "would make {count} that were committed or reverted by themselves under plan {}, and at most {SETTLED_INSTANCES_MAX} of one \
             plan may be; end it for the rest together, without `instances`",
            self.plan
        );
        Err(Refusal::invalid("instances", problem))
    }
}

/// Since when a deployment has something uncommitted, where it had nothing until now: behind every plan of before, also where they
/// follow within a millisecond, or the clock went back. `before`: the latest of those.
pub fn uncommitted_from(before: Option<u64>, wall: WallTime) -> WallTime {
    WallTime(before.map_or(0, |plan| plan.saturating_add(1)).max(wall.0))
}

/// An instance in [`SettledInstance`].
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
    /// One of the list of its group, as it is dealt.
    Dealt(usize),
}

/// What an instance wishes of a network, for one slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployWish {
    /// Its place among all wishes of the request.
    pub place: usize,
    /// The instance.
    pub owner: Owner,
    /// For which slot.
    pub slot: Slot,
    /// Where the instance lives.
    pub zone: Option<CompactString>,
    /// What it holds is not to be kept.
    pub fresh: bool,
    /// What.
    pub wanted: Wanted,
}

impl DeployWish {
    /// The address that it names.
    pub fn named(&self) -> Option<Address> {
        match self.wanted {
            Wanted::Static(address) => Some(address),
            Wanted::Automatic(_) | Wanted::Dealt(_) => None,
        }
    }

    /// The wish where so many lists of others stand before its own.
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
    /// Place of the group in the request.
    pub group: usize,
    /// Place of the network in the group.
    pub network: usize,
    /// The addresses, in order.
    pub ranges: Vec<Range>,
}

impl StaticList {
    /// Where it stands in the request.
    pub fn field(&self) -> String {
        format!("groups[{}].networks[{}].static_ips", self.group, self.network)
    }
}

/// The part of a `deployment.plan` or `deployment.apply` that falls on one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deploy {
    /// The deployment.
    pub scope: Scope,
    /// Number of this plan.
    pub plan: u64,
    /// It is the latest plan again.
    pub again: bool,
    /// That plan was not committed yet: what it granted is new still, and is what it wished.
    pub open: bool,
    /// What is wished here.
    pub wishes: Vec<DeployWish>,
    /// Addresses that a group deals to its instances here, in order.
    pub lists: Vec<StaticList>,
    /// Every instance that the request names, here or elsewhere. Where zones are dealt: those to whom.
    pub listed: Arc<BTreeSet<Owner>>,
}

impl Deploy {
    /// Does the same plan come again before its commit? Then it changes nothing that it did.
    pub fn is_repeat(&self) -> bool {
        self.again && self.open
    }

    /// Are these the wishes of the latest plan, which was committed meanwhile?
    pub fn is_behind_commit(&self) -> bool {
        self.again && !self.open
    }
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotState {
    /// What was held is what is wished.
    Kept,
    /// Granted by this plan.
    New,
    /// Kept for the instance until who holds it lets it go.
    Promised,
    /// The infrastructure picks the address.
    None,
}

/// What became of a wish, and what stands for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// Place of the wish.
    pub place: usize,
    /// What became of it.
    pub state: SlotState,
    /// What is held or promised. A promise is shown as it will be, with the generation 0.
    pub view: Option<View>,
    /// The address that the instance held in this slot and lets go.
    pub replaces: Option<Address>,
}

/// What is answered in place of a plan of which more than one answer can tell: `bytes` at least by an upper estimate, of which
/// `let_go` reservations that nobody wishes any more.
pub(crate) fn too_long_to_tell(bytes: usize, let_go: usize) -> Refusal {
    let also = if let_go > 0 {
        format!(
            ", which tells of {let_go} that are wished no more, too: let go of those first (owner.release, ip.release), or"
        )
    } else {
        ";".to_owned()
    };
    let problem = format!(
        "would be answered with some {bytes} bytes, and an answer has at most {WHOLE_ANSWER_BYTES_MAX}{also} make several deployments of it"
    );
    Refusal::invalid("instances", problem)
}

/// The part of a `deployment.commit` or `deployment.revert` that falls on one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// The deployment.
    pub scope: Scope,
    /// Its latest plan.
    pub plan: u64,
    /// These instances only.
    pub instances: Option<Arc<BTreeSet<Owner>>>,
    /// Those that were committed by themselves, by the hashes of their ids: what they got is not taken back with the others,
    /// nor waits for a commit.
    pub committed: Arc<BTreeSet<u64>>,
    /// Those that were reverted by themselves, likewise: what is obsolete of theirs by this plan, as it could not be made current
    /// again, waits for nothing.
    pub reverted: Arc<BTreeSet<u64>>,
    /// Since when something of the deployment is not committed.
    pub uncommitted_since: Option<WallTime>,
    /// Take it back, instead of letting go what it leaves.
    pub revert: bool,
}

impl Settle {
    /// The end of the latest plan of a deployment, for all of its instances or for some.
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

    /// Is this instance named, among others or alone?
    pub fn names(&self, owner: &Owner) -> bool {
        self.instances.as_ref().is_some_and(|instances| instances.contains(owner))
    }

    /// Is this instance meant?
    pub fn covers(&self, owner: &Owner) -> bool {
        let named = self.instances.as_ref().is_none_or(|instances| instances.contains(owner));
        named && !(self.revert && self.was_committed(owner))
    }

    /// Was this instance committed by itself before?
    pub fn was_committed(&self, owner: &Owner) -> bool {
        !self.committed.is_empty() && self.committed.contains(&number_of(owner))
    }

    /// Was this instance reverted by itself before?
    pub fn was_reverted(&self, owner: &Owner) -> bool {
        !self.reverted.is_empty() && self.reverted.contains(&number_of(owner))
    }

    /// Is this an earlier plan that was neither committed nor reverted? No number of a plan is less than the time of its apply, nor
    /// than that since when it is the first that is not committed, and those before that one are less ([`uncommitted_from`]).
    pub fn is_earlier_and_open(&self, plan: u64) -> bool {
        plan != self.plan && self.uncommitted_since.is_some_and(|since| plan >= since.0)
    }

    /// Was it granted by an earlier plan that was neither committed nor reverted, nor committed for its instance by this one?
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
        assert!(refused.contains("of one plan may be; end it for the rest together"), "{refused}");
    }
}
