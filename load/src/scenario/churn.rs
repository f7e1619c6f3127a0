//! Churn: pools at a fill level, and every lane exchanges an address. Does a full pool cost more than an empty one?

use super::exchange::Exchange;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::meter::Kind;
use crate::refusal::Refusal;

/// Share of the pool that is held, unless said otherwise.
const LEVEL_DEFAULT: f64 = 0.9;

/// One network of a /16 by default, drawn from at random, so that what is free lies scattered.
pub struct Churn {
    networks: Vec<NetworkPlan>,
    exchange: Exchange,
    level: f64,
    prefill: Option<u64>,
    hold: usize,
    lanes: u64,
}

impl Churn {
    pub fn new(settings: &Settings) -> Self {
        Self::with(settings, 1, "10.0.0.0/16", LEVEL_DEFAULT)
    }

    /// The same with other defaults.
    pub fn with(settings: &Settings, networks: usize, cidr: &str, level: f64) -> Self {
        let networks = NetworkPlan::several(settings, networks, cidr, "random");
        let names: Vec<String> = networks.iter().map(|network| network.name.clone()).collect();
        let hold = settings.hold.unwrap_or(1);
        Self {
            networks,
            exchange: Exchange::new(settings, &names),
            level: settings.fill_level.unwrap_or(level),
            prefill: settings.prefill,
            hold,
            lanes: settings.lanes as u64,
        }
    }

    /// The lanes' own addresses are part of the level; they come and go, so half of them counts.
    pub fn prefill_to_level(&self, capacity: u64) -> u64 {
        let wanted = (capacity as f64 * self.level) as u64;
        self.prefill.unwrap_or_else(|| wanted.saturating_sub(self.lanes * self.hold as u64 / 2))
    }

    /// One request of a lane in this network.
    pub fn ask(&mut self, lane: usize, network: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Kind {
        self.exchange.next(lane, network, desk, out)
    }

    /// The lane's next network, in turn.
    pub fn in_turn(&self, lane: usize) -> usize {
        (lane + self.exchange.count(lane)) % self.networks.len()
    }
}

impl Scenario for Churn {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, capacity: u64) -> u64 {
        self.prefill_to_level(capacity)
    }

    fn begin(&mut self) {
        self.exchange.hold(Some(self.hold));
    }

    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let network = self.in_turn(lane);
        Some(self.ask(lane, network, desk, out))
    }

    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        self.exchange.answer(lane, desk, answer);
    }
}
