//! Subnets, pools and reserved ranges as they are written in requests, and the checks of their shape.

use std::collections::BTreeSet;

use allod::core::address::{Address, Cidr, Range};
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, is_name, is_note, is_owner};
use super::errors::{Findings, ModelError, Refusal};
use super::nouns::{self, tidy};
use super::state::{For, Pool, Reserved, Subnet};

const SUBNET_MEMBERS: [&str; 10] =
    ["name", "cidr", "gateway", "dhcp", "dns", "zones", "tags", "draining", "pools", "reserved"];

/// A subnet as written, and which of its members were written.
pub struct SubnetSpec {
    pub subnet: Subnet,
    pub given: BTreeSet<&'static str>,
    /// The members that were written of each of its pools.
    pools_given: Vec<Vec<&'static str>>,
}

impl SubnetSpec {
    /// Members written, of the subnet and of its pools, that differ from what is there.
    pub fn differing(&self, there: &Subnet) -> Vec<&'static str> {
        let (asked, found) = (nouns::subnet(&self.subnet), nouns::subnet(there));
        let mut members = differing(self.given.iter().copied().filter(|member| *member != "pools"), &asked, &found);
        let alike = |((asked, there), given): ((&Pool, &Pool), &Vec<&'static str>)| {
            let (asked, found) = (nouns::pool(asked), nouns::pool(there));
            asked["range"] == found["range"] && differing(given.iter().copied(), &asked, &found).is_empty()
        };
        let mut pairs = self.subnet.pools.iter().zip(&there.pools).zip(&self.pools_given);
        if self.given.contains("pools") && !(self.subnet.pools.len() == there.pools.len() && pairs.all(alike)) {
            members.push("pools");
        }
        members
    }
}

pub fn read_subnet(args: &Args) -> Refusal<SubnetSpec> {
    let cidr = args.cidr("cidr")?.ok_or_else(|| ModelError::new("invalid_argument", json!({ "field": "cidr" })))?;
    let whole = Pool { range: cidr.range(), name: None, kind: "dynamic", draining: false };
    let mut subnet = Subnet {
        id: String::new(),
        name: args.text("name", is_name)?,
        cidr,
        gateway: args.address("gateway")?,
        dhcp: args.on("dhcp")?,
        dns: read_dns(args)?,
        zones: read_zones(args)?,
        tags: args.texts("tags")?.unwrap_or_default(),
        draining: args.on("draining")?,
        pools: read_pools(args)?.unwrap_or_else(|| vec![whole]),
        reserved: Vec::new(),
    };
    for value in args.list("reserved", 16_384)?.into_iter().flatten() {
        let item = Args::of(value)?;
        let reserved = read_reserved(&item)?;
        item.end()?;
        merge_reserved(&mut subnet.reserved, reserved);
    }
    let given = SUBNET_MEMBERS.into_iter().filter(|name| args.has(name)).collect();
    let of_pool =
        |pool: &Value| ["name", "kind", "draining"].into_iter().filter(|member| pool.get(member).is_some()).collect();
    let pools_given = args.list("pools", 16_384)?.into_iter().flatten().map(of_pool).collect();
    Ok(SubnetSpec { subnet, given, pools_given })
}

pub fn read_dns(args: &Args) -> Refusal<Value> {
    let Some(dns) = args.object("dns")? else { return Ok(Value::Null) };
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let is_address = |value: &Value| value.as_str().is_some_and(|text| text.parse::<Address>().is_ok());
    let servers = dns.list("servers", 8)?.cloned().unwrap_or_default();
    let search = dns.list("search", 64)?.cloned().unwrap_or_default();
    dns.end()?;
    if servers.iter().all(is_address) && search.iter().all(is_text) {
        Ok(tidy(json!({ "servers": servers, "search": search })))
    } else {
        Err(ModelError::new("invalid_argument", json!({ "field": "dns" })))
    }
}

pub fn read_zones(args: &Args) -> Refusal<Vec<String>> {
    let mut zones = Vec::new();
    for value in args.list("zones", 64)?.into_iter().flatten() {
        match value.as_str().filter(|zone| is_owner(zone)) {
            Some(zone) => zones.push(zone.to_string()),
            None => return Err(ModelError::new("invalid_argument", json!({ "field": "zones" }))),
        }
    }
    Ok(zones)
}

pub fn read_pools(args: &Args) -> Refusal<Option<Vec<Pool>>> {
    let Some(list) = args.list("pools", 16_384)? else { return Ok(None) };
    let mut pools = Vec::new();
    for value in list {
        let item = Args::of(value)?;
        let range =
            item.range("range")?.ok_or_else(|| ModelError::new("invalid_argument", json!({ "field": "range" })))?;
        let pool = read_pool(&item, range)?;
        pools.push(Pool { draining: item.on("draining")?, ..pool });
        item.end()?;
    }
    Ok(Some(pools))
}

pub fn read_pool(args: &Args, range: Range) -> Refusal<Pool> {
    let kind = args.word("kind", &["dynamic", "static"])?.unwrap_or("dynamic");
    Ok(Pool { range, name: args.text("name", is_name)?, kind, draining: false })
}

pub fn read_reserved(args: &Args) -> Refusal<Reserved> {
    let range = args.range("range")?.ok_or_else(|| ModelError::new("invalid_argument", json!({ "field": "range" })))?;
    let note = args.text("note", is_note)?;
    let whose = match args.object("for")? {
        None => None,
        Some(whose) => {
            let read = For {
                scope: whose.text("scope", is_owner)?.unwrap_or_else(|| "default".into()),
                owner: whose.need_text("owner", is_owner)?,
                slot: whose.text("slot", is_owner)?,
            };
            whose.end()?;
            Some(read)
        }
    };
    Ok(Reserved { range, note, whose })
}

