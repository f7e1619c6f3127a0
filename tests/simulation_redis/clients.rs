//! Clients: few holders in tiny networks, so that everything collides. What they were told is what gets judged.

use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::judge::{Claim, Judge};
use super::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    V4,
    V6,
    /// Blocks of four addresses.
    Blocks,
}

/// Networks, how many addresses each has, and what each gives.
pub const NETWORKS: [(&str, u32, Gives); 6] = [
    ("net-0", 6, Gives::V4),
    ("net-1", 10, Gives::V4),
    ("net-2", 14, Gives::V4),
    ("net-3", 24, Gives::V4),
    ("net-4", 12, Gives::V6),
    ("net-5", 32, Gives::Blocks),
];
/// How many owners each client asks for.
const OWNERS: u64 = 4;

pub use super::in_process::Answer;

/// Asks a node. Also tells which process answered.
pub async fn call(world: &World, node: usize, method: &str, params: Value, patience_ms: u64) -> (Answer, u64) {
    let Some(process) = world.process(node) else { return (Answer::Refused("down".to_owned(), Value::Null), 0) };
    let number = process.number;
    let (told, mut answers) = mpsc::unbounded_channel();
    let Some(lines) = process.connect(told) else { return (Answer::Refused("down".to_owned(), Value::Null), number) };
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    world.sleep(world.draw(1..3)).await;
    if lines.send(line.into_bytes()).is_err() {
        return (Answer::Lost, number);
    }
    drop(process);
    let heard = async {
        let mut text = Vec::new();
        while let Some(bytes) = answers.recv().await {
            text.extend_from_slice(&bytes);
            if text.ends_with(b"\n") {
                return Some(text);
            }
        }
        None
    };
    let Ok(Some(text)) = tokio::time::timeout(Duration::from_millis(patience_ms), heard).await else {
        return (Answer::Lost, number);
    };
    world.sleep(world.draw(1..3)).await;
    let mut answer: Value = serde_json::from_slice(&text).unwrap();
    (Answer::of(&mut answer, |problem| world.problem(problem)), number)
}

/// Makes the networks, in calm weather.
pub async fn make_networks(world: &World, judge: &Judge) -> bool {
    for (at, (name, size, gives)) in NETWORKS.iter().enumerate() {
        let last = 3 + size;
        let (cidr, range) = match gives {
            Gives::V4 | Gives::Blocks => (format!("10.{at}.0.0/26"), format!("10.{at}.0.4-10.{at}.0.{last}")),
            Gives::V6 => (format!("fd00:{at}::/64"), format!("fd00:{at}::4-fd00:{at}::{last:x}")),
        };
        let policy = if at >= 3 { "random" } else { "lowest" };
        let subnet = json!({"cidr": cidr, "pools": [{"range": range}]});
        let params =
            json!({"name": name, "policy": policy, "cooldown_seconds": 0, "if_absent": true, "subnets": [subnet]});
        let mut made = false;
        for _ in 0..200 {
            if let Some(owner) = world.owners().first()
                && let (Answer::Result(result), _) = call(world, *owner, "network.create", params.clone(), 2_000).await
            {
                judge.knows(name, &result);
                made = true;
                break;
            }
            world.sleep(100).await;
        }
        if !made {
            return false;
        }
    }
    true
}

/// What a client asks for: something in one network for an owner, or in two networks at once.
#[derive(Debug, Clone)]
struct Wish {
    networks: Vec<usize>,
    owner: String,
}

impl Wish {
    fn params(&self) -> Value {
        let one = |network: &usize| {
            let (name, _, gives) = NETWORKS[*network];
            let mut params = json!({"network": name});
            if gives == Gives::Blocks {
                params["prefix_length"] = json!(30);
            }
            params
        };
        match &self.networks[..] {
            [network] => {
                let mut params = one(network);
                params["owner"] = json!(self.owner);
                params
            }
            networks => json!({"owner": self.owner, "ips": networks.iter().map(one).collect::<Vec<_>>()}),
        }
    }

