//! Reserved ranges: which addresses of a subnet are kept from automatic grants, why, and for whom.
//!
//! Inside one subnet they are ascending and disjoint. A new one that overlaps others becomes one range with them. They may
//! cover pools and held addresses; nobody loses anything by them.

use std::sync::Arc;

use super::{Draft, Verdict};
use crate::core::address::{Cidr, Range};
use crate::core::command::ReservedInput;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{EventKind, ReservedRange, SubnetConfig};
use crate::core::types::SubnetId;

/// `reserved.add`. The range lies in one subnet.
pub(super) fn add(mut draft: Draft<'_>, input: &ReservedInput) -> Result<Decision, Refusal> {
    let home = draft.network.subnet_of(input.range.first()).or_else(|| draft.network.subnet_of(input.range.last()));
    let around = home.filter(|subnet| subnet.cidr.range().covers(input.range)).cloned();
    let Some(subnet) = around else {
        let (range, network) = (input.range, &draft.config.name);
        let problem = match home {
            Some(subnet) => format!(
                "reserved range {range} reaches outside subnet {} of network `{network}`; reserve in each subnet for itself",
                subnet.cidr
            ),
            None => format!("reserved range {range} lies in no subnet of network `{network}`; network.get shows them"),
        };
        return draft.refused(Refusal::OutOfRange { problem, address: Some(range.first()) });
    };
    let mut subnet = SubnetConfig::clone(&subnet);
    merge(&mut subnet.reserved, reserved_range(input));
    let id = subnet.id;
    draft.put(subnet);
    draft.check_bounds("range");
    answer(draft, &[id])
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

/// Adds a range. With those that it overlaps it becomes one: its own note and `for` where given, else those of the lowest
/// that has any. Ranges that only touch stay apart. Cost: O(log ranges + ranges touched), and moving the rest.
pub(super) fn merge(reserved: &mut Vec<ReservedRange>, mut added: ReservedRange) {
    let start = reserved.partition_point(|old| old.range.last() < added.range.first());
    let end = reserved.partition_point(|old| old.range.first() <= added.range.last());
    for old in &reserved[start..end] {
        let (first, last) = (added.range.first().min(old.range.first()), added.range.last().max(old.range.last()));
        added.range = Range::new(first, last).expect("ranges that overlap are of one family");
        if added.note.is_empty() {
            added.note = old.note.clone();
        }
        added.reserved_for = added.reserved_for.or_else(|| old.reserved_for.clone());
    }
    reserved.splice(start..end, [added]);
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
