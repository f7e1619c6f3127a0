//! Arithmetic on words and aligned blocks. Knows nothing of the tree.

/// A mask of 64 children, or a word of 64 numbers, always covers six bits of a number.
pub(super) const STEP: u8 = 6;
/// Bits of an address. The block of this size is the whole space.
pub(super) const ADDRESS_BITS: u8 = 128;

/// Positions in a word that are multiples of 2^index.
const ALIGNED: [u64; 7] = [
    !0,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];
const LOW_BYTES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// 2^bits, modulo 2^128: the whole space has size 0. Sums of sizes therefore use wrapping arithmetic, which is exact if the
/// final result fits.
pub(super) fn size(bits: u8) -> u128 {
    1u128.checked_shl(bits.into()).unwrap_or(0)
}

/// Ones in the low `bits` places.
pub(super) fn low_mask(bits: u8) -> u128 {
    size(bits).wrapping_sub(1)
}

/// Ones at the positions `from..=to`; both are below 64.
pub(super) fn ones(from: u32, to: u32) -> u64 {
    (!0 << from) & (!0 >> (63 - to))
}

/// The positions where aligned groups of 2^order ones start.
pub(super) fn group_starts(word: u64, order: u8) -> u64 {
    let groups = (0..order).fold(word, |groups, step| groups & (groups >> (1u32 << step)));
    groups & ALIGNED[usize::from(order)]
}

/// Largest `order` such that the word has an aligned group of 2^order ones; none for 0.
pub(super) fn largest_group(word: u64) -> Option<u8> {
    if word == 0 {
        return None;
    }
    let mut groups = word;
    for order in 1..=STEP {
        groups &= (groups >> (1u32 << (order - 1))) & ALIGNED[usize::from(order)];
        if groups == 0 {
            return Some(order - 1);
        }
    }
    Some(STEP)
}

/// Position of the one that has `rank` ones below it. The word must have more than `rank` ones.
pub(super) fn select(word: u64, rank: u32) -> u32 {
    debug_assert!(rank < word.count_ones());
    // Ones per pair, nibble and byte, then running sums: byte i holds the ones of bytes 0..=i.
    let pairs = word - ((word >> 1) & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + ((pairs >> 2) & 0x3333_3333_3333_3333);
    let sums = ((nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(LOW_BYTES);
    // A byte keeps its high bit exactly if its sum is above `rank`; both are at most 64, so no
    // borrow crosses bytes.
    let above = (sums | HIGH_BITS) - (u64::from(rank) + 1) * LOW_BYTES;
    let byte = (above & HIGH_BITS).trailing_zeros() & !7;
    let before = ((sums << 8) >> byte) as u32 & 0xff;
    let mut rest = (word >> byte) & 0xff;
    for _ in before..rank {
        rest &= rest - 1;
    }
    byte + rest.trailing_zeros()
}

/// Index of the first byte that is at least `least`; compares eight bytes at a time. All bytes are below 128.
pub(super) fn first_at_least(bytes: &[u8], least: u8) -> Option<usize> {
    // Adding 128 - least sets the high bit of exactly the bytes that qualify, and cannot carry into
    // the next byte.
    let lift = u64::from(128 - least) * LOW_BYTES;
    let (eights, rest) = bytes.as_chunks::<8>();
    for (group, eight) in eights.iter().enumerate() {
        let qualified = u64::from_le_bytes(*eight).wrapping_add(lift) & HIGH_BITS;
        if qualified != 0 {
            return Some(group * 8 + (qualified.trailing_zeros() / 8) as usize);
        }
    }
    let tail = rest.iter().position(|&byte| byte >= least)?;
    Some(eights.len() * 8 + tail)
}

/// The numbers `first..=last`; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberRange {
    pub first: u128,
    pub last: u128,
}

impl NumberRange {
    pub fn covers(self, other: NumberRange) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    pub fn clip(self, other: NumberRange) -> Option<NumberRange> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(NumberRange { first, last })
    }

    /// The smallest block that a node can have and that contains the whole range.
    pub fn node_block(self) -> Block {
        let differing = ADDRESS_BITS - (self.first ^ self.last).leading_zeros() as u8;
        let bits = differing.next_multiple_of(STEP).max(2 * STEP);
        Block::around(self.first, bits)
    }
}

/// The 2^bits numbers from `start`, a multiple of 2^bits. The topmost node has 132 bits, four more
/// than exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub start: u128,
    pub bits: u8,
}

impl Block {
    /// Every number there is.
    pub const ALL: Block = Block { start: 0, bits: ADDRESS_BITS };

    pub fn around(number: u128, bits: u8) -> Block {
        Block { start: number & !low_mask(bits), bits }
    }

    pub fn last(self) -> u128 {
        self.start | low_mask(self.bits)
    }

    pub fn range(self) -> NumberRange {
        NumberRange { first: self.start, last: self.last() }
    }

    pub fn contains(self, number: u128) -> bool {
        (number ^ self.start) & !low_mask(self.bits) == 0
    }
}
