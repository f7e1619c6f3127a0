//! Steady lanes: each exchanges addresses and cycles through the networks. Most scenarios are of this kind; they differ in
//! their networks, in how much is held before measuring, and in how much a lane keeps.

use super::exchange::Exchange;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::meter::Kind;
use crate::refusal::Refusal;

/// Lanes that exchange addresses over networks.
pub struct Steady {
    networks: Vec<NetworkPlan>,
    lanes_per_network: Option<usize>,
    exchange: Exchange,
    hold: Option<usize>,
    prefill: Box<dyn Fn(u64, u64) -> u64>,
}

impl Steady {
    /// Before measuring, `settings.prefill` addresses are allocated, or none; afterwards a lane keeps `hold` addresses, or
    /// all.
    pub fn new(settings: &Settings, networks: Vec<NetworkPlan>, hold: Option<usize>) -> Self {
        let prefill = settings.prefill.unwrap_or(0);
        Self {
            exchange: Exchange::new(settings, &networks),
            networks,
            lanes_per_network: settings.lanes_per_network,
            hold,
            prefill: Box::new(move |_, _| prefill),
        }
    }

    /// Derives the number of addresses to allocate before measuring from the capacity and the addresses held, unless the
    /// settings contain it.
    pub fn filled(mut self, settings: &Settings, prefill: impl Fn(u64, u64) -> u64 + 'static) -> Self {
        if settings.prefill.is_none() {
            self.prefill = Box::new(prefill);
        }
        self
    }

    /// Adds a member to each allocation, for example `"wait_seconds":3`.
    pub fn with_member(mut self, member: &str) -> Self {
        self.exchange = self.exchange.with_member(member);
        self
    }

    /// Appends one request of a lane in this network.
    pub fn ask(&mut self, lane: usize, network: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Kind {
        self.exchange.next(lane, network, desk, out)
    }

    /// The network that the lane stays in, or its next in turn. The steps are chosen so that all lanes together visit the
    /// networks evenly.
    pub fn in_turn(&self, lane: usize) -> usize {
        let next = match self.lanes_per_network {
            Some(lanes) => lane / lanes,
            None => lane + self.exchange.count(lane) * (self.exchange.lanes() + 1),
        };
        next % self.networks.len()
    }
}

impl Scenario for Steady {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, capacity: u64, held: u64) -> u64 {
        (self.prefill)(capacity, held)
    }

    fn begin(&mut self) {
        self.exchange.hold(self.hold);
    }

    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let network = self.in_turn(lane);
        Some(self.ask(lane, network, desk, out))
    }

    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        self.exchange.answer(lane, desk, answer);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audit::Auditor;

    #[test]
    fn a_few_requests_of_each_lane_reach_all_of_many_networks_alike() {
        // As many as lanes, a divisor, a multiple, and none of these.
        for networks in [8, 4, 160, 1, 100, 7] {
            let settings = Settings { lanes: 8, ..Settings::default() };
            let plans = NetworkPlan::several(&settings, networks, "10.0.0.0/24", "lowest");
            let mut steady = Steady::new(&settings, plans, None);
            let mut audit = Auditor::new(8, networks, 0);
            let mut asked = vec![0u32; networks];
            // Ten requests per network on average.
            for _ in 0..networks * 10 / 8 {
                for lane in 0..8 {
                    asked[steady.in_turn(lane)] += 1;
                    let mut desk = Desk { audit: &mut audit, id: lane, now: Duration::ZERO };
                    steady.request(lane, &mut desk, &mut Vec::new());
                }
            }
            assert!(asked.iter().all(|&times| (8..=12).contains(&times)), "{networks}: {asked:?}");
        }
    }

    #[test]
    fn lanes_that_keep_their_network_ask_nowhere_else_and_are_dealt_over_all() {
        let settings = Settings { lanes: 8, lanes_per_network: Some(2), ..Settings::default() };
        for (networks, kept) in [(4, [0, 0, 1, 1, 2, 2, 3, 3]), (3, [0, 0, 1, 1, 2, 2, 0, 0])] {
            let plans = NetworkPlan::several(&settings, networks, "10.0.0.0/24", "lowest");
            let mut steady = Steady::new(&settings, plans, None);
            let mut audit = Auditor::new(8, networks, 0);
            for _ in 0..3 {
                for (lane, network) in kept.into_iter().enumerate() {
                    assert_eq!(steady.in_turn(lane), network);
                    let mut desk = Desk { audit: &mut audit, id: lane, now: Duration::ZERO };
                    steady.request(lane, &mut desk, &mut Vec::new());
                }
            }
        }
    }
}
