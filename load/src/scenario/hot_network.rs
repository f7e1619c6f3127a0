//! One hot network: nine of ten requests go to one network of many. Do its neighbours still get their turn?

use super::churn::churn_of;
use super::steady::Steady;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::arrivals::Chance;
use crate::meter::Kind;
use crate::refusal::Refusal;

/// Networks by default.
const NETWORKS: usize = 64;
/// The percentage of requests that go to the first network.
const HOT: u64 = 90;

/// Lanes draw the network of each allocation at random.
pub struct HotNetwork {
    churn: Steady,
    chance: Chance,
    networks: u64,
    measuring: bool,
}

impl HotNetwork {
    pub fn new(settings: &Settings) -> Self {
        let churn = churn_of(settings, NETWORKS, "10.0.0.0/20", 0.5);
        let networks = churn.networks().len() as u64;
        Self { churn, chance: Chance::new(settings.seed), networks, measuring: false }
    }
}

impl Scenario for HotNetwork {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.churn.networks()
    }

    fn prefill(&self, capacity: u64, held: u64) -> u64 {
        self.churn.prefill(capacity, held)
    }

    fn begin(&mut self) {
        self.churn.begin();
        self.measuring = true;
    }

    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let network = match self.chance.below(100) {
            // Before measuring, all networks are filled evenly.
            _ if !self.measuring => self.churn.in_turn(lane),
            drawn if drawn < HOT => 0,
            _ => self.chance.below(self.networks) as usize,
        };
        Some(self.churn.ask(lane, network, desk, out))
    }

    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        self.churn.answer(lane, desk, answer);
    }
}
