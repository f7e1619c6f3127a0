//! The goals: their bounds, and the figures that they divide.
//!
//! To add one, add a line here, and a probe if none has its figures. Names are stable: scripts read them.

use Wanted::{AtLeast, AtMost, Shown};

use super::probe::{Depth, Figure, Load, Probe, Rival, Size, Stock, kea_addresses, prefix_length};
use crate::compare::{SCRIPTS, Subject};
use crate::scenario::Name;
use crate::target::{Backend, Flush, History, Store};

/// A figure of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Take {
    pub probe: Probe,
    pub figure: Figure,
}

/// The bound of a goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing was promised; the value is only shown.
    Shown,
}

/// How the value is computed.
#[derive(Debug, Clone, PartialEq)]
pub enum Formula {
    /// The first figure, divided by the best of the others.
    Over(Take, Vec<Take>),
    Itself(Take),
    /// Measured by another command.
    Elsewhere(&'static str),
}

/// One goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    pub name: String,
    pub what: String,
    pub wanted: Wanted,
    pub formula: Formula,
}

impl Goal {
    fn new(name: impl Into<String>, what: impl Into<String>, wanted: Wanted, formula: Formula) -> Self {
        Self { name: name.into(), what: what.into(), wanted, formula }
    }

    /// All figures that it needs.
    pub fn takes(&self) -> Vec<&Take> {
        match &self.formula {
            Formula::Over(of, over) => std::iter::once(of).chain(over).collect(),
            Formula::Itself(of) => vec![of],
            Formula::Elsewhere(_) => Vec::new(),
        }
    }
}

const EMBEDDED: Backend = Backend::of(Store::Embedded);
/// The flush settings of Redis: the name, and the goal for the rate compared with `echo`.
const FLUSHES: [(Flush, &str, Option<f64>); 3] =
    [(Flush::Off, "off", None), (Flush::Everysec, "everysec", Some(0.6)), (Flush::Always, "always", Some(0.45))];

fn take(probe: &Probe, figure: Figure) -> Take {
    Take { probe: probe.clone(), figure }
}

fn rate(probe: &Probe) -> Take {
    take(probe, Figure::PerSecond)
}

/// The rate of one probe divided by that of another.
fn rates(of: &Probe, over: &Probe) -> Formula {
    Formula::Over(rate(of), vec![rate(over)])
}

/// All goals, in the order in which they are measured and printed. Goals that share a measurement stand together, because
/// the speed of a machine changes over time.
pub fn goals(size: &Size) -> Vec<Goal> {
    let mut goals = stores();
    goals.extend(redis(0));
    goals.extend(others(size));
    goals.extend(redis(1));
    goals.extend(latencies());
    goals.extend(flat(size));
    goals.extend(room_and_start(size));
    goals.extend(scale(size));
    goals
}

fn fill(backend: Backend) -> Probe {
    Probe::Load(Load::fill(backend))
}

/// This many networks, with something held in each.
fn networks(count: usize) -> Load {
    Load { networks: count, prefill: Some(count as u64), ..Load::fill(EMBEDDED) }
}

/// Each lane allocates an address and releases it, while `prefill` addresses stay held.
fn exchanges(prefill: Option<u64>) -> Probe {
    Probe::Load(Load { hold: Some(1), prefill, ..Load::fill(EMBEDDED) })
}

fn stores() -> Vec<Goal> {
    let (embedded, memory) = (fill(EMBEDDED), fill(Backend::of(Store::Memory)));
    let several = |count: usize| {
        let formula = rates(&Probe::Load(networks(count)), &embedded);
        Goal::new(format!("networks-{count}"), format!("{count} networks, over one"), AtLeast(0.95), formula)
    };
    let claims = Probe::Load(Load { scenario: Name::Claims, ..Load::fill(EMBEDDED) });
    let what = "embedded store, every answer after fsync, over echo";
    vec![
        Goal::new("store-embedded", what, AtLeast(0.75), rates(&embedded, &Probe::Echo)),
        Goal::new("store-memory", "memory store, over echo", AtLeast(0.9), rates(&memory, &Probe::Echo)),
        several(64),
        Goal::new(
            "networks-64-kept",
            "64 networks, each connection keeps to one, over one",
            AtLeast(0.95),
            rates(&Probe::Load(Load { keep_network: true, ..networks(64) }), &embedded),
        ),
        Goal::new(
            "releases",
            "rate where every other request is a release, over allocations only",
            AtLeast(1.0),
            rates(&exchanges(None), &embedded),
        ),
        Goal::new(
            "claims",
            "rate of claims and releases, over allocations and releases",
            AtLeast(1.0),
            rates(&claims, &exchanges(None)),
        ),
        several(10_000),
    ]
}

