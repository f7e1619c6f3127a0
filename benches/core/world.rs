//! Networks to measure: filled by loading, asked through `decide` and `apply` alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use allod::core::address::{Address, Cidr, Family, Range};
use allod::core::command::*;
use allod::core::network::Network;
use allod::core::outcome::{Decision, Outcome};
use allod::core::refusal::Refusal;
use allod::core::state::*;
use allod::core::types::*;

use crate::records::{plain_network, plain_reservation, usual_holder};

/// SplitMix64: the same numbers each time.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

/// A network, and what the next request needs.
#[derive(Clone)]
pub struct World {
    pub network: Network,
    pub random: Random,
    now: u64,
    owners: u64,
}

/// How a network is made.
#[derive(Clone)]
pub struct Plan {
    pub policy: Policy,
    pub cooldown_seconds: u64,
    pub cooldown_yields: bool,
    pub subnets: Vec<(Cidr, Vec<&'static str>)>,
    /// What is never given: fills a pool without anything that is held there.
    pub reserved: Vec<Range>,
}

impl Plan {
    pub fn one(cidr: &str, policy: Policy) -> Self {
        let subnets = vec![(cidr.parse().expect("a prefix"), Vec::new())];
        Self { policy, cooldown_seconds: 0, cooldown_yields: false, subnets, reserved: Vec::new() }
    }

    fn config(&self) -> NetworkConfig {
        NetworkConfig {
            policy: self.policy,
            cooldown_seconds: self.cooldown_seconds,
            cooldown_yields: self.cooldown_yields,
            ..plain_network(NetworkId(7), "lan")
        }
    }

    fn subnet(&self, position: u64, cidr: Cidr, zones: &[&str]) -> SubnetConfig {
        let reserved = self.reserved.iter().filter(|range| cidr.range().covers(**range));
        let reserved = reserved.map(|&range| ReservedRange { range, note: "".into(), reserved_for: None }).collect();
        let pool = PoolConfig {
            range: cidr.range(),
            name: None,
            kind: PoolKind::Dynamic,
            draining: false,
            since: Generation(0),
        };
        SubnetConfig {
            id: SubnetId(u128::from(position) + 1),
            name: None,
            cidr,
            gateway: None,
            dhcp: false,
            dns: Dns::default(),
            zones: zones.iter().map(|zone| (*zone).into()).collect(),
            tags: Labels::new(),
            draining: false,
            pools: vec![pool],
            reserved,
            past_pools: Vec::new(),
            position,
            version: Version(1),
        }
    }

    /// Loads a network in which these blocks are taken, all of one length.
    pub fn load(&self, taken: &BTreeSet<Address>, prefix_length: u8) -> World {
        let entry = |(at, address): (usize, &Address)| (*address, entry(at as u64, prefix_length));
        self.load_entries(taken.iter().enumerate().map(entry).collect())
    }

    /// Loads a network in which this lies, ascending.
    pub fn load_entries(&self, entries: Vec<(Address, Entry)>) -> World {
        let subnets = self.subnets.iter().enumerate();
        let subnets = subnets.map(|(at, (cidr, zones))| Arc::new(self.subnet(at as u64, *cidr, zones))).collect();
        let floor = Generation(entries.len() as u64 + 1);
        let network = Network::load(Arc::new(self.config()), subnets, entries, floor, ShardTime(0));
        World { network: network.expect("the network loads"), random: Random(7), now: 1_000, owners: 0 }
    }
}

/// Held by an owner as orchestrators name them: 24 bytes, some 1 000 of them in a scope.
fn entry(number: u64, prefix_length: u8) -> Entry {
    Entry::Held(Arc::new(plain_reservation(holder(number, 'h'), Generation(number + 1), prefix_length)))
}

pub fn holder(number: u64, kind: char) -> SlotKey {
    usual_holder(number / 1_000, &format!("{kind}{number:09}"))
}

/// `count` different blocks of a subnet, at random; never its first and last, which may be unusable.
pub fn scattered(cidr: Cidr, prefix_length: u8, count: u128) -> BTreeSet<Address> {
    let width = cidr.family().width();
    let blocks = 1u128 << (prefix_length - cidr.length()).min(127);
    let at = |index: u128| Address::new(cidr.family(), cidr.base().bits() + (index << (width - prefix_length)));
    let usable = blocks - 2;
    let mut random = Random(blocks as u64 ^ count as u64);
    if count * 2 > usable {
        // Nearly all: leave out instead.
        let mut all: BTreeSet<Address> = (1..=usable).map(at).collect();
        while all.len() as u128 > count {
            all.remove(&at(1 + random.wide() % usable));
        }
        return all;
    }
    let mut some = BTreeSet::new();
    while (some.len() as u128) < count {
        some.insert(at(1 + random.wide() % usable));
    }
    some
}

impl World {
    /// Clock and chance of the next request.
    pub fn context(&mut self) -> Context {
        Context {
            now: ShardTime(self.now),
            wall: WallTime(1_795_262_400_000 + self.now),
            entropy: self.random.wide(),
            mac_elsewhere: None,
            generations: Generation::default(),
        }
    }

