//! Blocks: aligned ranges instead of single addresses, as a node requests them for its pods.

use super::exchange::Exchange;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::meter::Kind;
use crate::refusal::Refusal;

/// The prefix length of a block by default.
const PREFIX_LENGTH: u8 = 28;
/// Blocks that a lane keeps by default.
const HOLD_DEFAULT: usize = 4;

/// Three lanes of four ask for blocks, and the fourth for single addresses between them.
pub struct Blocks {
    networks: Vec<NetworkPlan>,
    blocks: Exchange,
    singles: Exchange,
    prefill: u64,
    hold: usize,
}

impl Blocks {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, 1, "10.0.0.0/8", "lowest");
        let networks: Vec<NetworkPlan> = networks.into_iter().map(NetworkPlan::with_blocks).collect();
        let prefix_length = settings.prefix_length.unwrap_or(PREFIX_LENGTH);
        Self {
            blocks: Exchange::new(settings, &networks).with_blocks(prefix_length),
            singles: Exchange::new(settings, &networks),
            networks,
            prefill: settings.prefill.unwrap_or(0),
            hold: settings.hold.unwrap_or(HOLD_DEFAULT),
        }
    }

    fn of(&mut self, lane: usize) -> &mut Exchange {
        if lane % 4 == 3 { &mut self.singles } else { &mut self.blocks }
    }
}

impl Scenario for Blocks {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, _capacity: u64, _held: u64) -> u64 {
        self.prefill
    }

    fn begin(&mut self) {
        self.blocks.hold(Some(self.hold));
        self.singles.hold(Some(self.hold));
    }

    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let networks = self.networks.len();
        let exchange = self.of(lane);
        let network = (lane + exchange.count(lane)) % networks;
        Some(exchange.next(lane, network, desk, out))
    }

    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        self.of(lane).answer(lane, desk, answer);
    }
}
