//! Subnets: which prefixes are allowed, the gateway, the place among other subnets, growing and shrinking.
//!
//! What cools or is declined in a removed subnet ends in its own time, and still applies if the subnet comes back. Until
//! then it does no harm, because nothing is granted outside subnets.

use std::collections::BTreeMap;
use std::sync::Arc;

use compact_str::CompactString;

use super::{
    ConfigDraft, FirstRefusal, check_count, empty_set, patch, patch_option, patch_tags, pool, reserved, standing_in_all,
};
use crate::core::address::{Address, Cidr, Family, Range};
use crate::core::command::{Context, DnsPatch, Patch, ReservedInput, SubnetInput, SubnetPatch, SubnetRef, subnet_id};
use crate::core::disjoint::Disjoint;
use crate::core::forms;
use crate::core::network::left::in_use;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Refusal, Remembered, members};
use crate::core::state::{Dns, EventKind, NetworkConfig, NetworkKind, PoolConfig, SubnetConfig};
use crate::core::types::{Generation, Name, SubnetId, Version};
use crate::core::unusable::edges;
use crate::limits;

/// `subnet.add`.
pub(super) fn add(
    mut draft: ConfigDraft<'_>,
    input: &SubnetInput,
    if_absent: bool,
    ctx: Context,
) -> Result<Decision, Refusal> {
    let subnet = draft.arriving(input, subnet_id(ctx.entropy, 0), "");
    if let Some(there) = there_already(&draft, input).filter(|_| if_absent) {
        let differs = differs_from(&there, input);
        if !differs.is_empty() {
            let what = format!("subnet {} of network `{}`", name_or_cidr(&there), draft.config.name);
            draft.refuse(Refusal::NameTaken { what, differs: members(differs) });
        }
        draft.verdict.end()?;
        return Ok(Decision { steps: Vec::new(), outcome: Outcome::Subnet { subnet: there, created: false } });
    }
    draft.check_arrival(&subnet);
    draft.check_beside(&subnet, Some(""));
    let id = subnet.id;
    draft.put(subnet);
    draft.check_bounds("cidr");
    answer(draft, id, true)
}

/// `subnet.modify`.
pub(super) fn modify(mut draft: ConfigDraft<'_>, wanted: &SubnetRef, set: &SubnetPatch) -> Result<Decision, Refusal> {
    if *set == SubnetPatch::default() {
        draft.refuse(empty_set());
    }
    let before = match draft.network.subnet(wanted) {
        Ok(subnet) => Arc::clone(subnet),
        Err(refusal) => return draft.refused(refusal),
    };
    let subnet = match draft.patched(&before, set, None, "set.") {
        Ok(subnet) => subnet,
        Err(refusal) => return draft.refused(refusal),
    };
    draft.check_beside(&subnet, Some("set."));
    let id = subnet.id;
    draft.put(subnet);
    draft.check_bounds("set.pools");
    answer(draft, id, false)
}

/// `subnet.remove`.
pub(super) fn remove(mut draft: ConfigDraft<'_>, wanted: &SubnetRef) -> Result<Decision, Refusal> {
    let gone = match draft.network.subnet(wanted) {
        Ok(subnet) => Arc::clone(subnet),
        Err(refusal) => return draft.refused(refusal),
    };
    draft.check_departure(&gone);
    draft.subnets.retain(|subnet| subnet.id != gone.id);
    draft.finish(EventKind::NetworkChanged)?.answer(Outcome::Done)
}

fn answer(draft: ConfigDraft<'_>, id: SubnetId, created: bool) -> Result<Decision, Refusal> {
    let done = draft.finish(EventKind::NetworkChanged)?;
    let subnet = done.subnet(id);
    done.answer(Outcome::Subnet { subnet, created })
}

