//! Lanes that allocate and release addresses: the core of most scenarios.
//!
//! Owners are `node-0007/pod-7f9c4d` (see `names`); each has one address and does not appear again. With `hold`, a lane that
//! keeps this many addresses releases its oldest before it asks for another; without it, a lane keeps all.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{Desk, NetworkPlan, Record, Settings};
use crate::audit::{Grant, Span, address};
use crate::meter::Kind;
use crate::names::{Who, push_decimal};
use crate::refusal::Refusal;
use crate::scan;

/// An address that a lane holds.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub network: usize,
    pub who: Who,
    pub span: Span,
}

/// The latest request of a lane.
enum Asked {
    Nothing,
    Allocate { network: usize, who: Who },
    Release(Held),
}

struct Lane {
    asked: Asked,
    holds: VecDeque<Held>,
    /// Allocations requested so far.
    count: u32,
}

/// The lanes, and the parts of their requests.
pub struct Exchange {
    /// The parts of allocate and release requests up to the owner, by network.
    allocate: Vec<Vec<u8>>,
    release: Vec<Vec<u8>>,
    /// The parts of the requests after the owner.
    allocate_end: Vec<u8>,
    release_end: Vec<u8>,
    lanes: Vec<Lane>,
    hold: Option<usize>,
    prefix_length: Option<u8>,
    seed: u32,
}

