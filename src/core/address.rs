//! Addresses, prefixes and ranges: strict parsing, canonical output, arithmetic.
//!
//! Texts are parsed once, where they enter, and the values are valid from then on. Refused are leading zeros, zone ids,
//! IPv4-mapped IPv6, host bits in a prefix, and ranges whose ends are of two families or out of order. Output is RFC 5952.
//!
//! Neighbours: `wire` parses requests with these types; `space` and `network` compute with the plain numbers of
//! [`Address::bits`]. Nothing here loops over the addresses of a range.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// 32-bit addresses.
    V4,
    /// 128-bit addresses.
    V6,
}

impl Family {
    /// Both families, IPv4 first, which is the order used everywhere here.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// Width of an address: 32 or 128.
    pub const fn width(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// The number the protocol uses: 4 or 6.
    pub const fn number(self) -> u8 {
        match self {
            Family::V4 => 4,
            Family::V6 => 6,
        }
    }

    /// The highest address of the family, as a number.
    pub const fn last_bits(self) -> u128 {
        match self {
            Family::V4 => u32::MAX as u128,
            Family::V6 => u128::MAX,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPv{}", self.number())
    }
}

/// One address. Ordered IPv4 before IPv6, then by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An IPv4 address as its number.
    V4(u32),
    /// An IPv6 address as its number.
    V6(u128),
}

/// What is wrong with a text that should have been an address, prefix or range. `Display` is meant for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}: {problem}")]
pub struct Malformed {
    /// What was given.
    pub text: String,
    /// What it should have been, with its article: `an address`.
    pub expected: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl Malformed {
    fn new(text: &str, expected: &'static str, problem: impl Into<String>) -> Self {
        let mut shown: String = text.chars().take(80).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self { text: shown, expected, problem: problem.into() }
    }
}

impl Address {
    /// The address of `family` with this number.
    ///
    /// # Panics
    /// In debug builds, if an IPv4 number is wider than 32 bits. Callers compute inside one subnet, so this does not happen.
    pub fn new(family: Family, bits: u128) -> Self {
        match family {
            Family::V4 => {
                debug_assert!(bits <= u128::from(u32::MAX));
                Address::V4(bits as u32)
            }
            Family::V6 => Address::V6(bits),
        }
    }

    /// Its family.
    pub const fn family(self) -> Family {
        match self {
            Address::V4(_) => Family::V4,
            Address::V6(_) => Family::V6,
        }
    }

    /// Its number, in the low 32 bits for IPv4.
    pub const fn bits(self) -> u128 {
        match self {
            Address::V4(bits) => bits as u128,
            Address::V6(bits) => bits,
        }
    }

    /// Is it an IPv6 link-local address (fe80::/10)? A gateway may have one.
    pub const fn is_link_local(self) -> bool {
        match self {
            Address::V4(_) => false,
            Address::V6(bits) => bits >> 118 == 0x3fa,
        }
    }

    /// The next address of the family, if there is one.
    pub fn next(self) -> Option<Self> {
        match self {
            Address::V4(bits) => bits.checked_add(1).map(Address::V4),
            Address::V6(bits) => bits.checked_add(1).map(Address::V6),
        }
    }

