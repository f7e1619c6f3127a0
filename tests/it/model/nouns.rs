//! The nouns of the contract as JSON. Members without a value are left out.

use allod::core::address::Address;
use serde_json::{Map, Value, json};

use super::Model;
use super::state::{Network, Pool, Reserved, Status, Subnet, width};

/// Drops null, empty lists and empty objects from the outermost object.
pub fn tidy(value: Value) -> Value {
    let Value::Object(members) = value else { return value };
    let kept = members.into_iter().filter(|(_, value)| !is_nothing(value));
    Value::Object(kept.collect::<Map<String, Value>>())
}

pub fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Milliseconds since the epoch as RFC 3339.
pub fn time(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    // Converts days to a civil date, with years that begin in March.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

pub fn pool(pool: &Pool) -> Value {
    tidy(json!({
        "range": pool.range.to_string(), "name": pool.name, "kind": pool.kind, "draining": pool.draining,
    }))
}

pub fn reserved(reserved: &Reserved) -> Value {
    let whose = reserved.whose.as_ref().map(|w| tidy(json!({ "scope": w.scope, "owner": w.owner, "slot": w.slot })));
    tidy(json!({ "range": reserved.range.to_string(), "note": reserved.note, "for": whose }))
}

pub fn reserved_list(subnet: &Subnet) -> Vec<Value> {
    let mut list: Vec<&Reserved> = subnet.reserved.iter().collect();
    list.sort_by_key(|reserved| reserved.range);
    list.into_iter().map(reserved).collect()
}

pub fn subnet(subnet: &Subnet) -> Value {
    tidy(json!({
        "id": subnet.id, "name": subnet.name, "cidr": subnet.cidr.to_string(),
        "gateway": subnet.gateway.map(|gateway| gateway.to_string()), "dhcp": subnet.dhcp, "dns": subnet.dns,
        "zones": subnet.zones, "tags": subnet.tags, "draining": subnet.draining,
        "pools": subnet.pools.iter().map(pool).collect::<Vec<_>>(), "reserved": reserved_list(subnet),
    }))
}

pub fn network(network: &Network) -> Value {
    let limits = tidy(json!({ "per_owner": network.per_owner, "per_scope": network.per_scope }));
    tidy(json!({
        "id": network.id, "name": network.name, "realm": network.realm, "kind": network.kind, "l2": network.l2,
        "policy": network.policy, "cooldown_seconds": network.cooldown_ms / 1000,
        "cooldown_yields": network.cooldown_yields, "static_only": network.static_only,
        "protected": network.protected, "limits": limits, "tags": network.tags, "description": network.description,
        "subnets": network.subnets.iter().map(subnet).collect::<Vec<_>>(), "version": network.version,
    }))
}

pub fn status(status: Status) -> &'static str {
    match status {
        Status::Unknown => "unknown",
        Status::Held => "held",
        Status::Unusable => "unusable",
        Status::Reserved => "reserved",
        Status::Declined => "declined",
        Status::Cooling => "cooling",
        Status::Free => "free",
    }
}

impl Model {
    /// The reservation with this first address.
    pub fn reservation(&self, network: usize, first: Address) -> Value {
        let network = &self.networks[network];
        let held = &network.held[&first];
        let Some(subnet) = network.subnet_of(first) else { return json!({}) };
        let pool = subnet.pool_at(first);
        tidy(json!({
            "network": network.name, "network_id": network.id, "address": first.to_string(),
            "prefix_length": held.length, "interface": format!("{first}/{}", subnet.cidr.length()),
            "subnet": subnet.cidr.to_string(), "subnet_id": subnet.id,
            "pool": pool.map(|pool| pool.range.to_string()), "pool_name": pool.and_then(|pool| pool.name.clone()),
            "gateway": subnet.gateway.map(|gateway| gateway.to_string()), "dhcp": subnet.dhcp, "dns": subnet.dns,
            "l2": network.l2, "scope": held.key.scope, "owner": held.key.owner, "slot": held.key.slot,
            "owner_uid": held.uid, "kind": held.kind, "claimant": held.claimant,
            "release_with_claimant": held.release_with_claimant, "transient": held.transient,
            "labels": held.labels, "note": held.note, "hostname": held.hostname, "mac": held.mac,
            "created_at": time(held.created), "expires_at": held.end.map(time), "generation": held.generation,
        }))
    }

    /// What a refusal says about the holder.
    pub fn holder(&self, network: usize, first: Address) -> Value {
        let held = &self.networks[network].held[&first];
        tidy(json!({
            "scope": held.key.scope, "owner": held.key.owner, "slot": held.key.slot, "claimant": held.claimant,
        }))
    }

    /// Address and state, as in answers of `ip.get` and `ip.find`.
    pub fn seen(&self, network: usize, address: Address) -> Value {
        let state = self.networks[network].status(address, self.clock);
        let covering = self.networks[network].covering(address).map(|(first, _)| first);
        let reservation = covering.map(|first| self.reservation(network, first));
        tidy(json!({
            "address": address.to_string(), "state": status(state), "network": self.networks[network].name,
            "reservation": reservation,
        }))
    }
}

pub fn is_single(address: Address, length: u8) -> bool {
    length == width(address)
}