    /// Time goes on, as it does between requests.
    pub fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
    }

    /// The time that the next request comes at.
    pub fn time(&self) -> ShardTime {
        ShardTime(self.now)
    }

    /// Decides and applies.
    pub fn ask(&mut self, command: &Command) -> Result<Outcome, Refusal> {
        let context = self.context();
        let decision = self.network.decide(command, context)?;
        Ok(self.apply(decision))
    }

    /// Applies what was decided just now.
    pub fn apply(&mut self, Decision { steps, outcome }: Decision) -> Outcome {
        for step in &steps {
            self.network.apply(step, self.time());
        }
        outcome
    }

    pub fn new_owner(&mut self) -> SlotKey {
        self.owners += 1;
        holder(self.owners, 'n')
    }

    pub fn allocate(&mut self, wish: &Wish) -> Command {
        let ask = Allocate { holder: self.new_owner(), wish: wish.clone(), options: GrantOptions::default() };
        Command::Allocate(Box::new(ask))
    }

    pub fn claim(&mut self, address: Address, prefix_length: u8) -> Command {
        let prefix_length = (prefix_length != address.family().width()).then_some(prefix_length);
        let (holder, options) = (self.new_owner(), GrantOptions::default());
        Command::Claim(Box::new(Claim { holder, address, prefix_length, force: false, options }))
    }

    pub fn release(address: Address) -> Command {
        let target = Target { address: Some(address), ..Target::default() };
        Command::Release(Box::new(Release { target, force: true, strict: true }))
    }

    /// Free blocks of this length: at most `count`, at random.
    pub fn free(&mut self, cidr: Cidr, prefix_length: u8, taken: &BTreeSet<Address>, count: usize) -> Vec<Address> {
        let width = cidr.family().width();
        let blocks = 1u128 << (prefix_length - cidr.length()).min(127);
        let left = (blocks - 2).saturating_sub(taken.len() as u128);
        let wanted = left.min(count as u128) as usize;
        let at = |index: u128| Address::new(cidr.family(), cidr.base().bits() + (index << (width - prefix_length)));
        if blocks <= 1 << 17 {
            let mut all: Vec<Address> = (1..=blocks - 2).map(at).filter(|address| !taken.contains(address)).collect();
            for index in 0..wanted {
                let other = index + (self.random.next() as usize) % (all.len() - index);
                all.swap(index, other);
            }
            all.truncate(wanted);
            return all;
        }
        let mut found = BTreeSet::new();
        while found.len() < wanted {
            let address = at(1 + self.random.wide() % (blocks - 2));
            if !taken.contains(&address) {
                found.insert(address);
            }
        }
        found.into_iter().collect()
    }
}

/// What a grant gave.
pub fn granted(outcome: Result<Outcome, Refusal>) -> Address {
    match outcome {
        Ok(Outcome::Granted(grant)) => grant.view.address,
        other => panic!("a grant was expected: {other:?}"),
    }
}

/// The whole of a subnet but its ends, for filling it up.
pub fn all_of(cidr: Cidr) -> BTreeSet<Address> {
    let range: Range = cidr.range();
    let (first, last) = (range.first().bits(), range.last().bits());
    let skip = u128::from(cidr.family() == Family::V4);
    (first + 1..=last - skip).map(|bits| Address::new(cidr.family(), bits)).collect()
}