    /// The previous address of the family, if there is one.
    pub fn previous(self) -> Option<Self> {
        match self {
            Address::V4(bits) => bits.checked_sub(1).map(Address::V4),
            Address::V6(bits) => bits.checked_sub(1).map(Address::V6),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Address::V4(bits) => fmt::Display::fmt(&Ipv4Addr::from(bits), f),
            Address::V6(bits) => fmt::Display::fmt(&Ipv6Addr::from(bits), f),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        match address {
            Address::V4(bits) => IpAddr::V4(bits.into()),
            Address::V6(bits) => IpAddr::V6(bits.into()),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Address::V4(v4.into()),
            IpAddr::V6(v6) => Address::V6(v6.into()),
        }
    }
}

impl FromStr for Address {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const EXPECTED: &str = "an address";
        if text.len() > 45 {
            return Err(Malformed::new(text, EXPECTED, "it is too long"));
        }
        if let Ok(v4) = text.parse::<Ipv4Addr>() {
            return Ok(Address::V4(u32::from(v4)));
        }
        match text.parse::<Ipv6Addr>() {
            Ok(v6) if v6.to_ipv4_mapped().is_some() => {
                Err(Malformed::new(text, EXPECTED, "IPv4-mapped IPv6 is refused; write the IPv4 address"))
            }
            Ok(v6) => Ok(Address::V6(u128::from(v6))),
            Err(_) => Err(Malformed::new(text, EXPECTED, problem_of(text))),
        }
    }
}

/// Does the text read as an address, a prefix or a range, even a malformed one? It does if it is an address, alone or followed
/// by what can only be the rest of a prefix or range: `10.0.0.5/24` and `10.0.0.9-10.0.0` do, `10.0.0.0-lan` does not.
pub fn reads_as_address(text: &str) -> bool {
    let end = text.find(['/', '-', '+']).unwrap_or(text.len());
    let Ok(first) = text[..end].parse::<Address>() else { return false };
    let Some(rest) = text.get(end + 1..) else { return true };
    let fits = |byte: u8| match (text.as_bytes()[end], first.family()) {
        (b'-', Family::V4) => byte.is_ascii_digit() || byte == b'.',
        (b'-', Family::V6) => byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':'),
        _ => byte.is_ascii_digit(),
    };
    rest.bytes().all(fits) || rest.parse::<Address>().is_ok()
}

/// A guess at why a text is not an address, for the person who reads the error.
fn problem_of(text: &str) -> &'static str {
    if text.is_empty() {
        "it is empty"
    } else if text.contains('%') {
        "zone ids are refused"
    } else if text.contains('/') {
        "it is a prefix, but a single address is needed"
    } else if text.split('.').count() == 4 && text.split('.').any(|part| part.len() > 1 && part.starts_with('0')) {
        "leading zeros are refused"
    } else if text.trim() != text {
        "it has white space around it"
    } else {
        "neither IPv4 (10.0.0.5) nor IPv6 (2001:db8::5)"
    }
}

/// A prefix: an aligned block of addresses whose host bits are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    base: Address,
    length: u8,
}

impl Cidr {
    /// The prefix of this length at `base`, or none if `base` has host bits or the length is too long.
    pub fn new(base: Address, length: u8) -> Option<Self> {
        let width = base.family().width();
        if length > width || base.bits() & host_mask(width - length) != 0 {
            return None;
        }
        Some(Self { base, length })
    }

    /// The prefix of this length that contains `address`.
    ///
    /// # Panics
    /// In debug builds, if the length exceeds the width of an address.
    pub fn containing(address: Address, length: u8) -> Self {
        let width = address.family().width();
        debug_assert!(length <= width);
        let bits = address.bits() & !host_mask(width - length.min(width));
        Self { base: Address::new(address.family(), bits), length }
    }

    /// Its first address.
    pub const fn base(self) -> Address {
        self.base
    }

    /// Its prefix length.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Its family.
    pub const fn family(self) -> Family {
        self.base.family()
    }

    /// Its last address.
    pub fn last(self) -> Address {
        let family = self.family();
        Address::new(family, self.base.bits() | host_mask(family.width() - self.length))
    }

    /// Its addresses as a range.
    pub fn range(self) -> Range {
        Range { first: self.base, last: self.last() }
    }

    /// Does the address lie in it?
    pub fn contains(self, address: Address) -> bool {
        self.range().contains(address)
    }
}

/// `host_bits` ones in the low bits.
pub fn host_mask(host_bits: u8) -> u128 {
    if host_bits >= 128 { u128::MAX } else { (1u128 << host_bits) - 1 }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

impl FromStr for Cidr {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const EXPECTED: &str = "a prefix (10.0.0.0/24)";
        let Some((address, length)) = text.split_once('/') else {
            return Err(Malformed::new(text, EXPECTED, "it has no `/`"));
        };
        let base: Address =
            address.parse().map_err(|error: Malformed| Malformed::new(text, EXPECTED, error.problem))?;
        // A number has only one spelling: no sign, no leading zero.
        let digits = length.bytes().all(|byte| byte.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
        let length = length.parse().ok().filter(|_| digits);
        let Some(typed) = length.and_then(|length| IpNet::new(base.into(), length).ok()) else {
            let width = base.family().width();
            return Err(Malformed::new(text, EXPECTED, format!("the prefix length must be 0 to {width}")));
        };
        if typed.addr() != typed.network() {
            let meant = typed.trunc();
            return Err(Malformed::new(text, EXPECTED, format!("it has host bits; the prefix is {meant}")));
        }
        Ok(typed.into())
    }
}

impl From<IpNet> for Cidr {
    /// The prefix of the net, without host bits.
    fn from(net: IpNet) -> Self {
        Self { base: net.network().into(), length: net.prefix_len() }
    }
}

/// Consecutive addresses of one family, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    first: Address,
    last: Address,
}

impl Range {
    /// The range from `first` to `last`, or none if they are of two families or out of order.
    pub fn new(first: Address, last: Address) -> Option<Self> {
        (first.family() == last.family() && first <= last).then_some(Self { first, last })
    }

