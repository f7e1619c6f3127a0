//! Reserved ranges: which addresses of a subnet are kept from automatic grants, why, and for whom.
//!
//! Inside one subnet they are ascending and disjoint, and never touch where note and `for` are equal. Where a new one
//! overlaps others it covers the union: what it names gets its note and `for`, what it does not name keeps its own.
//! They may cover pools and held addresses; nobody loses anything by them.

use std::sync::Arc;

use super::{Draft, Verdict};
use crate::core::address::{Address, Cidr, Range};
use crate::core::command::ReservedInput;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{EventKind, ReservedRange, SubnetConfig};
use crate::core::types::SubnetId;

/// `reserved.add`. A range may reach over several adjoining subnets; if any part of it lies in none, it is refused.
pub(super) fn add(mut draft: Draft<'_>, input: &ReservedInput) -> Result<Decision, Refusal> {
    let mut parts = parts_in(&draft.subnets, input.range);
    parts.sort_by_key(|(part, _)| part.first());
    if let Some(address) = first_outside(input.range, &parts) {
        let problem = format!(
            "reserved range {} reaches outside the subnets of network `{}`: {address} lies in none",
            input.range, draft.config.name
        );
        return draft.refused(Refusal::OutOfRange { problem, address: Some(address) });
    }
    let ids: Vec<SubnetId> = parts.iter().map(|(_, subnet)| subnet.id).collect();
    for (part, subnet) in parts {
        let mut subnet = SubnetConfig::clone(&subnet);
        merge(&mut subnet.reserved, ReservedRange { range: part, ..reserved_range(input) });
        draft.put(subnet);
    }
    draft.check_bounds("range");
    answer(draft, &ids)
}

/// `reserved.remove`: out of whichever reserved ranges; the middle of one splits it.
pub(super) fn remove(mut draft: Draft<'_>, range: Range) -> Result<Decision, Refusal> {
    let mut ids = Vec::new();
    for (part, subnet) in parts_in(&draft.subnets, range) {
        let mut subnet = SubnetConfig::clone(&subnet);
        if subtract(&mut subnet.reserved, part) {
            ids.push(subnet.id);
            draft.put(subnet);
        }
    }
    if ids.is_empty() {
        return draft.refused(Refusal::not_found(Missing::ReservedRange, range));
    }
    draft.check_bounds("range");
    answer(draft, &ids)
}

fn answer(draft: Draft<'_>, ids: &[SubnetId]) -> Result<Decision, Refusal> {
    let done = draft.finish(EventKind::NetworkChanged)?;
    let subnets = ids.iter().map(|id| done.subnet(*id)).collect();
    done.answer(Outcome::Reserved(subnets))
}

/// The reserved ranges of a new subnet, merged in the order given.
pub(super) fn build(cidr: Cidr, inputs: &[ReservedInput], path: &str, verdict: &mut Verdict) -> Vec<ReservedRange> {
    let mut reserved = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        if cidr.range().covers(input.range) {
            merge(&mut reserved, reserved_range(input));
        } else {
            let problem = format!("{path}reserved[{index}]: {} reaches outside subnet {cidr}", input.range);
            verdict.refuse(Refusal::OutOfRange { problem, address: None });
        }
    }
    reserved
}

fn reserved_range(input: &ReservedInput) -> ReservedRange {
    ReservedRange { range: input.range, note: input.note.clone(), reserved_for: input.reserved_for.clone() }
}

/// The parts of a range that lie in subnets.
fn parts_in(subnets: &[Arc<SubnetConfig>], range: Range) -> Vec<(Range, Arc<SubnetConfig>)> {
    subnets.iter().filter_map(|subnet| Some((subnet.cidr.range().intersection(range)?, Arc::clone(subnet)))).collect()
}

/// The first address of a range that is in none of its parts, given in address order.
fn first_outside(range: Range, parts: &[(Range, Arc<SubnetConfig>)]) -> Option<Address> {
    let mut wanted = Some(range.first());
    for (part, _) in parts {
        if wanted != Some(part.first()) {
            return wanted;
        }
        wanted = part.last().next();
    }
    wanted.filter(|wanted| range.contains(*wanted))
}

/// Adds a range; what it covers of others becomes its own. Cost: O(log ranges + ranges touched), and moving the rest.
pub(super) fn merge(reserved: &mut Vec<ReservedRange>, added: ReservedRange) {
    // One neighbour on each side, which may touch and be equal.
    let start = reserved.partition_point(|old| old.range.last() < added.range.first()).saturating_sub(1);
    let end = reserved.partition_point(|old| old.range.first() <= added.range.last());
    let end = (end + 1).min(reserved.len());
    let mut pieces: Vec<ReservedRange> = reserved[start..end]
        .iter()
        .flat_map(|old| old.range.without(added.range).map(|range| ReservedRange { range, ..old.clone() }))
        .collect();
    pieces.push(added);
    pieces.sort_by_key(|piece| piece.range.first());
    let mut joined: Vec<ReservedRange> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.range.joins(piece.range) && is_alike(last, &piece) => {
                last.range = Range::new(last.range.first(), piece.range.last()).expect("pieces are ascending");
            }
            Some(_) | None => joined.push(piece),
        }
    }
    reserved.splice(start..end, joined);
}

fn is_alike(one: &ReservedRange, other: &ReservedRange) -> bool {
    one.note == other.note && one.reserved_for == other.reserved_for
}

/// Takes a range out; says whether anything was there.
pub(super) fn subtract(reserved: &mut Vec<ReservedRange>, range: Range) -> bool {
    let start = reserved.partition_point(|old| old.range.last() < range.first());
    let end = reserved.partition_point(|old| old.range.first() <= range.last());
    let rest: Vec<ReservedRange> = reserved[start..end]
        .iter()
        .flat_map(|old| old.range.without(range).map(|range| ReservedRange { range, ..old.clone() }))
        .collect();
    reserved.splice(start..end, rest);
    start < end
}
