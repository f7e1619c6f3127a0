//! Turns configuration, usage, maps and scopes of the core into the protocol's nouns.

use crate::core::outcome::{
    AddressState, Contested, Counts, Drawing, NetworkView, PoolMap, Present, ScopeUsage, UsageReport,
};
use crate::core::state::{NetworkKind, Policy, PoolConfig, PoolKind, ReservedRange, SubnetConfig};
use crate::wire::values::{LabelMap, Number, Share};
use crate::wire::{nouns, params, values};

pub(super) fn state_word(state: AddressState) -> &'static str {
    match state {
        AddressState::Held => "held",
        AddressState::Free => "free",
        AddressState::Reserved => "reserved",
        AddressState::Cooling => "cooling",
        AddressState::Declined => "declined",
        AddressState::Unusable => "unusable",
        AddressState::Unknown => "unknown",
    }
}

/// A text that was valid when it came in is valid when it goes out; one that is not is left out.
pub(super) fn text_of<const MIN: usize, const MAX: usize>(
    text: &compact_str::CompactString,
) -> Option<values::Text<MIN, MAX>> {
    values::Text::new(text.clone()).ok()
}

pub(super) fn dns(dns: &crate::core::state::Dns) -> Option<nouns::Dns> {
    if dns.servers.is_empty() && dns.search.is_empty() {
        return None;
    }
    let search = dns.search.iter().filter_map(|domain| domain.parse().ok()).collect();
    Some(nouns::Dns { servers: dns.servers.clone(), search })
}

pub(super) fn l2(l2: &crate::core::state::L2) -> Option<nouns::L2> {
    if l2.mode.is_none() && l2.link.is_none() && l2.mac_prefix.is_none() {
        return None;
    }
    Some(nouns::L2 {
        mode: l2.mode.as_ref().and_then(text_of),
        link: l2.link.as_ref().and_then(text_of),
        mac_prefix: l2.mac_prefix.as_ref().and_then(|prefix| prefix.parse().ok()),
    })
}

pub(super) fn network_kind(kind: NetworkKind) -> params::network::NetworkKind {
    match kind {
        NetworkKind::Manual => params::network::NetworkKind::Manual,
        NetworkKind::Dynamic => params::network::NetworkKind::Dynamic,
        NetworkKind::Vip => params::network::NetworkKind::Vip,
    }
}

pub(super) fn policy(policy: Policy) -> params::network::Policy {
    match policy {
        Policy::Lowest => params::network::Policy::Lowest,
        Policy::Random => params::network::Policy::Random,
        Policy::Oldest => params::network::Policy::Oldest,
    }
}

pub(super) fn network(view: &NetworkView, report: Option<&UsageReport>, created: Option<bool>) -> nouns::Network {
    let config = &view.config;
    let limits = config.limits;
    nouns::Network {
        id: config.id,
        name: config.name.clone(),
        realm: config.realm.clone(),
        kind: network_kind(config.kind),
        l2: l2(&config.l2),
        policy: policy(config.policy),
        cooldown_seconds: Number::new(config.cooldown_seconds)
            .unwrap_or_else(|| Number::new(0).expect("0 is in range")),
        cooldown_yields: config.cooldown_yields,
        static_only: config.static_only,
        protected: config.protected,
        limits: (limits.per_owner.is_some() || limits.per_scope.is_some())
            .then_some(nouns::Limits { per_owner: limits.per_owner, per_scope: limits.per_scope }),
        tags: LabelMap(config.tags.clone()),
        description: Some(&config.description).filter(|text| !text.is_empty()).and_then(text_of),
        subnets: view.subnets.iter().map(|config| subnet(config)).collect(),
        version: config.version,
        usage: report.map(|report| Box::new(usage(report))),
        cursor: None,
        created,
    }
}

pub(super) fn subnet(config: &SubnetConfig) -> nouns::Subnet {
    nouns::Subnet {
        id: config.id,
        name: config.name.clone(),
        cidr: config.cidr,
        gateway: config.gateway,
        dhcp: config.dhcp,
        dns: dns(&config.dns),
        zones: config.zones.iter().filter_map(text_of).collect(),
        tags: LabelMap(config.tags.clone()),
        draining: config.draining,
        pools: config.pools.iter().map(pool).collect(),
        reserved: config.reserved.iter().map(reserved).collect(),
        created: None,
    }
}

pub(super) fn pool_kind(kind: PoolKind) -> params::input::PoolKind {
    match kind {
        PoolKind::Dynamic => params::input::PoolKind::Dynamic,
        PoolKind::Static => params::input::PoolKind::Static,
    }
}

pub(super) fn pool(config: &PoolConfig) -> nouns::Pool {
    let PoolConfig { range, name, kind, draining, .. } = config;
    nouns::Pool { range: *range, name: name.clone(), kind: pool_kind(*kind), draining: *draining, created: None }
}

