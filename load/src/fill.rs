//! What the lanes ask: addresses for owners that look like machines and pods, and with churn their release.
//!
//! Owners are `node-0007/pod-7f9c4d`: the lane, and a number that the lane does not repeat. The networks are
//! `load-00`, `load-01`, …, each in a realm of its own with the same prefix; each lane goes round them.
//!
//! Neighbours: `driver` calls this for every request and answer; `audit` keeps who holds what.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;

use crate::audit::Audit;
use crate::driver::Workload;
use crate::scan::{self, Answer};

/// Numbers of pods before a lane repeats one: six hexadecimal digits.
const PODS: u32 = 1 << 24;
/// Odd, so that multiplying is a permutation of the pods: consecutive requests get unlike names.
const POD_STRIDE: u32 = 0x9e_3779;

/// What to ask.
#[derive(Debug, Clone)]
pub struct Plan {
    pub networks: Vec<String>,
    /// Ask for `brief` answers.
    pub brief: bool,
    /// Addresses that a lane keeps before it releases its oldest; none: it never releases.
    pub hold: Option<usize>,
    /// Makes the owners of one run differ from those of another.
    pub seed: u32,
}

/// An address that a lane holds.
struct Held {
    network: usize,
    pod: u32,
    address: Box<[u8]>,
}

/// What a lane asked last.
enum Asked {
    Nothing,
    Allocate { network: usize, pod: u32 },
    Release(Held),
}

struct Lane {
    asked: Asked,
    holds: VecDeque<Held>,
    /// Allocations asked so far.
    count: u32,
}

/// The workload and what it learned.
pub struct Fill {
    /// Everything of an allocate request up to the owner's number, per network.
    allocate: Vec<Vec<u8>>,
    /// The same of a release.
    release: Vec<Vec<u8>>,
    plan: Plan,
    lanes: Vec<Lane>,
    /// Addresses handed out and not given back, all runs together.
    pub audit: Audit,
    /// Grants that were there before: owners of an earlier run.
    pub existed: u64,
    /// Refusals by kind.
    pub refused: BTreeMap<String, u64>,
    /// A release that let go of nothing or of something else; answers that cannot be read.
    pub wrong: u64,
}

/// The kind of a refusal.
#[derive(Deserialize)]
struct Refused {
    error: RefusedError,
}

#[derive(Deserialize)]
struct RefusedError {
    code: i64,
    data: Option<RefusedData>,
}

#[derive(Deserialize)]
struct RefusedData {
    kind: Option<String>,
}

impl Fill {
    /// A workload for so many lanes.
    pub fn new(plan: Plan, lanes: usize) -> Self {
        let start = |method: &str, network: &String| {
            format!(r#","method":"{method}","params":{{"network":"{network}","owner":"node-"#).into_bytes()
        };
        Self {
            allocate: plan.networks.iter().map(|network| start("ip.allocate", network)).collect(),
            release: plan.networks.iter().map(|network| start("ip.release", network)).collect(),
            audit: Audit::new(plan.networks.len()),
            lanes: (0..lanes).map(|_| Lane { asked: Asked::Nothing, holds: VecDeque::new(), count: 0 }).collect(),
            plan,
            existed: 0,
            refused: BTreeMap::new(),
            wrong: 0,
        }
    }

    /// From now on lanes keep so many addresses and exchange them; what they were granted before stays.
    pub fn churn(&mut self, hold: Option<usize>) {
        self.plan.hold = hold;
    }

    /// Names of the networks.
    pub fn networks(&self) -> &[String] {
        &self.plan.networks
    }

    fn count_refusal(&mut self, line: &[u8]) {
        let kind = match serde_json::from_slice::<Refused>(line) {
            Ok(Refused { error }) => {
                error.data.and_then(|data| data.kind).unwrap_or_else(|| format!("code {}", error.code))
            }
            Err(_) => "unreadable".to_owned(),
        };
        *self.refused.entry(kind).or_default() += 1;
    }
}

impl Workload for Fill {
    fn request(&mut self, number: usize, out: &mut Vec<u8>) -> bool {
        let lane = &mut self.lanes[number];
        let oldest = match self.plan.hold {
            Some(hold) if lane.holds.len() >= hold => lane.holds.pop_front(),
            _ => None,
        };
        if let Some(held) = oldest {
            self.audit.letting_go(held.network, &held.address);
            push_request(out, number, &self.release[held.network], held.pod, b"\"}}\n");
            lane.asked = Asked::Release(held);
            return true;
        }
        let network = (number + lane.count as usize) % self.plan.networks.len();
        let pod = lane.count.wrapping_mul(POD_STRIDE).wrapping_add(self.plan.seed) % PODS;
        lane.count += 1;
        let end: &[u8] = if self.plan.brief { b"\",\"brief\":true}}\n" } else { b"\"}}\n" };
        push_request(out, number, &self.allocate[network], pod, end);
        lane.asked = Asked::Allocate { network, pod };
        true
    }