/// Over Redis, compared with scripts on the same Redis.
fn redis(replicas: usize) -> Vec<Goal> {
    let (group, with) = if replicas == 0 { ("redis", "") } else { ("replica", ", one replica") };
    let mut goals = Vec::new();
    for (flush, mode, share) in FLUSHES {
        let ours = |depth| {
            let backend = Backend { replicas, ..Backend::redis(flush) };
            Probe::Load(Load { depth, ..Load::fill(backend) })
        };
        let scripts = |depth, figure| -> Vec<Take> {
            let rival = |script| Rival { depth, replicas, ..Rival::of(Subject::Script(script), flush) };
            SCRIPTS.map(|script| take(&Probe::Rival(rival(script)), figure)).into()
        };
        let over_scripts = |depth| Formula::Over(rate(&ours(depth)), scripts(depth, Figure::PerSecond));
        let told = |what: &str| format!("Redis ({}){with}: {what}", flush.name());
        let mut add = |name: &str, what: &str, wanted, formula| {
            goals.push(Goal::new(format!("{group}-{mode}-{name}"), told(what), wanted, formula));
        };
        add("deep", "rate, over the best script", AtLeast(3.0), over_scripts(Depth::Many));
        add("one", "the same, one request on each connection", AtLeast(1.3), over_scripts(Depth::One));
        let backend = Backend { replicas, history: History::Trimmed, ..Backend::redis(flush) };
        add(
            "trimmed-deep",
            "rate, over the best script, history trimmed to the least",
            AtLeast(3.5),
            Formula::Over(rate(&fill(backend)), scripts(Depth::Many, Figure::PerSecond)),
        );
        let cpu =
            Formula::Over(take(&ours(Depth::Many), Figure::RedisMicros), scripts(Depth::Many, Figure::RedisMicros));
        add("cpu", "Redis's processor time each, over the best script", AtMost(0.2), cpu);
        if let Some(share) = share {
            add("echo", "rate, over echo", AtLeast(share), rates(&ours(Depth::Many), &Probe::Echo));
        }
    }
    goals
}

/// Compared with PostgreSQL and Kea.
fn others(size: &Size) -> Vec<Goal> {
    let embedded = rate(&fill(EMBEDDED));
    let clients = |count| {
        let rival = Rival::of(Subject::Postgres, Flush::Always);
        rate(&Probe::Rival(Rival { connections: Some(count), ..rival }))
    };
    let postgres = || vec![clients(16.min(size.connections)), clients(size.connections)];
    let kea = |fill_level| rate(&Probe::Rival(Rival { fill_level, ..Rival::of(Subject::Kea, Flush::Off) }));
    let full = Probe::Load(Load {
        scenario: Name::Churn,
        cidr: Some(format!("10.0.0.0/{}", prefix_length(kea_addresses(size)))),
        fill_level: Some(0.99),
        ..Load::fill(EMBEDDED)
    });
    let full = take(&full, Figure::AllocationsPerSecond);
    let (always, over) = (rate(&fill(Backend::redis(Flush::Always))), Formula::Over);
    vec![
        Goal::new(
            "postgres-embedded",
            "embedded store, over PostgreSQL",
            AtLeast(75.0),
            over(embedded.clone(), postgres()),
        ),
        Goal::new("postgres-redis", "Redis (always), over PostgreSQL", AtLeast(55.0), over(always, postgres())),
        Goal::new("kea-empty", "embedded store, over Kea, empty pool", AtLeast(80.0), over(embedded, vec![kea(0.0)])),
        Goal::new("kea-full", "the same, pool 99 % full", AtLeast(1_000.0), over(full, vec![kea(0.99)])),
    ]
}

