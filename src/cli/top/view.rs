//! Computes rates, quantiles and fill from two looks at the metrics of each node.
//!
//! Requests are counted by the node that the client asked, networks by the owner of the register; so sums over the nodes
//! count nothing twice. A counter that is lower than before started again from zero: its node was restarted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::scrape::{Labels, Scrape};
use crate::wire::{ErrorKind, Method};

/// The two looks at one node.
#[derive(Debug)]
pub struct Looks<'a> {
    /// The address of its metrics.
    pub address: &'a str,
    /// The previous look, if there is one.
    pub before: Option<&'a Scrape>,
    /// The latest look.
    pub now: &'a Scrape,
}

/// Everything that is shown. Rates are per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct View {
    /// Time between the looks; 0 if there is only one, which has no rates.
    pub seconds: f64,
    /// Nodes that answered.
    pub nodes: Vec<Node>,
    /// Requests answered.
    pub requests_per_second: f64,
    /// Reservations granted.
    pub granted_per_second: f64,
    /// Reservations ended.
    pub released_per_second: f64,
    /// Requests answered with an error, by kind; only kinds that occurred.
    pub refused_per_second: BTreeMap<String, f64>,
    /// Requests answered with an error that is the server's fault, by kind; only kinds that occurred.
    pub failed_per_second: BTreeMap<String, f64>,
    /// Groups committed.
    pub commits_per_second: f64,
    /// How long grants took.
    pub grant_seconds: Quantiles,
    /// How long commits took.
    pub commit_seconds: Quantiles,
    /// Requests that wait for capacity, each counted once, however many networks it waits for.
    pub waiting: u64,
    /// Requests that wait to be decided.
    pub queued: u64,
    /// Addresses with two claims.
    pub conflicts: u64,
    /// Networks that are stopped while the others go on.
    pub stopped: Vec<String>,
    /// Whether the store takes changes; absent if no node that was asked owns the register.
    pub store_ready: Option<bool>,
    /// Networks, in the requested order.
    pub networks: Vec<Network>,
    /// Networks that `--limit` leaves out.
    pub networks_more: usize,
    /// Networks that the server leaves out of its metrics.
    pub networks_left_out: u64,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Node {
    /// The address of its metrics.
    pub metrics: String,
    /// Version of the server.
    pub version: String,
    /// Whether it owns the register.
    pub owner: bool,
    /// How long it has been running, by the clock of this machine.
    pub uptime_seconds: Option<u64>,
    /// Its memory.
    pub resident_bytes: Option<u64>,
    /// Clients that are connected.
    pub connections: u64,
}

/// Interpolated within histogram buckets, as Prometheus does; absent if nothing happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

/// A network.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Network {
    /// Its name.
    pub network: String,
    /// Its realm.
    pub realm: String,
    /// The share that is not free, of the family with the least room.
    pub full: f64,
    /// Its IPv4 addresses.
    pub ipv4: Option<Space>,
    /// Its IPv6 addresses.
    pub ipv6: Option<Space>,
    /// Reservations held.
    pub reservations: u64,
    /// Reservations granted.
    pub granted_per_second: f64,
    /// Reservations ended.
    pub released_per_second: f64,
    /// Requests refused, by kind.
    pub refused_per_second: BTreeMap<String, f64>,
    /// Requests that wait for capacity, including those that also wait for other networks.
    pub waiting: u64,
    /// How long the oldest of them has waited.
    pub waiting_oldest_seconds: Option<f64>,
    /// Requests that wait to be decided.
    pub queued: u64,
    /// Time until nothing is free any more, at the present rate.
    pub exhausted_in_seconds: Option<f64>,
}

/// Addresses of one family; figures above 2^53 are rounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Space {
    /// All.
    pub size: f64,
    /// Held.
    pub held: f64,
    /// Kept from automatic grants.
    pub reserved: f64,
    /// Released a short time ago.
    pub cooling: f64,
    /// Declined: somebody else uses them.
    pub declined: f64,
    /// Free.
    pub free: f64,
    /// What automatic grants draw from; 0 if there are no such addresses.
    pub grantable_size: f64,
    /// How much of that is left.
    pub grantable: f64,
    /// The share of `grantable_size` that is not left; if that is 0, the share of all addresses that is not free.
    pub full: f64,
}

impl Space {
    /// How much there is, and how much of it is left: for automatic grants, or for claims if all pools are static.
    fn room(&self) -> (f64, f64) {
        if self.grantable_size > 0.0 { (self.grantable_size, self.grantable) } else { (self.size, self.free) }
    }