    fn answer(&mut self, number: usize, answer: &Answer<'_>) {
        let lane = &mut self.lanes[number];
        match std::mem::replace(&mut lane.asked, Asked::Nothing) {
            Asked::Allocate { network, pod } if answer.ok => match scan::address(answer.line) {
                Some(address) => {
                    self.audit.granted(network, address);
                    self.existed += u64::from(!scan::created(answer.line));
                    if self.plan.hold.is_some() {
                        lane.holds.push_back(Held { network, pod, address: address.into() });
                    }
                }
                None => self.wrong += 1,
            },
            Asked::Release(held) if answer.ok => {
                let as_granted = scan::released(answer.line) == Some(&held.address);
                self.wrong += u64::from(!as_granted);
            }
            Asked::Release(held) => {
                // Refused: it is still ours, and tried again when its turn comes.
                self.audit.granted(held.network, &held.address);
                lane.holds.push_back(held);
                self.count_refusal(answer.line);
            }
            Asked::Allocate { .. } => self.count_refusal(answer.line),
            Asked::Nothing => self.wrong += 1,
        }
    }
}

/// One request line. Written by hand: at a million a second a formatter is a tenth of the client's time.
fn push_request(out: &mut Vec<u8>, lane: usize, middle: &[u8], pod: u32, end: &[u8]) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    push_decimal(out, lane);
    out.extend_from_slice(middle);
    for power in [1_000, 100, 10, 1] {
        out.push(b'0' + (lane / power % 10) as u8);
    }
    // A lane beyond 9 999 shares its node name with another; its letter keeps the owners apart.
    out.extend_from_slice(b"/pod-");
    for shift in (0..6).rev() {
        out.push(b"0123456789abcdef"[(pod >> (shift * 4)) as usize & 15]);
    }
    for _ in 0..lane / 10_000 {
        out.push(b'x');
    }
    out.extend_from_slice(end);
}

/// A number in decimal digits.
fn push_decimal(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(hold: Option<usize>) -> Fill {
        Fill::new(Plan { networks: vec!["load-00".into()], brief: true, hold, seed: 0 }, 20_000)
    }

    fn ask(fill: &mut Fill, lane: usize) -> serde_json::Value {
        let mut line = Vec::new();
        assert!(fill.request(lane, &mut line));
        assert_eq!(line.pop(), Some(b'\n'));
        serde_json::from_slice(&line).unwrap()
    }

    fn tell(fill: &mut Fill, lane: usize, line: &str) {
        let answer = scan::answer(line.as_bytes()).unwrap();
        fill.answer(lane, &answer);
    }

    #[test]
    fn requests_are_json_and_owners_never_repeat() {
        let mut fill = fill(None);
        let mut owners = std::collections::HashSet::new();
        for lane in [0, 7, 1_234, 10_007, 19_999] {
            for _ in 0..1_000 {
                let request = ask(&mut fill, lane);
                assert_eq!(request["id"], lane);
                assert_eq!(request["params"]["brief"], true);
                assert!(owners.insert(request["params"]["owner"].as_str().unwrap().to_owned()));
            }
        }
    }

    #[test]
    fn churn_releases_the_oldest_and_notices_a_wrong_answer() {
        let mut fill = fill(Some(1));
        let granted = ask(&mut fill, 3);
        tell(&mut fill, 3, r#"{"jsonrpc":"2.0","id":3,"result":{"address":"10.0.0.1","created":true}}"#);
        let released = ask(&mut fill, 3);
        assert_eq!(released["method"], "ip.release");
        assert_eq!(released["params"]["owner"], granted["params"]["owner"]);
        assert_eq!(fill.audit.held(), 0);
        tell(&mut fill, 3, r#"{"jsonrpc":"2.0","id":3,"result":{"released":["10.0.0.2"]}}"#);
        assert_eq!(fill.wrong, 1);
    }

    #[test]
    fn refusals_are_counted_by_kind() {
        let mut fill = fill(None);
        ask(&mut fill, 0);
        let full =
            r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32004,"message":"","data":{"kind":"not_enough_capacity"}}}"#;
        tell(&mut fill, 0, full);
        assert_eq!(fill.refused["not_enough_capacity"], 1);
    }
}
