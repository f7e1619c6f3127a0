//! Configuration of networks and subnets, as bytes.
//!
//! It is written rarely and read at load only, so it is plain rather than compact: fields in the order of the structs.

use compact_str::CompactString;

use super::bytes::{CodecError, MARK_MAX, Reader, Result, Write, capacity};
use super::entry::{labels, mac, put_labels, put_mac};
use crate::core::address::{Address, Cidr, Range};
use crate::core::state::{
    Conflict, Dns, L2, Limits, NetworkConfig, NetworkKind, PastPool, Policy, PoolConfig, PoolKind, ReservedFor,
    ReservedRange, SubnetConfig,
};
use crate::core::types::{Generation, Name, NetworkId, Owner, Scope, Slot, SlotKey, SubnetId, Version, WallTime};
use crate::limits;

const V4: u8 = 4;
const V6: u8 = 6;

/// Writes family and number of an address: 5 or 17 bytes.
pub(super) fn put_address(out: &mut Vec<u8>, address: Address) {
    match address {
        Address::V4(bits) => {
            out.put_u8(V4);
            out.put_bytes(&bits.to_be_bytes());
        }
        Address::V6(bits) => {
            out.put_u8(V6);
            out.put_u128(bits);
        }
    }
}

pub(super) fn address(reader: &mut Reader<'_>) -> Result<Address> {
    match reader.u8("address family")? {
        V4 => Ok(Address::V4(reader.u32("address")?)),
        V6 => Ok(Address::V6(reader.u128("address")?)),
        tag => Err(CodecError::Tag { what: "address family", tag }),
    }
}

fn put_range(out: &mut Vec<u8>, range: Range) {
    put_address(out, range.first());
    put_address(out, range.last());
}

fn range(reader: &mut Reader<'_>) -> Result<Range> {
    let (first, last) = (address(reader)?, address(reader)?);
    Range::new(first, last).ok_or(CodecError::Range("range"))
}

fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.put_u8(u8::from(value));
}

