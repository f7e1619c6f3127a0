//! A Redis cluster of real servers: primaries with replicas, slots that are moved key by key, failovers.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{RedisServer, process};

/// Servers of the cluster regard one of them as gone after this time of silence.
const NODE_TIMEOUT_MS: &str = "1000";
const SLOTS: u16 = 16_384;

/// Servers of one cluster; at the start the first ones are primaries and the others their replicas, in turn.
pub struct RedisCluster {
    pub members: Vec<RedisServer>,
    ids: Vec<String>,
}

#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl RedisCluster {
    /// None where there is no `redis-server`, which is printed as a skip.
    pub fn start(primaries: usize, replicas: usize, settings: &[&str]) -> Option<Self> {
        let mut members = Vec::new();
        let mut buses = Vec::new();
        for _ in 0..primaries * (1 + replicas) {
            let bus = process::ports::free_port().to_string();
            let cluster = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", &bus];
            let times = ["--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-replica-validity-factor", "0"];
            let whole = ["--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no"];
            let diskless = ["--repl-diskless-sync-delay", "0"];
            let all = [&cluster[..], &times[..], &whole[..], &diskless[..], settings].concat();
            members.push(RedisServer::start(&all)?);
            buses.push(bus);
        }
        let ids = members.iter().map(|member| member.ask(&["CLUSTER", "MYID"])).collect();
        let cluster = Self { members, ids };
        for (at, member) in cluster.members.iter().enumerate() {
            let () = member.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            if at < primaries {
                let bound = |n: usize| n * usize::from(SLOTS) / primaries;
                let (first, last) = (bound(at).to_string(), (bound(at + 1) - 1).to_string());
                let () = member.ask(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
            if at > 0 {
                let port = member.port.to_string();
                let () = cluster.members[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &buses[at]]);
            }
        }
        let known = cluster.members.len();
        eventually("all know all", || {
            cluster.members.iter().all(|member| {
                let nodes: String = member.ask(&["CLUSTER", "NODES"]);
                nodes.lines().count() == known && !nodes.contains("handshake")
            })
        });
        for at in primaries..known {
            let () = cluster.members[at].ask(&["CLUSTER", "REPLICATE", &cluster.ids[(at - primaries) % primaries]]);
        }
        eventually("the cluster is ready", || (0..known).all(|at| cluster.is_ready(at)));
        Some(cluster)
    }

    /// Handles on the servers of another cluster, for another thread; whoever started the servers ends them.
    #[allow(dead_code, reason = "not all who share this file have several threads")]
    pub fn like(other: &Self) -> Self {
        Self { members: other.members.iter().map(RedisServer::like).collect(), ids: other.ids.clone() }
    }

    fn is_ready(&self, at: usize) -> bool {
        let text = |words: &[&str]| self.members[at].try_ask::<String>(words).unwrap_or_default();
        let replication = text(&["INFO", "replication"]);
        let follows = replication.contains("role:master") || replication.contains("master_link_status:up");
        follows && text(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    }

    /// The URL for a register there.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        let over_tls = if self.members[0].url().starts_with("rediss") { "s" } else { "" };
        format!("redis{over_tls}+cluster://{}", hosts.join(","))
    }

    pub fn slot(&self, key: &str) -> u16 {
        let asked: Option<u16> =
            self.members.iter().find_map(|member| member.try_ask(&["CLUSTER", "KEYSLOT", key]).ok());
        asked.expect("a server of the cluster answers")
    }

    /// The server that says of itself that it has the slot, with the latest claim.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let claims = self.members.iter().enumerate().filter_map(|(at, member)| {
            let nodes: String = member.try_ask(&["CLUSTER", "NODES"]).ok()?;
            let own = nodes.lines().find(|line| line.contains("myself,master"))?;
            let words: Vec<&str> = own.split(' ').collect();
            let has = |range: &&str| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                first.parse().is_ok_and(|first: u16| first <= slot) && last.parse().is_ok_and(|last: u16| slot <= last)
            };
            words[8..].iter().find(|range| has(range))?;
            Some((words[6].parse::<u64>().ok()?, at))
        });
        claims.max().map(|(_, at)| at)
    }

    pub fn replicas_of(&self, at: usize) -> Vec<usize> {
        let follows = |other: &usize| {
            let nodes = self.members[*other].try_ask::<String>(&["CLUSTER", "NODES"]).unwrap_or_default();
            let own = nodes.lines().find(|line| line.contains("myself,slave")).map(str::to_owned);
            own.is_some_and(|own| own.split(' ').nth(3) == Some(&self.ids[at]))
        };
        (0..self.members.len()).filter(follows).collect()
    }

    /// Waits until another server has the slot, and every living server says so.
    pub fn failed_over(&self, slot: u16, from: usize) -> usize {
        let mut to = None;
        eventually("a failover", || {
            to = self.owner(slot).filter(|&to| to != from && self.is_ready(to));
            to.is_some()
        });
        to.unwrap_or_default()
    }

    /// Waits until all servers are ready and the one with the slot has a replica. Returns these two.
    #[allow(dead_code, reason = "not all who share this file fail over again and again")]
    pub fn settled(&self, slot: u16) -> (usize, usize) {
        let mut found = None;
        eventually("the slot's primary has a replica that follows", || {
            let primary = self.owner(slot).filter(|_| (0..self.members.len()).all(|at| self.is_ready(at)));
            found = primary.and_then(|primary| Some((primary, *self.replicas_of(primary).first()?)));
            found.is_some()
        });
        found.unwrap_or_default()
    }

    /// Begins to move the slot, as `redis-cli --cluster reshard` does.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let () = self.members[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        let () = self.members[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Tells this server that the slot is not moved any more.
    #[allow(dead_code, reason = "not all who share this file call a move off")]
    pub fn call_off(&self, slot: u16, at: usize) {
        let words = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
        // Valkey first asks its replicas, which may not be connected yet.
        eventually("the move is called off", || self.members[at].try_ask::<String>(&words).is_ok());
    }

    /// Moves at most `count` keys. Returns how many are left.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize, count: usize) -> u64 {
        let keys: Vec<String> =
            self.members[from].ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &count.to_string()]);
        self.move_these(from, to, &keys);
        self.members[from].ask(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()])
    }

    pub fn move_these(&self, from: usize, to: usize, keys: &[String]) {
        if !keys.is_empty() {
            let port = self.members[to].port.to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            let _: String = self.members[from].ask(&words);
        }
    }

    /// Ends the move once all keys have moved: the new server has the slot.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let rest = (0..self.members.len()).filter(|at| ![from, to].contains(at));
        for at in [to, from].into_iter().chain(rest) {
            // Replicas learn it from their primaries.
            let _ =
                self.members[at].try_ask::<String>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.ids[to]]);
        }
    }

    /// Ends a broken-off move as an operator does.
    #[allow(dead_code, reason = "not all who share this file let a move break off")]
    pub fn fix(&self, at: usize) {
        let place = format!("127.0.0.1:{}", self.members[at].port);
        let ended = Command::new("redis-cli").args(["--cluster", "fix", &place]).output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success() && text.contains("All 16384 slots covered"), "{text}");
    }
}
