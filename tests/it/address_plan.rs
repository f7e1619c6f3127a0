//! Every network file that is kept in the tree obeys the rules of the protocol.
//!
//! These checks do without the product's own code on purpose: what two independent readings agree on is more likely to be
//! right. They use the standard library's addresses and plain numbers, and nothing of `core` or `wire`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    network: Vec<Network>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    name: String,
    #[serde(default = "default_realm")]
    realm: String,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    l2: BTreeMap<String, String>,
    #[serde(default)]
    policy: Option<String>,
    #[serde(default)]
    cooldown_seconds: u64,
    #[serde(default)]
    cooldown_yields: bool,
    #[serde(default)]
    static_only: bool,
    #[serde(default)]
    protected: bool,
    #[serde(default)]
    limits: BTreeMap<String, u64>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    subnets: Vec<Subnet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subnet {
    cidr: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    dhcp: bool,
    #[serde(default)]
    dns: Dns,
    #[serde(default)]
    zones: Vec<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    draining: bool,
    #[serde(default)]
    pools: Option<Vec<Pool>>,
    #[serde(default)]
    reserved: Vec<Reserved>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Dns {
    #[serde(default)]
    servers: Vec<IpAddr>,
    #[serde(default)]
    search: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    range: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    draining: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reserved {
    range: String,
    #[serde(default)]
    note: String,
    #[serde(default, rename = "for")]
    whom: Option<Whom>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whom {
    owner: String,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    slot: Option<String>,
}

fn default_realm() -> String {
    "default".to_owned()
}

/// Consecutive addresses as numbers; `width` is 32 or 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    width: u32,
    first: u128,
    last: u128,
}

impl Span {
    fn covers(self, inner: Span) -> bool {
        self.width == inner.width && self.first <= inner.first && inner.last <= self.last
    }

    fn overlaps(self, other: Span) -> bool {
        self.width == other.width && self.first <= other.last && other.first <= self.last
    }

    fn prefix_length(self) -> u32 {
        self.width - (self.last - self.first).count_ones()
    }

    /// Addresses that nobody may hold: network and broadcast, or the anycast address.
    fn kept_by_rule(self) -> Vec<u128> {
        match (self.width, self.prefix_length()) {
            (32, length) if length < 31 => vec![self.first, self.last],
            (128, length) if length < 127 => vec![self.first],
            _ => Vec::new(),
        }
    }
}

fn number(address: IpAddr) -> (u32, u128) {
    match address {
        IpAddr::V4(v4) => (32, u128::from(u32::from(v4))),
        IpAddr::V6(v6) => (128, u128::from(v6)),
    }
}

fn cidr(text: &str) -> Result<Span, String> {
    let (address, length) = text.split_once('/').ok_or(format!("`{text}` is no cidr"))?;
    let address: IpAddr = address.parse().map_err(|_| format!("`{text}` is no cidr"))?;
    let length: u32 = length.parse().map_err(|_| format!("`{text}` is no cidr"))?;
    let (width, first) = number(address);
    if length == 0 || length > width {
        return Err(format!("`{text}` has a length out of range"));
    }
    let hosts = if width - length == 128 { u128::MAX } else { (1u128 << (width - length)) - 1 };
    if first & hosts != 0 {
        return Err(format!("`{text}` has host bits"));
    }
    Ok(Span { width, first, last: first | hosts })
}

fn range(text: &str) -> Result<Span, String> {
    if text.contains('/') {
        return cidr(text);
    }
    let one = |text: &str| text.parse().map(number).map_err(|_| format!("`{text}` is no address"));
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (one(first)?, one(last)?)
    } else if let Some((first, count)) = text.split_once('+') {
        let count: u128 = count.parse().map_err(|_| format!("`{text}` is no range"))?;
        let (width, first) = one(first)?;
        ((width, first), (width, first + count - 1))
    } else {
        (one(text)?, one(text)?)
    };
    if first.0 != last.0 || first.1 > last.1 {
        return Err(format!("`{text}` is no range"));
    }
    Ok(Span { width: first.0, first: first.1, last: last.1 })
}

fn check_name(name: &str, problems: &mut Vec<String>) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins_well || name.len() > 128 || !name.chars().all(allowed) || range(name).is_ok() {
        problems.push(format!("`{name}` is no name"));
    }
}

fn is_identity(text: &str) -> bool {
    (1..=256).contains(&text.len()) && !text.trim().is_empty() && !text.chars().any(char::is_control)
}

fn is_one_of(value: Option<&str>, known: &[&str]) -> bool {
    value.is_none_or(|value| known.contains(&value))
}

/// Everything that is wrong with a file, in words.
fn problems(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    let mut by_realm: HashMap<&str, Vec<(Span, String)>> = HashMap::new();
    for network in &file.network {
        if !names.insert(&network.name) {
            problems.push(format!("network `{}` is there twice", network.name));
        }
        check_network(network, &mut problems);
        for subnet in &network.subnets {
            match cidr(&subnet.cidr) {
                Ok(span) => {
                    let spans = by_realm.entry(&network.realm).or_default();
                    spans.push((span, format!("{} of `{}`", subnet.cidr, network.name)));
                }
                Err(problem) => problems.push(format!("`{}`: {problem}", network.name)),
            }
        }
    }
    for (realm, mut spans) in by_realm {
        spans.sort();
        for pair in spans.windows(2) {
            if pair[0].0.overlaps(pair[1].0) {
                problems.push(format!("realm `{realm}`: {} overlaps {}", pair[0].1, pair[1].1));
            }
        }
    }
    problems
}