    fn method(&self) -> &'static str {
        if self.networks.len() == 1 { "ip.allocate" } else { "ip.acquire" }
    }

    /// The reservations in an answer, each with the number of its network.
    fn granted<'a>(&'a self, result: &'a Value) -> impl Iterator<Item = (usize, &'a Value)> {
        let each = result["reservations"].as_array().map_or(std::slice::from_ref(result), Vec::as_slice);
        self.networks.iter().copied().zip(each)
    }
}

pub async fn holder(world: Rc<World>, judge: Rc<Judge>, number: usize) {
    let mut has: Vec<(usize, String)> = Vec::new();
    // A request whose outcome the client does not know; it asks again.
    let mut doubtful: Option<Wish> = None;
    while !world.over.get() {
        // Asking slows down once the faults are over: nothing new can be lost then.
        world.sleep(if world.calm.get() { 900 } else { [5, 60, 250, 700][world.draw(0..4) as usize] }).await;
        let owners = world.owners();
        let node = match owners[..] {
            [] => world.draw(0..world.nodes.len() as u64) as usize,
            _ if world.one_in(12) => world.draw(0..world.nodes.len() as u64) as usize,
            _ => owners[world.draw(0..owners.len() as u64) as usize],
        };
        let any = (world.draw(0..NETWORKS.len() as u64) as usize, format!("c{number}-{}", world.draw(0..OWNERS)));
        let again = doubtful.take();
        let releases = again.is_none() && has.contains(&any) && world.one_in(3);
        let (network, owner) = any;
        let wish = again.unwrap_or_else(|| {
            let other = (network + 1 + world.draw(0..NETWORKS.len() as u64 - 1) as usize) % NETWORKS.len();
            let pair = !releases && world.one_in(4);
            Wish { networks: if pair { vec![network, other] } else { vec![network] }, owner }
        });
        let Wish { networks, owner } = wish.clone();
        let network = networks[0];
        let patience_ms = world.draw(500..4_000);
        let name = NETWORKS[network].0;
        let (method, params) = match releases {
            true => ("ip.release", json!({"network": name, "owner": owner})),
            false => (wish.method(), wish.params()),
        };
        if releases {
            has.retain(|one| *one != (network, owner.clone()));
        }
        let gone = if releases { judge.lets_go(name, &owner) } else { Vec::new() };
        let (answer, process) = call(&world, node, method, params, patience_ms).await;
        let told_ms = world.now_ms();
        match (answer, releases) {
            (Answer::Result(result), false) => {
                for (network, granted) in wish.granted(&result) {
                    let (name, _, gives) = NETWORKS[network];
                    let claim = Claim::of(name, &owner, granted, (process, told_ms));
                    world.hit(match (claim.created, method) {
                        (true, "ip.acquire") => "granted in two networks at once",
                        (true, _) if gives == Gives::Blocks => "block granted",
                        (true, _) => "granted",
                        (false, _) => "granted before",
                    });
                    world.note(|| format!("{owner} is told by {process} of {}: {claim:?}", claim.address));
                    judge.claims(&world, claim);
                    has.push((network, owner.clone()));
                }
            }
            (Answer::Result(result), true) => {
                let released = result["released"].as_array().cloned().unwrap_or_default();
                world.hit(if released.is_empty() { "release of nothing" } else { "released" });
                world.note(|| format!("{owner} is told by {process} that it let go in {name}: {result}"));
                judge.gone(gone, &released, process, told_ms);
            }
            (Answer::Refused(kind, error), _) => {
                if releases {
                    judge.keeps(gone);
                    has.push((network, owner.clone()));
                }
                world.note(|| format!("{owner} is refused {method} in {name}: {kind}"));
                match (kind.as_str(), error["data"]["reason"].as_str()) {
                    ("not_ready", Some("conflicts")) => world.hit("refused: conflicts"),
                    ("not_enough_capacity", _) => world.hit("refused: full"),
                    ("unavailable", _) => world.hit("refused: unavailable"),
                    _ => {}
                }
            }
            (Answer::Lost, _) => {
                world.hit("outcome unknown");
                world.note(|| format!("{owner} does not know what became of {method} in {name}"));
                doubtful = (!releases).then_some(wish);
            }
        }
    }
}