pub(super) fn reserved(range: &ReservedRange) -> nouns::Reserved {
    nouns::Reserved {
        range: range.range,
        note: Some(&range.note).filter(|note| !note.is_empty()).and_then(text_of),
        r#for: range.reserved_for.as_ref().map(|owner| params::ForOwner {
            scope: Some(owner.scope.clone()),
            owner: owner.owner.clone(),
            slot: owner.slot.clone(),
        }),
    }
}

pub(super) fn used_ratio(counts: &Counts) -> Share {
    let share = if counts.size == 0 { 0.0 } else { counts.held as f64 / counts.size as f64 };
    Share::new(share.clamp(0.0, 1.0)).unwrap_or_else(|| Share::new(0.0).expect("0 is a share"))
}

/// Fills the members that all nouns of usage have.
macro_rules! counted {
    ($noun:path, $counts:expr, { $($more:tt)* }) => {{
        let counts = $counts;
        $noun {
            size: values::Count(counts.size),
            held: values::Count(counts.held),
            dynamic: values::Count(counts.held_dynamic),
            r#static: values::Count(counts.held_static),
            obsolete: values::Count(counts.obsolete),
            reserved: values::Count(counts.reserved),
            cooling: values::Count(counts.cooling),
            declined: values::Count(counts.declined),
            free: values::Count(counts.free),
            used_ratio: used_ratio(counts),
            reservations: counts.reservations,
            $($more)*
        }
    }};
}

pub(super) fn usage(report: &UsageReport) -> nouns::Usage {
    let pools = |subnet: &crate::core::outcome::SubnetUsage| -> Vec<nouns::PoolUsage> {
        subnet
            .pools
            .iter()
            .map(|pool| {
                counted!(nouns::PoolUsage, &pool.counts, {
                    range: pool.range, name: pool.name.clone(), kind: pool_kind(pool.kind),
                })
            })
            .collect()
    };
    let subnets = report
        .subnets
        .iter()
        .map(|subnet| {
            counted!(nouns::SubnetUsage, &subnet.counts, {
                cidr: subnet.cidr, name: subnet.name.clone(), pools: pools(subnet),
            })
        })
        .collect();
    counted!(nouns::Usage, &report.counts, { subnets, cursor: None, })
}

pub(super) fn scope(usage: &ScopeUsage) -> nouns::ScopeEntry {
    nouns::ScopeEntry {
        scope: usage.scope.clone(),
        reservations: usage.reservations,
        addresses: values::Count(usage.addresses),
        obsolete: usage.obsolete,
        unbound: usage.unbound,
    }
}

fn conflict(contested: &Contested) -> nouns::Conflict {
    let Contested { network, network_id, conflict, present } = contested;
    let (late, since) = (conflict.holder.clone(), conflict.granted_at);
    let present =
        present.as_ref().map(|Present { network, network_id, address, reservation: held }| nouns::PresentClaim {
            network: network.clone(),
            network_id: *network_id,
            address: *address,
            prefix_length: held.prefix_length,
            scope: held.holder.scope.clone(),
            owner: held.holder.owner.clone(),
            slot: held.holder.slot.clone(),
            generation: held.generation,
            since: held.created_at,
        });
    nouns::Conflict {
        network: network.clone(),
        network_id: *network_id,
        address: conflict.address,
        prefix_length: conflict.prefix_length,
        late: nouns::LateClaim {
            scope: late.scope,
            owner: late.owner,
            slot: late.slot,
            generation: conflict.generation,
            since,
            mac: conflict.mac,
        },
        present,
        found_at: conflict.found_at,
    }
}

pub(super) fn conflicts(contested: &[Contested]) -> nouns::ClusterConflictsResult {
    nouns::ClusterConflictsResult { conflicts: contested.iter().map(conflict).collect() }
}

pub(super) fn accepted(contested: &[Contested]) -> nouns::ClusterAcceptResult {
    nouns::ClusterAcceptResult { accepted: contested.iter().map(conflict).collect() }
}

pub(super) fn map_pool(pool: &PoolMap) -> nouns::MapPool {
    let mut answer = nouns::MapPool {
        range: pool.range,
        name: pool.name.clone(),
        first: pool.range.first(),
        last: pool.range.last(),
        map: None,
        runs: None,
        cell_prefix_length: None,
        cells: None,
    };
    match &pool.drawing {
        Drawing::Text(text) => answer.map = Some(text.clone()),
        Drawing::Runs(runs) => {
            let mark = |taken| if taken { nouns::MapMark::Taken } else { nouns::MapMark::Free };
            answer.runs = Some(runs.iter().map(|&(first, last, taken)| (first, last, mark(taken))).collect());
        }
        Drawing::Cells { prefix_length, cells } => {
            answer.cell_prefix_length = Number::new(u64::from(*prefix_length));
            let count = values::Count;
            answer.cells = Some(
                cells
                    .iter()
                    .map(|&(first, held, taken, free)| (first, count(held), count(taken), count(free)))
                    .collect(),
            );
        }
    }
    answer
}
