//! Claims: each lane claims an address by name, releases it, and claims it again. What does a claim cost compared with an
//! address that the server chooses (`fill --hold 1`)?

use super::exchange::{grant, push_request, released, start_of};
use super::network::FIRST_CLAIMED;
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::audit::{Grant, Span, address};
use crate::meter::Kind;
use crate::names::Who;
use crate::refusal::Refusal;

enum Asked {
    Nothing,
    Claim(Who),
    Release(Who),
}

struct Lane {
    span: Span,
    /// The rest of a claim after the owner.
    claim_end: Vec<u8>,
    /// The owner that holds the address.
    holder: Option<Who>,
    asked: Asked,
    /// The outcome of the latest request is unknown: it is sent again, as a client would do.
    in_doubt: bool,
    count: u32,
}

/// One /8 network.
pub struct Claims {
    networks: Vec<NetworkPlan>,
    claim: Vec<u8>,
    release: Vec<u8>,
    lanes: Vec<Lane>,
    seed: u32,
}

impl Claims {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, 1, "10.0.0.0/8", "lowest");
        let brief = if settings.brief { r#","brief":true"# } else { "" };
        let lane = |number: usize| {
            let at = address::of_v4(FIRST_CLAIMED + number as u32);
            let claim_end = format!("\",\"address\":\"{}\"{brief}}}}}\n", address::name(at)).into_bytes();
            Lane { span: (at, at), claim_end, holder: None, asked: Asked::Nothing, in_doubt: false, count: 0 }
        };
        Self {
            claim: start_of("ip.claim", &networks[0]),
            release: start_of("ip.release", &networks[0]),
            lanes: (0..settings.lanes).map(lane).collect(),
            seed: settings.seed,
            networks,
        }
    }
}

impl Scenario for Claims {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
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
            // Refused: the address is still held, and released with the lane's next request.
            (Asked::Release(who), Err(_)) => desk.audit.kept(0, who, lane.span),
            (Asked::Claim(_) | Asked::Nothing, _) => {}
        }
    }
}
