//! One network: its configuration, what lies at its addresses, and the only way in which either changes.
//!
//! `decide(state, command, context) → steps | refusal`, then `apply(step)`. Loading is applying what was stored.

mod configure;
mod holdings;

pub use configure::{create, pool_differs_from, subnet_differs_from};

use std::sync::Arc;

use super::address::{Address, Range};
use super::command::SubnetRef;
use super::refusal::{Missing, Refusal};
use super::state::{Entry, NetworkConfig, SubnetConfig};
use super::types::{Generation, SlotKey, Version};
use holdings::Holdings;

/// A network in memory.
#[derive(Debug, Clone)]
pub struct Network {
    config: Arc<NetworkConfig>,
    /// In drawing order: by position.
    subnets: Vec<Arc<SubnetConfig>>,
    holdings: Holdings,
    /// The next grant gets this one.
    next_generation: Generation,
}

/// Reservations that stand in the way of something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// How many.
    pub count: u64,
    /// The first of them, at most ten.
    pub first: Vec<Address>,
}

impl Network {
    /// Its configuration.
    pub fn config(&self) -> &Arc<NetworkConfig> {
        &self.config
    }

    /// Its subnets, in drawing order.
    pub fn subnets(&self) -> &[Arc<SubnetConfig>] {
        &self.subnets
    }

    /// The subnet in which an address lies. Cost: O(log subnets).
    pub fn subnet_of(&self, address: Address) -> Option<&Arc<SubnetConfig>> {
        self.subnets.iter().find(|subnet| subnet.cidr.contains(address))
    }

    /// The subnet that a client names: by prefix, by name, then by id.
    ///
    /// # Errors
    /// `not_found`.
    pub fn subnet(&self, wanted: &SubnetRef) -> Result<&Arc<SubnetConfig>, Refusal> {
        let (found, text) = match wanted {
            SubnetRef::Cidr(cidr) => (self.subnets.iter().find(|subnet| subnet.cidr == *cidr), cidr.to_string()),
            SubnetRef::Named(text) => {
                let named =
                    |subnet: &&Arc<SubnetConfig>| subnet.name.as_ref().is_some_and(|name| name.as_str() == text);
                let id = text.parse().ok();
                let found = self
                    .subnets
                    .iter()
                    .find(named)
                    .or_else(|| self.subnets.iter().find(|subnet| Some(subnet.id) == id));
                (found, text.to_string())
            }
        };
        found.ok_or_else(|| Refusal::not_found(Missing::Subnet, text))
    }

    /// Reservations (held, current and obsolete) that lie wholly or partly in the range. Cost: O(log n + found).
    pub fn standing_in(&self, range: Range) -> Standing {
        self.holdings.standing_in(range)
    }

    /// Everything that lies at addresses of the range: held, released, declined.
    pub fn entries_in(&self, range: Range) -> Vec<(Address, Entry)> {
        self.holdings.entries_in(range)
    }

    /// The generation that the next grant gets.
    pub fn next_generation(&self) -> Generation {
        self.next_generation
    }

    /// Version that a change decided now leads to.
    pub fn next_version(&self) -> Version {
        Version(self.config.version.0 + 1)
    }

    /// How many reservations it holds, obsolete ones included.
    pub fn reservations(&self) -> u64 {
        self.holdings.reservations()
    }

    /// The address that a slot holds now; obsolete reservations are not its own any more.
    pub fn slot_holder(&self, key: &SlotKey) -> Option<Address> {
        self.holdings.slot_holder(key)
    }

    /// A network as it was stored.
    #[cfg(test)]
    fn of_parts(
        config: Arc<NetworkConfig>,
        subnets: Vec<Arc<SubnetConfig>>,
        entries: impl IntoIterator<Item = (Address, Entry)>,
        next_generation: Generation,
    ) -> Self {
        Self { config, subnets, holdings: Holdings::of_entries(entries), next_generation }
    }
}