/// Adds a range to a list. Ranges that it overlaps and that are for the same owner are joined with it first. Then it and the
/// others are cut at every edge, each piece is judged, and pieces that say the same are joined.
pub fn merge_reserved(list: &mut Vec<Reserved>, mut added: Reserved) {
    list.sort_by_key(|reserved| reserved.range);
    let (touched, mut apart): (Vec<Reserved>, Vec<Reserved>) =
        list.drain(..).partition(|old| old.range.overlaps(added.range));
    let named = added.range;
    let (alike, touched): (Vec<Reserved>, Vec<Reserved>) =
        touched.into_iter().partition(|old| old.whose == added.whose);
    for old in alike {
        let (first, last) = (added.range.first().min(old.range.first()), added.range.last().max(old.range.last()));
        added.range = Range::of_bits(first.family(), first.bits(), last.bits());
        added.note = added.note.or(old.note);
    }
    let all = || touched.iter().chain([&added]).map(|reserved| reserved.range);
    let edges = all().flat_map(|range| [Some(range.first().bits()), range.last().bits().checked_add(1)]);
    let edges: BTreeSet<u128> = edges.flatten().collect();
    let last = all().map(|range| range.last().bits()).max().expect("at least what is added");
    let mut joined: Vec<Reserved> = Vec::new();
    for &first in edges.range(..=last) {
        let end = edges.range(first..).nth(1).map_or(last, |next| next - 1);
        let range = Range::of_bits(added.range.family(), first, end);
        let old = touched.iter().find(|old| old.range.covers(range));
        let piece = match (old, added.range.covers(range)) {
            (None, false) => continue,
            (None, true) => added.clone(),
            (Some(old), false) => old.clone(),
            (Some(old), true) => {
                let whose = if old.range == named { added.whose.clone() } else { None };
                let whose = whose.or(old.whose.clone()).or(added.whose.clone());
                Reserved { range, note: added.note.clone().or(old.note.clone()), whose }
            }
        };
        let same = |before: &&mut Reserved| {
            before.range.last().next() == Some(range.first())
                && (&before.note, &before.whose) == (&piece.note, &piece.whose)
        };
        match joined.last_mut().filter(same) {
            Some(before) => before.range = Range::of_bits(range.family(), before.range.first().bits(), end),
            None => joined.push(Reserved { range, ..piece }),
        }
    }
    apart.extend(joined);
    apart.sort_by_key(|reserved| reserved.range);
    *list = apart;
}

/// Checks that gateway and pools fit the subnet, and reserved ranges too if `reserved`.
pub fn check_shape(subnet: &Subnet, reserved: bool, findings: &mut Findings) {
    if let Some(gateway) = subnet.gateway {
        let link_local = subnet.cidr.family().number() == 6 && gateway.is_link_local();
        let inside = subnet.cidr.contains(gateway);
        findings.when(!inside && !link_local, "out_of_range");
        findings.when(inside && !link_local && subnet.is_structural(gateway), "invalid_argument");
    }
    for (index, pool) in subnet.pools.iter().enumerate() {
        findings.when(!subnet.cidr.range().covers(pool.range), "out_of_range");
        findings.when(subnet.pools[..index].iter().any(|earlier| earlier.range.overlaps(pool.range)), "overlap");
    }
    let outside = subnet.reserved.iter().any(|part| !subnet.cidr.range().covers(part.range));
    findings.when(reserved && outside, "out_of_range");
}

/// Checks that there is at most one dhcp subnet per family.
pub fn check_dhcp(subnets: &[&Subnet], findings: &mut Findings) {
    for family in [4, 6] {
        let dhcp = subnets.iter().filter(|subnet| subnet.dhcp && subnet.cidr.family().number() == family).count();
        findings.when(dhcp > 1, "invalid_argument");
    }
}

impl Model {
    /// Checks that no subnet of the realm overlaps, except the one at `except`.
    pub fn check_space(&self, realm: &str, cidr: Cidr, except: Option<(usize, usize)>, findings: &mut Findings) {
        let mut with = Vec::new();
        for (n, network) in self.networks.iter().enumerate().filter(|(_, network)| network.realm == realm) {
            for (s, subnet) in network.subnets.iter().enumerate() {
                if except != Some((n, s)) && subnet.cidr.range().overlaps(cidr.range()) {
                    with.push(json!({ "network": network.named(), "cidr": subnet.cidr.to_string() }));
                }
            }
        }
        if !with.is_empty() {
            findings.add(ModelError::new("overlap", json!({ "with_any": with })));
        }
    }

    pub fn check_version(&self, n: usize, expected: Option<u64>, findings: &mut Findings) {
        let actual = self.networks[n].version;
        if let Some(expected) = expected.filter(|expected| *expected != actual) {
            findings.add(ModelError::new("conflict", json!({ "expected": expected, "actual": actual })));
        }
    }
}

pub fn if_version(args: &Args) -> Refusal<Option<u64>> {
    args.number("if_version", 0, u64::MAX)
}

/// The given members in which what is asked for differs from what is there.
pub fn differing<'a>(given: impl IntoIterator<Item = &'a str>, asked: &Value, there: &Value) -> Vec<&'a str> {
    given.into_iter().filter(|member| asked.get(member) != there.get(member)).collect()
}

pub fn differs(members: Vec<&str>) -> ModelError {
    ModelError::new("already_exists", json!({ "differs": members }))
}
