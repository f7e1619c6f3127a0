//! What an entry contributes to the counts of its subnet and pools. Every address counts once.
//!
//! Neighbour: `layout`, which keeps the counts in step.

use super::holdings::covered;
use super::pool_set::{each_gap, is_in};
use crate::core::address::{Address, Range};
use crate::core::outcome::Counts;
use crate::core::state::{Entry, Reservation, ReservationKind};

/// Adds or subtracts an entry's contribution to counts: `size` addresses, of which `blocked` count as reserved.
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

/// Adds one held address, the most frequent change.
fn count_granted(counts: &mut Counts, held: &Reservation, blocked: bool) {
    counts.held += 1;
    counts.reservations += 1;
    match held.kind {
        ReservationKind::Dynamic => counts.held_dynamic += 1,
        ReservationKind::Static => counts.held_static += 1,
    }
    if held.obsolete.is_some() {
        counts.obsolete += 1;
    }
    if blocked { counts.reserved -= 1 } else { counts.free -= 1 }
}

/// Counts of a range without entries; the spans in `counted` count as reserved.
pub(super) fn empty_counts(range: Range, counted: &[(u128, u128)]) -> Counts {
    let size = range.size();
    let reserved = each_gap(counted, range.first().bits(), range.last().bits(), |_, _| ());
    Counts { size, reserved, free: size - reserved, ..Counts::default() }
}

/// Adds the entries in a part of a range, as the part has counted them. `empty` is what the part counts without entries.
pub(super) fn count_part(counts: &mut Counts, part: &Counts, empty: &Counts) {
    counts.held += part.held;
    counts.held_dynamic += part.held_dynamic;
    counts.held_static += part.held_static;
    counts.obsolete += part.obsolete;
    counts.cooling += part.cooling;
    counts.declined += part.declined;
    counts.reservations += part.reservations;
    // A held address counts as held even if it is reserved.
    counts.reserved -= empty.reserved - part.reserved;
    counts.free = counts.size - counts.held - counts.reserved - counts.cooling - counts.declined;
}

/// Adds or subtracts what an entry contributes within a range.
pub(super) fn count_entry(
    counts: &mut Counts,
    counted: &[(u128, u128)],
    within: Range,
    address: Address,
    entry: &Entry,
    add: bool,
) {
    if entry.prefix_length() == address.family().width() {
        if within.contains(address) {
            count_address(counts, counted, address.bits(), entry, add);
        }
        return;
    }
    let Some(part) = covered(address, entry.prefix_length()).intersection(within) else { return };
    let blocked = each_gap(counted, part.first().bits(), part.last().bits(), |_, _| ());
    count(counts, entry, part.size(), blocked, add);
    if matches!(entry, Entry::Held(_)) && within.contains(address) {
        if add { counts.reservations += 1 } else { counts.reservations -= 1 }
    }
}

/// Adds or subtracts what a single-address entry contributes; it must lie in the range. Most entries are of this kind.
#[inline]
pub(super) fn count_address(counts: &mut Counts, counted: &[(u128, u128)], bits: u128, entry: &Entry, add: bool) {
    let blocked = is_in(counted, bits);
    match entry {
        Entry::Held(held) if add => count_granted(counts, held, blocked),
        Entry::Held(_) => {
            count(counts, entry, 1, u128::from(blocked), false);
            counts.reservations -= 1;
        }
        Entry::Declined(_) | Entry::Released(_) => count(counts, entry, 1, u128::from(blocked), add),
    }
}
