//! From the wire to the core: turns params into the parts of commands. The values are valid already; nothing is decided here.

use compact_str::CompactString;

use crate::core::address::Address;
use crate::core::command::{
    AcquireItem, DnsPatch, Filter, L2Patch, LabelsPatch, LimitsPatch, MacWish, NetworkInput, NetworkPatch, Patch,
    PoolInput, PoolPatch, PoolRef, ReservationPatch, ReservedInput, SubnetEntry, SubnetInput, SubnetPatch, SubnetRef,
    Target, Wish,
};
use crate::core::state::{Dns, L2, Limits, NetworkKind, Policy, PoolKind, ReservationKind, ReservedFor};
use crate::core::types::{Generation, Owner, Scope, Slot, SlotKey};
use crate::wire::Nullable;
use crate::wire::params;
use crate::wire::values::{self, LabelPatch, MacChoice};

/// A text from the wire as the core keeps it.
fn text(value: &str) -> CompactString {
    CompactString::from(value)
}

pub(super) fn subnet_ref(subnet: values::SubnetRef) -> SubnetRef {
    match subnet {
        values::SubnetRef::Cidr(cidr) => SubnetRef::Cidr(cidr),
        values::SubnetRef::Name(name) => SubnetRef::Named(text(name.as_str())),
        values::SubnetRef::Id(id) => SubnetRef::Named(CompactString::from(id.to_string())),
    }
}

pub(super) fn pool_ref(pool: values::PoolRef) -> PoolRef {
    match pool {
        values::PoolRef::Name(name) => PoolRef::Named(name),
        values::PoolRef::Range(range) => PoolRef::Range(range),
    }
}

pub(super) fn network_text(network: &values::NetworkRef) -> CompactString {
    match network {
        values::NetworkRef::Name(name) => text(name.as_str()),
        values::NetworkRef::Id(id) => CompactString::from(id.to_string()),
    }
}

pub(super) fn mac(choice: MacChoice) -> MacWish {
    match choice {
        MacChoice::Auto => MacWish::Auto,
        MacChoice::Mac(mac) => MacWish::Given(mac),
    }
}

pub(super) fn patch<T, U>(member: Nullable<T>, convert: impl FnOnce(T) -> U) -> Patch<U> {
    match member {
        Nullable::Absent => Patch::Keep,
        Nullable::Null => Patch::Clear,
        Nullable::Value(value) => Patch::Set(convert(value)),
    }
}

fn set<T, U>(member: Option<T>, convert: impl FnOnce(T) -> U) -> Patch<U> {
    member.map_or(Patch::Keep, |value| Patch::Set(convert(value)))
}

fn labels_patch(patch: LabelPatch) -> LabelsPatch {
    patch.0.into_iter().collect()
}

/// The holder of an owner, scope and slot, with their defaults.
pub(super) fn holder(owner: Owner, scope: Option<Scope>, slot: Option<Slot>) -> SlotKey {
    SlotKey { scope: scope.unwrap_or_default(), owner, slot: slot.unwrap_or_default() }
}

pub(super) fn target(
    address: Option<Address>,
    owner: Option<Owner>,
    scope: Option<Scope>,
    slot: Option<Slot>,
    if_generation: Option<values::Serial>,
) -> Target {
    Target { address, owner, scope, slot, if_generation: if_generation.map(|serial| Generation(serial.get())) }
}

/// The grant options of any method that grants: all such methods have the same members.
macro_rules! grant_options {
    ($params:expr) => {
        $crate::core::command::GrantOptions {
            owner_uid: $params.owner_uid.take(),
            must_create: $params.must_create.unwrap_or(false),
            replace: $params.replace.unwrap_or(false),
            transient: $params.transient.unwrap_or(false),
            ttl_seconds: $params.ttl_seconds.map(|ttl| ttl.get()),
            claimant: $params.claimant.take(),
            release_with_claimant: $params.release_with_claimant.unwrap_or(false),
            labels: $params.labels.take().map(|labels| labels.0),
            note: $params.note.take().map(|note| note.into_inner()),
            hostname: $params.hostname.take().map(|name| ::compact_str::CompactString::from(name.as_str())),
            mac: $params.mac.map($crate::server::input::mac),
            macs_elsewhere: ::std::vec::Vec::new(),
        }
    };
}
pub(super) use grant_options;

