//! Addresses that are never handed out, whatever flag a request has: some ranges of each family, and the edges of each
//! subnet. (A subnet's gateway is never handed out either, but is not covered here.)
//!
//! `forms` refuses subnets and gateways by these rules, `network::layout` leaves the addresses out of all space, and
//! `network::claimable` says why one cannot be claimed.

use super::address::{Address, Cidr, Family, Range};

/// Why no subnet hands out a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// No machine can have them: all zeros, and all ones in IPv4.
    NoMachines,
    /// They are multicast addresses.
    Multicast,
    /// They are IPv4-mapped. Nobody could name one, because a request with such an address is refused.
    Mapped,
}

/// The ranges that no subnet of a family hands out, wherever it lies.
pub(super) fn everywhere(family: Family) -> [(Range, Unusable); 3] {
    use Unusable::{Mapped, Multicast, NoMachines};
    let all = match family {
        Family::V4 => {
            [(0, 0, NoMachines), (0xe000_0000, 0xefff_ffff, Multicast), (0xffff_ffff, 0xffff_ffff, NoMachines)]
        }
        Family::V6 => {
            [(0, 0, NoMachines), (0xffff_0000_0000, 0xffff_ffff_ffff, Mapped), (0xff << 120, u128::MAX, Multicast)]
        }
    };
    all.map(|(first, last, why)| (Range::of_bits(family, first, last), why))
}

/// The edges of a prefix, and what they are called. A prefix of one or two addresses has none.
pub(super) fn edges(cidr: Cidr) -> impl Iterator<Item = (Address, &'static str)> {
    let larger_than_pair = cidr.length() + 1 < cidr.family().width();
    let (first, last) = match cidr.family() {
        Family::V4 => ("network", Some((cidr.last(), "broadcast"))),
        Family::V6 => ("subnet-router anycast", None),
    };
    [Some((cidr.base(), first)), last].into_iter().flatten().filter(move |_| larger_than_pair)
}
