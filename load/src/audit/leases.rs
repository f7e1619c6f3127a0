//! Leases of before the run: when such a lease is over, its address comes free, and a server that grants it again is right.
//!
//! Its holder may renew a lease, so one that could be over may still be there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::ground::Span;
use super::space::{Holder, Space};
use super::span_size;

/// The server tells whole seconds.
const PRECISION: Duration = Duration::from_secs(1);

/// The leases, by network and first address.
#[derive(Default)]
pub struct Leases(BTreeMap<(usize, u128), Lease>);

struct Lease {
    last: u128,
    /// The lease is not over before this.
    end: Instant,
}

impl Leases {
    /// Notes a lease of which the server told, at this time or later, that so many seconds were left.
    pub fn note(&mut self, network: usize, (first, last): Span, told: Instant, seconds: u64) {
        let left = Duration::from_secs(seconds).saturating_sub(PRECISION);
        // A lease that ends after all times that can be told does not end in this run.
        if let Some(end) = told.checked_add(left) {
            self.0.insert((network, first), Lease { last, end });
        }
    }

    /// May the lease of the reservation that begins at this address be over?
    pub fn may_be_over(&self, network: usize, first: u128) -> bool {
        self.0.get(&(network, first)).is_some_and(Lease::may_be_over)
    }

    /// The reservation that begins at this address is not a stranger's any more.
    pub fn forget(&mut self, network: usize, first: u128) {
        self.0.remove(&(network, first));
    }

    /// Forgets everything in this span whose lease may be over, and frees what a stranger holds of it. Returns how many
    /// addresses that is.
    pub fn end(&mut self, network: usize, span: Span, space: &mut Space) -> u128 {
        let mut ended = 0;
        let up_to_it = self.0.range((network, 0)..=(network, span.1)).rev();
        let of_it = up_to_it.take_while(|(_, lease)| lease.last >= span.0);
        let over: Vec<Span> =
            of_it.filter(|(_, lease)| lease.may_be_over()).map(|((_, first), lease)| (*first, lease.last)).collect();
        for span in over {
            self.0.remove(&(network, span.0));
            if space.holder(span) == Some(Holder::Stranger) {
                space.free(span);
                ended += span_size(span);
            }
        }
        ended
    }

    /// The addresses of all leases that may be over.
    pub fn size_over(&self) -> u128 {
        let over = self.0.iter().filter(|(_, lease)| lease.may_be_over());
        over.map(|((_, first), lease)| span_size((*first, lease.last))).sum()
    }
}

impl Lease {
    fn may_be_over(&self) -> bool {
        self.end <= Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use super::super::address;
    use super::super::space::Holder;
    use super::*;

    #[test]
    fn what_a_lease_held_that_may_be_over_is_free_and_nothing_else() {
        let span = |text| address::range(text).unwrap();
        let (mut leases, mut space, now) = (Leases::default(), Space::of_blocks(), Instant::now());
        for (network, text, seconds) in [
            (0, "10.0.0.0", Some(0)),
            (0, "10.0.0.16/28", Some(1)),
            (0, "10.0.0.33", Some(3_600)),
            (0, "10.0.0.34", Some(0)),
            (0, "10.0.0.35", None),
            (0, "10.0.0.99", Some(u64::MAX)),
            (1, "10.0.0.35", Some(0)),
        ] {
            if network == 0 {
                space.take(span(text), Holder::Stranger).unwrap();
            }
            if let Some(seconds) = seconds {
                leases.note(network, span(text), now, seconds);
            }
        }
        assert_eq!(leases.size_over(), 1 + 16 + 1 + 1);
        assert_eq!(leases.end(0, span("10.0.0.17"), &mut space), 16, "a part of a block");
        assert_eq!(leases.end(0, span("10.0.0.32/28"), &mut space), 1, "what lies around it");
        let is_there = |text| space.holder(span(text)).is_some();
        for (text, there) in [
            ("10.0.0.0", true),
            ("10.0.0.16/28", false),
            ("10.0.0.33", true),
            ("10.0.0.34", false),
            ("10.0.0.35", true),
            ("10.0.0.99", true),
        ] {
            assert_eq!(is_there(text), there, "{text}");
        }
        assert!(leases.may_be_over(0, span("10.0.0.0").0) && leases.may_be_over(1, span("10.0.0.35").0));
        assert!(!leases.may_be_over(0, span("10.0.0.33").0) && !leases.may_be_over(0, span("10.0.0.99").0));
        // What this run holds by now is not freed with the lease that somebody had before.
        let taken = space.take(span("10.0.0.34"), Holder::Ours(crate::names::Who::new(0, 0, 0)));
        leases.note(0, span("10.0.0.34"), now, 0);
        assert_eq!((taken, leases.end(0, span("10.0.0.34"), &mut space)), (Ok(()), 0));
        assert!(space.holder(span("10.0.0.34")).is_some());
    }
}