    /// The range of the numbers `first..=last` of `family`.
    pub fn of_bits(family: Family, first: u128, last: u128) -> Self {
        debug_assert!(first <= last);
        Self { first: Address::new(family, first), last: Address::new(family, last) }
    }

    /// One address as a range.
    pub const fn single(address: Address) -> Self {
        Self { first: address, last: address }
    }

    /// First address.
    pub const fn first(self) -> Address {
        self.first
    }

    /// Last address.
    pub const fn last(self) -> Address {
        self.last
    }

    /// Family of both ends.
    pub const fn family(self) -> Family {
        self.first.family()
    }

    /// Number of addresses. Saturates at 2^128 - 1 for the whole of IPv6, which no subnet may be.
    pub fn size(self) -> u128 {
        (self.last.bits() - self.first.bits()).saturating_add(1)
    }

    /// Does the address lie in it?
    pub fn contains(self, address: Address) -> bool {
        self.first <= address && address <= self.last
    }

    /// Does all of `other` lie in it?
    pub fn covers(self, other: Range) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Do the two share any address?
    pub fn overlaps(self, other: Range) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The addresses that the two share.
    pub fn intersection(self, other: Range) -> Option<Range> {
        self.overlaps(other).then(|| Range { first: self.first.max(other.first), last: self.last.min(other.last) })
    }

    /// What is left of this range without `other`: nothing, one part, or two.
    pub fn without(self, other: Range) -> impl Iterator<Item = Range> {
        let (before, after) = if self.overlaps(other) {
            let before = other.first.previous().filter(|_| self.first < other.first);
            let after = other.last.next().filter(|_| other.last < self.last);
            (before.map(|last| Range { first: self.first, last }), after.map(|first| Range { first, last: self.last }))
        } else {
            (Some(self), None)
        };
        before.into_iter().chain(after)
    }

    /// Do the two touch or overlap, so that their union is one range?
    pub fn joins(self, other: Range) -> bool {
        self.overlaps(other) || self.last.next() == Some(other.first) || other.last.next() == Some(self.first)
    }

    /// The prefix that has exactly these addresses, if there is one.
    pub fn as_cidr(self) -> Option<Cidr> {
        let mut cidrs = self.cidrs();
        let first = cidrs.next();
        first.filter(|_| cidrs.next().is_none())
    }

    /// The smallest set of prefixes that make up this range, ascending: at most two per bit of an address.
    pub fn cidrs(self) -> impl Iterator<Item = Cidr> {
        let nets = match (self.first, self.last) {
            (Address::V6(first), Address::V6(last)) => IpSubnets::V6(Ipv6Subnets::new(first.into(), last.into(), 0)),
            // Both ends are of the same family.
            (first, last) => {
                IpSubnets::V4(Ipv4Subnets::new((first.bits() as u32).into(), (last.bits() as u32).into(), 0))
            }
        };
        nets.map(Cidr::from)
    }

