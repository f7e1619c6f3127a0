//! The address or block that an automatic request gets: order of pools, policy, cooldown, addresses reserved for somebody.
//! The result is the set of all permitted choices, lowest first; the server's choice must be one of them.

use allod::core::address::{Address, Range};
use serde_json::{Value, json};

use super::Model;
use super::assumptions::Figures;
use super::grant::Wish;
use super::state::{Key, Network, Pool, Status, Subnet, block, each, width};

impl Model {
    /// Every choice that the contract permits; empty if there is no capacity.
    pub fn admissible(&self, network: usize, key: &Key, uid: Option<&str>, wish: &Wish) -> Vec<Address> {
        let network = &self.networks[network];
        let kept = self.kept_for(network, key, wish);
        if !kept.is_empty() {
            return kept;
        }
        let own = self.let_go_by(network, key, uid, wish);
        if !own.is_empty() {
            return own;
        }
        for (_, pool) in eligible(network, wish).filter(|(subnet, pool)| !subnet.draining && !pool.draining) {
            let free = self.fitting(network, pool, wish, &[Status::Free]);
            if !free.is_empty() {
                return picked(network, free, wish);
            }
        }
        if network.cooldown_yields { self.yielding(network, wish) } else { Vec::new() }
    }

    /// Single addresses reserved `for` the owner, which come first.
    fn kept_for(&self, network: &Network, key: &Key, wish: &Wish) -> Vec<Address> {
        for subnet in network.subnets.iter().filter(|subnet| wish.admits_subnet(subnet)) {
            let mut ranges: Vec<_> = subnet.reserved.iter().collect();
            ranges.sort_by_key(|reserved| reserved.range);
            for reserved in ranges {
                let address = reserved.range.first();
                let single = reserved.range.size() == 1 && wish.length.is_none_or(|length| length == width(address));
                let whose = reserved.whose.as_ref().is_some_and(|whose| whose.fits(key));
                let family = wish.family.is_none_or(|family| family == address.family().number());
                let pool =
                    wish.pool.as_ref().is_none_or(|name| subnet.pool_at(address).is_some_and(|p| p.is_named(name)));
                let usable = !subnet.is_unusable(address) && !subnet.is_draining(address);
                let vacant = network.covering(address).is_none() && !network.is_declined(address);
                let own = network.freed.get(&address).and_then(|freed| freed.by.as_ref()) == Some(key);
                let warm = network.is_cooling(address, self.clock) && !own;
                if single && whose && family && pool && usable && vacant && !warm {
                    return vec![address];
                }
            }
        }
        Vec::new()
    }

    /// What this owner and slot released last, while it is cooling.
    fn let_go_by(&self, network: &Network, key: &Key, uid: Option<&str>, wish: &Wish) -> Vec<Address> {
        let mut own: Vec<(u64, Address)> = Vec::new();
        for (_, pool) in eligible(network, wish).filter(|(subnet, pool)| !subnet.draining && !pool.draining) {
            for first in self.fitting(network, pool, wish, &[Status::Free, Status::Cooling]) {
                let Some(freed) = network.freed.get(&first) else { continue };
                let length = wish.length.unwrap_or(width(first));
                let same = freed.by.as_ref() == Some(key) && freed.first == first && freed.length == length;
                let object = uid.is_none() || freed.uid.is_none() || freed.uid.as_deref() == uid;
                let whole = each(block(first, length)).all(|address| {
                    network.is_cooling(address, self.clock) && network.freed[&address].by.as_ref() == Some(key)
                });
                if same && object && whole {
                    own.push((freed.at, first));
                }
            }
        }
        let latest = own.iter().map(|(at, _)| *at).max();
        own.into_iter().filter(|(at, _)| Some(*at) == latest).map(|(_, first)| first).collect()
    }

