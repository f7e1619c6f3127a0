//! What the model knows: networks with their configuration, and what happened to each address.

use std::collections::BTreeMap;

use allod::core::address::{Address, Cidr, Range};
use serde_json::{Value, json};

use super::args::{Texts, is_never};
use super::errors::{ModelError, Refusal};
use super::sweeping::Missed;

/// A holder: scope, owner and slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub scope: String,
    pub owner: String,
    pub slot: String,
}

impl Key {
    pub fn same_owner(&self, other: &Key) -> bool {
        self.scope == other.scope && self.owner == other.owner
    }
}

/// One reservation, stored under its first address.
#[derive(Debug, Clone)]
pub struct Held {
    pub length: u8,
    pub key: Key,
    pub uid: Option<String>,
    pub kind: &'static str,
    pub claimant: Option<String>,
    pub release_with_claimant: bool,
    /// The sweep that missed its claimant, if that was not heard of since.
    pub missed: Option<Missed>,
    pub transient: bool,
    pub labels: Texts,
    pub note: Option<String>,
    pub hostname: Option<String>,
    pub mac: Option<String>,
    pub created: u64,
    /// When the lease ends; none if it is permanent.
    pub end: Option<u64>,
    pub generation: u64,
    /// Name and range of the pool in which it lay when it was granted.
    pub granted_pool: Option<(Option<String>, Range)>,
}

/// The last time that an address was released, and by whom.
#[derive(Debug, Clone)]
pub struct Freed {
    pub at: u64,
    /// None after a probation: the address is free at once, without cooling.
    pub by: Option<Key>,
    pub uid: Option<String>,
    /// First address of the reservation that was released.
    pub first: Address,
    pub length: u8,
}

#[derive(Debug, Clone)]
pub struct Declined {
    pub until: u64,
    /// First address of what was declined, by which it is known.
    pub first: Address,
    pub by: Key,
}

#[derive(Debug, Clone, PartialEq)]
pub struct For {
    pub scope: String,
    pub owner: String,
    pub slot: Option<String>,
}

impl For {
    pub fn fits(&self, key: &Key) -> bool {
        self.scope == key.scope && self.owner == key.owner && self.slot.as_ref().is_none_or(|slot| *slot == key.slot)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Reserved {
    pub range: Range,
    pub note: Option<String>,
    pub whose: Option<For>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    pub range: Range,
    pub name: Option<String>,
    pub kind: &'static str,
    pub draining: bool,
}

#[derive(Debug, Clone)]
pub struct Subnet {
    pub id: String,
    pub name: Option<String>,
    pub cidr: Cidr,
    pub gateway: Option<Address>,
    pub dhcp: bool,
    pub dns: Value,
    pub zones: Vec<String>,
    pub tags: Texts,
    pub draining: bool,
    pub pools: Vec<Pool>,
    pub reserved: Vec<Reserved>,
}

#[derive(Debug, Clone)]
pub struct Network {
    pub id: String,
    pub name: String,
    pub realm: String,
    pub kind: &'static str,
    pub l2: Value,
    pub policy: &'static str,
    pub cooldown_ms: u64,
    pub cooldown_yields: bool,
    pub static_only: bool,
    pub protected: bool,
    pub per_owner: Option<u64>,
    pub per_scope: Option<u64>,
    pub tags: Texts,
    pub description: Option<String>,
    pub subnets: Vec<Subnet>,
    pub version: u64,
    /// Deleted by force, but remembered while it holds something.
    pub closed: bool,
    pub held: BTreeMap<Address, Held>,
    pub freed: BTreeMap<Address, Freed>,
    pub declined: BTreeMap<Address, Declined>,
    pub highest_generation: u64,
}

impl Network {
    /// How others are told of it: a closed network has no name but its id.
    pub fn named(&self) -> &str {
        if self.closed { &self.id } else { &self.name }
    }
}

/// The state of an address: the first that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Unknown,
    Held,
    Unusable,
    Reserved,
    Declined,
    Cooling,
    Free,
}

/// Every address of a range, one by one: the model's pools are small.
pub fn each(range: Range) -> impl Iterator<Item = Address> {
    std::iter::successors(Some(range.first()), |address| address.next())
        .take_while(move |address| *address <= range.last())
}

pub fn block(first: Address, length: u8) -> Range {
    Cidr::containing(first, length).range()
}

pub fn width(address: Address) -> u8 {
    address.family().width()
}

impl Subnet {
    /// Network, broadcast, anycast and gateway addresses, and those that nobody may have.
    pub fn is_unusable(&self, address: Address) -> bool {
        self.is_structural(address) || self.gateway == Some(address) || is_never(address)
    }

