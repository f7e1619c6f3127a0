//! What may happen to the nodes of a run and to their store. Each fault proves that it took hold, or reports that it met
//! nothing.

use std::time::{Duration, Instant};

use allod::limits::SHARDS_OF_NEW;
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::json;

use super::client::Answer;
use super::clock::Clock;
use super::emptied::written;
use super::redis::Redis;
use super::run::{Keeper, Run, eventually};
use super::wire::{Way, Wire};

pub const NODES: usize = 3;
/// How long a cut waits for something to be in its way.
const MEETS_WITHIN: Duration = Duration::from_secs(3);

/// A fault, and its weight in the draw.
pub type Fault = (&'static str, u32);

/// Faults of nodes, whatever their store.
pub const OF_NODES: [Fault; 8] = [
    ("a node is killed", 3),
    ("a node is restarted", 2),
    ("a node stands still", 3),
    ("a node is drained", 2),
    ("two nodes are cut", 2),
    ("clients and a node are cut", 1),
    ("a second node has the name of a first", 1),
    ("the clock of a node jumps", 2),
];

/// A store of a register, and what may happen to it.
pub trait Happens: Keeper + Sized {
    fn faults(&self) -> Vec<Fault>;

    /// A node has ended. From here on the store must not lose what that node acknowledged, because no other node could give
    /// it back.
    fn remembers(&self) {}

    /// Makes the fault happen. Did it take hold?
    async fn happens(wildly: &mut Wildly<Self>, fault: &str) -> bool;
}

/// A run to which faults happen at random.
pub struct Wildly<R> {
    pub run: Run<R>,
    pub draws: SmallRng,
    /// The clocks of the nodes; empty if there is no C compiler.
    pub clocks: Vec<Clock>,
}

/// Holds a wire for at least this long, and until something is held; then what is held arrives or is lost. Was anything held?
pub async fn cut(draws: &mut SmallRng, wire: &Wire, pause: Duration) -> bool {
    let (began, before) = (Instant::now(), wire.held());
    wire.hold([Way::There, Way::Back, Way::Both][draws.random_range(0..3)]);
    tokio::time::sleep(pause).await;
    while wire.held() == before && began.elapsed() < MEETS_WITHIN {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let met = wire.held() > before;
    if draws.random() {
        wire.release()
    } else {
        wire.cut()
    }
    met
}

impl<R: Happens> Wildly<R> {
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(self.draws.random_range(100..6_500))
    }

    /// Makes the fault happen and waits until it is over. Did it take hold?
    pub async fn happens(&mut self, fault: &str) -> bool {
        let (node, pause) = (self.draws.random_range(0..NODES), self.pause());
        let Self { run, draws, clocks } = self;
        match fault {
            "a node is killed" => {
                run.nodes.cluster.kill(node);
                run.nodes.redis.remembers();
                run.again(node);
            }
            "a node is restarted" => {
                run.nodes.cluster.stop(node);
                run.nodes.redis.remembers();
                run.again(node);
            }
            "a node stands still" => {
                run.nodes.cluster.signal(node, "-STOP");
                tokio::time::sleep(pause).await;
                assert!(run.nodes.cluster.stands_still(node));
                run.nodes.cluster.signal(node, "-CONT");
            }
            "a node is drained" => return drains(run, node, pause).await,
            "two nodes are cut" => return cut(draws, run.nodes.to_node(node), pause).await,
            "clients and a node are cut" => return cut(draws, run.nodes.to_clients(node), pause).await,
            "a second node has the name of a first" => {
                match run.nodes.cluster.begin_as(&format!("node-{node}"), "twin", NODES).ready_or_ended() {
                    // The first node was not seen for the length of a lease: it stood still, or Redis forgot that it was seen.
                    Ok(twin) => {
                        twin.stop();
                        return false;
                    }
                    Err((why, said)) => {
                        assert!(said.contains(&format!("another node of the name `node-{node}`")), "{why}: {said}");
                    }
                }
            }
            "the clock of a node jumps" => match clocks.get(node) {
                Some(clock) => clock.jump(draws.random_range(-7_200..7_200)),
                None => return false,
            },
            other => return R::happens(self, other).await,
        }
        true
    }
}

/// Drains a node, which hands over what it owns, and puts it back into service after a while.
async fn drains<R>(run: &Run<R>, node: usize, pause: Duration) -> bool {
    let mut client = run.nodes.client(node).await;
    let drained = client.call("cluster.drain", json!({})).await;
    tokio::time::sleep(pause).await;
    let met = matches!(&drained, Answer::Result(drained) if drained["draining"] == true);
    // The node may be busy with a take-over.
    for _ in 0..100 {
        if matches!(client.call("cluster.drain", json!({"drain": false})).await, Answer::Result(_)) {
            return met;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it stays out of service: {drained:?}\n{}", run.nodes.logs());
}

/// One Redis, which keeps everything, or goes back to its last snapshot whenever it is killed.
pub struct Alone {
    pub redis: Redis,
    pub goes_back: bool,
    pub clock: Option<Clock>,
}

impl Keeper for Alone {
    fn url(&self) -> String {
        self.redis.url()
    }

    fn port(&self) -> Option<u16> {
        Some(self.redis.port())
    }
}

/// The number of batches in all shards of the register.
pub fn seqs(redis: &Redis) -> u64 {
    let of = |shard| redis.text(&["HGET", &format!("{{allod}}:{shard}:head"), "seq"]).parse().unwrap_or(0);
    (0..SHARDS_OF_NEW).map(of).sum()
}

/// How often Redis refused something because its memory was full.
fn out_of_memory(redis: &Redis) -> u64 {
    let text = redis.text(&["INFO", "errorstats"]);
    let count = text.lines().find_map(|line| line.strip_prefix("errorstat_OOM:count=")?.trim().parse().ok());
    count.unwrap_or(0)
}

impl Happens for Alone {
    fn faults(&self) -> Vec<Fault> {
        let ends = if self.goes_back { ("Redis goes back", 6) } else { ("Redis is killed", 1) };
        vec![
            ends,
            ("Redis is emptied", u32::from(self.goes_back)),
            ("Redis stands still", 1),
            ("a node and Redis are cut", 3),
            ("a node is far from Redis", 1),
            ("the memory of Redis is full", 1),
            ("Redis may evict", 1),
            ("Redis is paused", 1),
            ("all connections to Redis break", 1),
            ("the clock of Redis jumps", 1),
        ]
    }

    fn remembers(&self) {
        if self.goes_back {
            self.redis.ask(&["SAVE"]);
        }
    }

    async fn happens(wildly: &mut Wildly<Self>, fault: &str) -> bool {
        let (node, pause) = (wildly.draws.random_range(0..NODES), wildly.pause());
        let Wildly { run, draws, .. } = wildly;
        match fault {
            "Redis goes back" => {
                (0..NODES).for_each(|node| run.nodes.cluster.signal(node, "-STOP"));
                let before = seqs(&run.nodes.redis.redis);
                run.nodes.redis.redis.crash();
                let after = seqs(&run.nodes.redis.redis);
                (0..NODES).for_each(|node| run.nodes.cluster.signal(node, "-CONT"));
                assert!(after < before, "it did not go back: {after} of {before}");
                if draws.random() {
                    run.nodes.redis.remembers();
                }
                return true;
            }
            "Redis is emptied" => {
                // The register has an owner that serves clients; it notices the loss within its lease.
                let before = written(&run.nodes);
                run.nodes.redis.redis.ask(&["FLUSHALL"]);
                eventually("it is written anew", || written(&run.nodes) > before).await;
                // The node that wrote the register begins anew and remembers none of the batches that it sent.
                run.nodes.redis.remembers();
                return true;
            }
            "Redis is killed" => {
                run.nodes.redis.redis.crash();
                return true;
            }
            "a node and Redis are cut" => return cut(draws, run.nodes.to_redis(node), pause).await,
            "a node is far from Redis" => {
                let wire = run.nodes.to_redis(node);
                let before = wire.held();
                wire.delay(pause / 4);
                tokio::time::sleep(pause).await;
                wire.release();
                return wire.held() > before;
            }
            _ => {}
        }
        let redis = &run.nodes.redis.redis;
        let set = |name: &str, value: &str| redis.ask(&["CONFIG", "SET", name, value]);
        match fault {
            "Redis stands still" => {
                redis.signal("-STOP");
                tokio::time::sleep(pause).await;
                redis.signal("-CONT");
            }
            "the memory of Redis is full" => {
                let before = out_of_memory(redis);
                set("maxmemory", "1");
                tokio::time::sleep(pause).await;
                eventually("something is refused for want of memory", || out_of_memory(redis) > before).await;
                set("maxmemory", "0");
            }
            "Redis may evict" => {
                set("maxmemory-policy", "allkeys-lru");
                tokio::time::sleep(pause).await;
                assert!(redis.text(&["INFO", "memory"]).contains("allkeys-lru"));
                set("maxmemory-policy", "noeviction");
            }
            "Redis is paused" => redis.ask(&["CLIENT", "PAUSE", &pause.as_millis().to_string(), "ALL"]),
            "all connections to Redis break" => {
                let mut broken = 0;
                for _ in 0..draws.random_range(1..10) {
                    broken += redis.number(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
                return broken > 0;
            }
            "the clock of Redis jumps" => match &run.nodes.redis.clock {
                Some(clock) => clock.jump(draws.random_range(-7_200..7_200)),
                None => return false,
            },
            other => panic!("{other}"),
        }
        true
    }
}