/// The existing subnet that an input with `if_absent` means: the one with its name, else the one with its prefix.
fn there_already(draft: &ConfigDraft<'_>, input: &SubnetInput) -> Option<Arc<SubnetConfig>> {
    let named = draft.subnets.iter().find(|subnet| input.name.is_some() && subnet.name == input.name);
    named.or_else(|| draft.subnets.iter().find(|subnet| subnet.cidr == input.cidr)).cloned()
}

/// Members in which a subnet differs from what is asked for. What is not said is not compared.
pub fn differs_from(subnet: &SubnetConfig, input: &SubnetInput) -> Vec<&'static str> {
    let mut differs = Vec::new();
    let mut compare = |member, equal: bool| {
        if !equal {
            differs.push(member);
        }
    };
    compare("cidr", subnet.cidr == input.cidr);
    compare("name", input.name.is_none() || subnet.name == input.name);
    compare("gateway", input.gateway.is_none() || subnet.gateway == input.gateway);
    compare("dhcp", input.dhcp.is_none_or(|dhcp| dhcp == subnet.dhcp));
    compare("dns", input.dns.as_ref().is_none_or(|dns| *dns == subnet.dns));
    compare("zones", input.zones.as_ref().is_none_or(|zones| sorted(zones) == subnet.zones));
    compare("tags", input.tags.as_ref().is_none_or(|tags| *tags == subnet.tags));
    compare("draining", input.draining.is_none_or(|draining| draining == subnet.draining));
    let equal_pools = input.pools.as_ref().is_none_or(|inputs| {
        let alike = |(pool, input)| pool::differs_from(subnet, pool, input).is_empty();
        inputs.len() == subnet.pools.len() && subnet.pools.iter().zip(inputs).all(alike)
    });
    compare("pools", equal_pools);
    let equal_reserved = input.reserved.as_ref().is_none_or(|inputs| {
        let mut ignored = FirstRefusal::default();
        reserved::build(subnet.cidr, inputs, "", &mut ignored) == subnet.reserved && ignored.end().is_ok()
    });
    compare("reserved", equal_reserved);
    differs
}

/// Identity and place of a new subnet.
pub(super) struct SubnetPlace {
    pub(super) id: SubnetId,
    pub(super) position: u64,
    pub(super) since: Generation,
}

/// Builds a new subnet. Refusals name members under `path`.
pub(super) fn build(
    network: &Name,
    input: &SubnetInput,
    place: SubnetPlace,
    path: &str,
    verdict: &mut FirstRefusal,
) -> SubnetConfig {
    let subnet = SubnetConfig {
        id: place.id,
        name: input.name.clone(),
        cidr: input.cidr,
        gateway: input.gateway,
        dhcp: input.dhcp.unwrap_or(false),
        dns: input.dns.clone().unwrap_or_default(),
        zones: sorted(input.zones.as_deref().unwrap_or_default()),
        tags: input.tags.clone().unwrap_or_default(),
        draining: input.draining.unwrap_or(false),
        pools: pool::build(network, input.cidr, input.pools.as_deref(), place.since, path, verdict),
        reserved: reserved::build(input.cidr, input.reserved.as_deref().unwrap_or_default(), path, verdict),
        past_pools: Vec::new(),
        position: place.position,
        version: Version(1),
    };
    check_values(&subnet, path, verdict);
    subnet
}

/// Checks what can be judged of a subnet by itself.
fn check_values(subnet: &SubnetConfig, path: &str, verdict: &mut FirstRefusal) {
    if let Err(refusal) = forms::cidr(subnet.cidr, path) {
        verdict.refuse(refusal);
    }
    check_gateway(subnet.gateway, subnet.cidr, path, verdict);
    check_count(&format!("{path}dns.servers"), subnet.dns.servers.len(), limits::DNS_ENTRIES_MAX, verdict);
    check_count(&format!("{path}dns.search"), subnet.dns.search.len(), limits::DNS_ENTRIES_MAX, verdict);
    check_count(&format!("{path}zones"), subnet.zones.len(), limits::ZONES_MAX, verdict);
}

