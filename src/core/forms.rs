//! What is wrong with a request by itself, whatever network it is for.
//!
//! `invalid_argument` precedes `not_found`, so whoever takes requests in (`server::forms`) asks here before a network is
//! looked up. `network` asks again: a request may come from anywhere.

use std::collections::{BTreeMap, BTreeSet};

use super::address::{Address, Cidr, Family, Range};
use super::command::{
    Acquire, AcquireItem, Allocate, Claim, MacWish, NetworkPatch, Patch, SubnetInput, SubnetPatch, SubnetRef, Wish,
};
use super::refusal::Refusal;
use super::types::Mac;

/// `ip.allocate`.
///
/// # Errors
/// `invalid_argument`.
pub fn of_allocate(ask: &Allocate) -> Result<(), Refusal> {
    of_wish(&ask.wish)
}

/// `ip.claim`.
///
/// # Errors
/// `invalid_argument`.
pub fn of_claim(ask: &Claim) -> Result<(), Refusal> {
    of_named(ask.address, ask.prefix_length)
}

/// What `ip.acquire` asks of one network.
///
/// # Errors
/// `invalid_argument`, with its place in the request.
pub fn of_acquire(ask: &Acquire) -> Result<(), Refusal> {
    for item in &ask.items {
        let judged = match item.address {
            Some(address) => of_named(address, item.wish.prefix_length).and_then(|()| beside(address, &item.wish)),
            None => of_wish(&item.wish),
        };
        judged.map_err(|refusal| Refusal::OfItem { index: item.index, refusal: Box::new(refusal) })?;
    }
    named_once(&ask.items)?;
    mac_once(ask)
}

/// An address or block of the server's choice.
fn of_wish(wish: &Wish) -> Result<(), Refusal> {
    wish.prefix_length.map_or(Ok(()), |length| in_family(length, wish.family))
}

/// An address, or the block of a length that begins at it.
fn of_named(address: Address, prefix_length: Option<u8>) -> Result<(), Refusal> {
    prefix_length.map_or(Ok(()), |length| block(address, length).map(drop))
}

/// The block of a length that begins at an address.
pub(super) fn block(address: Address, length: u8) -> Result<Range, Refusal> {
    let width = address.family().width();
    Cidr::new(address, length).map(Cidr::range).ok_or_else(|| {
        let problem = if length > width {
            format!("must be 0 to {width} for {address}")
        } else {
            format!(
                "/{length}: {address} is not the first address of such a block; that is {}",
                Cidr::containing(address, length).base()
            )
        };
        Refusal::invalid("prefix_length", problem)
    })
}

/// May what came beside a named address stand there?
pub(super) fn beside(address: Address, wish: &Wish) -> Result<(), Refusal> {
    if wish.family.is_some_and(|family| family != address.family()) {
        return Err(Refusal::invalid("family", format!("is not that of {address}")));
    }
    if wish.pool.is_some() {
        return Err(Refusal::invalid("pool", "cannot be given with an `address`; name one of them"));
    }
    Ok(())
}

/// Can a block of the family, or of either, have this length?
pub(super) fn in_family(length: u8, family: Option<Family>) -> Result<(), Refusal> {
    let longest = family.map_or(Family::V6.width(), Family::width);
    if length > longest {
        return Err(Refusal::invalid("prefix_length", format!("must be 0 to {longest}")));
    }
    Ok(())
}

/// Refuses an acquire that names a slot or an address twice.
pub(super) fn named_once(items: &[AcquireItem]) -> Result<(), Refusal> {
    let (mut slots, mut named): (_, Vec<Range>) = (BTreeSet::new(), Vec::new());
    for item in items {
        let range = item.address.map(|address| {
            let width = address.family().width();
            Cidr::containing(address, item.wish.prefix_length.unwrap_or(width).min(width)).range()
        });
        let refusal = if !slots.insert(&item.slot) {
            Refusal::invalid("slot", format!("names slot `{}` twice in one network", item.slot))
        } else if let Some(twice) = range.filter(|range| named.iter().any(|other| other.overlaps(*range))) {
            Refusal::invalid("address", format!("names {twice} twice, wholly or in part"))
        } else {
            named.extend(range);
            continue;
        };
        return Err(Refusal::OfItem { index: item.index, refusal: Box::new(refusal) });
    }
    Ok(())
}

/// Refuses one MAC for several addresses of a network, whether there is room for them or not: a repeat may find room that the
/// request did not.
pub(super) fn mac_once(ask: &Acquire) -> Result<(), Refusal> {
    match ask.options.mac {
        Some(MacWish::Given(mac)) if ask.items.len() > 1 => Err(mac_for_several(mac)),
        Some(MacWish::Given(_) | MacWish::Auto) | None => Ok(()),
    }
}

/// A MAC that was to go to several addresses.
pub fn mac_for_several(mac: Mac) -> Refusal {
    let problem = format!(
        "cannot be {mac} for several addresses: a MAC is unique in its realm, so ask for one address with it, or for `\"auto\"`"
    );
    Refusal::invalid("mac", problem)
}

/// `subnet.add`.
///
/// # Errors
/// `invalid_argument`.
pub fn of_subnet(input: &SubnetInput) -> Result<(), Refusal> {
    cidr(input.cidr, "")?;
    input.gateway.map_or(Ok(()), |address| gateway(address, input.cidr, ""))
}

/// `subnet.modify`: what the name of the subnet tells of it is known.
///
/// # Errors
/// `invalid_argument`.
pub fn of_subnet_patch(subnet: &SubnetRef, set: &SubnetPatch) -> Result<(), Refusal> {
    let before = match subnet {
        SubnetRef::Cidr(cidr) => Some(*cidr),
        SubnetRef::Named(_) => None,
    };
    if let Some(after) = set.cidr {
        before.map_or(Ok(()), |before| keeps_family(before, after, "set."))?;
        cidr(after, "set.")?;
    }
    match (set.cidr.or(before), &set.gateway) {
        (Some(cidr), Patch::Set(address)) => gateway(*address, cidr, "set."),
        _ => Ok(()),
    }
}

