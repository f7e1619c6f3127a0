//! Claims: each lane takes an address that it names, gives it back, and takes it again. What does a name cost beside an
//! address that the server chooses (`fill --hold 1`)?

use super::exchange::{grant, push_request, released};
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::audit::{Grant, Span, address};
use crate::meter::Kind;
use crate::names::Who;
use crate::refusal::Refusal;

/// The first address that is claimed; in front of it lie what is reserved and the gateway.
const FIRST: u32 = 0x0a00_0100;

enum Asked {
    Nothing,
    Claim(Who),
    Release(Who),
}

struct Lane {
    span: Span,
    /// Everything of a claim behind the owner.
    claim_end: Vec<u8>,
    /// Who holds the address.
    holder: Option<Who>,
    asked: Asked,
    /// Nobody knows whether the latest request took effect: it is asked again, as a client would.
    in_doubt: bool,
    count: u32,
}

/// One network of a /8.
pub struct Claims {
    network: NetworkPlan,
    claim: Vec<u8>,
    release: Vec<u8>,
    lanes: Vec<Lane>,
    seed: u32,
}

impl Claims {
    pub fn new(settings: &Settings) -> Self {
        let one = Settings { networks: Some(1), cidr: None, ..settings.clone() };
        let network = NetworkPlan::several(&one, 1, "10.0.0.0/8", "lowest").remove(0);
        let start = |method: &str| {
            format!(r#","method":"{method}","params":{{"network":"{}","owner":""#, network.name).into_bytes()
        };
        let brief = if settings.brief { r#","brief":true"# } else { "" };
        let lane = |number: usize| {
            let at = 0xffff_0000_0000 | u128::from(FIRST + number as u32);
            let claim_end = format!("\",\"address\":\"{}\"{brief}}}}}\n", address::name(at)).into_bytes();
            Lane { span: (at, at), claim_end, holder: None, asked: Asked::Nothing, in_doubt: false, count: 0 }
        };
        Self {
            claim: start("ip.claim"),
            release: start("ip.release"),
            lanes: (0..settings.lanes).map(lane).collect(),
            seed: settings.seed,
            network,
        }
    }
}

impl Scenario for Claims {
    fn networks(&self) -> Vec<NetworkPlan> {
        vec![self.network.clone()]
    }

    fn request(&mut self, number: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let lane = &mut self.lanes[number];
        if let Some(who) = lane.holder {
            desk.audit.letting_go(0, who, lane.span, desk.now);
            push_request(out, desk.id, &self.release, who, b"\"}}\n");
            lane.asked = Asked::Release(who);
            return Some(Kind::Release);
        }
        lane.count += u32::from(!lane.in_doubt);
        let who = Who::new(number, lane.count - 1, self.seed);
        push_request(out, desk.id, &self.claim, who, &lane.claim_end);
        lane.asked = Asked::Claim(who);
        Some(Kind::Claim)
    }

    fn answer(&mut self, number: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        let lane = &mut self.lanes[number];
        match (std::mem::replace(&mut lane.asked, Asked::Nothing), answer) {
            (Asked::Claim(who), Ok(line)) => {
                let grant = Grant { automatic: false, ..grant(0, who, line, None) };
                let span = desk.audit.granted(number, &grant, desk.now);
                desk.audit.as_asked(lane.span, span);
                (lane.holder, lane.in_doubt) = (Some(who), false);
            }
            (Asked::Release(who), Ok(line)) => {
                desk.audit.let_go(who, &[lane.span], &released(line), lane.in_doubt);
                (lane.holder, lane.in_doubt) = (None, false);
            }
            (Asked::Claim(who), Err(refusal)) if refusal.unknown => {
                desk.audit.fate_unknown(Some(0), who, &[]);
                lane.in_doubt = true;
            }
            (Asked::Release(who), Err(refusal)) if refusal.unknown || lane.in_doubt => {
                desk.audit.fate_unknown(Some(0), who, &[lane.span]);
                lane.in_doubt = true;
            }
            // Refused: it is still held, and let go when the lane asks next.
            (Asked::Release(who), Err(_)) => desk.audit.kept(0, who, lane.span),
            (Asked::Claim(_) | Asked::Nothing, _) => {}
        }
    }
}