fn check_network(network: &Network, problems: &mut Vec<String>) {
    let mut found = Vec::new();
    check_name(&network.name, &mut found);
    check_name(&network.realm, &mut found);
    if !is_one_of(network.kind.as_deref(), &["manual", "dynamic", "vip"]) {
        found.push(format!("kind {:?} is unknown", network.kind));
    }
    if !is_one_of(network.policy.as_deref(), &["lowest", "random", "oldest"]) {
        found.push(format!("policy {:?} is unknown", network.policy));
    }
    found.extend(unknown_keys("l2", network.l2.keys(), &["mode", "link", "mac_prefix"]));
    found.extend(unknown_keys("limits", network.limits.keys(), &["per_owner", "per_scope"]));
    if network.description.as_ref().is_some_and(|text| text.len() > 1_024) || network.tags.len() > 32 {
        found.push("its description or tags are too long".to_owned());
    }
    if network.kind.as_deref() == Some("dynamic") && !network.subnets.is_empty() {
        found.push("a dynamic network carries no addresses".to_owned());
    }
    for width in [32, 128] {
        let with_dhcp = network.subnets.iter().filter(|subnet| subnet.dhcp);
        if with_dhcp.filter(|subnet| cidr(&subnet.cidr).is_ok_and(|span| span.width == width)).count() > 1 {
            found.push(format!("two subnets of {width} bits have dhcp"));
        }
    }
    let mut subnet_names = BTreeSet::new();
    let mut pools = Vec::new();
    for subnet in &network.subnets {
        if !subnet.name.as_ref().is_none_or(|name| subnet_names.insert(name)) {
            found.push(format!("two subnets are called {:?}", subnet.name));
        }
        if let Err(problem) = check_subnet(subnet, &mut pools, &mut found) {
            found.push(problem);
        }
    }
    pools.sort();
    found.extend(
        pools.windows(2).filter(|pair| pair[0].overlaps(pair[1])).map(|pair| format!("two pools overlap: {pair:?}")),
    );
    problems.extend(found.into_iter().map(|problem| format!("`{}`: {problem}", network.name)));
}

fn unknown_keys<'a>(of: &str, keys: impl Iterator<Item = &'a String>, known: &[&str]) -> Vec<String> {
    keys.filter(|key| !known.contains(&key.as_str())).map(|key| format!("{of} has no `{key}`")).collect()
}

fn check_subnet(subnet: &Subnet, pools: &mut Vec<Span>, found: &mut Vec<String>) -> Result<(), String> {
    let whole = cidr(&subnet.cidr)?;
    if let Some(name) = &subnet.name {
        check_name(name, found);
    }
    if let Some(gateway) = subnet.gateway {
        let (width, bits) = number(gateway);
        let link_local = width == 128 && whole.width == 128 && bits >> 118 == 0x3fa;
        let inside = whole.covers(Span { width, first: bits, last: bits });
        if !link_local && (!inside || whole.kept_by_rule().contains(&bits)) {
            found.push(format!("gateway {gateway} cannot serve {}", subnet.cidr));
        }
    }
    if subnet.dns.servers.len() > 8 || subnet.dns.search.len() > 8 || subnet.zones.len() > 64 || subnet.tags.len() > 32
    {
        found.push(format!("{} has too many of something", subnet.cidr));
    }
    if !subnet.zones.iter().all(|zone| is_identity(zone)) {
        found.push(format!("{} has a zone without a name", subnet.cidr));
    }
    for pool in subnet.pools.iter().flatten() {
        let span = range(&pool.range)?;
        if !whole.covers(span) {
            found.push(format!("pool {} is not in {}", pool.range, subnet.cidr));
        }
        if !is_one_of(pool.kind.as_deref(), &["dynamic", "static"]) {
            found.push(format!("pool {} is of an unknown kind", pool.range));
        }
        if let Some(name) = &pool.name {
            check_name(name, found);
        }
        pools.push(span);
    }
    let mut reserved = Vec::new();
    for entry in &subnet.reserved {
        let span = range(&entry.range)?;
        let whom = entry.whom.iter().flat_map(|whom| [Some(&whom.owner), whom.scope.as_ref(), whom.slot.as_ref()]);
        if !whole.covers(span) || entry.note.len() > 1_024 || !whom.flatten().all(|text| is_identity(text)) {
            found.push(format!("reserved range {} of {} is wrong", entry.range, subnet.cidr));
        }
        reserved.push(span);
    }
    reserved.sort();
    if reserved.windows(2).any(|pair| pair[0].overlaps(pair[1])) {
        found.push(format!("{} reserves something twice", subnet.cidr));
    }
    Ok(())
}