fn latencies() -> Vec<Goal> {
    let mut goals = Vec::new();
    for (flush, mode, _) in FLUSHES {
        let probe = Probe::BesideSet(flush);
        let wanted = AtMost(if flush == Flush::Always { 1.6 } else { 2.2 });
        for (name, ours, bare) in [("p50", Figure::P50Ms, Figure::BareP50Ms), ("p99", Figure::P99Ms, Figure::BareP99Ms)]
        {
            let what = format!("Redis ({}): {name} of one request at a time, over that of SET", flush.name());
            let formula = Formula::Over(take(&probe, ours), vec![take(&probe, bare)]);
            goals.push(Goal::new(format!("alone-{mode}-{name}"), what, wanted, formula));
        }
    }
    for (name, backend) in [("embedded", EMBEDDED), ("redis", Backend::redis(Flush::Everysec))] {
        let probe = Probe::HalfRate(backend);
        let what = format!("{}: p99.9 over p50, open loop at half of the rate", backend.name());
        let formula = Formula::Over(take(&probe, Figure::P999Ms), vec![take(&probe, Figure::P50Ms)]);
        goals.push(Goal::new(format!("open-{name}"), what, AtMost(10.0), formula));
    }
    goals
}

/// Costs that must not depend on the fill level, the size of a network, or the number of reservations.
fn flat(size: &Size) -> Vec<Goal> {
    let churn = |fill_level: f64| {
        let (cidr, policy) = (Some(format!("10.0.0.0/{}", size.full_pool)), Some("random"));
        let fill_level = Some(fill_level);
        Probe::Load(Load { scenario: Name::Churn, cidr, policy, fill_level, ..Load::fill(EMBEDDED) })
    };
    let (empty, full) = (churn(0.0), churn(0.999));
    let (few, many) = (exchanges(Some(1_000.min(size.reservations))), exchanges(Some(size.reservations)));
    // A /24 has fewer addresses than there are lanes, so all sizes use sixteen networks.
    let sized = |cidr: &str| {
        let cidr = Some(cidr.to_owned());
        Probe::Load(Load { hold: Some(1), networks: 16, cidr, ..Load::fill(EMBEDDED) })
    };
    let [small, large, sparse] = ["10.0.0.0/24", "10.0.0.0/8", "2001:db8::/64"].map(sized);
    let p99s = |of: &Probe, over: &Probe| Formula::Over(take(of, Figure::P99Ms), vec![take(over, Figure::P99Ms)]);
    let pool = if size.full_pool == 8 {
        "2^24 addresses".to_owned()
    } else {
        format!("2^{} addresses, in place of 2^24 (--full-pool 8)", 32 - size.full_pool)
    };
    let held = size.reservations;
    vec![
        Goal::new(
            "full-rate",
            format!("rate, empty over 99.9 % full, {pool}, random"),
            AtMost(1.1),
            rates(&empty, &full),
        ),
        Goal::new("full-p99", "p99 of the same, full over empty", AtMost(1.1), p99s(&full, &empty)),
        Goal::new("held-rate", format!("rate with 1000 held, over that with {held}"), AtMost(1.1), rates(&few, &many)),
        Goal::new("held-p99", "p99 of the same, with many over with few", AtMost(1.1), p99s(&many, &few)),
        Goal::new("size-8", "rate in a /24, over that in a /8", AtMost(1.1), rates(&small, &large)),
        Goal::new("size-8-p99", "p99 of the same, /8 over /24", AtMost(1.1), p99s(&large, &small)),
        Goal::new("size-64", "rate in a /24, over that in a /64", AtMost(1.1), rates(&small, &sparse)),
        Goal::new("size-64-p99", "p99 of the same, /64 over /24", AtMost(1.1), p99s(&sparse, &small)),
        Goal::new(
            "choosing",
            "nanoseconds to choose an address, median",
            AtMost(100.0),
            Formula::Elsewhere("cargo bench --bench choosing"),
        ),
        Goal::new(
            "fair",
            "p99 of a quiet network beside a flood of another, over its p99 alone",
            AtMost(2.0),
            Formula::Itself(take(&Probe::Flood, Figure::P99Ratio)),
        ),
    ]
}