    /// As people write it: as a prefix or a single address where possible, otherwise as first and last address.
    pub fn as_typed(self) -> String {
        match self.as_cidr() {
            _ if self.first == self.last => self.first.to_string(),
            Some(cidr) => cidr.to_string(),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Range {
    /// `10.0.0.10-10.0.0.20`; one address is written as `10.0.0.10-10.0.0.10`, so that it reads as a range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for Range {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const EXPECTED: &str = "a range (10.0.0.10-10.0.0.20, 10.0.0.10+11, 10.0.0.0/24 or 10.0.0.10)";
        let inner = |error: Malformed| Malformed::new(text, EXPECTED, error.problem);
        if text.contains('/') {
            return Ok(text.parse::<Cidr>().map_err(inner)?.range());
        }
        if let Some((first, last)) = text.split_once('-') {
            let (first, last): (Address, Address) = (first.parse().map_err(inner)?, last.parse().map_err(inner)?);
            return Range::new(first, last).ok_or_else(|| {
                let problem = if first.family() == last.family() {
                    "it ends before it begins"
                } else {
                    "its ends are of two families"
                };
                Malformed::new(text, EXPECTED, problem)
            });
        }
        if let Some((first, count)) = text.split_once('+') {
            let first: Address = first.parse().map_err(inner)?;
            // A number has only one spelling: no sign, no leading zero, and therefore no 0.
            let digits = !count.starts_with('0') && count.bytes().all(|byte| byte.is_ascii_digit());
            let Some(count) = count.parse::<u128>().ok().filter(|_| digits) else {
                let problem = "the count after `+` must be a number of at least 1, without leading zeros";
                return Err(Malformed::new(text, EXPECTED, problem));
            };
            return match first.bits().checked_add(count - 1).filter(|&last| last <= first.family().last_bits()) {
                Some(last) => Ok(Range { first, last: Address::new(first.family(), last) }),
                None => Err(Malformed::new(text, EXPECTED, "it reaches past the last address of its family")),
            };
        }
        Ok(Range::single(text.parse().map_err(inner)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_addresses_a_range_has_is_written_in_one_way() {
        for text in ["10.0.0.10+01", "10.0.0.10+0", "10.0.0.10+00", "10.0.0.10++1", "10.0.0.10+", "10.0.0.10+ 1"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
        assert_eq!(range("10.0.0.10+1"), range("10.0.0.10"));
        assert_eq!(
            range("::+340282366920938463463374607431768211455").last().to_string(),
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"
        );
    }

    fn range(text: &str) -> Range {
        text.parse().unwrap()
    }

    #[test]
    fn output_is_canonical() {
        for (given, canonical) in [("2001:DB8:0:0:0:0:0:5", "2001:db8::5"), ("10.0.0.5", "10.0.0.5"), ("::", "::")] {
            assert_eq!(given.parse::<Address>().unwrap().to_string(), canonical);
        }
        assert_eq!("2001:db8::/32".parse::<Cidr>().unwrap().to_string(), "2001:db8::/32");
        assert_eq!(range("10.0.0.10+11"), range("10.0.0.10-10.0.0.20"));
        assert_eq!(range("10.0.0.0/24").to_string(), "10.0.0.0-10.0.0.255");
        assert_eq!(range("10.0.0.7"), range("10.0.0.7-10.0.0.7"));
    }

    #[test]
    fn sloppy_spellings_are_refused() {
        for text in
            ["010.0.0.1", "10.0.0", "10.0.0.1 ", "fe80::1%eth0", "::ffff:10.0.0.1", "", "10.0.0.1/32", "1.2.3.4.5"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        for text in
            ["10.0.0.5/24", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/08", "10.0.0.0/", "::ffff:10.0.0.0/120", "::/129"]
        {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        for text in [
            "10.0.0.9-10.0.0.1",
            "10.0.0.1-::1",
            "10.0.0.1+0",
            "255.255.255.255+2",
            "10.0.0.1+",
            "10.0.0.1+-1",
            "::1+340282366920938463463374607431768211456",
        ] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }

    #[test]
    fn host_bits_error_names_the_prefix_that_was_meant() {
        let error = "10.0.0.5/24".parse::<Cidr>().unwrap_err();
        assert!(error.to_string().contains("10.0.0.0/24"), "{error}");
    }

    #[test]
    fn difference_of_ranges_leaves_the_parts_on_both_sides() {
        let parts: Vec<_> = range("10.0.0.10-10.0.0.100").without(range("10.0.0.20-10.0.0.50")).collect();
        assert_eq!(parts, [range("10.0.0.10-10.0.0.19"), range("10.0.0.51-10.0.0.100")]);
        assert_eq!(range("10.0.0.1").without(range("10.0.0.0/24")).count(), 0);
        assert_eq!(range("0.0.0.0-255.255.255.255").without(range("255.255.255.255")).count(), 1);
        assert_eq!(range("10.0.0.1").without(range("10.0.1.1")).count(), 1);
    }

    #[test]
    fn a_range_is_cut_into_the_fewest_prefixes() {
        let cut = |text: &str| range(text).cidrs().map(|cidr| cidr.to_string()).collect::<Vec<_>>();
        assert_eq!(cut("10.0.0.1-10.0.0.6"), ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]);
        assert_eq!(cut("0.0.0.0-255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(cut("0.0.0.1-255.255.255.255").len(), 32);
        assert_eq!(cut("255.255.255.255"), ["255.255.255.255/32"]);
        assert_eq!(cut("ffff::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["ffff::/16"]);
        assert_eq!(cut("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").len(), 128);
    }

    #[test]
    fn a_range_knows_when_it_is_a_prefix() {
        assert_eq!(range("10.0.0.0-10.0.0.255").as_cidr(), Some("10.0.0.0/24".parse().unwrap()));
        assert_eq!(range("10.0.0.1-10.0.0.2").as_cidr(), None);
        for typed in ["10.0.0.0/24", "10.0.0.1-10.0.0.2", "10.0.0.7", "fd00::/64", "::/0"] {
            assert_eq!(range(typed).as_typed(), typed);
        }
        assert_eq!(range("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").as_cidr(), Some("::/0".parse().unwrap()));
        assert_eq!(range("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").as_cidr(), None, "all but the last one");
    }
}
