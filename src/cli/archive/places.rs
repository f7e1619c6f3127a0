//! Pools and reserved ranges of a network, to find out of which pool an automatic grant comes to the address that the file
//! names. Pure.
//!
//! An allocation cannot say which address it wants, but a slot is given what it let go as long as that cools, if it lies in a
//! dynamic pool and in no reserved range, or in one that is kept for the slot.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::lines::Claim;
use super::stages::{Network, cidr_of, range_of};
use crate::core::address::{Address, Range};

/// In a network that is in service a slot lets an address go, and asks for it again, well within this.
const COOLDOWN_SECONDS_MIN: u64 = 60;

/// Pools that are drawn from, and reserved ranges.
#[derive(Debug, Default)]
pub struct Places {
    pools: BTreeMap<Address, (Range, String)>,
    reserved: BTreeMap<Address, Range>,
}

impl Places {
    /// Those of a network of the file, whatever of it shall drain.
    pub fn of_file(network: &Network) -> Self {
        Self::of(network.table.members.get("subnets"), true)
    }

    /// Those of a network of the server that is in service. It keeps what a slot let go for its own cooldown; where that is
    /// short, nothing is granted again.
    pub fn of_server(there: &Value) -> Self {
        let is_long = there["cooldown_seconds"].as_u64().is_some_and(|seconds| seconds >= COOLDOWN_SECONDS_MIN);
        if is_long { Self::of(there.get("subnets"), false) } else { Self::default() }
    }

    /// Pools of a network of the server while an import leads slots to what they hold: those are reserved, each for its slot.
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

    /// The pool out of which the slot of a claim is given again what it let go; none where no pool gives that.
    pub fn pool_of(&self, claim: &Claim) -> Option<&str> {
        let mut before = self.reserved.range(..=claim.range.last());
        if before.next_back().is_some_and(|(_, reserved)| reserved.overlaps(claim.range)) {
            return None;
        }
        let (_, (pool, text)) = self.pools.range(..=claim.range.first()).next_back()?;
        pool.covers(claim.range).then_some(text)
    }
}
