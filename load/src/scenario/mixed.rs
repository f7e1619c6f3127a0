//! The canonical load: the requests of a provisioning system on an ordinary day.
//!
//! Of a hundred requests 30 allocate and about as many release. The others repeat an allocation (15), renew (5), and look an
//! address up (20). There are 64 /20 networks, half full.

use super::churn::share;
use super::exchange::{Exchange, Held, end_of, grant, push_request, start_of};
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::arrivals::Chance;
use crate::audit::address;
use crate::meter::Kind;
use crate::names::push_decimal;
use crate::refusal::Refusal;

/// Networks by default.
const NETWORKS: usize = 64;
/// The share of the pools that is held by default.
const LEVEL_DEFAULT: f64 = 0.5;
/// Addresses that a lane keeps by default.
const HOLD_DEFAULT: usize = 8;

/// The rest of a renewal after the owner.
const RENEW_END: &[u8] = b"\",\"ttl_seconds\":null}}\n";

/// The latest request of a lane, beyond the exchange of addresses.
#[derive(Clone, Copy)]
enum Asked {
    Exchange,
    Repeat(Held),
    Renew(Held),
    Get(Held),
}

/// The lanes of the canonical load.
pub struct Mixed {
    networks: Vec<NetworkPlan>,
    exchange: Exchange,
    /// The parts of requests up to the owner, by network.
    repeat: Vec<Vec<u8>>,
    renew: Vec<Vec<u8>>,
    asked: Vec<Asked>,
    chance: Chance,
    level: f64,
    prefill: Option<u64>,
    hold: usize,
    end: &'static [u8],
    measuring: bool,
}

impl Mixed {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, NETWORKS, "10.0.0.0/20", "lowest");
        Self {
            exchange: Exchange::new(settings, &networks),
            repeat: networks.iter().map(|network| start_of("ip.allocate", network)).collect(),
            renew: networks.iter().map(|network| start_of("ip.renew", network)).collect(),
            asked: vec![Asked::Exchange; settings.lanes],
            chance: Chance::new(settings.seed),
            level: settings.fill_level.unwrap_or(LEVEL_DEFAULT),
            prefill: settings.prefill,
            hold: settings.hold.unwrap_or(HOLD_DEFAULT),
            end: end_of(settings),
            networks,
            measuring: false,
        }
    }

    /// A random address of those that the lane holds.
    fn any_held(&mut self, lane: usize) -> Option<Held> {
        let holds = self.exchange.holds(lane);
        let count = holds.len() as u64;
        (count > 0).then(|| holds[self.chance.below(count) as usize])
    }

    /// Makes a request about a held address.
    fn about(&mut self, lane: usize, id: usize, drawn: u64, held: Held, out: &mut Vec<u8>) -> Kind {
        let (asked, kind) = match drawn {
            60..75 => (Asked::Repeat(held), Kind::Repeat),
            75..80 => (Asked::Renew(held), Kind::Renew),
            _ => (Asked::Get(held), Kind::Get),
        };
        self.asked[lane] = asked;
        match asked {
            Asked::Repeat(_) => push_request(out, id, &self.repeat[held.network], held.who, self.end),
            Asked::Renew(_) => push_request(out, id, &self.renew[held.network], held.who, RENEW_END),
            Asked::Get(_) | Asked::Exchange => {
                out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
                push_decimal(out, id as u64);
                let (network, address) = (&self.networks[held.network].name, address::name(held.span.0));
                let rest = format!(r#","method":"ip.get","params":{{"network":"{network}","address":"{address}"}}}}"#);
                out.extend_from_slice(rest.as_bytes());
                out.push(b'\n');
            }
        }
        kind
    }
}

impl Scenario for Mixed {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn prefill(&self, capacity: u64, held: u64) -> u64 {
        self.prefill.unwrap_or_else(|| share(capacity, self.level).saturating_sub(held))
    }

    fn begin(&mut self) {
        // Releases are drawn at random from now on; they no longer follow from the number of addresses that a lane holds.
        self.exchange.hold(Some(usize::MAX));
        self.measuring = true;
    }

    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        self.asked[lane] = Asked::Exchange;
        let network = (lane + self.exchange.count(lane)) % self.networks.len();
        let drawn = if self.measuring { self.chance.below(100) } else { 0 };
        let held = self.exchange.holds(lane).len();
        if drawn >= 60
            && let Some(held) = self.any_held(lane)
        {
            return Some(self.about(lane, desk.id, drawn, held, out));
        }
        let releases = drawn >= 30 || held >= self.hold;
        if releases && let Some(kind) = self.exchange.release(lane, desk, out) {
            return Some(kind);
        }
        Some(self.exchange.allocate(lane, network, desk, out))
    }

    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        let asked = std::mem::replace(&mut self.asked[lane], Asked::Exchange);
        let (Asked::Repeat(held) | Asked::Renew(held) | Asked::Get(held)) = asked else {
            return self.exchange.answer(lane, desk, answer);
        };
        // These requests change nothing, and the refusal has been counted already.
        let Ok(line) = answer else { return };
        let grant = grant(held.network, held.who, line, None);
        let span = match asked {
            Asked::Repeat(_) => desk.audit.granted(lane, &grant, desk.now),
            Asked::Renew(_) => desk.audit.renewed(&grant),
            Asked::Get(_) | Asked::Exchange => address::number(grant.address).map(|number| (number, number)),
        };
        desk.audit.repeated(held.network, held.who, held.span, span);
        if let Asked::Get(held) = asked {
            desk.audit.shown(held.who, held.span, line);
        }
    }
}