/// The refusal of subnets in a dynamic network, which carries no addresses.
pub(super) fn takes_no_subnets(network: &Name, kind: NetworkKind) -> Option<Refusal> {
    (kind == NetworkKind::Dynamic).then(|| Refusal::WrongKind {
        problem: format!(
            "network `{network}` is dynamic and has no subnets: the infrastructure picks its addresses; only \
         networks of another `kind` have subnets"
        ),
        address: None,
    })
}

fn check_gateway(gateway: Option<Address>, cidr: Cidr, path: &str, verdict: &mut FirstRefusal) {
    let Some(gateway) = gateway else { return };
    if let Err(refusal) = forms::gateway(gateway, cidr, path) {
        verdict.refuse(refusal);
    } else if !(cidr.contains(gateway) || cidr.family() == Family::V6 && gateway.is_link_local()) {
        let or_link_local = if cidr.family() == Family::V6 { ", or a link-local one" } else { "" };
        let problem =
            format!("`{path}gateway`: {gateway} lies outside subnet {cidr}; name an address in it{or_link_local}");
        verdict.refuse(Refusal::OutOfRange { problem, address: Some(gateway) });
    }
}

fn patch_dns(dns: &mut Dns, set: &Patch<DnsPatch>) {
    match set {
        Patch::Keep => {}
        Patch::Clear => *dns = Dns::default(),
        Patch::Set(members) => {
            patch(&mut dns.servers, &members.servers, Vec::new());
            patch(&mut dns.search, &members.search, Vec::new());
        }
    }
}

fn sorted(zones: &[CompactString]) -> Vec<CompactString> {
    let mut zones = zones.to_vec();
    zones.sort();
    zones.dedup();
    zones
}

fn name_or_cidr(subnet: &SubnetConfig) -> String {
    subnet.name.as_ref().map_or_else(|| subnet.cidr.to_string(), |name| format!("`{name}`"))
}

/// The subnets of one network next to each other: unique names, no overlap, one `dhcp` per family.
pub(super) struct Neighbours {
    network: Name,
    /// Set if the network is deleted, so that only its id identifies it.
    remembered: Option<Remembered>,
    names: BTreeMap<Name, Cidr>,
    /// A subnet can also be named by its id.
    ids: BTreeMap<SubnetId, Cidr>,
    prefixes: Disjoint<()>,
    dhcp: BTreeMap<Family, Cidr>,
}

impl Neighbours {
    /// No subnets yet, for a network that is to be created.
    pub(super) fn of_none(network: &Name) -> Self {
        Self {
            network: network.clone(),
            remembered: None,
            names: BTreeMap::new(),
            ids: BTreeMap::new(),
            prefixes: Disjoint::default(),
            dhcp: BTreeMap::new(),
        }
    }

    /// No subnets yet, for an existing network.
    pub(super) fn in_network(config: &NetworkConfig) -> Self {
        let remembered = config.closed.then_some(Remembered { id: config.id, purged: config.purged });
        Self { remembered, ..Self::of_none(&config.name) }
    }