fn bool(reader: &mut Reader<'_>, what: &'static str) -> Result<bool> {
    Ok(reader.flags(1, what)? == 1)
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    put_bool(out, value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

fn option<'a, T>(
    reader: &mut Reader<'a>,
    what: &'static str,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T>,
) -> Result<Option<T>> {
    if bool(reader, what)? { read(reader).map(Some) } else { Ok(None) }
}

fn put_list<T>(
    out: &mut Vec<u8>,
    values: &[T],
    max: usize,
    what: &'static str,
    mut put: impl FnMut(&mut Vec<u8>, &T) -> Result<()>,
) -> Result<()> {
    if values.len() > max {
        return Err(CodecError::Range(what));
    }
    out.put_varint(values.len() as u64);
    values.iter().try_for_each(|value| put(out, value))
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    max: usize,
    what: &'static str,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = reader.count(what)?;
    if count > max {
        return Err(CodecError::Range(what));
    }
    let mut values = Vec::with_capacity(capacity(count));
    for _ in 0..count {
        values.push(read(reader)?);
    }
    Ok(values)
}

fn put_text(out: &mut Vec<u8>, text: &CompactString) -> Result<()> {
    out.put_text(text);
    Ok(())
}

fn put_generation(out: &mut Vec<u8>, generation: Generation) -> Result<()> {
    if generation.0 > MARK_MAX {
        return Err(CodecError::Range("generation"));
    }
    out.put_varint(generation.0);
    Ok(())
}

fn generation(reader: &mut Reader<'_>) -> Result<Generation> {
    reader.varint_to(MARK_MAX, "generation").map(Generation)
}

/// Writes the body of a network's configuration, which follows version, kind and mark.
pub(super) fn put_network(out: &mut Vec<u8>, config: &NetworkConfig) -> Result<()> {
    let NetworkConfig {
        id,
        name,
        realm,
        kind,
        l2,
        policy,
        cooldown_seconds,
        cooldown_yields,
        static_only,
        protected,
        limits,
        tags,
        description,
        version: _,
        created_at,
        closed,
        purged,
        conflicts,
    } = config;
    if *purged && !closed {
        return Err(CodecError::Range("closed"));
    }
    out.put_u128(id.0);
    out.put_text(name.as_str());
    out.put_text(realm.as_str());
    out.put_u8(match kind {
        NetworkKind::Manual => 0,
        NetworkKind::Dynamic => 1,
        NetworkKind::Vip => 2,
    });
    for text in [&l2.mode, &l2.link, &l2.mac_prefix] {
        put_option(out, text.as_ref(), |out, text| out.put_text(text));
    }
    out.put_u8(match policy {
        Policy::Lowest => 0,
        Policy::Random => 1,
        Policy::Oldest => 2,
    });
    out.put_varint(*cooldown_seconds);
    for value in [cooldown_yields, static_only, protected] {
        put_bool(out, *value);
    }
    // For networks that are not purged this is the same byte as before that flag existed.
    out.put_u8(u8::from(*closed) | u8::from(*purged) << 1);
    put_option(out, limits.per_owner, Write::put_varint);
    put_option(out, limits.per_scope, Write::put_varint);
    put_labels(out, tags)?;
    out.put_text(description);
    out.put_varint(created_at.0);
    if conflicts.is_empty() {
        // The same bytes as before conflicts existed.
        return Ok(());
    }
    put_list(out, conflicts, limits::CONFLICTS_MAX, "conflicts", |out, conflict| {
        let Conflict { address, prefix_length, holder, generation, granted_at, found_at, mac: _ } = conflict;
        put_address(out, *address);
        out.put_u8(*prefix_length);
        for text in [holder.scope.as_str(), holder.owner.as_str(), holder.slot.as_str()] {
            out.put_text(text);
        }
        put_generation(out, *generation)?;
        out.put_varint(granted_at.0);
        out.put_varint(found_at.0);
        Ok(())
    })?;
    if conflicts.iter().all(|conflict| conflict.mac.is_none()) {
        // The same bytes as before conflicts had a MAC.
        return Ok(());
    }
    conflicts.iter().try_for_each(|conflict| {
        put_bool(out, conflict.mac.is_some());
        conflict.mac.map_or(Ok(()), |mac| put_mac(out, mac))
    })
}

fn conflict(reader: &mut Reader<'_>) -> Result<Conflict> {
    let address = address(reader)?;
    let prefix_length = reader.u8("prefix length")?;
    if Cidr::new(address, prefix_length).is_none() {
        return Err(CodecError::Range("prefix length"));
    }
    let holder = SlotKey {
        scope: reader.checked("scope", Scope::new)?,
        owner: reader.checked("owner", Owner::new)?,
        slot: reader.checked("slot", Slot::new)?,
    };
    let generation = generation(reader)?;
    let (granted_at, found_at) = (WallTime(reader.varint("granted_at")?), WallTime(reader.varint("found_at")?));
    Ok(Conflict { address, prefix_length, holder, generation, granted_at, found_at, mac: None })
}

/// Reads the MACs of conflicts, which follow the last conflict if one of them has a MAC.
fn macs_of(conflicts: &mut [Conflict], reader: &mut Reader<'_>) -> Result<()> {
    if conflicts.is_empty() || reader.is_empty() {
        return Ok(());
    }
    for conflict in conflicts.iter_mut() {
        conflict.mac = option(reader, "mac", mac)?;
    }
    if conflicts.iter().all(|conflict| conflict.mac.is_none()) {
        return Err(CodecError::Range("mac"));
    }
    Ok(())
}

pub(super) fn network(mark: u64, reader: &mut Reader<'_>) -> Result<NetworkConfig> {
    let id = NetworkId(reader.u128("network id")?);
    let name = reader.checked("name", Name::new)?;
    let realm = reader.checked("realm", Name::new)?;
    let kind = match reader.u8("network kind")? {
        0 => NetworkKind::Manual,
        1 => NetworkKind::Dynamic,
        2 => NetworkKind::Vip,
        tag => return Err(CodecError::Tag { what: "network kind", tag }),
    };
    let mode = option(reader, "l2 mode", |reader| reader.text("l2 mode"))?;
    let link = option(reader, "l2 link", |reader| reader.text("l2 link"))?;
    let mac_prefix = option(reader, "mac prefix", |reader| reader.text("mac prefix"))?;
    let policy = match reader.u8("policy")? {
        0 => Policy::Lowest,
        1 => Policy::Random,
        2 => Policy::Oldest,
        tag => return Err(CodecError::Tag { what: "policy", tag }),
    };
    let cooldown_seconds = reader.varint("cooldown")?;
    let cooldown_yields = bool(reader, "cooldown_yields")?;
    let static_only = bool(reader, "static_only")?;
    let protected = bool(reader, "protected")?;
    let (closed, purged) = match reader.flags(3, "closed")? {
        0 => (false, false),
        1 => (true, false),
        3 => (true, true),
        _ => return Err(CodecError::Range("closed")),
    };
    let per_owner = option(reader, "limit", |reader| reader.varint("limit"))?;
    let per_scope = option(reader, "limit", |reader| reader.varint("limit"))?;
    let tags = labels(reader)?;
    let description = reader.text("description")?;
    let created_at = WallTime(reader.varint("created_at")?);
    let mut conflicts = match reader.is_empty() {
        true => Vec::new(),
        false => list(reader, limits::CONFLICTS_MAX, "conflicts", conflict)?,
    };
    macs_of(&mut conflicts, reader)?;
    Ok(NetworkConfig {
        id,
        name,
        realm,
        kind,
        l2: L2 { mode, link, mac_prefix },
        policy,
        cooldown_seconds,
        cooldown_yields,
        static_only,
        protected,
        limits: Limits { per_owner, per_scope },
        tags,
        description,
        version: Version(mark),
        created_at,
        closed,
        purged,
        conflicts,
    })
}

/// Writes the body of a subnet's configuration, which follows version, kind and mark.
pub(super) fn put_subnet(out: &mut Vec<u8>, subnet: &SubnetConfig) -> Result<()> {
    let SubnetConfig {
        id,
        name,
        cidr,
        gateway,
        dhcp,
        dns,
        zones,
        tags,
        draining,
        pools,
        reserved,
        past_pools,
        position,
        version: _,
    } = subnet;
    out.put_u128(id.0);
    put_option(out, name.as_ref(), |out, name| out.put_text(name.as_str()));
    put_address(out, cidr.base());
    out.put_u8(cidr.length());
    put_option(out, *gateway, put_address);
    put_bool(out, *dhcp);
    put_list(out, &dns.servers, limits::DNS_ENTRIES_MAX, "dns servers", |out, server| {
        put_address(out, *server);
        Ok(())
    })?;
    put_list(out, &dns.search, limits::DNS_ENTRIES_MAX, "dns search", put_text)?;
    put_list(out, zones, limits::ZONES_MAX, "zones", put_text)?;
    put_labels(out, tags)?;
    put_bool(out, *draining);
    put_list(out, pools, limits::POOLS_MAX, "pools", put_pool)?;
    put_list(out, reserved, limits::RESERVED_RANGES_MAX, "reserved", |out, reserved| {
        put_range(out, reserved.range);
        out.put_text(&reserved.note);
        put_option(out, reserved.reserved_for.as_ref(), |out, kept| {
            out.put_text(kept.scope.as_str());
            out.put_text(kept.owner.as_str());
            put_option(out, kept.slot.as_ref(), |out, slot| out.put_text(slot.as_str()));
        });
        Ok(())
    })?;
    put_list(out, past_pools, limits::PAST_POOLS_MAX, "past pools", |out, past| {
        put_range(out, past.range);
        put_option(out, past.name.as_ref(), |out, name| out.put_text(name.as_str()));
        put_generation(out, past.since)?;
        put_generation(out, past.until)
    })?;
    out.put_varint(*position);
    Ok(())
}

fn put_pool(out: &mut Vec<u8>, pool: &PoolConfig) -> Result<()> {
    put_range(out, pool.range);
    put_option(out, pool.name.as_ref(), |out, name| out.put_text(name.as_str()));
    out.put_u8(match pool.kind {
        PoolKind::Dynamic => 0,
        PoolKind::Static => 1,
    });
    put_bool(out, pool.draining);
    put_generation(out, pool.since)
}

fn pool(reader: &mut Reader<'_>) -> Result<PoolConfig> {
    let range = range(reader)?;
    let name = option(reader, "pool name", |reader| reader.checked("pool name", Name::new))?;
    let kind = match reader.u8("pool kind")? {
        0 => PoolKind::Dynamic,
        1 => PoolKind::Static,
        tag => return Err(CodecError::Tag { what: "pool kind", tag }),
    };
    let draining = bool(reader, "draining")?;
    let since = generation(reader)?;
    Ok(PoolConfig { range, name, kind, draining, since })
}

fn reserved_range(reader: &mut Reader<'_>) -> Result<ReservedRange> {
    let range = range(reader)?;
    let note = reader.text("note")?;
    let reserved_for = option(reader, "reserved for", |reader| {
        let scope = reader.checked("scope", Scope::new)?;
        let owner = reader.checked("owner", Owner::new)?;
        let slot = option(reader, "slot", |reader| reader.checked("slot", Slot::new))?;
        Ok(ReservedFor { scope, owner, slot })
    })?;
    Ok(ReservedRange { range, note, reserved_for })
}

fn past_pool(reader: &mut Reader<'_>) -> Result<PastPool> {
    let range = range(reader)?;
    let name = option(reader, "pool name", |reader| reader.checked("pool name", Name::new))?;
    Ok(PastPool { range, name, since: generation(reader)?, until: generation(reader)? })
}

pub(super) fn subnet(mark: u64, reader: &mut Reader<'_>) -> Result<SubnetConfig> {
    let id = SubnetId(reader.u128("subnet id")?);
    let name = option(reader, "name", |reader| reader.checked("name", Name::new))?;
    let base = address(reader)?;
    let cidr = Cidr::new(base, reader.u8("prefix length")?).ok_or(CodecError::Range("prefix"))?;
    let gateway = option(reader, "gateway", address)?;
    let dhcp = bool(reader, "dhcp")?;
    let servers = list(reader, limits::DNS_ENTRIES_MAX, "dns servers", address)?;
    let search = list(reader, limits::DNS_ENTRIES_MAX, "dns search", |reader| reader.text("dns search"))?;
    let zones = list(reader, limits::ZONES_MAX, "zones", |reader| reader.text("zone"))?;
    let tags = labels(reader)?;
    let draining = bool(reader, "draining")?;
    let pools = list(reader, limits::POOLS_MAX, "pools", pool)?;
    let reserved = list(reader, limits::RESERVED_RANGES_MAX, "reserved", reserved_range)?;
    let past_pools = list(reader, limits::PAST_POOLS_MAX, "past pools", past_pool)?;
    let position = reader.varint("position")?;
    Ok(SubnetConfig {
        id,
        name,
        cidr,
        gateway,
        dhcp,
        dns: Dns { servers, search },
        zones,
        tags,
        draining,
        pools,
        reserved,
        past_pools,
        position,
        version: Version(mark),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::state::State;
    use crate::core::types::Mac;
    use crate::store::codec::{Format, decode_state, encode_state, samples};

    #[test]
    fn conflicts_are_read_as_they_were_written_and_where_there_are_none_nothing_is_written() {
        let plain = samples::sample_config(NetworkId(7));
        let conflict = Conflict {
            address: "2001:db8::8".parse().unwrap(),
            prefix_length: 125,
            holder: SlotKey { scope: Scope::default(), owner: "web/0".parse().unwrap(), slot: "a".parse().unwrap() },
            generation: Generation(1 << 50),
            granted_at: WallTime(7),
            found_at: WallTime(9),
            mac: None,
        };
        let with = |conflicts| State::Config(Arc::new(NetworkConfig { conflicts, ..plain.clone() }));
        let bytes_of = |state: &State| {
            let mut bytes = Vec::new();
            encode_state(state, Format::NEWEST, &mut bytes).unwrap();
            assert_eq!(decode_state(&bytes).unwrap(), *state);
            bytes
        };
        let (none, two) = (bytes_of(&with(Vec::new())), bytes_of(&with(vec![conflict.clone(), conflict.clone()])));
        assert!(two.starts_with(&none), "an older version reads what has none");
        for length in none.len() + 1..two.len() {
            assert!(decode_state(&two[..length]).is_err(), "{length} bytes");
        }
        let with_mac = Conflict { mac: Some(Mac(0x0200_0000_0001)), ..conflict.clone() };
        let one_has = bytes_of(&with(vec![conflict.clone(), with_mac]));
        assert!(one_has.starts_with(&two), "an older version reads what has no MAC");
        for length in two.len() + 1..one_has.len() {
            assert!(decode_state(&one_has[..length]).is_err(), "{length} bytes");
        }
        let without = [&two[..], &[0, 0]].concat();
        assert!(decode_state(&without).is_err(), "there is one way to write that none has one");
        // A block that begins where no such block can.
        let crooked = Conflict { address: "2001:db8::9".parse().unwrap(), ..conflict };
        let mut bytes = Vec::new();
        encode_state(&with(vec![crooked]), Format::NEWEST, &mut bytes).unwrap();
        assert!(decode_state(&bytes).is_err());
    }
}
