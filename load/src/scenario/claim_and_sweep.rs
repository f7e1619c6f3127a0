//! Claim and sweep: addresses are claimed by name for machines; then half of the machines are gone, and a sweep that names
//! those alive lets go the others' addresses, at its second miss.
//!
//! Each lane is a scope of its own with addresses of its own, so what a sweep has to let go is known to the address. Where nobody
//! knows whether a request took effect it is asked again, as a client would, and both answers are right: a claim names the same
//! owner, a sweep may have let the dead go before, or lets them go at what was to be their first miss.

use serde_json::{Value, json};

use super::exchange::grant;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::audit::{Grant, Span, address};
use crate::meter::Kind;
use crate::names::Who;
use crate::refusal::Refusal;

/// Addresses of a lane.
const CLAIMS: usize = 16;
/// The first address that is claimed; in front of it lie what is reserved and the gateway.
const FIRST: u32 = 0x0a00_0100;

/// An address that a lane claims: its holder, if it has one.
struct Claim {
    span: Span,
    held: Option<Who>,
    /// Who may hold it, for all that is known.
    perhaps: Option<Who>,
}

#[derive(Clone, Copy)]
enum Asked {
    Nothing,
    Claim(usize, Who),
    /// The first sweep misses the dead, the second lets them go.
    Sweep {
        second: bool,
        /// One in front of it may have taken effect.
        again: bool,
    },
}

struct Lane {
    claims: Vec<Claim>,
    asked: Asked,
    count: u32,
    /// Sweeps since all was claimed.
    sweeps: u8,
    /// Nobody knows whether the latest sweep took effect.
    in_doubt: bool,
    /// Which half is dead.
    round: usize,
}

/// One network of a /8.
pub struct ClaimAndSweep {
    network: NetworkPlan,
    lanes: Vec<Lane>,
    seed: u32,
}

impl ClaimAndSweep {
    pub fn new(settings: &Settings) -> Self {
        let one = Settings { networks: Some(1), cidr: None, ..settings.clone() };
        let mut networks = NetworkPlan::several(&one, 1, "10.0.0.0/8", "lowest");
        let claims = |lane: usize| {
            let number = move |at: usize| FIRST + (lane * CLAIMS + at) as u32;
            let span = move |at| 0xffff_0000_0000 | u128::from(number(at));
            (0..CLAIMS).map(|at| Claim { span: (span(at), span(at)), held: None, perhaps: None }).collect()
        };
        let lane =
            |lane| Lane { claims: claims(lane), asked: Asked::Nothing, count: 0, sweeps: 0, in_doubt: false, round: 0 };
        Self { network: networks.remove(0), lanes: (0..settings.lanes).map(lane).collect(), seed: settings.seed }
    }

    fn scope(&self, lane: usize) -> String {
        format!("load-{:08x}-{lane:04}", self.seed)
    }
}

impl Lane {
    /// Does the machine at this address live on in this round?
    fn is_alive(&self, at: usize) -> bool {
        at % 2 == self.round % 2
    }

    fn dead(&self) -> Vec<(usize, Who)> {
        let held = self.claims.iter().enumerate().filter_map(|(at, claim)| Some((at, claim.held?)));
        held.filter(|(at, _)| !self.is_alive(*at)).collect()
    }
}

impl Scenario for ClaimAndSweep {
    fn networks(&self) -> Vec<NetworkPlan> {
        vec![self.network.clone()]
    }

    fn request(&mut self, number: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let (scope, seed, network) = (self.scope(number), self.seed, &self.network.name);
        let lane = &mut self.lanes[number];
        let free = lane.claims.iter().position(|claim| claim.held.is_none()).filter(|_| lane.sweeps == 0);
        let (kind, method, params) = if let Some(at) = free {
            let who = lane.claims[at].perhaps.take().unwrap_or_else(|| {
                lane.count += 1;
                Who::new(number, lane.count - 1, seed)
            });
            lane.asked = Asked::Claim(at, who);
            let (owner, address) = (who.name(), address::name(lane.claims[at].span.0));
            let params = json!({"network": network, "scope": scope, "address": address, "owner": owner,
                "claimant": owner, "release_with_claimant": true});
            (Kind::Claim, "ip.claim", params)
        } else {
            let second = lane.sweeps == 1;
            lane.sweeps += 1;
            let again = std::mem::take(&mut lane.in_doubt);
            lane.asked = Asked::Sweep { second, again };
            let alive = lane.claims.iter().enumerate().filter(|(at, _)| lane.is_alive(*at));
            let alive: Vec<String> = alive.filter_map(|(_, claim)| Some(claim.held?.name())).collect();
            // Behind a first one that was made this is the second.
            if second || again {
                for (at, who) in lane.dead() {
                    desk.audit.letting_go(0, who, lane.claims[at].span, desk.now);
                }
            }
            (
                Kind::Sweep,
                "claimant.sweep",
                json!({"scope": scope, "alive": alive, "grace_seconds": 0, "max_share": 1.0}),
            )
        };
        let line = json!({"jsonrpc": "2.0", "id": desk.id, "method": method, "params": params});
        out.extend_from_slice(line.to_string().as_bytes());
        out.push(b'\n');
        Some(kind)
    }

    fn answer(&mut self, number: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        let lane = &mut self.lanes[number];
        match (std::mem::replace(&mut lane.asked, Asked::Nothing), answer) {
            (Asked::Claim(at, who), Ok(line)) => {
                let grant = Grant { automatic: false, ..grant(0, who, line, None) };
                let span = desk.audit.granted(number, &grant, desk.now);
                desk.audit.as_asked(lane.claims[at].span, span);
                lane.claims[at].held = Some(who);
            }
            (Asked::Claim(at, who), Err(refusal)) if refusal.unknown => {
                desk.audit.fate_unknown(Some(0), who, &[]);
                lane.claims[at].perhaps = Some(who);
            }
            (Asked::Sweep { second, again }, Ok(line)) => {
                let said: Value = serde_json::from_slice(line).unwrap_or_default();
                let released = said["result"]["released"].as_array().map_or(&[][..], Vec::as_slice);
                let addresses = released.iter().map(|one| one["address"].as_str());
                let said: Vec<Option<u128>> = addresses.map(|text| address::number(text?.as_bytes())).collect();
                let dead = if second || again { lane.dead() } else { Vec::new() };
                if again && !second && said.is_empty() {
                    // The one in front was not made: this was the first.
                    dead.into_iter().for_each(|(at, who)| desk.audit.kept(0, who, lane.claims[at].span));
                    return;
                }
                let should: Vec<Span> = dead.iter().map(|(at, _)| lane.claims[*at].span).collect();
                desk.audit.let_go(Who::new(number, 0, 0), &should, &said, again);
                for (at, _) in &dead {
                    lane.claims[*at].held = None;
                }
                if second || again {
                    (lane.sweeps, lane.round) = (0, lane.round + 1);
                }
            }
            (Asked::Sweep { second, again }, Err(refusal)) => {
                for (at, who) in if second || again { lane.dead() } else { Vec::new() } {
                    // Behind a second one of unknown fate nobody knows either.
                    if refusal.unknown || (second && again) {
                        desk.audit.fate_unknown(Some(0), who, &[lane.claims[at].span]);
                    } else {
                        desk.audit.kept(0, who, lane.claims[at].span);
                    }
                }
                lane.sweeps = u8::from(second);
                lane.in_doubt = again || refusal.unknown;
            }
            (Asked::Claim(..) | Asked::Nothing, _) => {}
        }
    }
}