pub(super) fn wish(
    family: Option<crate::core::address::Family>,
    subnet: Option<values::SubnetRef>,
    pool: Option<values::PoolRef>,
    zone: Option<values::Word>,
    prefix_length: Option<values::PrefixLength>,
) -> Wish {
    Wish {
        family,
        subnet: subnet.map(subnet_ref),
        pool: pool.map(pool_ref),
        zone: zone.map(values::Word::into_inner),
        prefix_length: prefix_length.map(values::PrefixLength::length),
    }
}

pub(super) fn acquire_item(index: usize, slot: Slot, item: params::AcquireItem) -> AcquireItem {
    AcquireItem {
        index,
        slot,
        address: item.address,
        wish: wish(item.family, item.subnet, item.pool, item.zone, item.prefix_length),
        optional: item.optional.unwrap_or(false),
    }
}

pub(super) fn reservation_patch(set: params::ReservationSet) -> ReservationPatch {
    ReservationPatch {
        labels: patch(set.labels, labels_patch),
        note: patch(set.note, values::Note::into_inner),
        hostname: patch(set.hostname, |name| text(name.as_str())),
        mac: patch(set.mac, mac),
        owner_uid: patch(set.owner_uid, |uid| uid),
    }
}

pub(super) fn filter(params: &mut params::IpList) -> Filter {
    Filter {
        scope: params.scope.take(),
        owner: params.owner.take(),
        owner_prefix: params.owner_prefix.take().map(values::OwnerPrefix::into_inner),
        claimant: params.claimant.take(),
        bound: params.bound,
        label: params.label.take().map(|label| (label.key, label.value)),
        subnet: params.subnet.take().map(subnet_ref),
        pool: params.pool.take().map(pool_ref),
        kind: params.kind.map(reservation_kind),
        range: params.range,
        hostname: params.hostname.take().map(|name| text(name.as_str())),
        mac: params.mac,
        obsolete: params.obsolete,
        expires_before: params.expires_before,
        created_before: params.created_before,
    }
}

fn reservation_kind(kind: params::query::ReservationKind) -> ReservationKind {
    match kind {
        params::query::ReservationKind::Dynamic => ReservationKind::Dynamic,
        params::query::ReservationKind::Static => ReservationKind::Static,
    }
}

fn network_kind(kind: params::network::NetworkKind) -> NetworkKind {
    match kind {
        params::network::NetworkKind::Manual => NetworkKind::Manual,
        params::network::NetworkKind::Dynamic => NetworkKind::Dynamic,
        params::network::NetworkKind::Vip => NetworkKind::Vip,
    }
}

fn policy(policy: params::network::Policy) -> Policy {
    match policy {
        params::network::Policy::Lowest => Policy::Lowest,
        params::network::Policy::Random => Policy::Random,
        params::network::Policy::Oldest => Policy::Oldest,
    }
}

pub(super) fn pool_kind(kind: params::input::PoolKind) -> PoolKind {
    match kind {
        params::input::PoolKind::Dynamic => PoolKind::Dynamic,
        params::input::PoolKind::Static => PoolKind::Static,
    }
}

fn dns(input: params::DnsInput) -> Dns {
    Dns {
        servers: input.servers.map(|servers| servers.into_vec()).unwrap_or_default(),
        search: input
            .search
            .map(|search| search.into_vec().iter().map(|domain| text(domain.as_str())).collect())
            .unwrap_or_default(),
    }
}

fn zones(zones: params::input::Zones) -> Vec<CompactString> {
    zones.into_vec().into_iter().map(values::Word::into_inner).collect()
}

fn pool(input: params::PoolInput) -> PoolInput {
    PoolInput { range: Some(input.range), name: input.name, kind: input.kind.map(pool_kind), draining: input.draining }
}

fn pools(pools: params::input::Pools) -> Vec<PoolInput> {
    pools.into_vec().into_iter().map(pool).collect()
}

pub(super) fn reserved_for(owner: params::ForOwner) -> ReservedFor {
    ReservedFor { scope: owner.scope.unwrap_or_default(), owner: owner.owner, slot: owner.slot }
}

fn reserved(input: params::ReservedInput) -> ReservedInput {
    ReservedInput {
        range: input.range,
        note: input.note.map(values::Note::into_inner).unwrap_or_default(),
        reserved_for: input.r#for.map(reserved_for),
    }
}

/// A subnet from the members that `network.create` and `subnet.add` share.
macro_rules! subnet_input {
    ($input:expr) => {{
        let input = $input;
        SubnetInput {
            cidr: input.cidr,
            name: input.name,
            gateway: input.gateway,
            dhcp: input.dhcp,
            dns: input.dns.map(dns),
            zones: input.zones.map(zones),
            tags: input.tags.map(|tags| tags.0),
            draining: input.draining,
            pools: input.pools.map(pools),
            reserved: input.reserved.map(|list| list.into_vec().into_iter().map(reserved).collect()),
        }
    }};
}