fn load(path: &str) -> File {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn network_files_in_the_tree_obey_the_protocol() {
    for path in ["config/first-network.toml", "tests/data/address-plan.toml"] {
        let found = problems(&load(path));
        assert!(found.is_empty(), "{path}:\n{}", found.join("\n"));
    }
}

/// The plan is worth its size only as long as it contains the cases that break naive code.
#[test]
fn the_address_plan_has_the_awkward_cases() {
    let plan = load("tests/data/address-plan.toml");
    let subnets = || plan.network.iter().flat_map(|network| &network.subnets);
    let spans: Vec<Span> = subnets().map(|subnet| cidr(&subnet.cidr).unwrap()).collect();
    let has_length = |width, length| spans.iter().any(|span| span.width == width && span.prefix_length() == length);
    assert!(plan.network.len() >= 200, "{} networks", plan.network.len());
    for length in [12, 16, 20, 22, 23, 24, 25, 26, 27, 28, 29, 31, 32] {
        assert!(has_length(32, length), "no IPv4 subnet of length {length}");
    }
    for length in [48, 52, 60, 64, 127, 128] {
        assert!(has_length(128, length), "no IPv6 subnet of length {length}");
    }
    let some = |what: &str, found: bool| assert!(found, "no {what}");
    some("L2-only network", plan.network.iter().any(|network| network.kind.is_none() && network.subnets.is_empty()));
    some("name of 128 characters", plan.network.iter().any(|network| network.name.len() == 128));
    for kind in ["dynamic", "vip"] {
        some(kind, plan.network.iter().any(|network| network.kind.as_deref() == Some(kind)));
    }
    for policy in ["random", "oldest"] {
        some(policy, plan.network.iter().any(|network| network.policy.as_deref() == Some(policy)));
    }
    some("static_only network", plan.network.iter().any(|network| network.static_only));
    some("protected network", plan.network.iter().any(|network| network.protected));
    some("draining subnet", subnets().any(|subnet| subnet.draining));
    some("draining pool", subnets().flat_map(|subnet| subnet.pools.iter().flatten()).any(|pool| pool.draining));
    some("subnet without pools", subnets().any(|subnet| subnet.pools.as_ref().is_some_and(Vec::is_empty)));
    some("subnet with the default pool", subnets().any(|subnet| subnet.pools.is_none()));
    some("reserved range for a slot", {
        subnets().flat_map(|subnet| &subnet.reserved).any(|entry| entry.whom.as_ref().is_some_and(|w| w.slot.is_some()))
    });
    let gateway_at_end = |(subnet, span): (&Subnet, &Span)| {
        subnet.gateway.is_some_and(|gateway| span.width == 32 && number(gateway).1 == span.last - 1)
    };
    some("gateway at the end", subnets().zip(&spans).any(gateway_at_end));
    let link_local =
        |subnet: &Subnet| subnet.gateway.is_some_and(|gateway| number(gateway) == (128, 0xfe80 << 112 | 1));
    some("link-local gateway", subnets().any(link_local));
    let realms: BTreeSet<_> = plan.network.iter().map(|network| &network.realm).collect();
    assert!(realms.len() > 10, "{} realms", realms.len());
    let same = subnets().filter(|subnet| subnet.cidr == "10.0.0.0/24").count();
    assert!(same > 10, "{same} tenants use 10.0.0.0/24");
    let cooled =
        plan.network.iter().filter(|network| network.cooldown_seconds == 60 && network.cooldown_yields).count();
    assert!(cooled * 2 > plan.network.len(), "{cooled} networks cool for 60 s and yield");
}

/// A check that passes everything is no check.
#[test]
fn faults_of_a_network_file_are_found() {
    for (text, expected) in [
        ("subnets = [{ cidr = '10.0.0.0/24' }, { cidr = '10.0.0.128/25' }]", "overlaps"),
        ("subnets = [{ cidr = '10.0.0.1/24' }]", "host bits"),
        ("subnets = [{ cidr = '10.0.0.0/24', gateway = '10.0.1.1' }]", "gateway"),
        ("subnets = [{ cidr = '10.0.0.0/24', gateway = '10.0.0.255' }]", "gateway"),
        ("subnets = [{ cidr = '10.0.0.0/24', pools = [{ range = '10.0.1.0/28' }] }]", "is not in"),
        (
            "subnets = [{ cidr = '10.0.0.0/24', pools = [{ range = '10.0.0.8/29' }, { range = '10.0.0.9' }] }]",
            "overlap",
        ),
        ("subnets = [{ cidr = '10.0.0.0/24', reserved = [{ range = '10.0.1.1' }] }]", "reserved"),
        ("subnets = [{ cidr = '10.0.0.0/24', dhcp = true }, { cidr = '10.0.1.0/24', dhcp = true }]", "dhcp"),
        ("policy = 'first'", "policy"),
        ("limits = { per_network = 1 }", "limits"),
    ] {
        let file: File = toml::from_str(&format!("[[network]]\nname = 'lan'\n{text}\n")).unwrap();
        let found = problems(&file).join("\n");
        assert!(found.contains(expected), "{text}: {found}");
    }
}
