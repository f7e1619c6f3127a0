//! Filters events: judges an event, and before that its bytes, so that events that nobody wants are not decoded.

use serde::{Deserialize, Serialize};

use super::happened::{Happened, What};
use crate::core::address::{Address, Cidr};
use crate::core::state::{Key, Reservation};
use crate::core::types::{Name, NetworkId, Owner, Scope, WallTime};
use crate::store::chapters::Sought;
use crate::store::history::{Glance, RecordedBatch};
use crate::store::{ShardId, StoreError};

/// Which events are wanted. A field that is not given excludes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Filter {
    /// Only of these networks.
    pub networks: Option<Vec<NetworkId>>,
    /// Only of networks in this realm.
    pub realm: Option<Name>,
    /// Only of holdings of this address, including blocks around it.
    pub address: Option<Address>,
    /// Only of holdings of this owner.
    pub owner: Option<Owner>,
    /// Only of holdings in this scope.
    pub scope: Option<Scope>,
    /// Not before.
    pub from: Option<WallTime>,
    /// Not after.
    pub to: Option<WallTime>,
    /// The networks that are, or were, in the realm, ascending: known where the history is read. Realms have no index of their
    /// own, but networks have.
    #[serde(skip)]
    pub of_realm: Option<Vec<NetworkId>>,
}

impl Filter {
    /// The shards in which wanted events may be; all shards if the filter names no networks.
    pub(super) fn shards(&self, shards: u16) -> Vec<ShardId> {
        match &self.networks {
            Some(networks) => {
                let mut of: Vec<ShardId> = networks.iter().map(|&id| crate::actors::shard_of(id, shards)).collect();
                of.sort_unstable();
                of.dedup();
                of
            }
            None => (0..shards).map(ShardId).collect(),
        }
    }

    /// Is a cursor of these shards, in which wanted events may be, one of all networks? Even if there is only one shard.
    pub(super) fn is_whole(&self, shards: &[ShardId]) -> bool {
        self.networks.is_none() || shards.len() > 1
    }

    /// Does the filter admit this network, as far as it names networks?
    pub fn of_network(&self, network: NetworkId) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.contains(&network))
            && self.of_realm.as_ref().is_none_or(|networks| networks.binary_search(&network).is_ok())
    }

    fn is_of_holdings(&self) -> bool {
        self.address.is_some() || self.owner.is_some() || self.scope.is_some()
    }

    fn in_time(&self, wall: WallTime) -> bool {
        self.from.is_none_or(|from| from <= wall) && self.to.is_none_or(|to| wall <= to)
    }

    fn holds(&self, address: Address, length: u8, (scope, owner): (&str, &str)) -> bool {
        self.owner.as_ref().is_none_or(|wanted| wanted.as_str() == owner)
            && self.scope.as_ref().is_none_or(|wanted| wanted.as_str() == scope)
            && self.address.is_none_or(|wanted| {
                wanted.family() == address.family() && Cidr::containing(address, length).contains(wanted)
            })
    }

    /// Are events of this holding wanted?
    pub fn wants_holding(&self, address: Address, held: &Reservation) -> bool {
        let holder = (held.holder.scope.as_str(), held.holder.owner.as_str());
        self.holds(address, held.prefix_length, holder)
    }

    /// Is an event wanted?
    pub(super) fn wants(&self, event: &Happened) -> bool {
        let of_holding = || match &event.what {
            What::Holding { address, before, after } => {
                [before, after].into_iter().flatten().any(|held| self.wants_holding(*address, held))
            }
            What::Network { .. } => false,
        };
        self.of_network(event.network)
            && self.in_time(event.wall)
            && self.realm.as_ref().is_none_or(|realm| *realm == event.realm)
            && (!self.is_of_holdings() || of_holding())
    }

    /// May a batch have a wanted event? A no is certain. The realm is checked only if its networks are known.
    pub(super) fn may_want(&self, recorded: &RecordedBatch) -> Result<bool, StoreError> {
        recorded.any(|Glance { network, wall, key, held }| {
            let of_holding = || match key {
                Key::Address(address) => {
                    held.iter().flatten().any(|(length, scope, owner)| self.holds(*address, *length, (scope, owner)))
                }
                Key::Config | Key::Subnet(_) | Key::Deployment => false,
            };
            self.of_network(*network) && self.in_time(*wall) && (!self.is_of_holdings() || of_holding())
        })
    }

    /// What to look for in the index of the history.
    pub(super) fn wanted(&self) -> Sought<'_> {
        Sought {
            networks: self.networks.as_deref().or(self.of_realm.as_deref()),
            address: self.address,
            owner: self.owner.as_ref(),
            scope: self.scope.as_ref(),
            from: self.from,
            to: self.to,
        }
    }
}
