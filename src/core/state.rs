//! What a network consists of, in memory and in the store: its configuration, and what lies at each address.
//!
//! Every change is a [`Step`]: *this key is now in this state*, with a mark of the state that it replaces. Steps carry
//! states, not deltas, so playing one twice does no harm, and loading a network means applying what was stored.
//!
//! This file has keys, their states and steps; `config` has the configuration, `entry` what lies at an address. Neighbours:
//! `network` decides and applies steps, `store::codec` encodes them.

mod config;
mod entry;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::config::{
    Conflict, Dns, L2, Limits, NetworkConfig, NetworkKind, PastPool, Policy, PoolConfig, PoolKind, ReservedFor,
    ReservedRange, SubnetConfig,
};
pub use self::entry::{
    Declined, Details, Entry, Lease, Obsolete, Planned, Promise, Released, Reservation, ReservationKind,
};
use super::address::Address;
use super::deployment::Deployment;
use super::types::SubnetId;

/// What a change is about, inside one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The network's configuration.
    Config,
    /// The configuration of one subnet.
    Subnet(SubnetId),
    /// The record of a deployment. It takes the place that the configuration has in a network.
    Deployment,
    /// One address, or the block that begins there.
    Address(Address),
}

/// The state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Of [`Key::Config`].
    Config(Arc<NetworkConfig>),
    /// Of [`Key::Subnet`].
    Subnet(Arc<SubnetConfig>),
    /// Of [`Key::Deployment`].
    Deployment(Arc<Deployment>),
    /// Of [`Key::Address`].
    Entry(Entry),
}

impl State {
    /// The number that a change of this key must expect: a generation for an address, a version for everything else.
    pub fn mark(&self) -> u64 {
        match self {
            State::Config(config) => config.version.0,
            State::Subnet(subnet) => subnet.version.0,
            State::Deployment(deployment) => deployment.version.0,
            State::Entry(entry) => entry.generation().0,
        }
    }
}

/// Why a step happened, as the history tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// An owner got the address.
    Granted,
    /// Its lease changed.
    Renewed,
    /// A claimant began to use it.
    Bound,
    /// Its claimant stopped using it.
    Unbound,
    /// Labels, note, host name, MAC or owner_uid changed.
    Updated,
    /// It went to another owner.
    Transferred,
    /// A deployment that is not committed yet lets it go.
    Obsolete,
    /// Its owner, or somebody with force, let it go.
    Released,
    /// Its lease ended.
    Expired,
    /// A sweep let it go.
    Swept,
    /// A deployment was reverted.
    Reverted,
    /// Its holder declined it: somebody else answers there.
    Declined,
    /// Restored after the store had lost it.
    Healed,
    /// Two holders claim it after a failover.
    Conflict,
    /// The network was created.
    NetworkCreated,
    /// Its configuration changed.
    NetworkChanged,
    /// It was deleted.
    NetworkDeleted,
    /// It was brought back.
    NetworkRestored,
}

/// What the history notes beside a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The holding before the step, if there was one.
    pub before: Option<Arc<Reservation>>,
}

/// One change: `key` is now in `state`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What changes.
    pub key: Key,
    /// [`State::mark`] of the state that this replaces; none if there was none.
    pub expect: Option<u64>,
    /// The new state; none means that the key is gone.
    pub state: Option<State>,
    /// What the history records; none if another step of the same change records it.
    pub event: Option<Event>,
}
