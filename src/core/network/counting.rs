//! What an entry contributes to the counts of its subnet and pools. Every address counts once.
//!
//! Neighbour: `layout` keeps the counts in step.

use super::holdings::covered;
use super::pool_set::{Spans, each_gap, is_in};
use crate::core::address::{Address, Range};
use crate::core::outcome::Counts;
use crate::core::state::{Entry, ReservationKind};

/// Adds or takes away what an entry contributes to counts: `size` addresses, of which `blocked` count as reserved.
fn count(counts: &mut Counts, entry: &Entry, size: u128, blocked: u128, add: bool) {
    let change = |value: &mut u128, by: u128| if add { *value += by } else { *value -= by };
    match entry {
        Entry::Held(reservation) => {
            change(&mut counts.held, size);
            match reservation.kind {
                ReservationKind::Dynamic => change(&mut counts.held_dynamic, size),
                ReservationKind::Static => change(&mut counts.held_static, size),
            }
            if reservation.obsolete.is_some() {
                change(&mut counts.obsolete, size);
            }
            if add { counts.reserved -= blocked } else { counts.reserved += blocked }
        }
        Entry::Declined(_) => change(&mut counts.declined, size - blocked),
        Entry::Released(_) => change(&mut counts.cooling, size - blocked),
    }
    counts.free = counts.size - counts.held - counts.reserved - counts.cooling - counts.declined;
}

/// Counts of a range in which nothing lies; these spans of it count as reserved.
pub(super) fn empty_counts(range: Range, counted: &Spans) -> Counts {
    let size = range.size();
    let reserved = each_gap(counted, range.first().bits(), range.last().bits(), |_, _| ());
    Counts { size, reserved, free: size - reserved, ..Counts::default() }
}

/// Adds or takes away what an entry contributes within a range.
pub(super) fn count_entry(
    counts: &mut Counts,
    counted: &Spans,
    within: Range,
    address: Address,
    entry: &Entry,
    add: bool,
) {
    let (size, blocked) = if entry.prefix_length() == address.family().width() {
        // By far the most entries: one address.
        if !within.contains(address) {
            return;
        }
        (1, u128::from(is_in(counted, address.bits())))
    } else {
        let Some(part) = covered(address, entry.prefix_length()).intersection(within) else { return };
        (part.size(), each_gap(counted, part.first().bits(), part.last().bits(), |_, _| ()))
    };
    count(counts, entry, size, blocked, add);
    if matches!(entry, Entry::Held(_)) && within.contains(address) {
        if add { counts.reservations += 1 } else { counts.reservations -= 1 }
    }
}
