//! Reserved ranges: which addresses of a subnet are withheld from automatic grants, why, and for whom.
//!
//! Inside one subnet they are ascending and disjoint. A new range that overlaps others is merged with them, but takes no
//! address from the owner for whom it is reserved: see [`merge`]. Reserved ranges may cover pools and held addresses; nobody
//! loses anything by that.

use std::sync::Arc;

use super::{ConfigDraft, FirstRefusal};
use crate::core::address::{Cidr, Range};
use crate::core::command::ReservedInput;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{EventKind, ReservedFor, ReservedRange, SubnetConfig};
use crate::core::types::SubnetId;

/// `reserved.add`. The range must lie in one subnet.
pub(super) fn add(mut draft: ConfigDraft<'_>, input: &ReservedInput) -> Result<Decision, Refusal> {
    let home = draft.network.subnet_over(input.range);
    let around = home.filter(|subnet| subnet.cidr.range().covers(input.range)).cloned();
    let Some(subnet) = around else {
        let (range, network) = (input.range, &draft.config.name);
        let problem = match home {
            Some(subnet) => format!(
                "reserved range {range} reaches outside subnet {} of network `{network}`; reserve in each subnet separately",
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

/// `reserved.remove`: from whichever reserved ranges, or only from those for one owner. Removing the middle of a range
/// splits it.
pub(super) fn remove(
    mut draft: ConfigDraft<'_>,
    range: Range,
    reserved_for: Option<&ReservedFor>,
) -> Result<Decision, Refusal> {
    let mut ids = Vec::new();
    for (part, subnet) in parts_in(&draft.subnets, range) {
        let mut subnet = SubnetConfig::clone(&subnet);
        if subtract(&mut subnet.reserved, part, reserved_for) {
            ids.push(subnet.id);
            draft.put(subnet);
        }
    }
    if ids.is_empty() {
        let what = match reserved_for {
            None => format!("`{range}`"),
            Some(kept) => format!("`{range}` for owner `{}` of scope `{}`", kept.owner, kept.scope),
        };
        return draft.refused(Refusal::NotFound { missing: Missing::ReservedRange, what, hint: None });
    }
    draft.check_bounds("range");
    answer(draft, &ids)
}

fn answer(draft: ConfigDraft<'_>, ids: &[SubnetId]) -> Result<Decision, Refusal> {
    let done = draft.finish(EventKind::NetworkChanged)?;
    let subnets = ids.iter().map(|id| done.subnet(*id)).collect();
    done.answer(Outcome::Reserved(subnets))
}

/// The reserved ranges of a new subnet, merged in the order given.
pub(super) fn build(
    cidr: Cidr,
    inputs: &[ReservedInput],
    path: &str,
    verdict: &mut FirstRefusal,
) -> Vec<ReservedRange> {
    let mut reserved = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        if cidr.range().covers(input.range) {
            merge(&mut reserved, reserved_range(input));
        } else {
            let problem = format!(
                "{path}reserved[{index}]: {} reaches outside subnet {cidr}; name a range inside it",
                input.range
            );
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

/// Adds a range. It is joined with the ranges that it overlaps and that are for the same owner (or, like it, for nobody).
/// Its note wins if it has one, otherwise that of the lowest range that has one. What is reserved for others keeps its
/// addresses: an owner takes only what is for nobody, and of that only what is named, unless exactly this range is added
/// anew. Parts that then agree become one range; ranges that only touch stay apart, also if both are for one owner: a range of one
/// address is given to its owner first, a longer one is not. Cost: O(log ranges + ranges touched), and moving the rest.
pub(super) fn merge(reserved: &mut Vec<ReservedRange>, mut added: ReservedRange) {
    let start = reserved.partition_point(|old| old.range.last() < added.range.first());
    let end = reserved.partition_point(|old| old.range.first() <= added.range.last());
    let named = added.range;
    let (alike, others): (Vec<_>, Vec<_>) =
        reserved[start..end].iter().partition(|old| old.reserved_for == added.reserved_for);
    for old in alike {
        let (first, last) = (added.range.first().min(old.range.first()), added.range.last().max(old.range.last()));
        added.range = Range::new(first, last).expect("ranges that overlap are of one family");
        if added.note.is_empty() {
            added.note = old.note.clone();
        }
    }
    // Each part with the range from which it comes: none if it is new.
    let mut parts: Vec<(ReservedRange, Option<Range>)> = Vec::new();
    let mut rest = Some(added.range);
    for old in others {
        let Some(inside) = old.range.intersection(added.range) else { continue };
        // The ranges ascend: what is new before this one is final, what is new after it may meet the next.
        let (front, behind): (Vec<_>, Vec<_>) =
            rest.into_iter().flat_map(|rest| rest.without(inside)).partition(|part| part.last() < inside.first());
        parts.extend(front.into_iter().map(|range| (ReservedRange { range, ..added.clone() }, None)));
        rest = behind.first().copied();
        parts.extend(old.range.without(inside).map(|range| (ReservedRange { range, ..old.clone() }, Some(old.range))));
        let anew = old.range == named || old.reserved_for.is_none();
        // What stays reserved for another owner keeps its note; the new note belongs to the owner for whom it is added.
        let is_told = anew || added.reserved_for.is_none();
        let note = if is_told && !added.note.is_empty() { added.note.clone() } else { old.note.clone() };
        let reserved_for = added.reserved_for.clone().filter(|_| anew).or_else(|| old.reserved_for.clone());
        let is_taken = reserved_for == added.reserved_for;
        parts.push((ReservedRange { range: inside, note, reserved_for }, Some(old.range).filter(|_| !is_taken)));
    }
    parts.extend(rest.map(|range| (ReservedRange { range, ..added.clone() }, None)));
    parts.sort_by_key(|(part, _)| part.range.first());
    let mut joined: Vec<ReservedRange> = Vec::with_capacity(parts.len());
    let mut before = None;
    for (part, of) in parts {
        match joined.last_mut().filter(|_| before == Some(of)).and_then(|last| Some((with_next(last, &part)?, last))) {
            Some((range, last)) => last.range = range,
            None => joined.push(part),
        }
        before = Some(of);
    }
    reserved.splice(start..end, joined);
}

/// Both as one range, if they agree and nothing lies between them.
fn with_next(range: &ReservedRange, next: &ReservedRange) -> Option<Range> {
    let same = range.note == next.note && range.reserved_for == next.reserved_for;
    let adjoining = range.range.last().next() == Some(next.range.first());
    Range::new(range.range.first(), next.range.last()).filter(|_| same && adjoining)
}

/// Removes a range from all reserved ranges, or from those for one owner. Returns whether anything was there.
pub(super) fn subtract(reserved: &mut Vec<ReservedRange>, range: Range, of: Option<&ReservedFor>) -> bool {
    let start = reserved.partition_point(|old| old.range.last() < range.first());
    let end = reserved.partition_point(|old| old.range.first() <= range.last());
    let (mut rest, mut found) = (Vec::new(), false);
    for old in &reserved[start..end] {
        if of.is_none() || of == old.reserved_for.as_ref() {
            found = true;
            rest.extend(old.range.without(range).map(|range| ReservedRange { range, ..old.clone() }));
        } else {
            rest.push(old.clone());
        }
    }
    reserved.splice(start..end, rest);
    found
}
