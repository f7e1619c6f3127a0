//! What the clients of a run ask for, and what an answer says about each holder that the request concerns.
//!
//! Most owners of a client want one address, which is transferred between them now and then. Some want a block, a lease, an
//! address by name (for which the clients compete), or one address in each of two networks at once.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::client::Answer;
use super::record::{Asked, Holder, Span, Told};

/// Owners of one client: few, so that each of them asks again and again.
pub const OWNERS: usize = 24;
/// Owners below this number want one address, and transfer it to each other.
const BLOCKS_FROM: usize = 12;
const LEASES_FROM: usize = 15;
const NAMED_FROM: usize = 18;
const PAIRS_FROM: usize = 21;
/// How long a lease lasts: short, so that some leases end by themselves.
const TTL_SECONDS: u64 = 1;
/// How many low bits of an address select one of the addresses of its block.
const BLOCK_BITS: u32 = 2;
/// The last address of a pool, and an address of the subnet that is in no pool. Both are claimed by name.
const NAMED: [u128; 2] = [41, 60];

/// What an owner wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    One,
    Block,
    Lease,
    Named,
    Pair,
}

impl Wish {
    pub fn of(owner: usize) -> Self {
        match owner {
            0..BLOCKS_FROM => Wish::One,
            BLOCKS_FROM..LEASES_FROM => Wish::Block,
            LEASES_FROM..NAMED_FROM => Wish::Lease,
            NAMED_FROM..PAIRS_FROM => Wish::Named,
            _ => Wish::Pair,
        }
    }
}

/// One request and the holders that it concerns, with the numbers of their owners.
#[derive(Clone)]
pub struct Ask {
    pub request: (String, Value),
    pub about: Vec<(usize, Holder, Asked)>,
}

/// The requests of one client. `networks` are the networks of the run.
pub struct Asker<'a> {
    client: usize,
    networks: &'a [String],
    /// How many names each owner had before its present one.
    names: [u32; OWNERS],
}

impl<'a> Asker<'a> {
    pub fn new(client: usize, networks: &'a [String]) -> Self {
        Self { client, networks, names: [0; OWNERS] }
    }

    fn holder(&self, owner: usize, other: usize) -> Holder {
        // All clients claim the same addresses.
        let client = if Wish::of(owner) == Wish::Named { 0 } else { self.client };
        let network = self.networks[(client + owner + other) % self.networks.len()].clone();
        Holder { network, owner: self.name(owner), slot: "0".to_owned() }
    }

    /// The present name of an owner.
    pub fn name(&self, owner: usize) -> String {
        format!("c{}.{}{PLACE}{owner}", self.client, self.names[owner])
    }

    /// Gives an owner another name from now on.
    pub fn rename(&mut self, owner: usize) {
        self.names[owner] += 1;
    }

    pub fn grant(&self, owner: usize) -> Ask {
        let holder = self.holder(owner, 0);
        if Wish::of(owner) != Wish::Pair {
            return Ask { request: grant(&holder), about: vec![(owner, holder, Asked::Grant)] };
        }
        let other = self.holder(owner, 1);
        let ips = json!([{"network": holder.network}, {"network": other.network}]);
        let request = ("ip.acquire".to_owned(), json!({"owner": holder.owner, "ips": ips}));
        Ask { request, about: vec![(owner, holder, Asked::Grant), (owner, other, Asked::Grant)] }
    }

    pub fn release(&self, owner: usize) -> Ask {
        let holder = self.holder(owner, 0);
        if Wish::of(owner) == Wish::Pair {
            let request = ("owner.release".to_owned(), json!({"owner": holder.owner}));
            let other = self.holder(owner, 1);
            return Ask { request, about: vec![(owner, holder, Asked::Release), (owner, other, Asked::Release)] };
        }
        let request = json!({"network": holder.network, "owner": holder.owner, "slot": holder.slot});
        Ask { request: ("ip.release".to_owned(), request), about: vec![(owner, holder, Asked::Release)] }
    }

    /// Reads the address that the owner was told it has.
    pub fn read(&self, owner: usize, address: &str) -> Ask {
        let holder = self.holder(owner, 0);
        let request = json!({"network": holder.network, "address": address});
        Ask { request: ("ip.get".to_owned(), request), about: vec![(owner, holder, Asked::Read)] }
    }

    /// The owner to which this one may transfer its address, if there is one.
    pub fn heir(&self, owner: usize) -> Option<usize> {
        let heir = owner + self.networks.len();
        (heir < BLOCKS_FROM).then_some(heir)
    }

    pub fn transfer(&self, owner: usize, address: &str, to: usize) -> Ask {
        let (from, heir) = (self.holder(owner, 0), self.holder(to, 0));
        let slot = json!({"owner": heir.owner, "slot": heir.slot});
        let request = json!({"network": from.network, "address": address, "owner": from.owner, "to": slot});
        Ask { request: ("ip.transfer".to_owned(), request), about: vec![(owner, from, Asked::Transfer { to: heir })] }
    }
}

