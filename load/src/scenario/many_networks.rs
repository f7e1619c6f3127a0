//! Many networks: each request goes to another of a thousand small ones. What does a network cost that is one of many?

use super::churn::Churn;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::meter::Kind;
use crate::refusal::Refusal;

/// Networks, unless said otherwise.
const NETWORKS: usize = 1_000;

/// Lanes go round the networks; each network is half full.
pub struct ManyNetworks(Churn);

impl ManyNetworks {
    pub fn new(settings: &Settings) -> Self {
        Self(Churn::with(settings, NETWORKS, "10.0.0.0/24", 0.5))
    }
}

impl Scenario for ManyNetworks {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.0.networks()
    }

    fn prefill(&self, capacity: u64) -> u64 {
        self.0.prefill(capacity)
    }

    fn begin(&mut self) {
        self.0.begin();
    }

    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        self.0.request(lane, desk, out)
    }

    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        self.0.answer(lane, desk, answer);
    }
}
