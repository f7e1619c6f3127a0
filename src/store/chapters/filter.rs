//! Which keys occur in a chapter: a Bloom filter for each sort of key. It never denies a key that occurs, and it affirms
//! about three in a thousand of those that do not.

use hashbrown::HashSet;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::core::address::Address;
use crate::core::types::NetworkId;

const BITS_PER_KEY: usize = 12;
/// Bits that are set for each key.
const PLACES: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Address,
    Owner,
    Scope,
    Network,
}

impl Sort {
    pub(super) const ALL: [Sort; 4] = [Sort::Address, Sort::Owner, Sort::Scope, Sort::Network];
}

/// The key of what is held at an address. For a block this is its first address and its length.
pub(super) fn address_key(base: Address, length: u8) -> u64 {
    let mut bytes = [0; 17];
    bytes[..16].copy_from_slice(&base.bits().to_be_bytes());
    bytes[16] = length;
    xxh3_64_with_seed(&bytes, u64::from(base.family().number()))
}

pub(super) fn text_key(text: &[u8]) -> u64 {
    xxh3_64_with_seed(text, 1)
}

pub(super) fn network_key(network: NetworkId) -> u64 {
    xxh3_64_with_seed(&network.0.to_be_bytes(), 2)
}

/// A filter over these keys. Their order makes no difference.
pub(super) fn make(keys: &HashSet<u64>) -> Vec<u8> {
    let mut bits = vec![0; (keys.len() * BITS_PER_KEY).div_ceil(8)];
    for &key in keys {
        for place in places(key, bits.len()) {
            bits[place / 8] |= 1 << (place % 8);
        }
    }
    bits
}

/// May the filter contain this key?
pub(super) fn may_have(bits: &[u8], key: u64) -> bool {
    !bits.is_empty() && places(key, bits.len()).all(|place| bits[place / 8] & 1 << (place % 8) != 0)
}

/// The two halves of the hash yield as many places as are wanted.
fn places(key: u64, bytes: usize) -> impl Iterator<Item = usize> {
    let bits = bytes as u64 * 8;
    let step = key >> 32 | 1;
    (0..PLACES)
        .map(move |n| (key.wrapping_add(n.wrapping_mul(step)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) as usize)
        .map(move |place| place % bits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_every_key_that_it_was_made_of_and_few_others() {
        let key = |n: u32| address_key(Address::V4(n), 32);
        let bits = make(&(0..4_000).chain(0..100).map(key).collect());
        assert!(bits.len() <= 4_000 * BITS_PER_KEY / 8 + 1);
        assert!((0..4_000).all(|n| may_have(&bits, key(n))));
        let wrong = (4_000..104_000).filter(|&n| may_have(&bits, key(n))).count();
        assert!(wrong < 1_000, "{wrong} of 100000");
    }

    #[test]
    fn an_empty_filter_has_nothing_and_kinds_of_keys_are_apart() {
        assert!(!may_have(&make(&HashSet::new()), 7));
        assert_ne!(address_key(Address::V4(1), 32), address_key(Address::V4(1), 31));
        assert_ne!(address_key(Address::V4(1), 32), address_key(Address::V6(1), 32));
        assert_ne!(text_key(b"a"), text_key(b"b"));
    }
}
