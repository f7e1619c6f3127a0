//! Who holds what, as far as the answers said: no address twice at one time.
//!
//! An address is held from the answer that granted it until the *sending* of its release: the server may hand it
//! to somebody else as soon as the release is applied, and that answer may overtake the release's own on another
//! connection. One bit per IPv4 address in pages that are made when first touched; anything else goes to a set.

use std::collections::HashSet;

use crate::scan;

/// Addresses of one page: a page is 8 KiB.
const PAGE_ADDRESSES: usize = 1 << 16;

/// The pages of one network, by the upper 16 bits of the address.
type Pages = Vec<Option<Box<[u64; PAGE_ADDRESSES / 64]>>>;

/// What has been granted and not given back, by network.
#[derive(Default)]
pub struct Audit {
    pages: Vec<Pages>,
    others: HashSet<(usize, Box<[u8]>)>,
    held: u64,
    duplicates: u64,
    /// The first few duplicates, in words.
    examples: Vec<String>,
}

impl Audit {
    /// An audit of `networks` networks, each with addresses of its own.
    pub fn new(networks: usize) -> Self {
        Self { pages: (0..networks).map(|_| Pages::new()).collect(), ..Self::default() }
    }

    /// Notes a grant; a second one of the same address is a duplicate.
    pub fn granted(&mut self, network: usize, address: &[u8]) {
        let new = match scan::ipv4(address) {
            Some(bits) => {
                let (word, mask) = self.word(network, bits);
                let new = *word & mask == 0;
                *word |= mask;
                new
            }
            None => self.others.insert((network, address.into())),
        };
        if new {
            self.held += 1;
            return;
        }
        self.duplicates += 1;
        if self.examples.len() < 10 {
            self.examples.push(format!("{} in network {network}", String::from_utf8_lossy(address)));
        }
    }

    /// Notes that the address is about to be given back.
    pub fn letting_go(&mut self, network: usize, address: &[u8]) {
        let held = match scan::ipv4(address) {
            Some(bits) => {
                let (word, mask) = self.word(network, bits);
                let held = *word & mask != 0;
                *word &= !mask;
                held
            }
            None => self.others.remove(&(network, address.into())),
        };
        self.held -= u64::from(held);
    }

    /// Addresses held now.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Grants of an address that was held.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Some of them, for the report.
    pub fn examples(&self) -> &[String] {
        &self.examples
    }

    /// The word and the bit of an address.
    fn word(&mut self, network: usize, bits: u32) -> (&mut u64, u64) {
        let pages = &mut self.pages[network];
        let (page, offset) = ((bits >> 16) as usize, (bits & 0xffff) as usize);
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        let words = pages[page].get_or_insert_with(|| Box::new([0; PAGE_ADDRESSES / 64]));
        (&mut words[offset / 64], 1 << (offset % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_granted_twice_is_a_duplicate_unless_it_was_let_go_between() {
        for address in [&b"10.1.2.3"[..], b"2001:db8::5"] {
            let mut audit = Audit::new(2);
            audit.granted(0, address);
            audit.granted(1, address);
            assert_eq!((audit.held(), audit.duplicates()), (2, 0));
            audit.letting_go(0, address);
            audit.granted(0, address);
            assert_eq!((audit.held(), audit.duplicates()), (2, 0));
            audit.granted(0, address);
            assert_eq!((audit.held(), audit.duplicates(), audit.examples().len()), (2, 1, 1));
        }
    }
}
