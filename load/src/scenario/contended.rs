//! Contended: more clients than a pool has room for. Who is refused asks again at once, or waits for its turn.

use super::exchange::Exchange;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::meter::Kind;
use crate::refusal::Refusal;

/// So many lanes want each address that is free, unless a fill level is said.
const LANES_OF_AN_ADDRESS: u64 = 8;

/// One network of a /20 that is as good as full; the room that is left goes from hand to hand.
pub struct Contended {
    networks: Vec<NetworkPlan>,
    exchange: Exchange,
    level: Option<f64>,
    room: u64,
    prefill: Option<u64>,
    hold: usize,
}

impl Contended {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, 1, "10.0.0.0/20", "oldest");
        let names: Vec<String> = networks.iter().map(|network| network.name.clone()).collect();
        let mut exchange = Exchange::new(settings, &names);
        if let Some(seconds) = settings.wait_seconds {
            exchange = exchange.with_member(&format!(r#""wait_seconds":{seconds}"#));
        }
        let room = (settings.lanes as u64 / LANES_OF_AN_ADDRESS).max(1);
        Self {
            networks,
            exchange,
            level: settings.fill_level,
            room,
            prefill: settings.prefill,
            hold: settings.hold.unwrap_or(1),
        }
    }
}

impl Scenario for Contended {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, capacity: u64) -> u64 {
        let level = self.level.map(|level| (capacity as f64 * level) as u64);
        self.prefill.or(level).unwrap_or(capacity.saturating_sub(self.room))
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