    /// How much is left.
    pub fn left(&self) -> f64 {
        self.room().1
    }

    /// Whether nothing is left for automatic grants.
    pub fn is_full(&self) -> bool {
        self.grantable_size > 0.0 && self.grantable == 0.0
    }
}

impl Network {
    /// Requests refused, whatever the kind.
    pub fn refused(&self) -> f64 {
        self.refused_per_second.values().sum()
    }

    /// Whether a family has nothing left to grant.
    pub fn is_full(&self) -> bool {
        self.spaces().any(Space::is_full)
    }

    fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.ipv4.iter().chain(&self.ipv6)
    }
}

/// The order in which networks are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Sort {
    /// The fullest first
    #[default]
    Fill,
    /// The most granted and released first
    Rate,
    /// The most refused first
    Refused,
    /// By name
    Name,
}

impl Sort {
    /// The next order, when the user presses the key.
    pub const fn next(self) -> Self {
        match self {
            Self::Fill => Self::Rate,
            Self::Rate => Self::Refused,
            Self::Refused => Self::Name,
            Self::Name => Self::Fill,
        }
    }

    /// Sorts networks; ties by name.
    pub fn sort(self, networks: &mut [Network]) {
        let key = |network: &Network| match self {
            Self::Fill => network.full,
            Self::Rate => network.granted_per_second + network.released_per_second,
            Self::Refused => network.refused(),
            Self::Name => 0.0,
        };
        networks.sort_by(|one, other| key(other).total_cmp(&key(one)).then_with(|| one.network.cmp(&other.network)));
    }
}

/// By how much each sample of a metric rose, in a second.
fn rises<'a>(looks: &'a Looks<'a>, name: &'a str) -> impl Iterator<Item = (&'a Labels, f64)> {
    let seconds = seconds(looks);
    let before: BTreeMap<&Labels, f64> = looks.before.iter().flat_map(|before| before.all(name)).collect();
    // A sample that was absent before started at 0, unless it existed and was only not reported: by a node that became the
    // owner since, or that has more networks than it reports.
    let told =
        |scrape: &Scrape| (scrape.one("allod_owner"), scrape.one("allod_metrics_networks_dropped").unwrap_or(0.0));
    let from_zero = looks.before.is_some_and(|before| told(before) == (looks.now.one("allod_owner"), 0.0));
    looks.now.all(name).filter_map(move |(labels, now)| {
        let before = before.get(labels).copied().or(from_zero.then_some(0.0))?;
        let rise = if now < before { now } else { now - before };
        (seconds > 0.0).then_some((labels, rise / seconds))
    })
}

fn seconds(looks: &Looks<'_>) -> f64 {
    looks.before.map_or(0.0, |before| looks.now.at.duration_since(before.at).as_secs_f64())
}

fn rise(looks: &Looks<'_>, name: &str) -> f64 {
    rises(looks, name).map(|(_, rise)| rise).sum()
}

/// Rises by upper bound of the bucket.
#[derive(Default)]
struct Buckets(BTreeMap<u64, f64>);

impl Buckets {
    fn add(&mut self, looks: &Looks<'_>, name: &str, counts: impl Fn(&Labels) -> bool) {
        for (labels, rise) in rises(looks, name).filter(|(labels, _)| counts(labels)) {
            let bound: f64 = labels.get("le").and_then(|le| le.parse().ok()).unwrap_or(f64::INFINITY);
            // Bounds are positive, so their bits sort like the numbers.
            *self.0.entry(bound.to_bits()).or_default() += rise;
        }
    }

    fn quantiles(&self) -> Quantiles {
        Quantiles { p50: self.quantile(0.5), p99: self.quantile(0.99) }
    }

    /// Interpolates linearly between the bounds of the bucket; in the last one, which has no upper bound, returns the lower
    /// one.
    fn quantile(&self, share: f64) -> Option<f64> {
        let all = *self.0.values().last()?;
        let (wanted, mut lower, mut below) = (all * share, 0.0, 0.0);
        for (bound, &count) in self.0.iter().map(|(bits, count)| (f64::from_bits(*bits), count)) {
            if all > 0.0 && count >= wanted {
                let part = if count > below { (wanted - below) / (count - below) } else { 1.0 };
                return Some(if bound.is_finite() { lower + (bound - lower) * part } else { lower });
            }
            (lower, below) = (bound, count);
        }
        None
    }
}

