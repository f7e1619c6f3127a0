//! A Redis Cluster for one run: primaries on free loopback ports, with the slots divided equally among them.
//!
//! `redis-cli --cluster create` needs at least three primaries, so the cluster is made by hand: each primary gets its slots
//! and a config epoch of its own, then they meet. A register lies in one slot, which depends on its prefix, so for each
//! primary a prefix is chosen whose slot belongs to it.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::redis::{Flush, Redis};
use crate::interrupt;

/// Slots of a cluster.
const SLOTS: usize = 16_384;
/// The longest wait until all primaries know each other.
const MEET_MAX: Duration = Duration::from_secs(60);
/// Prefixes that are tried: with few primaries, a matching one is found soon.
const PREFIXES_MAX: usize = 1_000;

/// The primaries. Dropping this ends them.
pub struct RedisCluster {
    primaries: Vec<Redis>,
    /// The key prefix of the register on each primary.
    prefixes: Vec<String>,
}

impl RedisCluster {
    /// Starts this many primaries, and waits until they form a cluster.
    ///
    /// # Errors
    /// There is no `redis-server`, or the primaries do not form a cluster.
    pub fn start(count: usize, flush: Flush) -> io::Result<Self> {
        let primaries = (0..count).map(|_| Redis::start_of_cluster(flush)).collect::<io::Result<Vec<_>>>()?;
        for (number, redis) in primaries.iter().enumerate() {
            let slots = slots_of(number, count);
            redis.call(&["CLUSTER", "ADDSLOTSRANGE", &slots.start.to_string(), &(slots.end - 1).to_string()])?;
            redis.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        }
        for other in &primaries[1..] {
            let (port, bus) = (other.port.to_string(), other.bus.to_string());
            primaries[0].call(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        let mut cluster = Self { primaries, prefixes: Vec::new() };
        cluster.wait_until_whole()?;
        cluster.prefixes = (0..count).map(|primary| cluster.prefix_on(primary)).collect::<io::Result<_>>()?;
        Ok(cluster)
    }

    /// The URL for `allod serve --redis`.
    pub fn url(&self) -> String {
        let servers: Vec<String> = self.primaries.iter().map(|redis| redis.address().to_string()).collect();
        format!("redis+cluster://{}", servers.join(","))
    }

    /// The key prefix of the register on this primary.
    ///
    /// # Errors
    /// There are fewer primaries.
    pub fn prefix(&self, primary: usize) -> io::Result<&str> {
        self.prefixes.get(primary).map(String::as_str).ok_or_else(|| io::Error::other("there are fewer primaries"))
    }

    /// Makes sure that each register lies on its primary.
    ///
    /// # Errors
    /// A register does not.
    pub fn check_registers(&self) -> io::Result<()> {
        for (redis, prefix) in self.primaries.iter().zip(&self.prefixes) {
            let answer = redis.call(&["EXISTS", &register(prefix)])?;
            if answer != ":1" {
                return Err(io::Error::other(format!("{} has no register `{prefix}`: {answer}", redis.address())));
            }
        }
        Ok(())
    }

    /// Waits until each primary knows all others and all slots.
    fn wait_until_whole(&self) -> io::Result<()> {
        let begun = Instant::now();
        let counts = [format!("cluster_known_nodes:{}", self.primaries.len()), format!("cluster_slots_ok:{SLOTS}")];
        for redis in &self.primaries {
            loop {
                let info = redis.text(&["CLUSTER", "INFO"])?;
                let says = |line: &str| info.lines().any(|one| one == line);
                if says("cluster_state:ok") && counts.iter().all(|line| says(line)) {
                    break;
                }
                if begun.elapsed() > MEET_MAX {
                    return Err(io::Error::other(format!(
                        "the primaries of a Redis Cluster do not find together: {info}"
                    )));
                }
                interrupt::check(0)?;
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// A prefix whose slot belongs to this primary.
    fn prefix_on(&self, primary: usize) -> io::Result<String> {
        for number in 0..PREFIXES_MAX {
            let prefix = format!("allod-{number}");
            let answer = self.primaries[primary].call(&["CLUSTER", "KEYSLOT", &register(&prefix)])?;
            let slot = answer.strip_prefix(':').and_then(|slot| slot.parse::<usize>().ok());
            if slot.is_some_and(|slot| slots_of(primary, self.primaries.len()).contains(&slot)) {
                return Ok(prefix);
            }
        }
        Err(io::Error::other("no prefix has a slot of this primary"))
    }
}

/// The slots of one of `count` primaries.
fn slots_of(primary: usize, count: usize) -> Range<usize> {
    primary * SLOTS / count..(primary + 1) * SLOTS / count
}

/// A key of the register with this prefix.
fn register(prefix: &str) -> String {
    format!("{{{prefix}}}:register")
}
