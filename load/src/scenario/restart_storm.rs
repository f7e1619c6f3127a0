//! Restart storm: every owner holds an address. Then all connections are lost, and every owner asks again at once, as after
//! the restart of a provisioning system. Each must be given the address that it holds.

use super::exchange::{end_of, grant, push_request, start_of};
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::audit::Span;
use crate::meter::Kind;
use crate::names::Who;
use crate::refusal::Refusal;

/// Owners by default.
const OWNERS_DEFAULT: u64 = 20_000;

struct Lane {
    /// The first grant of each owner, by its number.
    held: Vec<Option<Span>>,
    /// The owner whose turn is next, and the owner of the outstanding request.
    next: usize,
    asked: Option<usize>,
}

/// Owners are distributed over the lanes, and each lane asks for its owners one after the other.
pub struct RestartStorm {
    networks: Vec<NetworkPlan>,
    start: Vec<Vec<u8>>,
    end: &'static [u8],
    lanes: Vec<Lane>,
    owners: u64,
    seed: u32,
    storm: bool,
}

impl RestartStorm {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, 16, "10.0.0.0/16", "lowest");
        let owners = settings.owners.unwrap_or(OWNERS_DEFAULT);
        let share =
            |lane: usize| owners as usize / settings.lanes + usize::from(lane < owners as usize % settings.lanes);
        let lane = |lane| Lane { held: vec![None; share(lane)], next: 0, asked: None };
        Self {
            start: networks.iter().map(|network| start_of("ip.allocate", network)).collect(),
            end: end_of(settings),
            lanes: (0..settings.lanes).map(lane).collect(),
            networks,
            owners,
            seed: settings.seed,
            storm: false,
        }
    }

    fn network(&self, lane: usize, owner: usize) -> usize {
        (lane + owner) % self.networks.len()
    }
}

impl Scenario for RestartStorm {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, _capacity: u64, _held: u64) -> u64 {
        self.owners
    }

    fn begin(&mut self) {
        self.storm = true;
        self.lanes.iter_mut().for_each(|lane| lane.next = 0);
    }

    fn requests(&self) -> Option<u64> {
        Some(self.owners)
    }

    fn request(&mut self, number: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let owner = self.lanes[number].next;
        if owner >= self.lanes[number].held.len() {
            return None;
        }
        let network = self.network(number, owner);
        let lane = &mut self.lanes[number];
        (lane.next, lane.asked) = (owner + 1, Some(owner));
        push_request(out, desk.id, &self.start[network], Who::new(number, owner as u32, self.seed), self.end);
        Some(if self.storm { Kind::Repeat } else { Kind::Allocate })
    }

    fn answer(&mut self, number: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        let Some(owner) = self.lanes[number].asked.take() else { return };
        let (network, who) = (self.network(number, owner), Who::new(number, owner as u32, self.seed));
        let held = &mut self.lanes[number].held[owner];
        match answer {
            Ok(line) => {
                let span = desk.audit.granted(number, &grant(network, who, line, None), desk.now);
                match *held {
                    Some(before) => desk.audit.repeated(network, who, before, span),
                    None => *held = span,
                }
            }
            Err(refusal) if refusal.unknown => desk.audit.fate_unknown(Some(network), who, &[]),
            Err(_) => {}
        }
    }
}