impl View {
    /// From these looks; `now_unix_seconds` is the time of this machine. Contains all networks, unsorted.
    pub fn of(nodes: &[Looks<'_>], now_unix_seconds: f64) -> Self {
        let mut view = Self::default();
        let (mut grants, mut commits) = (Buckets::default(), Buckets::default());
        for looks in nodes {
            view.seconds = view.seconds.max(seconds(looks));
            view.nodes.push(node(looks, now_unix_seconds));
            view.count_requests(looks);
            view.commits_per_second += rise(looks, "allod_commits_total");
            grants.add(looks, "allod_request_duration_seconds_bucket", |labels| {
                labels.get("method").is_some_and(|method| Method::GRANTING.iter().any(|of| of.name() == method))
            });
            commits.add(looks, "allod_commit_duration_seconds_bucket", |_| true);
            if looks.now.one("allod_owner") == Some(1.0) {
                view.store_ready = looks.now.one("allod_store_ready").map(|ready| ready > 0.0);
                view.networks_left_out = looks.now.one("allod_metrics_networks_dropped").unwrap_or(0.0) as u64;
                view.networks = networks(looks);
                // An older server reports only a count per network, so a request that waits for several networks counts in
                // each.
                let of_networks = || view.networks.iter().map(|network| network.waiting).sum();
                view.waiting = looks.now.one("allod_waiting_requests").map_or_else(of_networks, |count| count as u64);
            }
        }
        view.grant_seconds = grants.quantiles();
        view.commit_seconds = commits.quantiles();
        // The sum of an empty iterator would be -0.
        view.granted_per_second = view.networks.iter().fold(0.0, |sum, network| sum + network.granted_per_second);
        view.released_per_second = view.networks.iter().fold(0.0, |sum, network| sum + network.released_per_second);
        view.queued = view.networks.iter().map(|network| network.queued).sum();
        view
    }

    fn count_requests(&mut self, looks: &Looks<'_>) {
        self.conflicts += looks.now.all("allod_network_conflicts").map(|(_, count)| count as u64).sum::<u64>();
        let stopped = looks.now.all("allod_network_stopped").filter(|(_, is_stopped)| *is_stopped > 0.0);
        self.stopped.extend(stopped.filter_map(|(labels, _)| labels.get("network").cloned()));
        for (labels, rate) in rises(looks, "allod_requests_total") {
            self.requests_per_second += rate;
            let outcome = labels.get("outcome").map_or("", String::as_str);
            if outcome == "ok" || rate == 0.0 {
                continue;
            }
            let failed = ErrorKind::FAILURES.iter().any(|kind| kind.as_str() == outcome);
            let kinds = if failed { &mut self.failed_per_second } else { &mut self.refused_per_second };
            *kinds.entry(outcome.to_owned()).or_default() += rate;
        }
    }
}

fn node(looks: &Looks<'_>, now_unix_seconds: f64) -> Node {
    let version = looks.now.all("allod_build_info").find_map(|(labels, _)| labels.get("version").cloned());
    let started = looks.now.one("process_start_time_seconds");
    Node {
        metrics: looks.address.to_owned(),
        version: version.unwrap_or_default(),
        owner: looks.now.one("allod_owner") == Some(1.0),
        uptime_seconds: started.map(|started| (now_unix_seconds - started).max(0.0) as u64),
        resident_bytes: looks.now.one("process_resident_memory_bytes").map(|bytes| bytes as u64),
        connections: looks.now.one("allod_connections").unwrap_or(0.0) as u64,
    }
}

/// Every network that has rows of its own.
fn networks(looks: &Looks<'_>) -> Vec<Network> {
    let mut networks: BTreeMap<String, Network> = BTreeMap::new();
    let mut each = |labels: &Labels, note: &mut dyn FnMut(&mut Network)| {
        let Some(name) = labels.get("network") else { return };
        let network = networks.entry(name.clone()).or_insert_with(|| Network {
            network: name.clone(),
            realm: labels.get("realm").cloned().unwrap_or_default(),
            ..Network::default()
        });
        note(network);
    };
    for part in ["size", "held", "reserved", "cooling", "declined", "free", "grantable", "grantable_size"] {
        for (labels, value) in looks.now.all(&format!("allod_network_addresses_{part}")) {
            each(labels, &mut |network| {
                let four = labels.get("family").is_some_and(|family| family == "4");
                let space = if four { &mut network.ipv4 } else { &mut network.ipv6 };
                let space = space.get_or_insert_default();
                match part {
                    "size" => space.size = value,
                    "held" => space.held = value,
                    "reserved" => space.reserved = value,
                    "cooling" => space.cooling = value,
                    "declined" => space.declined = value,
                    "grantable" => space.grantable = value,
                    "grantable_size" => space.grantable_size = value,
                    _ => space.free = value,
                }
            });
        }
    }
    type Set = fn(&mut Network, f64);
    let gauges: [(&str, Set); 5] = [
        ("allod_network_reservations", |network, value| network.reservations = value as u64),
        ("allod_network_waiting_requests", |network, value| network.waiting = value as u64),
        ("allod_network_waiting_oldest_seconds", |network, value| network.waiting_oldest_seconds = Some(value)),
        ("allod_network_queue_requests", |network, value| network.queued = value as u64),
        ("allod_network_exhausted_in_seconds", |network, value| {
            let sooner = network.exhausted_in_seconds.map_or(value, |other| other.min(value));
            network.exhausted_in_seconds = Some(sooner);
        }),
    ];
    for (name, set) in gauges {
        for (labels, value) in looks.now.all(name) {
            each(labels, &mut |network| set(network, value));
        }
    }
    for (labels, rate) in rises(looks, "allod_network_grants_total") {
        each(labels, &mut |network| network.granted_per_second += rate);
    }
    for (labels, rate) in rises(looks, "allod_network_releases_total") {
        each(labels, &mut |network| network.released_per_second += rate);
    }
    for (labels, rate) in rises(looks, "allod_network_refusals_total").filter(|(_, rate)| *rate > 0.0) {
        let kind = labels.get("kind").cloned().unwrap_or_default();
        each(labels, &mut |network| *network.refused_per_second.entry(kind.clone()).or_default() += rate);
    }
    let full = |space: &Space| match space.room() {
        (size, left) if size > 0.0 => 1.0 - left / size,
        _ => 0.0,
    };
    let mut networks: Vec<Network> = networks.into_values().collect();
    for network in &mut networks {
        for space in network.ipv4.iter_mut().chain(&mut network.ipv6) {
            space.full = full(space);
        }
        network.full = network.spaces().map(|space| space.full).fold(0.0, f64::max);
    }
    networks
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn scrape(text: &str, begun: Instant, after_seconds: u64) -> Scrape {
        Scrape::read(text, begun + Duration::from_secs(after_seconds)).unwrap()
    }

    fn network(name: &str, free: u32, grants: u32, refused: u32) -> String {
        format!(
            "allod_network_addresses_size{{family=\"4\",network=\"{name}\",realm=\"r\"}} 100\n\
             allod_network_addresses_free{{family=\"4\",network=\"{name}\",realm=\"r\"}} {free}\n\
             allod_network_addresses_size{{family=\"6\",network=\"{name}\",realm=\"r\"}} 1000\n\
             allod_network_addresses_free{{family=\"6\",network=\"{name}\",realm=\"r\"}} 1000\n\
             allod_network_grants_total{{network=\"{name}\",realm=\"r\"}} {grants}\n\
             allod_network_refusals_total{{kind=\"quota_exceeded\",network=\"{name}\",realm=\"r\"}} {refused}\n\
             allod_network_waiting_requests{{network=\"{name}\",realm=\"r\"}} 3\n"
        )
    }

    fn requests(ok: u32, refused: u32, overloaded: u32) -> String {
        format!(
            "allod_requests_total{{method=\"ip.allocate\",outcome=\"ok\"}} {ok}\n\
             allod_requests_total{{method=\"ip.allocate\",outcome=\"quota_exceeded\"}} {refused}\n\
             allod_requests_total{{method=\"ip.allocate\",outcome=\"overloaded\"}} {overloaded}\n"
        )
    }

    fn look<'a>(before: &'a Scrape, now: &'a Scrape) -> Looks<'a> {
        Looks { address: "a", before: Some(before), now }
    }

    #[test]
    fn counters_become_rates_refusals_are_told_from_failures_and_the_fullest_family_counts() {
        let begun = Instant::now();
        // One of them waits for both networks.
        let owner = "allod_owner 1\nallod_store_ready 1\nallod_waiting_requests 5\n";
        let before = format!("{owner}{}{}{}", requests(100, 10, 0), network("a", 50, 0, 4), network("b", 60, 5, 0));
        let now = format!("{owner}{}{}{}", requests(300, 30, 2), network("a", 10, 100, 24), network("b", 59, 505, 0));
        let (before, now) = (scrape(&before, begun, 0), scrape(&now, begun, 10));
        let follower = |ok, at| scrape(&format!("allod_owner 0\n{}", requests(ok, 0, 0)), begun, at);
        let (follower_before, follower_now) = (follower(1_000, 0), follower(1_050, 10));
        let view = View::of(&[look(&before, &now), look(&follower_before, &follower_now)], 0.0);
        assert_eq!((view.seconds, view.requests_per_second), (10.0, (200.0 + 20.0 + 2.0 + 50.0) / 10.0));
        assert_eq!(view.refused_per_second, [("quota_exceeded".to_owned(), 2.0)].into());
        assert_eq!(view.failed_per_second, [("overloaded".to_owned(), 0.2)].into());
        assert_eq!((view.granted_per_second, view.waiting, view.store_ready), (60.0, 5, Some(true)));
        let mut networks = view.networks.clone();
        Sort::Fill.sort(&mut networks);
        let names = |networks: &[Network]| networks.iter().map(|n| n.network.clone()).collect::<Vec<_>>();
        assert_eq!((names(&networks), networks[0].full), (vec!["a".to_owned(), "b".to_owned()], 0.9));
        assert_eq!(networks[0].refused(), 2.0);
        Sort::Rate.sort(&mut networks);
        assert_eq!(names(&networks), ["b", "a"]);
        Sort::Refused.sort(&mut networks);
        assert_eq!(names(&networks), ["a", "b"]);
    }

    #[test]
    fn a_network_is_as_full_as_what_it_can_grant_whatever_is_free_beside() {
        let row = |part: &str, value: u32| {
            format!("allod_network_addresses_{part}{{family=\"4\",network=\"lan\",realm=\"r\"}} {value}\n")
        };
        let told =
            |size, left| row("size", 256) + &row("free", 200) + &row("grantable_size", size) + &row("grantable", left);
        let seen = |text: String| {
            let look_at = scrape(&format!("allod_owner 1\n{text}"), Instant::now(), 0);
            let lan = View::of(&[look(&look_at, &look_at)], 0.0).networks[0].clone();
            (lan.full, lan.ipv4.unwrap().left(), lan.is_full())
        };
        assert_eq!(seen(told(16, 0)), (1.0, 0.0, true));
        assert_eq!(seen(told(16, 12)), (0.25, 12.0, false));
        // Static pools, and servers that report no more.
        assert_eq!(seen(told(0, 0)), (0.21875, 200.0, false));
        assert_eq!(seen(row("size", 256) + &row("free", 200)), (0.21875, 200.0, false));
    }

    #[test]
    fn a_counter_that_began_anew_counts_from_zero_and_one_of_a_new_owner_has_no_rate_yet() {
        let begun = Instant::now();
        let told = |owner: u32, grants: u32, at| {
            let networks = if owner == 1 { network("a", 1, grants, 0) } else { String::new() };
            scrape(&format!("allod_owner {owner}\n{networks}"), begun, at)
        };
        let rate = |before: &Scrape, now: &Scrape| View::of(&[look(before, now)], 0.0).granted_per_second;
        assert_eq!(rate(&told(1, 1_000, 0), &told(1, 20, 2)), 10.0);
        assert_eq!(rate(&told(0, 0, 0), &told(1, 1_000_000, 2)), 0.0);
        let one_look = told(1, 1_000, 0);
        let view = View::of(&[Looks { address: "a", before: None, now: &one_look }], 0.0);
        assert_eq!((view.seconds, view.granted_per_second, view.networks.len()), (0.0, 0.0, 1));
    }

    #[test]
    fn quantiles_lie_within_their_buckets_and_are_absent_where_nothing_happened() {
        let begun = Instant::now();
        let bucket = |le: &str, count: u32| {
            format!("allod_request_duration_seconds_bucket{{le=\"{le}\",method=\"ip.claim\"}} {count}\n")
        };
        let before = scrape(&(bucket("0.001", 5) + &bucket("0.01", 5) + &bucket("+Inf", 5)), begun, 0);
        let now = scrape(&(bucket("0.001", 5) + &bucket("0.01", 95) + &bucket("+Inf", 105)), begun, 1);
        let quantiles = View::of(&[look(&before, &now)], 0.0).grant_seconds;
        assert!((quantiles.p50.unwrap() - 0.006).abs() < 1e-9, "{quantiles:?}");
        assert_eq!(quantiles.p99, Some(0.01), "the last bucket has no upper bound");
        assert_eq!(View::of(&[look(&now, &now)], 0.0).grant_seconds, Quantiles::default());
    }
}