    /// With `cooldown_yields`: the address released longest ago, or the lowest block.
    fn yielding(&self, network: &Network, wish: &Wish) -> Vec<Address> {
        let mut all: Vec<Address> = Vec::new();
        for (_, pool) in eligible(network, wish).filter(|(subnet, pool)| !subnet.draining && !pool.draining) {
            let fitting = self.fitting(network, pool, wish, &[Status::Free, Status::Cooling]);
            match fitting.first() {
                Some(first) if wish.length.is_some_and(|length| length != width(*first)) => return vec![*first],
                _ => all.extend(fitting),
            }
        }
        let longest = all.iter().map(|address| network.freed[address].at).min();
        all.retain(|address| Some(network.freed[address].at) == longest);
        all
    }

    /// Addresses, or first addresses of aligned blocks wholly inside the pool, all of whose addresses are in one of these
    /// states.
    fn fitting(&self, network: &Network, pool: &Pool, wish: &Wish, states: &[Status]) -> Vec<Address> {
        let length = wish.length.unwrap_or(pool.range.family().width());
        if length > pool.range.family().width() {
            return Vec::new();
        }
        let whole = |first: &Address| {
            let range = block(*first, length);
            range.first() == *first
                && pool.range.covers(range)
                && each(range).all(|address| states.contains(&network.status(address, self.clock)))
        };
        each(pool.range).filter(whole).collect()
    }

    /// The figures of a refusal for want of capacity.
    pub fn shortage(&self, n: usize, wish: &Wish) -> Value {
        let network = &self.as_they_were[n];
        let ranges: Vec<Range> = match self.assume.figures {
            Figures::EligiblePools => eligible(network, wish).map(|(_, pool)| pool.range).collect(),
            Figures::WholeNetwork => network.subnets.iter().map(|subnet| subnet.cidr.range()).collect(),
            Figures::Ignored => return json!({ "network": network.name }),
        };
        let mut count = self.count(network, &ranges);
        count["network"] = json!(network.name);
        for unsure in ["free", "dynamic", "static"] {
            count.as_object_mut().and_then(|members| members.remove(unsure));
        }
        count
    }

    /// Counts of addresses by state, as decimal strings.
    pub fn count(&self, network: &Network, ranges: &[Range]) -> Value {
        let [mut held, mut dynamic, mut reserved, mut cooling, mut declined, mut free] = [0u64; 6];
        for address in ranges.iter().flat_map(|range| each(*range)) {
            match network.status(address, self.clock) {
                Status::Held => {
                    held += 1;
                    dynamic += u64::from(network.covering(address).is_some_and(|(_, held)| held.kind == "dynamic"));
                }
                Status::Reserved | Status::Unusable => reserved += 1,
                Status::Cooling => cooling += 1,
                Status::Declined => declined += 1,
                Status::Free => free += 1,
                Status::Unknown => {}
            }
        }
        let size = held + reserved + cooling + declined + free;
        json!({
            "size": size.to_string(), "held": held.to_string(), "dynamic": dynamic.to_string(),
            "static": (held - dynamic).to_string(), "obsolete": "0", "reserved": reserved.to_string(),
            "cooling": cooling.to_string(), "declined": declined.to_string(), "free": free.to_string(),
        })
    }
}

/// Dynamic pools that the wish admits, in order, including draining ones.
fn eligible<'a>(network: &'a Network, wish: &'a Wish) -> impl Iterator<Item = (&'a Subnet, &'a Pool)> {
    network.pools().filter(|(subnet, pool)| {
        pool.kind == "dynamic"
            && wish.admits_subnet(subnet)
            && wish.pool.as_ref().is_none_or(|reference| pool.is_named(reference))
    })
}

/// What the policy permits among the free addresses of one pool.
fn picked(network: &Network, free: Vec<Address>, wish: &Wish) -> Vec<Address> {
    match network.policy {
        "random" => free,
        "oldest" => {
            let length = |first: &Address| wish.length.unwrap_or(width(*first));
            let fresh = |first: &&Address| {
                each(block(**first, length(first))).all(|address| !network.freed.contains_key(&address))
            };
            if let Some(first) = free.iter().find(fresh) {
                return vec![*first];
            }
            if length(&free[0]) != width(free[0]) {
                return vec![free[0]];
            }
            let longest = free.iter().map(|address| network.freed[address].at).min();
            free.into_iter().filter(|address| Some(network.freed[address].at) == longest).collect()
        }
        _ => vec![free[0]],
    }
}
