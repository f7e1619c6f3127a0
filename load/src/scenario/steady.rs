//! Steady lanes: each exchanges addresses, going round the networks. Most scenarios are this, and differ in the networks, in
//! what is held before measuring, and in what a lane keeps.

use super::exchange::Exchange;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::meter::Kind;
use crate::refusal::Refusal;

/// Lanes that exchange addresses over networks.
pub struct Steady {
    networks: Vec<NetworkPlan>,
    exchange: Exchange,
    hold: Option<usize>,
    prefill: Box<dyn Fn(u64) -> u64>,
}

impl Steady {
    /// Before measuring, so many addresses are held as the settings say, or none; then a lane keeps `hold` addresses, or all.
    pub fn new(settings: &Settings, networks: Vec<NetworkPlan>, hold: Option<usize>) -> Self {
        let prefill = settings.prefill.unwrap_or(0);
        Self { exchange: Exchange::new(settings, &networks), networks, hold, prefill: Box::new(move |_| prefill) }
    }

    /// What is held before measuring follows from the addresses that there are, unless the settings say it.
    pub fn filled(mut self, settings: &Settings, prefill: impl Fn(u64) -> u64 + 'static) -> Self {
        if settings.prefill.is_none() {
            self.prefill = Box::new(prefill);
        }
        self
    }

    /// Each allocation has this too: `"wait_seconds":3`.
    pub fn with_member(mut self, member: &str) -> Self {
        self.exchange = self.exchange.with_member(member);
        self
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

impl Scenario for Steady {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, capacity: u64) -> u64 {
        (self.prefill)(capacity)
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