/// What precedes the number of an owner in its name.
const PLACE: &str = "/o";

/// The number of a holder's owner.
pub fn number(holder: &Holder) -> usize {
    let number = holder.owner.rsplit_once(PLACE).and_then(|(_, number)| number.parse().ok());
    number.unwrap_or_default()
}

/// The request that asks for an address for this holder alone.
pub fn grant(holder: &Holder) -> (String, Value) {
    let mut params = json!({"network": holder.network, "owner": holder.owner, "slot": holder.slot});
    let (v6, at) = subnet_of(&holder.network);
    let number = number(holder);
    match Wish::of(number) {
        Wish::Block => params["prefix_length"] = json!(if v6 { 128 } else { 32 } - BLOCK_BITS),
        Wish::Lease => params["ttl_seconds"] = json!(TTL_SECONDS),
        Wish::Named => {
            params["address"] = json!(address(v6, at, NAMED[number % NAMED.len()]));
            return ("ip.claim".to_owned(), params);
        }
        Wish::One | Wish::Pair => {}
    }
    ("ip.allocate".to_owned(), params)
}

/// Whether a network is an IPv6 one, as every fourth is, and its number.
fn subnet_of(network: &str) -> (bool, usize) {
    let at = network.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or_default();
    (at % 4 == 3, at)
}

fn address(v6: bool, at: usize, host: u128) -> String {
    if v6 { format!("fd00:{at}::{host:x}") } else { format!("10.{at}.0.{host}") }
}

/// A network with a small pool, so that addresses change hands all the time.
pub fn network(name: &str) -> Value {
    let (v6, at) = subnet_of(name);
    let range = format!("{}-{}", address(v6, at, 2), address(v6, at, NAMED[0]));
    let cidr = format!("{}/{}", address(v6, at, 0), if v6 { 122 } else { 26 });
    json!({"name": name, "subnets": [{"cidr": cidr, "pools": [{"range": range}]}], "cooldown_seconds": 0})
}

/// First and last address of a block, or of one address.
pub fn span_of(address: &Value, prefix_length: Option<u64>) -> Span {
    let address: IpAddr = address.as_str().unwrap().parse().unwrap();
    let (first, bits) = match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    (first, first + (1_u128 << (bits - prefix_length.unwrap_or(bits))) - 1)
}

fn is_of(holder: &Holder, reservation: &Value) -> bool {
    reservation["owner"] == holder.owner.as_str() && reservation["slot"] == holder.slot.as_str()
}

/// What an answer to a request sent at `sent_ns` says about this holder, and the address that the answer names.
pub fn told_of((holder, asked): (&Holder, &Asked), sent_ns: u64, answer: &Answer) -> (Told, Option<String>) {
    let told = match answer {
        Answer::Lost => Told::Unknown,
        Answer::Refused(kind, error) if kind == "unavailable" && error["data"]["applied"] == "unknown" => Told::Unknown,
        // After an internal error nobody knows whether the request took effect.
        Answer::Refused(kind, _) if kind == "internal" => Told::Unknown,
        Answer::Refused(kind, _) => Told::Refused(kind.clone()),
        Answer::Result(result) if *asked == Asked::Release => {
            let is_here = |released: &&Value| released.is_string() || released["network"] == holder.network.as_str();
            let any = result["released"].as_array().is_some_and(|all| all.iter().any(|released| is_here(&released)));
            match any {
                true => Told::Released,
                // The release changed nothing here; what is left of it was held up.
                false if result["more"] == true => Told::Refused("more".to_owned()),
                false => Told::Nothing,
            }
        }
        Answer::Result(result) if *asked == Asked::Read && !is_of(holder, &result["reservation"]) => Told::Nothing,
        Answer::Result(result) => {
            let mine = |one: &&Value| one["network"] == holder.network.as_str();
            let among = result["reservations"].as_array().map(|all| all.iter().find(mine).expect("one for each asked"));
            let reservation = among.or(result.get("reservation")).unwrap_or(result);
            let ends = *asked == Asked::Grant && Wish::of(number(holder)) == Wish::Lease;
            let told = Told::Held {
                span: span_of(&reservation["address"], Some(reservation["prefix_length"].as_u64().unwrap())),
                generation: reservation["generation"].as_u64().unwrap(),
                created: result.get("created").or(reservation.get("created")) == Some(&json!(true)),
                until_ns: ends.then_some(sent_ns + TTL_SECONDS * 1_000_000_000),
            };
            return (told, Some(reservation["address"].as_str().unwrap().to_owned()));
        }
    };
    (told, None)
}
