//! Finds subnets of a file that every server would refuse: those that overlap another subnet of the file, or contain all
//! addresses; and the order in which space changes hands. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::diff::{realm, realm_of};
use super::file::Table;
use super::matching::Group;
use crate::core::address::{Address, Cidr};

/// Subnets of several realms, none of which overlaps another of its realm, each with what is noted of it.
#[derive(Debug)]
pub struct Taken<'a, T> {
    /// By realm and first address.
    realms: BTreeMap<&'a str, BTreeMap<Address, (Cidr, T)>>,
}

impl<T> Default for Taken<'_, T> {
    fn default() -> Self {
        Self { realms: BTreeMap::new() }
    }
}

impl<'a, T: Copy> Taken<'a, T> {
    /// Adds a subnet. If it overlaps one that was added before, that one is returned instead.
    pub fn add(&mut self, realm: &'a str, cidr: Cidr, note: T) -> Option<(Cidr, T)> {
        let taken = self.realms.entry(realm).or_default();
        let before = taken.range(..=cidr.last()).next_back().map(|(_, before)| *before);
        let clash = before.filter(|(other, _)| other.range().overlaps(cidr.range()));
        if clash.is_none() {
            taken.insert(cidr.base(), (cidr, note));
        }
        clash
    }
}

/// The problems, a line each.
pub(super) fn within(tables: &[Table], matched: &[Option<usize>], networks: &[Value]) -> Vec<String> {
    let mut taken = Taken::default();
    let mut problems = Vec::new();
    for (table, at) in tables.iter().zip(matched) {
        let realm = realm_of(table, *at, networks);
        let subnets = table.members.get("subnets").and_then(Value::as_array).into_iter().flatten();
        let name = table.name.as_str();
        for cidr in subnets.filter_map(|subnet| subnet["cidr"].as_str()?.parse::<Cidr>().ok()) {
            if cidr.length() == 0 {
                problems.push(format!("network `{name}`: a subnet cannot be {cidr}: that is every address"));
                continue;
            }
            match taken.add(realm, cidr, name) {
                None => {}
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

/// The groups in their order, except that a network that takes space comes after the one that gives it up. Where networks
/// exchange space, that stands as it was, and the server refuses it.
pub(super) fn in_order_of_space(groups: Vec<Group<'_>>) -> Vec<Group<'_>> {
    let order = {
        let realm_of = |group: &Group<'_>| group.there.as_object().map_or("default", realm).to_owned();
        // Keyed by realm and first address; no two subnets that a server has in one realm overlap.
        let mut given: BTreeMap<(String, Address), (Cidr, usize)> = BTreeMap::new();
        for (at, group) in groups.iter().enumerate() {
            given.extend(gives_up(group).map(|cidr| ((realm_of(group), cidr.base()), (cidr, at))));
        }
        let givers = |group: &Group<'_>| {
            let realm = realm_of(group);
            let of = |cidr: Cidr| {
                let from = given.range(..=(realm.clone(), cidr.last())).rev();
                from.take_while(|((there, _), (other, _))| *there == realm && other.range().overlaps(cidr.range()))
                    .map(|(_, (_, at))| *at)
                    .collect::<Vec<_>>()
            };
            takes(group).flat_map(of).collect::<Vec<usize>>()
        };
        after(&groups.iter().map(givers).collect::<Vec<_>>())
    };
    let mut groups: Vec<Option<Group<'_>>> = groups.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| groups[at].take()).collect()
}

/// All numbers below the length, each after those that it waits for, as far as these do not wait for it.
fn after(waits_for: &[Vec<usize>]) -> Vec<usize> {
    let (mut order, mut met) = (Vec::with_capacity(waits_for.len()), vec![false; waits_for.len()]);
    for start in 0..waits_for.len() {
        let mut open = if std::mem::replace(&mut met[start], true) { Vec::new() } else { vec![(start, 0)] };
        while let Some((at, next)) = open.pop() {
            let Some(&before) = waits_for[at].get(next) else {
                order.push(at);
                continue;
            };
            open.push((at, next + 1));
            if !std::mem::replace(&mut met[before], true) {
                open.push((before, 0));
            }
        }
    }
    order
}

/// The entries of the list that replaces the subnets, if it is replaced.
fn entries<'a>(group: &'a Group<'_>) -> Option<&'a Vec<Value>> {
    group.step.params.get("set")?.get("subnets")?.as_array()
}

fn cidr_of(subnet: &Value) -> Option<Cidr> {
    subnet.get("cidr")?.as_str()?.parse().ok()
}

/// The ranges of subnets that go, or get another range.
fn gives_up<'a>(group: &'a Group<'_>) -> impl Iterator<Item = Cidr> + 'a {
    let there = entries(group).and_then(|_| group.there.get("subnets")?.as_array());
    let stays = |subnet: &&Value| {
        let mut entries = entries(group).into_iter().flatten();
        let entry = entries.find(|entry| entry.get("id").is_some_and(|id| Some(id) == subnet.get("id")));
        entry.is_some_and(|entry| entry.get("cidr").is_none_or(|cidr| Some(cidr) == subnet.get("cidr")))
    };
    there.into_iter().flatten().filter(move |subnet| !stays(subnet)).filter_map(cidr_of)
}

/// The ranges of subnets that are new, or get another range.
fn takes<'a>(group: &'a Group<'_>) -> impl Iterator<Item = Cidr> + 'a {
    entries(group).into_iter().flatten().filter_map(cidr_of)
}
