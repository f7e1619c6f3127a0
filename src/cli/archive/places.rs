//! Pools and reserved ranges of a network, to find the pool from which an automatic grant gets the address of the file.
//! Pure.
//!
//! An allocation cannot name an address. But a slot is given the address that it released as long as that cools, if the
//! address lies in a dynamic pool and either in no reserved range or in one that is kept for the slot.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::lines::Claim;
use super::stages::{Network, cidr_of, range_of};
use crate::core::address::{Address, Range};

/// In a network in service, a slot releases an address and asks for it again well within this time.
const COOLDOWN_SECONDS_MIN: u64 = 60;

/// The pools that automatic grants draw from, and the reserved ranges.
#[derive(Debug, Default)]
pub struct Places {
    pools: BTreeMap<Address, (Range, String)>,
    reserved: BTreeMap<Address, Range>,
}

impl Places {
    /// Those of a network of the file, including the parts that will drain later.
    pub fn of_file(network: &Network) -> Self {
        Self::of(network.table.members.get("subnets"), true)
    }

    /// Those of a network of the server that is in service. The network keeps a released address for its slot during its own
    /// cooldown. Nothing is granted again if that is short, or yields to waiting requests; nor if there are limits for an
    /// owner or scope, because another allocation could use them up meanwhile, and the slot would be given nothing.
    pub fn of_server(there: &Value) -> Self {
        let is_long = there["cooldown_seconds"].as_u64().is_some_and(|seconds| seconds >= COOLDOWN_SECONDS_MIN);
        let is_kept = is_long && there["cooldown_yields"] != true && there.get("limits").is_none();
        if is_kept { Self::of(there.get("subnets"), false) } else { Self::default() }
    }

    /// Pools of a network of the server while an import leads slots to their addresses: all of these are reserved, each for
    /// its slot.
    pub fn drawn_while_led(there: &Value) -> Self {
        Self { reserved: BTreeMap::new(), ..Self::of(there.get("subnets"), false) }
    }

    fn of(subnets: Option<&Value>, drains_later: bool) -> Self {
        let mut places = Self::default();
        let is_open = |of: &Value| drains_later || of["draining"] != true;
        let subnets = subnets.and_then(Value::as_array).into_iter().flatten();
        for subnet in subnets.filter(|subnet| is_open(subnet)) {
            let Some(cidr) = subnet.as_object().and_then(cidr_of) else { continue };
            let whole = [json!({"range": cidr.range().to_string()})];
            let pools = subnet.get("pools").and_then(Value::as_array).map_or(&whole[..], Vec::as_slice);
            let is_drawn_from = |pool: &&Value| is_open(pool) && pool.get("kind").is_none_or(|kind| kind == "dynamic");
            for pool in pools.iter().filter(is_drawn_from) {
                if let (Some(range), Some(text)) = (pool.as_object().and_then(range_of), pool["range"].as_str()) {
                    places.pools.insert(range.first(), (range, text.to_owned()));
                }
            }
            let reserved = subnet.get("reserved").and_then(Value::as_array).into_iter().flatten();
            let ranges = reserved.filter_map(|reserved| range_of(reserved.as_object()?));
            places.reserved.extend(ranges.map(|range| (range.first(), range)));
        }
        places
    }

    /// Does the range overlap a reserved range?
    pub fn is_reserved(&self, range: Range) -> bool {
        let mut before = self.reserved.range(..=range.last());
        before.next_back().is_some_and(|(_, reserved)| reserved.overlaps(range))
    }

    /// The pool that gives the slot of a claim the released address again; none if no pool does.
    pub fn pool_of(&self, claim: &Claim) -> Option<&str> {
        if self.is_reserved(claim.range) {
            return None;
        }
        let (_, (pool, text)) = self.pools.range(..=claim.range.first()).next_back()?;
        pool.covers(claim.range).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::read;
    use super::*;

    const FILE: &str = r#"{"format":"allod-export","version":1}
{"reservation":{"network":"lan","address":"10.0.0.5","owner":"a","kind":"dynamic"}}"#;

    /// The released address would go to a waiting request, or the limit to another allocation of its owner, before the slot
    /// asks again.
    #[test]
    fn where_a_cooldown_yields_or_limits_are_set_nothing_is_let_go_to_be_granted_again() {
        let claim = &read(FILE).claims[0];
        let has_pool = |more: Value| {
            let mut there = json!({"name": "lan", "cooldown_seconds": 600, "subnets":
                [{"cidr": "10.0.0.0/24", "pools": [{"range": "10.0.0.0-10.0.0.255"}]}]});
            there.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Places::of_server(&there).pool_of(claim).is_some()
        };
        assert!(has_pool(json!({})) && has_pool(json!({"cooldown_yields": false})));
        assert!(!has_pool(json!({"cooldown_yields": true})) && !has_pool(json!({"limits": {"per_owner": 1}})));
        assert!(!has_pool(json!({"cooldown_seconds": 30})));
    }
}
