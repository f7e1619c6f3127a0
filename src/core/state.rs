//! What a network is made of, as it is kept in memory and in the store: configuration, and what lies at an address.
//!
//! Everything that changes is a [`Step`]: *this key is in this state now*, with the state that it replaces. Steps are
//! states, not deltas, so playing one twice does no harm, and loading a network is applying what was stored.
//!
//! Here are keys, their states and steps; `config` has what is configured, `entry` what lies at an address. Neighbours:
//! `network` decides and applies steps, `store::codec` writes them down.

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

/// What a change speaks of, inside one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The network's configuration.
    Config,
    /// One subnet's.
    Subnet(SubnetId),
    /// The record of a deployment, where a network has its configuration.
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
    /// The number that a change of this key must expect: a generation for addresses, a version for configuration.
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
    /// Its claimant let go.
    Unbound,
    /// Labels, note, host name, MAC or owner_uid changed.
    Updated,
    /// It went to another owner.
    Transferred,
    /// A deployment lets it go, not committed.
    Obsolete,
    /// Its owner, or somebody with force, let it go.
    Released,
    /// Its lease ended.
    Expired,
    /// A sweep let it go.
    Swept,
    /// A deployment was taken back.
    Reverted,
    /// Somebody else answers there.
    Declined,
    /// Restored after a store went back.
    Healed,
    /// Claimed twice after a failover.
    Conflict,
    /// The network came to be.
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
    /// The holding as it was before, where there was one.
    pub before: Option<Arc<Reservation>>,
}

/// One change: `key` is in `state` now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What changes.
    pub key: Key,
    /// [`State::mark`] of what it replaces; none where nothing was there.
    pub expect: Option<u64>,
    /// What is there now; none: nothing.
    pub state: Option<State>,
    /// What the history tells; none for the part of a change that another step tells.
    pub event: Option<Event>,
}
