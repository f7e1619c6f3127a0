//! IPv6: addresses out of a /64, whose free space no list could hold.

use super::exchange::Exchange;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::meter::Kind;
use crate::refusal::Refusal;

/// Addresses that a lane keeps, unless said otherwise.
const HOLD_DEFAULT: usize = 16;

/// One network, drawn from at random by default: its addresses lie far apart.
pub struct Ipv6 {
    networks: Vec<NetworkPlan>,
    exchange: Exchange,
    prefill: u64,
    hold: usize,
}

impl Ipv6 {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, 1, "2001:db8::/64", "random");
        let names: Vec<String> = networks.iter().map(|network| network.name.clone()).collect();
        let exchange = Exchange::new(settings, &names);
        let hold = settings.hold.unwrap_or(HOLD_DEFAULT);
        Self { networks, exchange, prefill: settings.prefill.unwrap_or(0), hold }
    }
}

impl Scenario for Ipv6 {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, _capacity: u64) -> u64 {
        self.prefill
    }

    fn begin(&mut self) {
        self.exchange.hold(Some(self.hold));
    }

    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let network = (lane + self.exchange.count(lane)) % self.networks.len();
        Some(self.exchange.next(lane, network, desk, out))
    }

    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        self.exchange.answer(lane, desk, answer);
    }
}