/// The beginning of the MACs that a network makes. What is stored may be of a time when more was taken.
pub(super) fn mac_prefix(prefix: &str, field: &str) -> Result<(), Refusal> {
    let Ok(first) = format!("{prefix}:00:00:01").parse::<Mac>() else {
        return Err(Refusal::invalid(
            field,
            format!("cannot be {prefix:?}: it is three hexadecimal bytes, as aa:00:00"),
        ));
    };
    first.has_no_interface().map_or(Ok(()), |why| {
        let problem = format!("cannot be {prefix}: no interface has a MAC under it, as {why}; take one as aa:00:00");
        Err(Refusal::invalid(field, problem))
    })
}

/// `network.update`: what its layer 2 and its subnets tell of themselves.
///
/// # Errors
/// `invalid_argument`, with its place in the request.
pub fn of_network_patch(set: &NetworkPatch) -> Result<(), Refusal> {
    if let Some(prefix) = set.l2.given().and_then(|l2| l2.mac_prefix.given()) {
        mac_prefix(prefix, "set.l2.mac_prefix")?;
    }
    let (mut ids, mut cidrs) = (BTreeMap::new(), BTreeMap::new());
    for (index, entry) in set.subnets.iter().flatten().enumerate() {
        let path = format!("set.subnets[{index}].");
        let twice = match (entry.id, entry.set.cidr) {
            (Some(id), _) => ids.insert(id, index),
            (None, Some(cidr)) => cidrs.insert(cidr.range(), index),
            (None, None) if entry.set.name.given().is_none() => return Err(without_addresses(&path)),
            (None, None) => None,
        };
        if let Some(other) = twice {
            return Err(named_twice(index, other));
        }
        let Some(after) = entry.set.cidr else { continue };
        cidr(after, &path)?;
        if let Patch::Set(address) = entry.set.gateway {
            gateway(address, after, &path)?;
        }
    }
    Ok(())
}

/// An entry of a list of subnets that names none of the network's, and does not say what a new one would be.
pub(super) fn without_addresses(path: &str) -> Refusal {
    Refusal::invalid(format!("{path}cidr"), "is missing; a new subnet needs its addresses, and another one its `id`")
}

/// Two entries of a list of subnets that mean one.
pub(super) fn named_twice(index: usize, other: usize) -> Refusal {
    let problem = format!("names the same subnet as `set.subnets[{other}]`; name each one once");
    Refusal::invalid(format!("set.subnets[{index}]"), problem)
}

/// A subnet keeps its family.
pub(super) fn keeps_family(before: Cidr, after: Cidr, path: &str) -> Result<(), Refusal> {
    if before.family() == after.family() {
        return Ok(());
    }
    let problem = format!("cannot turn {before} into {after}: a subnet keeps its family");
    Err(Refusal::invalid(format!("{path}cidr"), problem))
}

/// Can a prefix be a subnet?
pub(super) fn cidr(cidr: Cidr, path: &str) -> Result<(), Refusal> {
    never_a_subnet(cidr).map_or(Ok(()), |problem| Err(Refusal::invalid(format!("{path}cidr"), problem)))
}

/// Is a gateway none of the addresses that are never handed out?
pub(super) fn gateway(gateway: Address, cidr: Cidr, path: &str) -> Result<(), Refusal> {
    let edge = edges(cidr).find(|(edge, _)| *edge == gateway);
    let problem = match edge {
        Some((_, edge)) => format!("cannot be {gateway}: that is the {edge} address of {cidr}"),
        None if multicast(gateway.family()).contains(gateway) => {
            format!("cannot be {gateway}: that is a multicast address")
        }
        None if is_no_machines(gateway) => format!("cannot be {gateway}: no machine can have this address"),
        None => return Ok(()),
    };
    Err(Refusal::invalid(format!("{path}gateway"), problem))
}

fn multicast(family: Family) -> Range {
    match family {
        Family::V4 => Range::of_bits(Family::V4, 0xe000_0000, 0xefff_ffff),
        Family::V6 => Range::of_bits(Family::V6, 0xff << 120, u128::MAX),
    }
}

/// All zeros, and IPv4's all ones.
fn is_no_machines(address: Address) -> bool {
    address.bits() == 0 || address == Address::V4(u32::MAX)
}

/// Why a prefix cannot be a subnet, if it cannot.
pub(super) fn never_a_subnet(cidr: Cidr) -> Option<String> {
    let single = cidr.base() == cidr.last();
    if cidr.length() == 0 {
        Some(format!("cannot be {cidr}: that is every {} address", cidr.family()))
    } else if multicast(cidr.family()).covers(cidr.range()) {
        Some(format!("cannot be {cidr}: these are multicast addresses"))
    } else if single && is_no_machines(cidr.base()) {
        Some(format!("cannot be {cidr}: no machine can have this address"))
    } else {
        None
    }
}

/// The addresses of a prefix that are never handed out, gateway apart.
pub(super) fn edges(cidr: Cidr) -> impl Iterator<Item = (Address, &'static str)> {
    let larger_than_pair = cidr.length() + 1 < cidr.family().width();
    let (first, last) = match cidr.family() {
        Family::V4 => ("network", Some((cidr.last(), "broadcast"))),
        Family::V6 => ("subnet-router anycast", None),
    };
    [Some((cidr.base(), first)), last].into_iter().flatten().filter(move |_| larger_than_pair)
}
