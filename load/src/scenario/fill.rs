//! Fill: every lane asks for addresses and keeps them. With `hold` it releases too.

use super::exchange::Exchange;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::meter::Kind;
use crate::refusal::Refusal;

/// Networks of a /8 in turn; one by default.
pub struct Fill {
    networks: Vec<NetworkPlan>,
    exchange: Exchange,
    prefill: u64,
    hold: Option<usize>,
}

impl Fill {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, 1, "10.0.0.0/8", "lowest");
        let names: Vec<String> = networks.iter().map(|network| network.name.clone()).collect();
        let exchange = Exchange::new(settings, &names);
        Self { networks, exchange, prefill: settings.prefill.unwrap_or(0), hold: settings.hold }
    }
}

impl Scenario for Fill {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, _capacity: u64) -> u64 {
        self.prefill
    }

    fn begin(&mut self) {
        self.exchange.hold(self.hold);
    }

    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let network = (lane + self.exchange.count(lane)) % self.networks.len();
        Some(self.exchange.next(lane, network, desk, out))
    }

    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        self.exchange.answer(lane, desk, answer);
    }
}
