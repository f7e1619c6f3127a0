//! The `subnets` of `network.update`: all subnets that the network is to have.

use allod::core::address::Cidr;
use serde_json::json;

use super::Model;
use super::args::{Args, is_owner};
use super::errors::{Findings, ModelError, Refusal};
use super::spec::{check_dhcp, check_shape, merge_reserved, read_reserved};
use super::state::{Pool, Reserved, Subnet};
use super::subnets::{Changes, judge_gateway};

/// One subnet that the network is to have.
pub struct Entry<'a> {
    id: Option<String>,
    changes: Changes<'a>,
    reserved: Option<Vec<Reserved>>,
}

/// Reads the list, and refuses what is wrong whatever the network has.
pub fn read_entries<'a>(set: &Args<'a>) -> Refusal<Option<Vec<Entry<'a>>>> {
    let Some(list) = set.list("subnets", 4096)? else { return Ok(None) };
    let mut entries: Vec<Entry> = Vec::new();
    for value in list {
        let item = Args::of(value)?;
        let id = item.text("id", is_owner)?;
        let mut reserved = item.has("reserved").then(Vec::new);
        for value in item.list("reserved", 16_384)?.into_iter().flatten() {
            let part = Args::of(value)?;
            merge_reserved(reserved.get_or_insert_default(), read_reserved(&part)?);
            part.end()?;
        }
        let changes = Changes::read(item)?;
        changes.set.end()?;
        judge_gateway(changes.cidr, changes.gateway)?;
        let names_nothing = id.is_none() && changes.cidr.is_none() && changes.name.is_none();
        let same = |other: &Entry| match &id {
            Some(id) => other.id.as_ref() == Some(id),
            None => other.id.is_none() && changes.cidr.is_some() && other.changes.cidr == changes.cidr,
        };
        if names_nothing || entries.iter().any(same) {
            return Err(ModelError::plain("invalid_argument"));
        }
        entries.push(Entry { id, changes, reserved });
    }
    Ok(Some(entries))
}

impl Model {
    /// The subnets that a list leads to; new ones have no id yet.
    pub fn listed(&self, n: usize, entries: &[Entry], findings: &mut Findings) -> Vec<Subnet> {
        let network = &self.networks[n];
        let meant = meant(&network.subnets, entries, findings);
        let mut kept: Vec<Option<Subnet>> = network.subnets.iter().map(|_| None).collect();
        let mut new = Vec::new();
        for s in (0..kept.len()).filter(|s| !meant.contains(&Some(Some(*s)))) {
            self.check_removed(n, s, findings);
        }
        for (entry, meant) in entries.iter().zip(&meant) {
            match meant {
                None => {}
                Some(Some(s)) => {
                    let old = &network.subnets[*s];
                    // Without an id the entry is a complete subnet, which replaces the present one.
                    let is_whole = entry.id.is_none();
                    let base = if is_whole {
                        let cidr = entry.changes.cidr.unwrap_or(old.cidr);
                        findings.when(cidr.family() != old.cidr.family(), "invalid_argument");
                        Subnet { id: old.id.clone(), ..blank(entry, cidr) }
                    } else {
                        old.clone()
                    };
                    let mut subnet = entry.changes.made_of(&base, findings);
                    subnet.reserved = entry.reserved.clone().unwrap_or(subnet.reserved);
                    self.check_resized(n, old, &subnet, is_whole || entry.reserved.is_some(), findings);
                    if subnet.cidr != old.cidr {
                        self.check_others(n, &subnet, findings);
                    }
                    kept[*s] = Some(subnet);
                }
                Some(None) => {
                    findings.when(entry.changes.cidr.is_none(), "invalid_argument");
                    findings.when(network.kind == "dynamic", "wrong_kind");
                    let Some(cidr) = entry.changes.cidr else { continue };
                    let subnet = entry.changes.made_of(&blank(entry, cidr), findings);
                    check_shape(&subnet, true, findings);
                    if let Some((first, _)) = subnet.gateway.and_then(|gateway| network.covering(gateway)) {
                        findings.add(self.in_use_by(n, first));
                    }
                    self.check_others(n, &subnet, findings);
                    new.push(subnet);
                }
            }
        }
        let outcome: Vec<Subnet> = kept.into_iter().flatten().chain(new).collect();
        check_dhcp(&outcome.iter().collect::<Vec<_>>(), findings);
        for (at, subnet) in outcome.iter().enumerate() {
            for other in &outcome[..at] {
                findings.when(other.cidr.range().overlaps(subnet.cidr.range()), "overlap");
                if subnet.name.is_some() && subnet.name == other.name {
                    findings.name_taken(json!({}));
                }
            }
        }
        outcome
    }

    /// Checks that no subnet of another network of the realm is in the way.
    fn check_others(&self, n: usize, subnet: &Subnet, findings: &mut Findings) {
        let others = self
            .networks
            .iter()
            .enumerate()
            .filter(|(other, network)| *other != n && network.realm == self.networks[n].realm);
        let taken = |other: &Subnet| other.cidr.range().overlaps(subnet.cidr.range());
        for (_, network) in others {
            for other in network.subnets.iter().filter(|other| taken(other)) {
                let with = json!([{ "network": network.named(), "cidr": other.cidr.to_string() }]);
                findings.add(ModelError::new("overlap", json!({ "with_any": with })));
            }
        }
    }
}

/// Which subnet each entry means: `Some(None)` is a new one, `None` a refused entry.
fn meant(own: &[Subnet], entries: &[Entry], findings: &mut Findings) -> Vec<Option<Option<usize>>> {
    let mut meant: Vec<Option<Option<usize>>> = vec![Some(None); entries.len()];
    for sign in ["id", "cidr", "name"] {
        for (at, entry) in entries.iter().enumerate() {
            if meant[at] != Some(None) || entry.id.is_some() != (sign == "id") {
                continue;
            }
            let found = own.iter().position(|subnet| match sign {
                "id" => entry.id.as_ref() == Some(&subnet.id),
                "cidr" => entry.changes.cidr == Some(subnet.cidr),
                _ => entry.changes.name.is_some() && entry.changes.name == subnet.name,
            });
            let Some(s) = found else {
                if sign == "id" {
                    findings.when(true, "not_found");
                    meant[at] = None;
                }
                continue;
            };
            let other = meant.iter().position(|other| *other == Some(Some(s)));
            let given_up = other.is_some_and(|other| {
                let by = &entries[other].changes;
                match sign {
                    "cidr" => by.cidr.is_some_and(|cidr| cidr != own[s].cidr),
                    "name" => (entries[other].id.is_none() || by.set.has("name")) && by.name != own[s].name,
                    _ => false,
                }
            });
            match other {
                None => meant[at] = Some(Some(s)),
                Some(_) if given_up => {}
                Some(_) => {
                    findings.when(true, "invalid_argument");
                    meant[at] = None;
                }
            }
        }
    }
    meant
}

/// A new subnet that has only an address range and reserved ranges.
fn blank(entry: &Entry, cidr: Cidr) -> Subnet {
    Subnet {
        id: String::new(),
        name: None,
        cidr,
        gateway: None,
        dhcp: false,
        dns: json!(null),
        zones: Vec::new(),
        tags: Default::default(),
        draining: false,
        pools: vec![Pool { range: cidr.range(), name: None, kind: "dynamic", draining: false }],
        reserved: entry.reserved.clone().unwrap_or_default(),
    }
}