fn room_and_start(size: &Size) -> Vec<Goal> {
    let embedded = Probe::Restart(EMBEDDED);
    let redis = Probe::Restart(Backend::redis(Flush::Everysec));
    let itself = |probe: &Probe, figure| Formula::Itself(take(probe, figure));
    let room = |name: &str, stock, wanted, what: &str| {
        let what = format!("bytes of Redis for a reservation, over its record, {what}");
        Goal::new(format!("bytes-redis{name}"), what, wanted, itself(&Probe::Room(stock), Figure::BytesOver))
    };
    vec![
        Goal::new(
            "bytes-core",
            "bytes of the actor for a reservation, over its record",
            AtMost(24.0),
            Formula::Elsewhere("cargo bench --bench memory"),
        ),
        room("", Stock::Dense, AtMost(10.0), "pool without gaps"),
        room("-sparse", Stock::Sparse, Shown, "IPv6 at random in a /64"),
        room("-oldest", Stock::Oldest, Shown, "policy oldest, all exchanged once"),
        room("-labels", Stock::Labels, Shown, "with three labels of 8 and 16 bytes in it"),
        room("-leases", Stock::Leases, Shown, "with a lease in it"),
        Goal::new(
            "ready-embedded",
            format!("seconds until ready after a kill, embedded store, {} held", size.reservations),
            AtMost(0.3),
            itself(&embedded, Figure::ReadySeconds),
        ),
        Goal::new(
            "ready-redis",
            "the same after an orderly end, Redis",
            AtMost(0.5),
            itself(&redis, Figure::ReadySeconds),
        ),
        Goal::new(
            "pause-redis",
            "seconds that a client waits at most while the register is handed over to another node, as many held",
            AtMost(0.05),
            itself(&Probe::HandOver, Figure::PauseSeconds),
        ),
    ]
}

fn scale(size: &Size) -> Vec<Goal> {
    let many = Probe::ManyNetworks(networks(size.networks));
    let nodes = |nodes| {
        let backend = Backend { nodes, ..Backend::redis(Flush::Everysec) };
        Probe::Load(Load { networks: 64, ..Load::fill(backend) })
    };
    let several = |count: usize| {
        let what = format!("rate of {count} nodes on one Redis, over that of one");
        Goal::new(format!("scale-nodes-{count}"), what, Shown, rates(&nodes(count), &nodes(1)))
    };
    let what = format!("{} networks, over one; in one round", size.networks);
    let primaries = |count: usize| {
        let what =
            format!("rates of {count} registers on as many primaries of a Redis Cluster together, over that of one");
        let formula = rates(&Probe::Primaries(count), &Probe::Primaries(1));
        Goal::new(format!("scale-primaries-{count}"), what, Shown, formula)
    };
    vec![
        Goal::new("scale-networks", what, Shown, rates(&many, &fill(EMBEDDED))),
        Goal::new(
            "scale-nodes-1",
            "rate of one node on one Redis, 64 networks",
            Shown,
            Formula::Itself(rate(&nodes(1))),
        ),
        several(2),
        several(3),
        Goal::new(
            "scale-primaries-1",
            "rate of a register on a Redis Cluster of one primary",
            Shown,
            Formula::Itself(rate(&Probe::Primaries(1))),
        ),
        primaries(2),
        primaries(3),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn goals_and_measurements_have_names_of_their_own() {
        for (connections, depth) in [(64, 16), (2, 4)] {
            let size =
                Size { seconds: 2.0, connections, depth, full_pool: 12, reservations: 1_000_000, networks: 100_000 };
            let goals = goals(&size);
            let names: BTreeSet<&str> = goals.iter().map(|goal| goal.name.as_str()).collect();
            assert_eq!(names.len(), goals.len());
            let mut probes: Vec<&Probe> = Vec::new();
            for take in goals.iter().flat_map(Goal::takes).filter(|take| take.figure != Figure::BareP50Ms) {
                if !probes.contains(&&take.probe) {
                    probes.push(&take.probe);
                }
            }
            let names: BTreeSet<String> = probes.iter().map(|probe| probe.name(&size)).collect();
            assert_eq!(names.len(), probes.len(), "{names:#?}");
        }
    }
}