impl Exchange {
    /// Lanes that keep everything they are granted, until [`Exchange::hold`] changes that.
    pub fn new(settings: &Settings, networks: &[NetworkPlan]) -> Self {
        let Record { owner_end, holder, more } = settings.record;
        let brief = if settings.brief { r#","brief":true"# } else { "" };
        Self {
            allocate: networks.iter().map(|network| start_of("ip.allocate", network)).collect(),
            release: networks.iter().map(|network| start_of("ip.release", network)).collect(),
            allocate_end: format!("{owner_end}\"{holder}{more}{brief}}}}}\n").into_bytes(),
            release_end: format!("{owner_end}\"{holder}}}}}\n").into_bytes(),
            lanes: (0..settings.lanes)
                .map(|_| Lane { asked: Asked::Nothing, holds: VecDeque::new(), count: 0 })
                .collect(),
            hold: None,
            prefix_length: None,
            seed: settings.seed,
        }
    }

    /// Adds a member to each allocation, for example `"wait_seconds":3`.
    pub fn with_member(mut self, member: &str) -> Self {
        // Before the two braces and the line end.
        let end = self.allocate_end.split_off(self.allocate_end.len() - 3);
        self.allocate_end.push(b',');
        self.allocate_end.extend_from_slice(member.as_bytes());
        self.allocate_end.extend_from_slice(&end);
        self
    }

    /// Allocates blocks of this size.
    pub fn with_blocks(mut self, prefix_length: u8) -> Self {
        self.prefix_length = Some(prefix_length);
        self.with_member(&format!(r#""prefix_length":{prefix_length}"#))
    }

    /// From now on lanes keep this many addresses and exchange them; earlier grants stay.
    pub fn hold(&mut self, hold: Option<usize>) {
        self.hold = hold;
    }

    /// The addresses that the lane holds and would release, the oldest first.
    pub fn holds(&self, lane: usize) -> &VecDeque<Held> {
        &self.lanes[lane].holds
    }

    /// The number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Allocations that the lane has requested so far.
    pub fn count(&self, lane: usize) -> usize {
        self.lanes[lane].count as usize
    }

    /// Releases the lane's oldest address if it holds enough, otherwise allocates in this network.
    pub fn next(&mut self, lane: usize, network: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Kind {
        let has_enough = self.hold.is_some_and(|hold| self.lanes[lane].holds.len() >= hold);
        if has_enough && let Some(kind) = self.release(lane, desk, out) {
            return kind;
        }
        self.allocate(lane, network, desk, out)
    }

    /// Allocates an address for a new owner.
    pub fn allocate(&mut self, number: usize, network: usize, desk: &Desk<'_>, out: &mut Vec<u8>) -> Kind {
        let lane = &mut self.lanes[number];
        let who = Who::new(number, lane.count, self.seed);
        lane.count += 1;
        push_request(out, desk.id, &self.allocate[network], who, &self.allocate_end);
        lane.asked = Asked::Allocate { network, who };
        Kind::Allocate
    }

    /// Releases the lane's oldest address, if it has one.
    pub fn release(&mut self, number: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let lane = &mut self.lanes[number];
        let held = lane.holds.pop_front()?;
        desk.audit.letting_go(held.network, held.who, held.span, desk.now);
        push_request(out, desk.id, &self.release[held.network], held.who, &self.release_end);
        lane.asked = Asked::Release(held);
        Some(Kind::Release)
    }

    /// Takes the answer to the lane's latest request.
    pub fn answer(&mut self, number: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        let lane = &mut self.lanes[number];
        match (std::mem::replace(&mut lane.asked, Asked::Nothing), answer) {
            (Asked::Allocate { network, who }, Ok(line)) => {
                let grant = grant(network, who, line, self.prefix_length);
                let span = desk.audit.granted(number, &grant, desk.now);
                if let (Some(span), true) = (span, self.hold.is_some()) {
                    lane.holds.push_back(Held { network, who, span });
                }
            }
            (Asked::Release(held), Ok(line)) => {
                desk.audit.let_go(held.who, &[held.span], &released(line), false);
            }
            (Asked::Release(held), Err(refusal)) if refusal.unknown => {
                desk.audit.fate_unknown(Some(held.network), held.who, &[held.span]);
            }
            (Asked::Release(held), Err(_)) => {
                // Refused: the lane still holds it, and tries again when its turn comes.
                desk.audit.kept(held.network, held.who, held.span);
                lane.holds.push_back(held);
            }
            (Asked::Allocate { network, who }, Err(refusal)) if refusal.unknown => {
                desk.audit.fate_unknown(Some(network), who, &[]);
            }
            (Asked::Allocate { .. } | Asked::Nothing, _) => {}
        }
    }
}

/// The grant in an answer line; a missing address is empty, and is judged as such.
pub fn grant(network: usize, who: Who, line: &[u8], prefix_length: Option<u8>) -> Grant<'_> {
    let said_network = scan::network(line);
    Grant {
        network,
        who,
        address: scan::address(line).unwrap_or_default(),
        prefix_length,
        said_length: scan::prefix_length(line),
        // A short answer has neither, and a search that fails is costly at a million answers a second.
        said_owner: said_network.and_then(|_| scan::owner(line)),
        said_network,
        created: scan::created(line),
        generation: scan::generation(line),
        ordered: true,
        automatic: true,
    }
}

/// The addresses that a release lists as released.
pub fn released(line: &[u8]) -> Vec<Option<u128>> {
    scan::released(line).map(address::number).collect()
}

/// The same for an answer that spans several networks.
pub fn released_anywhere(line: &[u8]) -> Vec<Option<u128>> {
    let said: Value = serde_json::from_slice(line).unwrap_or_default();
    let released = said["result"]["released"].as_array().map_or(&[][..], Vec::as_slice);
    released.iter().map(|one| address::number(one["address"].as_str()?.as_bytes())).collect()
}

/// The part of a request from its id up to the owner.
pub fn start_of(method: &str, network: &NetworkPlan) -> Vec<u8> {
    let name = &network.name;
    format!(r#","method":"{method}","params":{{"network":"{name}","owner":""#).into_bytes()
}

/// The part of a request after the owner, without further members.
pub fn end_of(settings: &Settings) -> &'static [u8] {
    if settings.brief { b"\",\"brief\":true}}\n" } else { b"\"}}\n" }
}

/// Appends a request line with arbitrary params.
pub fn push_call(out: &mut Vec<u8>, id: usize, method: &str, params: &Value) {
    let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    out.extend_from_slice(line.to_string().as_bytes());
    out.push(b'\n');
}

/// Appends a request line. Written by hand: at a million requests a second, a formatter would take a tenth of the client's
/// time.
pub fn push_request(out: &mut Vec<u8>, id: usize, middle: &[u8], who: Who, end: &[u8]) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    push_decimal(out, id as u64);
    out.extend_from_slice(middle);
    who.push(out);
    out.extend_from_slice(end);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audit::{Auditor, Ground, Rule};

    fn auditor() -> Auditor {
        let mut audit = Auditor::new(10, 1, 0);
        let pool = serde_json::json!({"range": "10.0.0.0/8", "kind": "dynamic"});
        let network = serde_json::json!({"subnets": [{"cidr": "10.0.0.0/8", "pools": [pool]}]});
        audit.add("load-00", Ground::read(&network), Duration::ZERO, false);
        audit
    }

    #[test]
    fn a_lane_with_enough_releases_its_oldest_and_a_wrong_answer_is_noticed() {
        let settings = Settings { lanes: 10, brief: true, ..Settings::default() };
        let mut exchange = Exchange::new(&settings, &NetworkPlan::several(&settings, 1, "10.0.0.0/24", "lowest"));
        exchange.hold(Some(1));
        let mut audit = auditor();
        let mut desk = Desk { audit: &mut audit, id: 13, now: Duration::ZERO };
        let ask = |exchange: &mut Exchange, desk: &mut Desk<'_>| -> serde_json::Value {
            let mut line = Vec::new();
            exchange.next(3, 0, desk, &mut line);
            assert_eq!(line.pop(), Some(b'\n'));
            serde_json::from_slice(&line).unwrap()
        };
        let granted = ask(&mut exchange, &mut desk);
        assert_eq!((&granted["id"], &granted["params"]["brief"]), (&13.into(), &true.into()));
        exchange.answer(3, &mut desk, Ok(br#"{"id":3,"result":{"address":"10.0.0.9","created":true,"generation":1}}"#));
        let released = ask(&mut exchange, &mut desk);
        assert_eq!(
            (&released["method"], &released["params"]["owner"]),
            (&"ip.release".into(), &granted["params"]["owner"])
        );
        assert_eq!(desk.audit.held(), 0);
        exchange.answer(3, &mut desk, Ok(br#"{"id":3,"result":{"released":["10.0.0.2"]}}"#));
        assert_eq!(audit.faults.count(Rule::ReleasesWhatWasHeld), 1);
    }

    #[test]
    fn a_record_has_what_the_goals_say() {
        for (record, more) in
            [(Record::TYPICAL, None), (Record::LABELLED, Some("labels")), (Record::LEASED, Some("ttl_seconds"))]
        {
            let settings = Settings { lanes: 1, brief: true, record, ..Settings::default() };
            let mut exchange = Exchange::new(&settings, &NetworkPlan::several(&settings, 1, "10.0.0.0/24", "lowest"));
            exchange.hold(Some(1));
            let mut audit = auditor();
            let mut desk = Desk { audit: &mut audit, id: 0, now: Duration::ZERO };
            let mut ask = |exchange: &mut Exchange| -> serde_json::Value {
                let mut line = Vec::new();
                exchange.next(0, 0, &mut desk, &mut line);
                exchange.answer(
                    0,
                    &mut desk,
                    Ok(br#"{"id":0,"result":{"address":"10.0.0.9","created":true,"generation":1}}"#),
                );
                serde_json::from_slice::<serde_json::Value>(&line).unwrap()["params"].take()
            };
            let (granted, released) = (ask(&mut exchange), ask(&mut exchange));
            for params in [&granted, &released] {
                let length = |member: &str| params[member].as_str().unwrap().len();
                assert_eq!((length("owner"), length("scope"), &params["slot"]), (24, 12, &"0".into()));
            }
            let beside = ["network", "owner", "scope", "slot", "brief"];
            let told: Vec<&str> = granted.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(told.iter().find(|member| !beside.contains(member)).copied(), more);
            let labels = granted["labels"].as_object();
            let sizes: Vec<_> =
                labels.into_iter().flatten().map(|(key, value)| (key.len(), value.as_str().unwrap().len())).collect();
            assert_eq!(sizes, vec![(8, 16); if record == Record::LABELLED { 3 } else { 0 }]);
        }
    }

    #[test]
    fn members_stand_behind_the_owner() {
        for brief in [false, true] {
            let settings = Settings { lanes: 1, brief, ..Settings::default() };
            let mut exchange = Exchange::new(&settings, &NetworkPlan::several(&settings, 1, "10.0.0.0/24", "lowest"))
                .with_blocks(28)
                .with_member(r#""note":"x""#);
            let mut line = Vec::new();
            let desk = Desk { audit: &mut auditor(), id: 0, now: Duration::ZERO };
            exchange.allocate(0, 0, &desk, &mut line);
            let request: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!((&request["params"]["prefix_length"], &request["params"]["note"]), (&28.into(), &"x".into()));
            assert_eq!(request["params"].get("brief").is_some(), brief);
        }
    }
}
