//! Turns requests for deployments into jobs: spreads the wishes of groups over their instances, and judges everything that can be
//! judged without a network. Zones and addresses are dealt later, where it is known what instances hold (`core::zones`,
//! `network::deal`).

use std::collections::{HashMap, HashSet};

use compact_str::CompactString;
use xxhash_rust::xxh3::Xxh3;

use super::input;
use crate::actors::coordinator::{DeployOrder, DeployPart, Job};
use crate::core::address::Range;
use crate::core::command::Wish;
use crate::core::deployment::{DeployWish, StaticList, Wanted};
use crate::core::plural::counted;
use crate::core::types::{Owner, Scope, Slot};
use crate::core::zones::ZoneGroup;
use crate::limits::{DEPLOYMENT_WISHES_MAX, LIST_PAGE_RECORDS_DEFAULT};
use crate::wire::params::deployment::{GroupNetwork, GroupWishes, Groups, InstanceNetwork, InstanceWishes, Instances};
use crate::wire::values::NetworkRef;
use crate::wire::{RpcError, params};

/// What a request says about an instance besides its wishes.
#[derive(Default)]
struct InstanceFacts {
    zone: Option<CompactString>,
    fresh: bool,
}

/// The order while it is being built.
#[derive(Default)]
struct Building {
    instances: Vec<Owner>,
    places: HashMap<Owner, InstanceFacts>,
    parts: Vec<DeployPart>,
    part_of: HashMap<CompactString, usize>,
    zones: Vec<ZoneGroup>,
    wishes: usize,
}

/// Builds the order of `deployment.plan` and `deployment.apply`.
///
/// # Errors
/// `invalid_argument`, naming the member.
pub(super) fn order(
    name: Scope,
    instances: Option<Instances>,
    groups: Option<Groups>,
    apply: bool,
) -> Result<Job, RpcError> {
    let mut instances = instances.map(Instances::into_vec).unwrap_or_default();
    let mut groups = groups.map(Groups::into_vec).unwrap_or_default();
    few_enough(&instances, &groups)?;
    leave_out_defaults(&mut instances, &mut groups);
    let wishes = hash_of(&instances, &groups);
    let mut building = Building::default();
    for (at, instance) in instances.iter().enumerate() {
        if building.places.contains_key(&instance.id) {
            let field = format!("instances[{at}].id");
            let refused = RpcError::invalid(
                field,
                format!("instance `{}` is listed twice; list it once, with all its networks", instance.id),
            );
            return Err(refused.with(|data| data.instance = Some(instance.id.clone())));
        }
        building.know(instance);
    }
    for (at, group) in groups.iter().enumerate() {
        building.place(at, group)?;
    }
    for (at, instance) in instances.into_iter().enumerate() {
        for (which, network) in instance.networks.into_vec().into_iter().enumerate() {
            let field = format!("instances[{at}].networks[{which}]");
            let of_it = |refused: RpcError| refused.with(|data| data.instance = Some(instance.id.clone()));
            let wanted = wanted(&network, &field).map_err(of_it)?;
            building.wish(&network.network, &instance.id, network.slot, |_| wanted);
        }
    }
    for (at, group) in groups.into_iter().enumerate() {
        let members = group.instances.into_vec();
        for (which, network) in group.networks.into_vec().into_iter().enumerate() {
            if let Some(ranges) = &network.static_ips {
                enough(ranges, members.len(), || format!("groups[{at}].networks[{which}].static_ips"))?;
            }
            building.wish_alike(&members, network, (at, which));
        }
    }
    let Building { instances, parts, zones, .. } = building;
    Ok(Job::Deploy(Box::new(DeployOrder { name, instances, parts, zones, wishes, apply })))
}

/// Refuses more wishes than an order may have, before any of them is built.
fn few_enough(instances: &[InstanceWishes], groups: &[GroupWishes]) -> Result<(), RpcError> {
    let mut wishes = 0;
    let mut expect = |more: usize, field: &dyn Fn() -> String| {
        wishes += more;
        if wishes <= DEPLOYMENT_WISHES_MAX {
            return Ok(());
        }
        let field = field();
        let message = format!(
            "`{field}` makes more than {DEPLOYMENT_WISHES_MAX} wishes (instances, each as often as it has networks); make \
             several deployments of it"
        );
        Err(RpcError::invalid(field, message))
    };
    for (at, instance) in instances.iter().enumerate() {
        for which in 0..instance.networks.len() {
            expect(1, &|| format!("instances[{at}].networks[{which}]"))
                .map_err(|refused| refused.with(|data| data.instance = Some(instance.id.clone())))?;
        }
    }
    for (at, group) in groups.iter().enumerate() {
        for which in 0..group.networks.len() {
            expect(group.instances.len(), &|| format!("groups[{at}].networks[{which}]"))?;
        }
    }
    Ok(())
}