    /// Notes what stands against a subnet here, and adds it. `path` leads to its members; none if it is moved here, because a
    /// move has no members of the subnet, only the network `to`.
    pub(super) fn admit(&mut self, subnet: &SubnetConfig, path: Option<&str>, verdict: &mut FirstRefusal) {
        let by_id = |name: &Name| self.ids.get(&name.as_str().parse().ok()?);
        let taken = |name| self.names.get(name).or_else(|| by_id(name)).map(|cidr| (name, cidr));
        if let Some((name, cidr)) = subnet.name.as_ref().and_then(taken) {
            let what = format!("subnet `{name}` ({cidr}) of network `{}`", self.network);
            verdict.refuse(Refusal::NameTaken { what, differs: Vec::new() });
        }
        if let Some(other) = self.dhcp.get(&subnet.cidr.family()).filter(|_| subnet.dhcp) {
            let family = subnet.cidr.family();
            let (field, there) = match path {
                Some(path) => (format!("{path}dhcp"), format!("is already set for {other}")),
                None => ("to".to_owned(), format!("has `dhcp` set for {other} already")),
            };
            let problem =
                format!("{there}; only one {family} subnet of a network can have it, so remove it there first");
            verdict.refuse(Refusal::invalid(field, problem));
        }
        if let Some((with, ())) = self.prefixes.overlapping(subnet.cidr.range()).next() {
            verdict.refuse(Refusal::Overlap {
                asked: subnet.cidr.range(),
                with: with.as_cidr().expect("only prefixes are added"),
                network: self.network.clone(),
                remembered: self.remembered,
            });
        } else {
            self.prefixes.insert(subnet.cidr.range(), ());
        }
        self.ids.insert(subnet.id, subnet.cidr);
        if let Some(name) = &subnet.name {
            self.names.insert(name.clone(), subnet.cidr);
        }
        if subnet.dhcp {
            self.dhcp.insert(subnet.cidr.family(), subnet.cidr);
        }
    }
}