    pub fn is_structural(&self, address: Address) -> bool {
        let roomy = width(address) - self.cidr.length() > 1;
        let broadcast = matches!(address, Address::V4(_)) && address == self.cidr.last();
        roomy && (address == self.cidr.base() || broadcast)
    }

    pub fn reserved_at(&self, address: Address) -> Option<&Reserved> {
        self.reserved.iter().find(|reserved| reserved.range.contains(address))
    }

    pub fn pool_at(&self, address: Address) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.range.contains(address))
    }

    pub fn is_draining(&self, address: Address) -> bool {
        self.draining || self.pool_at(address).is_some_and(|pool| pool.draining)
    }

    pub fn serves(&self, zone: Option<&str>) -> bool {
        zone.is_none_or(|zone| self.zones.is_empty() || self.zones.iter().any(|served| served == zone))
    }

    pub fn is_named(&self, reference: &str) -> bool {
        self.id == reference
            || self.name.as_deref() == Some(reference)
            || reference.parse::<Cidr>().is_ok_and(|cidr| cidr == self.cidr)
    }
}

impl Pool {
    pub fn is_named(&self, reference: &str) -> bool {
        match reference.parse::<Range>() {
            Ok(range) => range == self.range,
            Err(_) => self.name.as_deref() == Some(reference),
        }
    }
}

impl Network {
    pub fn subnet_of(&self, address: Address) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| subnet.cidr.contains(address))
    }

    pub fn subnet_named(&self, reference: &str) -> Refusal<usize> {
        let found = self.subnets.iter().position(|subnet| subnet.is_named(reference));
        found.ok_or_else(|| ModelError::new("not_found", json!({})))
    }

    pub fn pools(&self) -> impl Iterator<Item = (&Subnet, &Pool)> {
        self.subnets.iter().flat_map(|subnet| subnet.pools.iter().map(move |pool| (subnet, pool)))
    }

    /// The reservation that covers an address.
    pub fn covering(&self, address: Address) -> Option<(Address, &Held)> {
        self.held
            .iter()
            .map(|(first, held)| (*first, held))
            .find(|(first, held)| block(*first, held.length).contains(address))
    }

    /// Reservations that have an address in the range.
    pub fn holding_in(&self, range: Range) -> Vec<Address> {
        self.held
            .iter()
            .filter(|(first, held)| block(**first, held.length).overlaps(range))
            .map(|(first, _)| *first)
            .collect()
    }

    pub fn is_declined(&self, address: Address) -> bool {
        self.declined.contains_key(&address)
    }

    pub fn is_cooling(&self, address: Address, now: u64) -> bool {
        self.freed.get(&address).is_some_and(|freed| freed.by.is_some() && now < freed.at + self.cooldown_ms)
    }

    pub fn status(&self, address: Address, now: u64) -> Status {
        let Some(subnet) = self.subnet_of(address) else { return Status::Unknown };
        if self.covering(address).is_some() {
            Status::Held
        } else if subnet.is_unusable(address) {
            Status::Unusable
        } else if subnet.reserved_at(address).is_some() || subnet.is_draining(address) {
            Status::Reserved
        } else if self.is_declined(address) {
            Status::Declined
        } else if self.is_cooling(address, now) {
            Status::Cooling
        } else {
            Status::Free
        }
    }
}