pub(super) fn subnet(input: params::SubnetInput) -> SubnetInput {
    subnet_input!(input)
}

pub(super) fn subnet_add(input: params::SubnetAdd) -> SubnetInput {
    subnet_input!(input)
}

/// `network.create`, also for network files.
pub fn network(input: params::NetworkCreate) -> NetworkInput {
    NetworkInput {
        name: input.name,
        realm: input.realm,
        kind: input.kind.map(network_kind),
        l2: input.l2.map(|l2| L2 {
            mode: l2.mode.map(values::Word::into_inner),
            link: l2.link.map(values::Word::into_inner),
            mac_prefix: l2.mac_prefix.map(|prefix| text(prefix.as_str())),
        }),
        policy: input.policy.map(policy),
        cooldown_seconds: input.cooldown_seconds.map(|seconds| seconds.get()),
        cooldown_yields: input.cooldown_yields,
        static_only: input.static_only,
        protected: input.protected,
        limits: input.limits.map(|limits| Limits {
            per_owner: limits.per_owner.map(|limit| limit.get()),
            per_scope: limits.per_scope.map(|limit| limit.get()),
        }),
        tags: input.tags.map(|tags| tags.0),
        description: input.description.map(values::Note::into_inner),
        subnets: input.subnets.map(|subnets| subnets.into_vec().into_iter().map(subnet).collect()),
    }
}

pub(super) fn network_patch(patched: params::patch::NetworkSet) -> NetworkPatch {
    NetworkPatch {
        name: patched.name,
        l2: patch(patched.l2, |l2| L2Patch {
            mode: patch(l2.mode, values::Word::into_inner),
            link: patch(l2.link, values::Word::into_inner),
            mac_prefix: patch(l2.mac_prefix, |prefix| text(prefix.as_str())),
        }),
        policy: set(patched.policy, policy),
        cooldown_seconds: set(patched.cooldown_seconds, |seconds| seconds.get()),
        cooldown_yields: set(patched.cooldown_yields, |flag| flag),
        static_only: set(patched.static_only, |flag| flag),
        protected: set(patched.protected, |flag| flag),
        limits: patch(patched.limits, |limits| LimitsPatch {
            per_owner: patch(limits.per_owner, |limit| limit.get()),
            per_scope: patch(limits.per_scope, |limit| limit.get()),
        }),
        tags: patch(patched.tags, labels_patch),
        description: patch(patched.description, values::Note::into_inner),
        subnets: patched.subnets.map(|subnets| subnets.into_vec().into_iter().map(subnet_entry).collect()),
    }
}

pub(super) fn subnet_patch(patched: params::patch::SubnetSet) -> SubnetPatch {
    SubnetPatch {
        cidr: patched.cidr,
        name: patch(patched.name, |name| name),
        gateway: patch(patched.gateway, |gateway| gateway),
        dhcp: set(patched.dhcp, |flag| flag),
        dns: patch(patched.dns, |dns| DnsPatch {
            servers: patch(dns.servers, |servers| servers.into_vec()),
            search: patch(dns.search, |search| search.into_vec().iter().map(|name| text(name.as_str())).collect()),
        }),
        zones: patch(patched.zones, zones),
        tags: patch(patched.tags, labels_patch),
        draining: set(patched.draining, |flag| flag),
        pools: set(patched.pools, pools),
    }
}

/// An entry of `set.subnets`: it changes its subnet as `subnet.modify` would.
fn subnet_entry(entry: params::SubnetEntry) -> SubnetEntry {
    let params::SubnetEntry { id, cidr, gateway, name, dhcp, dns, zones, tags, draining, pools, reserved: ranges } =
        entry;
    SubnetEntry {
        id,
        set: subnet_patch(params::patch::SubnetSet { cidr, gateway, name, dhcp, dns, zones, tags, draining, pools }),
        reserved: ranges.map(|list| list.into_vec().into_iter().map(reserved).collect()),
    }
}

pub(super) fn pool_patch(patched: params::patch::PoolSet) -> PoolPatch {
    PoolPatch {
        range: patched.range,
        name: patch(patched.name, |name| name),
        kind: set(patched.kind, pool_kind),
        draining: set(patched.draining, |flag| flag),
    }
}