impl ConfigDraft<'_> {
    /// A new subnet after the others. What is wrong with it by itself is noted.
    pub(super) fn arriving(&mut self, input: &SubnetInput, id: SubnetId, path: &str) -> SubnetConfig {
        let place = SubnetPlace {
            id,
            position: self.subnets.iter().map(|subnet| subnet.position + 1).max().unwrap_or(0),
            since: self.network.next_generation(),
        };
        build(&self.config.name, input, place, path, &mut self.verdict)
    }

    /// A subnet as a patch changes it, with other reserved ranges if some are given. What stands against it is noted, except
    /// for conflicts with other subnets.
    ///
    /// # Errors
    /// A change of family, because that would be another subnet.
    pub(super) fn patched(
        &mut self,
        before: &SubnetConfig,
        set: &SubnetPatch,
        reserved: Option<&[ReservedInput]>,
        path: &str,
    ) -> Result<SubnetConfig, Refusal> {
        let mut subnet = SubnetConfig::clone(before);
        subnet.cidr = set.cidr.unwrap_or(before.cidr);
        forms::keeps_family(before.cidr, subnet.cidr, path)?;
        patch_option(&mut subnet.name, &set.name);
        patch_option(&mut subnet.gateway, &set.gateway);
        patch(&mut subnet.dhcp, &set.dhcp, false);
        patch_dns(&mut subnet.dns, &set.dns);
        patch(&mut subnet.zones, &set.zones, Vec::new());
        subnet.zones = sorted(&subnet.zones);
        patch_tags(&mut subnet.tags, &set.tags, &format!("{path}tags"), &mut self.verdict);
        patch(&mut subnet.draining, &set.draining, false);
        if let Some(reserved) = reserved {
            subnet.reserved = reserved::build(subnet.cidr, reserved, path, &mut self.verdict);
        }
        let since = self.network.next_generation();
        let pools = match &set.pools {
            Patch::Keep if subnet.cidr == before.cidr => before.pools.clone(),
            Patch::Keep => pool::trimmed(&before.pools, before.cidr, subnet.cidr),
            Patch::Clear => Vec::new(),
            Patch::Set(pools) => {
                pool::build(&self.config.name, subnet.cidr, Some(pools), since, path, &mut self.verdict)
            }
        };
        check_values(&subnet, path, &mut self.verdict);
        Ok(self.in_place_of(before, subnet, pools))
    }

    /// A subnet built as if it were new, in place of an existing one: it keeps the id and what is held in it.
    ///
    /// # Errors
    /// A change of family, because that would be another subnet.
    pub(super) fn replaced(
        &mut self,
        before: &SubnetConfig,
        input: &SubnetInput,
        path: &str,
    ) -> Result<SubnetConfig, Refusal> {
        forms::keeps_family(before.cidr, input.cidr, path)?;
        let place = SubnetPlace { id: before.id, position: before.position, since: self.network.next_generation() };
        let mut whole = build(&self.config.name, input, place, path, &mut self.verdict);
        let pools = std::mem::replace(&mut whole.pools, before.pools.clone());
        (whole.past_pools, whole.version) = (before.past_pools.clone(), before.version);
        Ok(self.in_place_of(before, whole, pools))
    }

    /// Notes what stands against the changes of a subnet, and replaces its pools if they differ.
    fn in_place_of(&mut self, before: &SubnetConfig, mut subnet: SubnetConfig, pools: Vec<PoolConfig>) -> SubnetConfig {
        if subnet.cidr != before.cidr {
            self.check_resize(before, &subnet);
        }
        if subnet.gateway != before.gateway {
            self.check_gateway_free(&subnet);
        }
        if !pool::are_alike(&pools, &before.pools) {
            pool::replace(self.network, &mut subnet, pools);
        }
        subnet
    }

    /// Refuses a new subnet in a network that takes none, and one whose gateway is held.
    pub(super) fn check_arrival(&mut self, subnet: &SubnetConfig) {
        self.check_takes_subnets();
        self.check_gateway_free(subnet);
    }

    /// Refuses to remove a subnet in which something is held.
    pub(super) fn check_departure(&mut self, gone: &SubnetConfig) {
        let standing = self.network.standing_in(gone.cidr.range());
        if standing.count > 0 {
            let what = format!("subnet {} of network `{}`", gone.cidr, self.config.name);
            self.refuse(self.network.stands_against(what, standing));
        }
    }

    /// Refuses what conflicts with the other subnets of the network. For `path`, see [`Neighbours::admit`].
    pub(super) fn check_beside(&mut self, subnet: &SubnetConfig, path: Option<&str>) {
        let mut beside = Neighbours::in_network(&self.config);
        for other in self.subnets.iter().filter(|other| other.id != subnet.id) {
            beside.admit(other, path, &mut self.verdict);
        }
        beside.admit(subnet, path, &mut self.verdict);
    }

    /// Refuses subnets in a dynamic network.
    pub(super) fn check_takes_subnets(&mut self) {
        if let Some(refusal) = takes_no_subnets(&self.config.name, self.config.kind) {
            self.refuse(refusal);
        }
    }

    /// Refuses a gateway address that is held.
    fn check_gateway_free(&mut self, subnet: &SubnetConfig) {
        let holder = subnet.gateway.and_then(|gateway| Some((gateway, self.network.holder_at(gateway)?.1)));
        if let Some((address, reservation)) = holder {
            self.refuse(in_use(&self.config.name, address, &reservation));
        }
    }

    /// Refuses a new prefix that leaves out held or reserved addresses, or makes a held address unusable.
    fn check_resize(&mut self, before: &SubnetConfig, resized: &SubnetConfig) {
        let after = resized.cidr;
        let was_edge = |address: Address| edges(before.cidr).any(|(edge, _)| edge == address);
        let new_edges =
            edges(after).map(|(edge, _)| edge).filter(|edge| before.cidr.contains(*edge) && !was_edge(*edge));
        let mut lost: Vec<Range> = before.cidr.range().without(after.range()).collect();
        lost.extend(new_edges.map(Range::single));
        lost.sort_unstable_by_key(|range| range.first());
        let standing = standing_in_all(self.network, lost);
        if standing.count > 0 {
            let what = format!("what {after} takes from subnet {} (outside of it, or its edges)", before.cidr);
            self.refuse(self.network.stands_against(what, standing.clone()));
        }
        if let Some(reserved) = resized.reserved.iter().find(|reserved| !after.range().covers(reserved.range)) {
            let problem = format!(
                "reserved range {} of subnet {} would lie outside {after}; remove it with reserved.remove first",
                reserved.range, before.cidr
            );
            self.refuse(Refusal::Guarded { problem, count: standing.count, first: standing.first });
        }
    }
}
