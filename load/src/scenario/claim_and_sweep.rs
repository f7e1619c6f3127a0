//! Claim and sweep: addresses are claimed by name for machines. Then half of the machines are gone, and sweeps that list the
//! living machines release the addresses of the others at their second miss.
//!
//! Each lane is a scope of its own with its own addresses, so exactly which addresses a sweep has to release is known. A
//! request with an unknown outcome is sent again, as a client would do, and both answers are correct: a claim names the same
//! owner; a sweep may have released the dead machines' addresses before, or releases them now although this was meant to be
//! their first miss.

use serde_json::json;

use super::exchange::{grant, push_call, released_anywhere};
use super::network::FIRST_CLAIMED;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::audit::{Grant, Span, address};
use crate::meter::Kind;
use crate::names::Who;
use crate::refusal::Refusal;

/// Addresses of a lane.
const CLAIMS: usize = 16;

/// An address that a lane claims, with its holder, if any.
struct Claim {
    span: Span,
    held: Option<Who>,
    /// The owner that may hold it, because the outcome of its claim is unknown.
    perhaps: Option<Who>,
}

#[derive(Clone, Copy)]
enum Asked {
    Nothing,
    Claim(usize, Who),
    /// The first sweep misses the dead machines, the second releases their addresses.
    Sweep {
        second: bool,
        /// An earlier sweep may have taken effect.
        again: bool,
    },
}

struct Lane {
    claims: Vec<Claim>,
    asked: Asked,
    count: u32,
    /// Sweeps since everything was claimed.
    sweeps: u8,
    /// The outcome of the latest sweep is unknown.
    in_doubt: bool,
    /// Its parity tells which half is dead.
    round: usize,
}

/// One /8 network.
pub struct ClaimAndSweep {
    networks: Vec<NetworkPlan>,
    lanes: Vec<Lane>,
    seed: u32,
}

impl ClaimAndSweep {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, 1, "10.0.0.0/8", "lowest");
        let claims = |lane: usize| {
            let number = move |at| address::of_v4(FIRST_CLAIMED + (lane * CLAIMS + at) as u32);
            (0..CLAIMS).map(|at| Claim { span: (number(at), number(at)), held: None, perhaps: None }).collect()
        };
        let lane =
            |lane| Lane { claims: claims(lane), asked: Asked::Nothing, count: 0, sweeps: 0, in_doubt: false, round: 0 };
        Self { networks, lanes: (0..settings.lanes).map(lane).collect(), seed: settings.seed }
    }

    fn scope(&self, lane: usize) -> String {
        format!("load-{:08x}-{lane:04}", self.seed)
    }
}

impl Lane {
    /// Is the machine at this address alive in this round?
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
        self.networks.clone()
    }

    fn request(&mut self, number: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let (scope, seed, network) = (self.scope(number), self.seed, &self.networks[0].name);
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
            // If an earlier first sweep took effect, this one is the second.
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
        push_call(out, desk.id, method, &params);
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
                let said = released_anywhere(line);
                let dead = if second || again { lane.dead() } else { Vec::new() };
                if again && !second && said.is_empty() {
                    // The earlier sweep did not take effect: this was the first one.
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
                    // After a second sweep with an unknown outcome, a refusal leaves the outcome unknown too.
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
