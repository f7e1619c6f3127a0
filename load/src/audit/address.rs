//! Addresses and ranges as 128-bit numbers. IPv4 addresses are mapped to `::ffff:0:0/96`, where a register has no IPv6
//! addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::scan;

/// Where the numbers of IPv4 addresses begin.
const V4: u128 = 0xffff_0000_0000;

/// The number of an IPv4 address.
pub fn of_v4(bits: u32) -> u128 {
    V4 | u128::from(bits)
}

/// The number of an address in text.
pub fn number(text: &[u8]) -> Option<u128> {
    if let Some(bits) = scan::ipv4(text) {
        return Some(of_v4(bits));
    }
    std::str::from_utf8(text).ok()?.parse::<Ipv6Addr>().ok().map(u128::from)
}

/// Is it the number of an IPv4 address?
pub fn is_v4(number: u128) -> bool {
    number >> 32 == V4 >> 32
}

/// The address of a number.
pub fn name(number: u128) -> IpAddr {
    if is_v4(number) { Ipv4Addr::from(number as u32).into() } else { Ipv6Addr::from(number).into() }
}

/// First and last address of an aligned block.
pub fn block(first: u128, prefix_length: u8) -> Option<(u128, u128)> {
    let bits = (if is_v4(first) { 32u32 } else { 128 }).checked_sub(u32::from(prefix_length))?;
    let mask = 1u128.checked_shl(bits).map_or(u128::MAX, |size| size - 1);
    (first & mask == 0).then_some((first, first | mask))
}

/// First and last address of a range, written as an address, `first-last`, or a CIDR.
pub fn range(text: &str) -> Option<(u128, u128)> {
    if let Some((first, last)) = text.split_once('-') {
        return Some((number(first.as_bytes())?, number(last.as_bytes())?));
    }
    match text.split_once('/') {
        Some((first, length)) => block(number(first.as_bytes())?, length.parse().ok()?),
        None => number(text.as_bytes()).map(|number| (number, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_in_all_their_spellings() {
        for (text, first, size) in [
            ("10.0.0.5", "10.0.0.5", 0),
            ("10.0.0.0/24", "10.0.0.0", 255),
            ("2001:db8::-2001:db8::f", "2001:db8::", 15),
        ] {
            let (from, to) = range(text).unwrap();
            assert_eq!((name(from).to_string().as_str(), to - from), (first, size), "{text}");
        }
        assert_eq!(range("10.0.0.1/24"), None);
        assert_eq!(range("::/0"), Some((0, u128::MAX)));
    }
}
