//! All subnets of a network at once: the list in `network.update`.
//!
//! An entry with an id is the subnet with that id, changed by the entry's members. An entry without one is a whole subnet,
//! because lists replace: what it does not say is as in a new subnet, and it takes the place of the subnet with its cidr or
//! name, keeping that one's id, place and holdings. Subnets that no entry means are removed. What stands against one subnet
//! by itself is judged as in `subnet.add`, `subnet.modify` and `subnet.remove`. What stands between two of them is judged by
//! the result, so that a name, `dhcp` or space that one gives up is free for another.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::subnet::Neighbours;
use super::{ConfigDraft, FirstRefusal};
use crate::core::address::{Cidr, Range};
use crate::core::command::{Context, Patch, SubnetEntry, subnet_id};
use crate::core::forms;
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::SubnetConfig;
use crate::core::types::{Name, SubnetId};

/// Replaces the subnets of a draft by those in a list. Those that stay keep their places; new ones come after them.
pub(super) fn replace(draft: &mut ConfigDraft<'_>, entries: &[SubnetEntry], ctx: Context) {
    let before = draft.network.subnets();
    let meant = meant(before, entries, &mut draft.verdict);
    let mut stays = vec![false; before.len()];
    meant.iter().filter_map(Meant::own).for_each(|at| stays[at] = true);
    for (gone, _) in before.iter().zip(&stays).filter(|(_, stays)| !**stays) {
        draft.check_departure(gone);
    }
    draft.subnets = before.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(subnet, _)| subnet.clone()).collect();
    let mut listed = Vec::with_capacity(entries.len());
    for (index, (entry, meant)) in entries.iter().zip(&meant).enumerate() {
        let path = format!("set.subnets[{index}].");
        let (subnet, is_as_before) = match meant {
            Meant::Nothing => continue,
            Meant::Own(at) => match draft.changed(&before[*at], entry, &path) {
                Ok(subnet) => {
                    let same = stands_as(&subnet, &before[*at]);
                    (subnet, same)
                }
                Err(refusal) => {
                    draft.refuse(refusal);
                    continue;
                }
            },
            Meant::New => match entry.as_whole(None) {
                Some(input) => {
                    let subnet = draft.arriving(&input, subnet_id(ctx.entropy, index as u64), &path);
                    draft.check_arrival(&subnet);
                    (subnet, false)
                }
                None => {
                    draft.refuse(forms::without_addresses(&path));
                    continue;
                }
            },
        };
        listed.push((is_as_before, subnet.clone(), path));
        draft.put(subnet);
    }
    draft.check_all_beside(listed);
    draft.check_bounds("set.subnets");
}

/// The prefixes that a list of subnets takes in addition to the existing ones, each with the subnet that is to have it; none
/// for a new one.
pub fn taken_by(subnets: &[Arc<SubnetConfig>], entries: &[SubnetEntry]) -> Vec<(Option<SubnetId>, Cidr)> {
    // Entries that are refused for their form take nothing; the network refuses them.
    let meant = meant(subnets, entries, &mut FirstRefusal::default());
    let taken = entries.iter().zip(meant).filter_map(|(entry, meant)| {
        let cidr = entry.set.cidr?;
        match meant {
            Meant::Own(at) => (subnets[at].cidr != cidr).then_some((Some(subnets[at].id), cidr)),
            Meant::New => Some((None, cidr)),
            Meant::Nothing => None,
        }
    });
    taken.collect()
}

/// The meaning of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meant {
    /// The network's subnet with this index.
    Own(usize),
    New,
    /// Nothing, because the entry is refused.
    Nothing,
}

impl Meant {
    fn own(&self) -> Option<usize> {
        match self {
            Meant::Own(at) => Some(*at),
            Meant::New | Meant::Nothing => None,
        }
    }
}

/// What an entry identifies a subnet of the network by, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Id,
    Cidr,
    Name,
}