/// Removes members that only state the default, so that they make no difference to the hash.
fn leave_out_defaults(instances: &mut [InstanceWishes], groups: &mut [GroupWishes]) {
    let unsaid = |slot: &mut Option<Slot>| *slot = slot.take().filter(|slot| *slot != Slot::default());
    for instance in instances {
        instance.fresh = instance.fresh.filter(|fresh| *fresh);
        instance.networks.iter_mut().for_each(|network| unsaid(&mut network.slot));
    }
    for group in groups {
        group.zones = group.zones.take().filter(|zones| !zones.is_empty());
        group.networks.iter_mut().for_each(|network| unsaid(&mut network.slot));
    }
}

/// Hash of the wishes, independent of the order in which instances and groups are listed. The lists within a group keep their
/// order, because addresses and zones are dealt by it. Computed piece by piece over `[[INSTANCE,…],[GROUP,…]]`.
fn hash_of(instances: &[InstanceWishes], groups: &[GroupWishes]) -> u128 {
    let mut instances: Vec<&InstanceWishes> = instances.iter().collect();
    instances.sort_by(|one, other| one.id.cmp(&other.id));
    let instances = instances.into_iter().cloned().map(|mut instance| {
        instance.networks.sort_by_key(written);
        written(&instance)
    });
    let groups = groups.iter().cloned().map(|mut group| {
        group.networks.sort_by_key(written);
        written(&group)
    });
    let mut groups: Vec<Vec<u8>> = groups.collect();
    groups.sort();
    let mut hash = Xxh3::new();
    hash.update(b"[");
    add_list(&mut hash, instances);
    hash.update(b",");
    add_list(&mut hash, groups.into_iter());
    hash.update(b"]");
    hash.digest128()
}

fn add_list(hash: &mut Xxh3, entries: impl Iterator<Item = Vec<u8>>) {
    hash.update(b"[");
    for (at, entry) in entries.enumerate() {
        hash.update(if at == 0 { b"" } else { b"," });
        hash.update(&entry);
    }
    hash.update(b"]");
}

/// Writes wishes as JSON.
fn written(wishes: &impl serde::Serialize) -> Vec<u8> {
    // Writing these types cannot fail.
    serde_json::to_vec(wishes).unwrap_or_default()
}

/// What an instance wants of a network.
fn wanted(network: &InstanceNetwork, field: &str) -> Result<Wanted, RpcError> {
    let given = [
        ("address", network.address.is_some()),
        ("pool", network.pool.is_some()),
        ("subnet", network.subnet.is_some()),
        ("family", network.family.is_some()),
    ];
    let given: Vec<&str> = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
    if let [first, second, ..] = given[..] {
        let message = format!("`{field}`: `{first}` and `{second}` exclude each other; name one of them");
        return Err(RpcError::invalid(format!("{field}.{second}"), message));
    }
    Ok(match network.address {
        Some(address) => Wanted::Static(address),
        None => Wanted::Automatic(Box::new(Wish {
            family: network.family,
            subnet: network.subnet.clone().map(input::subnet_ref),
            pool: network.pool.clone().map(input::pool_ref),
            ..Wish::default()
        })),
    })
}

/// Checks that a group lists each address once, and at least one for each instance.
fn enough(ranges: &[Range], instances: usize, field: impl Fn() -> String) -> Result<(), RpcError> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| (range.first(), range.last()));
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].overlaps(pair[1])) {
        let (one, other) = (pair[0], pair[1]);
        let problem =
            format!("lists {} twice, in {} and {}; list it once", other.first(), one.as_typed(), other.as_typed());
        return Err(RpcError::invalid(field(), format!("`{}` {problem}", field())));
    }
    let listed = ranges.iter().fold(0u128, |sum, range| sum.saturating_add(range.size()));
    if listed < instances as u128 {
        let problem =
            format!("has {} for {}; list one for each", counted(listed, "address"), counted(instances, "instance"));
        return Err(RpcError::invalid(field(), format!("`{}` {problem}", field())));
    }
    Ok(())
}

impl Building {
    fn know(&mut self, instance: &InstanceWishes) {
        let zone = instance.zone.as_ref().map(|zone| CompactString::from(zone.as_str()));
        self.places.insert(instance.id.clone(), InstanceFacts { zone, fresh: instance.fresh.unwrap_or(false) });
        self.instances.push(instance.id.clone());
    }

