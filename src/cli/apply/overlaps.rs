//! Finds subnets of a file that every server would refuse: those that overlap another subnet of the file, or contain all
//! addresses. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::diff::realm_of;
use super::file::Table;
use crate::core::address::{Address, Cidr};

/// The problems, a line each.
pub(super) fn within(tables: &[Table], matched: &[Option<usize>], networks: &[Value]) -> Vec<String> {
    // Keyed by first address; no two subnets in the map overlap.
    let mut realms: BTreeMap<&str, BTreeMap<Address, (Cidr, &str)>> = BTreeMap::new();
    let mut problems = Vec::new();
    for (table, at) in tables.iter().zip(matched) {
        let taken = realms.entry(realm_of(table, *at, networks)).or_default();
        let subnets = table.members.get("subnets").and_then(Value::as_array).into_iter().flatten();
        let name = table.name.as_str();
        for cidr in subnets.filter_map(|subnet| subnet["cidr"].as_str()?.parse::<Cidr>().ok()) {
            if cidr.length() == 0 {
                problems.push(format!("network `{name}`: a subnet cannot be {cidr}: that is every address"));
                continue;
            }
            let before = taken.range(..=cidr.last()).next_back().map(|(_, before)| *before);
            match before.filter(|(other, _)| other.range().overlaps(cidr.range())) {
                None => drop(taken.insert(cidr.base(), (cidr, name))),
                Some((other, owner)) if owner == name => problems
                    .push(format!("network `{name}`: subnet {cidr} overlaps its subnet {other}; choose another range")),
                Some((other, owner)) => problems.push(format!(
                    "network `{name}`: subnet {cidr} overlaps {other} of network `{owner}`; choose another range, or a \
                     realm of its own"
                )),
            }
        }
    }
    problems
}