impl Sign {
    /// Does the entry that means this subnet change it so that the sign becomes free?
    fn is_given_up(self, entry: &SubnetEntry, subnet: &SubnetConfig) -> bool {
        match (self, &entry.set.name) {
            (Sign::Id, _) => false,
            // In an entry without an id, what is not said is removed.
            (Sign::Name, Patch::Keep) => entry.id.is_none() && subnet.name.is_some(),
            (Sign::Cidr, _) => entry.set.cidr.is_some_and(|cidr| cidr != subnet.cidr),
            (Sign::Name, Patch::Clear) => true,
            (Sign::Name, Patch::Set(name)) => subnet.name.as_ref() != Some(name),
        }
    }
}

/// The meaning of each entry: the subnet with its id; without an id the one with its cidr, else the one with its name, else
/// a new one. Surer signs are applied to all entries before less sure ones. A cidr or name that another entry removes from
/// its subnet is free, and does not mean that subnet any more.
fn meant(subnets: &[Arc<SubnetConfig>], entries: &[SubnetEntry], verdict: &mut FirstRefusal) -> Vec<Meant> {
    let places = || subnets.iter().zip(0_usize..);
    let ids: BTreeMap<SubnetId, usize> = places().map(|(subnet, at)| (subnet.id, at)).collect();
    let cidrs: BTreeMap<Range, usize> = places().map(|(subnet, at)| (subnet.cidr.range(), at)).collect();
    let names: BTreeMap<&Name, usize> = places().filter_map(|(subnet, at)| Some((subnet.name.as_ref()?, at))).collect();
    let mut meant = vec![Meant::New; entries.len()];
    let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
    for sign in [Sign::Id, Sign::Cidr, Sign::Name] {
        for (index, entry) in entries.iter().enumerate() {
            if meant[index] != Meant::New || entry.id.is_some() != (sign == Sign::Id) {
                continue;
            }
            let found = match sign {
                Sign::Id => entry.id.and_then(|id| ids.get(&id)),
                Sign::Cidr => entry.set.cidr.and_then(|cidr| cidrs.get(&cidr.range())),
                Sign::Name => entry.set.name.given().and_then(|name| names.get(name)),
            };
            let Some(&at) = found else {
                if let Some(id) = entry.id {
                    verdict.refuse(no_subnet(index, id));
                    meant[index] = Meant::Nothing;
                }
                continue;
            };
            match taken.get(&at) {
                Some(&other) if sign.is_given_up(&entries[other], &subnets[at]) => {}
                Some(&other) => {
                    verdict.refuse(forms::named_twice(index, other));
                    meant[index] = Meant::Nothing;
                }
                None => {
                    taken.insert(at, index);
                    meant[index] = Meant::Own(at);
                }
            }
        }
    }
    meant
}

fn no_subnet(index: usize, id: SubnetId) -> Refusal {
    let hint = format!("`set.subnets[{index}].id` names a subnet of this network, which network.get shows");
    Refusal::NotFound { missing: Missing::Subnet, what: format!("`{id}`"), hint: Some(hint) }
}

/// Is everything unchanged that can conflict with another subnet?
fn stands_as(subnet: &SubnetConfig, before: &SubnetConfig) -> bool {
    subnet.cidr == before.cidr && subnet.name == before.name && subnet.dhcp == before.dhcp
}

impl ConfigDraft<'_> {
    /// A subnet as an entry wants it: changed by its members if it has an id, otherwise as a whole.
    ///
    /// # Errors
    /// A change of family.
    fn changed(&mut self, before: &SubnetConfig, entry: &SubnetEntry, path: &str) -> Result<SubnetConfig, Refusal> {
        match entry.as_whole(Some(before.cidr)).filter(|_| entry.id.is_none()) {
            Some(whole) => self.replaced(before, &whole, path),
            None => self.patched(before, &entry.set, entry.reserved.as_deref(), path),
        }
    }

    /// Refuses conflicts among the listed subnets. Unchanged ones come first, because a conflict is the fault of what
    /// changed. Each has a flag for that, and its path.
    fn check_all_beside(&mut self, mut listed: Vec<(bool, SubnetConfig, String)>) {
        listed.sort_by_key(|(is_as_before, ..)| !is_as_before);
        let mut beside = Neighbours::in_network(&self.config);
        for (_, subnet, path) in &listed {
            beside.admit(subnet, Some(path), &mut self.verdict);
        }
    }
}