    /// Adds the instances of a group; its zones are dealt to those that have none.
    fn place(&mut self, at: usize, group: &GroupWishes) -> Result<(), RpcError> {
        let zones = group.zones.iter().flat_map(|zones| zones.iter());
        let zones: Vec<CompactString> = zones.map(|zone| CompactString::from(zone.as_str())).collect();
        let mut members = HashSet::new();
        let mut without = Vec::new();
        for (which, id) in group.instances.iter().enumerate() {
            if !members.insert(id) {
                let field = format!("groups[{at}].instances[{which}]");
                let refused = RpcError::invalid(
                    field,
                    format!("instance `{id}` is in group `{}` twice; name it once", group.name),
                );
                return Err(refused.with(|data| data.instance = Some(id.clone())));
            }
            if !self.places.contains_key(id) {
                self.instances.push(id.clone());
            }
            let place = self.places.entry(id.clone()).or_default();
            if place.zone.is_none() {
                without.push(id.clone());
            }
        }
        if !zones.is_empty() && !without.is_empty() {
            self.zones.push(ZoneGroup { zones, instances: without });
        }
        Ok(())
    }

    fn part(&mut self, network: &NetworkRef) -> &mut DeployPart {
        let network = input::network_text(network);
        let parts = &mut self.parts;
        let at = *self.part_of.entry(network.clone()).or_insert_with(|| {
            parts.push(DeployPart { network, wishes: Vec::new(), lists: Vec::new() });
            parts.len() - 1
        });
        &mut self.parts[at]
    }

    fn wish(
        &mut self,
        network: &NetworkRef,
        owner: &Owner,
        slot: Option<Slot>,
        wanted: impl FnOnce(&mut DeployPart) -> Wanted,
    ) {
        let (zone, fresh) = self.places.get(owner).map_or((None, false), |place| (place.zone.clone(), place.fresh));
        let place = self.wishes;
        self.wishes += 1;
        let part = self.part(network);
        let wanted = wanted(part);
        let slot = slot.unwrap_or_default();
        part.wishes.push(DeployWish { place, owner: owner.clone(), slot, zone, fresh, wanted });
    }

    /// Adds the same wish of a network for every instance of a group.
    fn wish_alike(&mut self, members: &[Owner], network: GroupNetwork, (group, which): (usize, usize)) {
        let list: Option<Vec<Range>> = network.static_ips.map(|ranges| ranges.into_vec());
        let dealt = list.map(|ranges| {
            let part = self.part(&network.network);
            part.lists.push(StaticList { group, network: which, ranges });
            part.lists.len() - 1
        });
        for id in members {
            let automatic = || Wanted::Automatic(Box::default());
            self.wish(&network.network, id, network.slot.clone(), |_| dealt.map_or_else(automatic, Wanted::Dealt));
        }
    }
}

/// Builds the job of `deployment.list`.
///
/// # Errors
/// `invalid_argument` for an `after` that no page gave.
pub(super) fn list(ask: params::DeploymentList) -> Result<Job, RpcError> {
    let no_cursor = |_| RpcError::invalid("after", "`after` is no `next` of an earlier page of this list");
    let after = ask.after.map(|after| Scope::new(after.as_str().into())).transpose().map_err(no_cursor)?;
    let limit = ask.limit.map_or(LIST_PAGE_RECORDS_DEFAULT, |limit| limit.get() as usize);
    Ok(Job::Deployments { after, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash is stored with the plan, so it must never change: the same wishes must stay the same plan.
    #[test]
    fn the_hash_of_wishes_is_that_of_all_of_them_as_they_are_written_in_order() {
        let (instances, groups) = (
            r#"[{"id":"a","networks":[{"network":"l"},{"network":"k"}]},{"id":"b","fresh":true,"networks":[]}]"#,
            r#"[{"name":"h","instances":["b","a"],"zones":["z"],"networks":[{"network":"m"},
                {"network":"l","static_ips":["10.0.0.9","10.0.0.2-10.0.0.3"]}]},{"name":"g","instances":[],"networks":[]}]"#,
        );
        let (instances, groups): (Vec<InstanceWishes>, Vec<GroupWishes>) =
            (serde_json::from_str(instances).unwrap(), serde_json::from_str(groups).unwrap());
        let whole = concat!(
            r#"[[{"id":"a","networks":[{"network":"k"},{"network":"l"}]},{"id":"b","fresh":true,"networks":[]}],"#,
            r#"[{"name":"g","instances":[],"networks":[]},{"name":"h","instances":["b","a"],"zones":["z"],"networks":["#,
            r#"{"network":"l","static_ips":["10.0.0.9-10.0.0.9","10.0.0.2-10.0.0.3"]},{"network":"m"}]}]]"#,
        );
        let (mut backwards, groups_backwards) = (instances.clone(), groups.iter().rev().cloned().collect::<Vec<_>>());
        backwards.reverse();
        for (instances, groups) in [(&instances, &groups), (&backwards, &groups_backwards)] {
            assert_eq!(hash_of(instances, groups), xxhash_rust::xxh3::xxh3_128(whole.as_bytes()));
        }
        assert_eq!(hash_of(&[], &[]), xxhash_rust::xxh3::xxh3_128(b"[[],[]]"));
    }
}
