//! Errors that a request contains by itself, whichever network it is for.
//!
//! `invalid_argument` takes precedence over `not_found`, so `server::forms`, which takes requests in, calls these checks
//! before a network is looked up. `network` repeats them, because not every request comes through the server.

use std::collections::{BTreeMap, BTreeSet};

use super::address::{Address, Cidr, Family, Range};
use super::command::{
    Acquire, AcquireItem, Allocate, Claim, MacWish, NetworkPatch, Patch, SubnetInput, SubnetPatch, SubnetRef, Wish,
};
use super::refusal::Refusal;
use super::types::Mac;
use super::unusable::{self, Unusable};

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
/// `invalid_argument`, with the index of the item.
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

/// An address or block that the server chooses.
fn of_wish(wish: &Wish) -> Result<(), Refusal> {
    wish.prefix_length.map_or(Ok(()), |length| in_family(length, wish.family))
}

/// A named address, or the block of this length that begins at it.
fn of_named(address: Address, prefix_length: Option<u8>) -> Result<(), Refusal> {
    prefix_length.map_or(Ok(()), |length| block(address, length).map(drop))
}

/// The block of this length that begins at the address.
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

/// Do the other members of the request agree with a named address?
pub(super) fn beside(address: Address, wish: &Wish) -> Result<(), Refusal> {
    if wish.family.is_some_and(|family| family != address.family()) {
        return Err(Refusal::invalid("family", format!("is not that of {address}")));
    }
    if wish.pool.is_some() {
        return Err(Refusal::invalid("pool", "cannot be given with an `address`; name one of them"));
    }
    Ok(())
}

/// Can a block of the family (of either family, if none is given) have this length?
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

/// Refuses one MAC for several addresses of a network, even where the network has no room for them: a retry may find room,
/// and must get the same answer.
pub(super) fn mac_once(ask: &Acquire) -> Result<(), Refusal> {
    match ask.options.mac {
        Some(MacWish::Given(mac)) if ask.items.len() > 1 => Err(mac_for_several(mac)),
        Some(MacWish::Given(_) | MacWish::Auto) | None => Ok(()),
    }
}

/// The refusal of one MAC for several addresses.
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

/// `subnet.modify`. If the request names the subnet by its prefix, that prefix is taken into account.
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

/// The prefix of the MACs that a network makes. A stored one may be older than this check and fail it.
pub(super) fn mac_prefix(prefix: &str, field: &str) -> Result<(), Refusal> {
    let Ok(first) = format!("{prefix}:00:00:01").parse::<Mac>() else {
        return Err(Refusal::invalid(
            field,
            format!("cannot be {prefix:?}: a prefix is three hexadecimal bytes, for example aa:00:00"),
        ));
    };
    first.has_no_interface().map_or(Ok(()), |why| {
        let problem =
            format!("cannot be {prefix}: no interface has a MAC under it, because {why}; use one such as aa:00:00");
        Err(Refusal::invalid(field, problem))
    })
}

/// `network.update`: what can be checked of its layer 2 and its subnets without the network.
///
/// # Errors
/// `invalid_argument`, with the path of the member.
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

/// The refusal of an entry in a list of subnets that identifies no existing subnet and lacks what a new one needs.
pub(super) fn without_addresses(path: &str) -> Refusal {
    Refusal::invalid(format!("{path}cidr"), "is missing; a new subnet needs its `cidr`, an existing one its `id`")
}

/// The refusal of two entries in a list of subnets that mean the same subnet.
pub(super) fn named_twice(index: usize, other: usize) -> Refusal {
    let problem = format!("names the same subnet as `set.subnets[{other}]`; name each one once");
    Refusal::invalid(format!("set.subnets[{index}]"), problem)
}

/// Refuses a change of a subnet's family.
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

/// Refuses a gateway that is one of the addresses that are never handed out.
pub(super) fn gateway(gateway: Address, cidr: Cidr, path: &str) -> Result<(), Refusal> {
    let edge = unusable::edges(cidr).find(|(edge, _)| *edge == gateway);
    let why = match (edge, never_given(Range::single(gateway))) {
        (Some((_, edge)), _) => format!("that is the {edge} address of {cidr}"),
        (None, Some(Unusable::Multicast)) => "that is a multicast address".to_owned(),
        (None, Some(Unusable::NoMachines)) => "no machine can have this address".to_owned(),
        (None, Some(Unusable::Mapped) | None) => return Ok(()),
    };
    Err(Refusal::invalid(format!("{path}gateway"), format!("cannot be {gateway}: {why}")))
}

/// Why a range as a whole is never handed out, in whichever subnet it lies; none if it may be.
fn never_given(range: Range) -> Option<Unusable> {
    unusable::everywhere(range.family()).into_iter().find(|(unusable, _)| unusable.covers(range)).map(|(_, why)| why)
}

/// Why a prefix cannot be a subnet; none if it can.
pub(super) fn never_a_subnet(cidr: Cidr) -> Option<String> {
    if cidr.length() == 0 {
        return Some(format!("cannot be {cidr}: that is every {} address", cidr.family()));
    }
    match never_given(cidr.range())? {
        Unusable::Multicast => Some(format!("cannot be {cidr}: these are multicast addresses")),
        Unusable::NoMachines => Some(format!("cannot be {cidr}: no machine can have this address")),
        Unusable::Mapped => None,
    }
}
