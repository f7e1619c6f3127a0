//! `allod subnet|pool|reserved …`: the arguments of the methods for subnets, pools and reserved ranges, and the calls that
//! they become.

use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::args::{Ask, Configure, pair, pairs, params_of, set_of};

/// Kinds of pools, for completions; a test compares them with the protocol's.
pub const POOL_KINDS: [&str; 2] = ["dynamic", "static"];

/// Subnets: add, change, move, remove.
#[derive(Debug, Subcommand)]
pub enum SubnetCommand {
    /// Add a subnet to a network
    // Networks are created, updated and deleted: for subnets these words are accepted as well.
    #[command(alias = "create")]
    Add(Box<SubnetAdd>),
    /// Change a subnet: grow or shrink it, gateway, DNS, zones, draining
    ///
    /// Asks first where a smaller one cuts pools.
    #[command(alias = "update")]
    Modify(Box<SubnetModify>),
    /// Move a subnet to another network, with all that is held in it
    Move(SubnetMove),
    /// Remove a subnet; asks first
    #[command(alias = "delete")]
    Remove(SubnetRemove),
}

/// `subnet.add`.
#[derive(Debug, Args)]
pub struct SubnetAdd {
    /// Name or id of the network
    network: String,
    /// Its addresses
    cidr: String,
    /// Name, unique in the network
    #[arg(long)]
    name: Option<String>,
    /// Router; never handed out
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<String>,
    /// Mark it as served by DHCP; at most one of a family in a network
    #[arg(long)]
    dhcp: bool,
    /// A DNS server; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    dns: Vec<String>,
    /// A search domain; may be repeated
    #[arg(long, value_name = "DOMAIN")]
    search: Vec<String>,
    /// A zone that it serves; may be repeated. None serves every zone
    #[arg(long = "zone", value_name = "ZONE")]
    zones: Vec<String>,
    /// A tag; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// A pool to draw from; may be repeated [default: the whole subnet]
    #[arg(long = "pool", value_name = "RANGE")]
    pools: Vec<String>,
    /// A pool for claims; may be repeated
    #[arg(long = "static-pool", value_name = "RANGE")]
    static_pools: Vec<String>,
    /// No pool at all
    #[arg(long, conflicts_with_all = ["pools", "static_pools"])]
    no_pools: bool,
    /// A range never handed out automatically; may be repeated
    #[arg(long, alias = "reserve", value_name = "RANGE")]
    reserved: Vec<String>,
    /// Nothing new is granted in it
    #[arg(long)]
    draining: bool,
    /// Answer what is there already if it is equal
    #[arg(long)]
    if_absent: bool,
    #[command(flatten)]
    configure: Configure,
}

/// `subnet.modify`.
#[derive(Debug, Args)]
pub struct SubnetModify {
    /// Name or id of the network
    network: String,
    /// The subnet: cidr, name or id
    subnet: String,
    #[command(flatten)]
    set: SubnetSet,
    /// A DNS server; may be repeated, replaces the list
    #[arg(long, value_name = "ADDRESS")]
    dns: Vec<String>,
    /// A search domain; may be repeated, replaces the list
    #[arg(long, value_name = "DOMAIN")]
    search: Vec<String>,
    /// Clear a member: gateway, name, zones, dns.servers, tags.KEY, …
    #[arg(long, value_name = "MEMBER")]
    unset: Vec<String>,
    #[command(flatten)]
    configure: Configure,
}

/// Flags of `subnet modify` that are members of `set`.
#[derive(Debug, Args, Serialize)]
struct SubnetSet {
    /// Grow or shrink it
    #[arg(long)]
    cidr: Option<String>,
    /// Set the router
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<String>,
    /// Set the name
    #[arg(long)]
    name: Option<String>,
    /// Mark it as served by DHCP; false ends that
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    dhcp: Option<bool>,
    /// A zone that it serves; may be repeated, replaces the list
    #[arg(long = "zone", value_name = "ZONE")]
    zones: Vec<String>,
    /// Set a tag; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    #[serde(serialize_with = "pairs")]
    tags: Vec<(String, String)>,
    /// Nothing new is granted in it; false ends that
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    draining: Option<bool>,
}

/// `subnet.move`.
#[derive(Debug, Args, Serialize)]
pub struct SubnetMove {
    /// Name or id of the network
    network: String,
    /// The subnet: cidr, name or id
    subnet: String,
    /// Network that gets it; also as --to
    #[arg(required_unless_present = "to_option")]
    to: Option<String>,
    /// Network that gets it
    #[arg(long = "to", value_name = "NETWORK", conflicts_with = "to")]
    #[serde(skip)]
    to_option: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    configure: Configure,
}

/// `subnet.remove`.
#[derive(Debug, Args, Serialize)]
pub struct SubnetRemove {
    /// Name or id of the network
    network: String,
    /// The subnet: cidr, name or id
    subnet: String,
    #[command(flatten)]
    #[serde(flatten)]
    configure: Configure,
}

/// Pools: ranges from which addresses are given.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Add a pool
    #[command(alias = "create")]
    #[command(override_usage = "allod pool add [OPTIONS] <NETWORK> <RANGE|--subnet <SUBNET>>")]
    Add(PoolAdd),
    /// Change a pool: range, name, kind, draining; asks first where it is cut
    #[command(alias = "update")]
    Modify(PoolModify),
    /// Remove a pool, or a part of one; asks first
    ///
    /// What is held stays held. Removing the middle splits the pool.
    #[command(alias = "delete")]
    #[command(override_usage = "allod pool remove [OPTIONS] <NETWORK>\n\
                                \x20                        <POOL|--range <RANGE>|--subnet <SUBNET>>")]
    Remove(PoolRemove),
}

/// `pool.add`.
#[derive(Debug, Args, Serialize)]
#[command(group(ArgGroup::new("where").args(["range", "subnet"]).multiple(true).required(true)))]
pub struct PoolAdd {
    /// Name or id of the network
    network: String,
    /// Its addresses: first-last, first+count or a cidr
    range: Option<String>,
    /// The whole of this subnet (cidr, name or id)
    #[arg(long, conflicts_with = "range")]
    subnet: Option<String>,
    /// Name; several pools may share one
    #[arg(long)]
    name: Option<String>,
    /// dynamic, or static for claims [default: dynamic]
    #[arg(long, value_parser = POOL_KINDS, hide_possible_values = true)]
    kind: Option<String>,
    /// Answer what is there already if it is equal
    #[arg(long)]
    if_absent: bool,
    #[command(flatten)]
    #[serde(flatten)]
    configure: Configure,
}

/// `pool.modify`.
#[derive(Debug, Args)]
pub struct PoolModify {
    /// Name or id of the network
    network: String,
    /// The pool: name or range
    pool: String,
    #[command(flatten)]
    set: PoolSet,
    /// Clear a member: name
    #[arg(long, value_name = "MEMBER")]
    unset: Vec<String>,
    #[command(flatten)]
    configure: Configure,
}

/// Flags of `pool modify` that are members of `set`.
#[derive(Debug, Args, Serialize)]
struct PoolSet {
    /// Set the addresses
    #[arg(long)]
    range: Option<String>,
    /// Set the name
    #[arg(long)]
    name: Option<String>,
    /// dynamic, or static for claims
    #[arg(long, value_parser = POOL_KINDS, hide_possible_values = true)]
    kind: Option<String>,
    /// Nothing new is granted in it; false ends that
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    draining: Option<bool>,
}

/// `pool.remove`.
#[derive(Debug, Args, Serialize)]
#[command(group(ArgGroup::new("which").args(["pool", "range", "subnet"]).multiple(true).required(true)))]
pub struct PoolRemove {
    /// Name or id of the network
    network: String,
    /// The pool: its name (all pools of that name) or its range
    pool: Option<String>,
    /// Take these addresses out of whichever pools
    #[arg(long, conflicts_with = "pool")]
    range: Option<String>,
    /// All pools of this subnet
    #[arg(long, conflicts_with_all = ["pool", "range"])]
    subnet: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    configure: Configure,
}

/// Reserved ranges: addresses kept from automatic allocation.
#[derive(Debug, Subcommand)]
pub enum ReservedCommand {
    /// Reserve a range; asks first where it is reserved for somebody else
    ///
    /// So it does where the note of a range inside it is replaced.
    #[command(alias = "create")]
    Add(ReservedAdd),
    /// Let a range go back into circulation; asks first
    #[command(alias = "delete")]
    Remove(ReservedRemove),
}

/// `reserved.add`.
#[derive(Debug, Args, Serialize)]
pub struct ReservedAdd {
    /// Name or id of the network
    network: String,
    /// One address, first-last, first+count or a cidr
    range: String,
    /// A note for people
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Owner who may claim in it
    #[arg(long, value_name = "OWNER")]
    #[serde(skip)]
    for_owner: Option<String>,
    /// Scope of that owner [default: default]
    #[arg(long, value_name = "SCOPE", requires = "for_owner")]
    #[serde(skip)]
    for_scope: Option<String>,
    /// Only this slot of that owner
    #[arg(long, value_name = "SLOT", requires = "for_owner")]
    #[serde(skip)]
    for_slot: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    configure: Configure,
}

/// `reserved.remove`.
#[derive(Debug, Args, Serialize)]
pub struct ReservedRemove {
    /// Name or id of the network
    network: String,
    /// One address, first-last, first+count or a cidr
    range: String,
    #[command(flatten)]
    #[serde(flatten)]
    configure: Configure,
}

impl SubnetCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::Add(args) => subnet_add(&args),
            Self::Modify(args) => {
                let mut set = set_of(&args.set);
                let dns = params_of(&json!({"servers": args.dns, "search": args.search}));
                if !dns.is_empty() {
                    set.insert("dns".to_owned(), dns.into());
                }
                Ask::new("subnet.modify", &args.configure)
                    .with("network", args.network)
                    .with("subnet", args.subnet)
                    .with_set(set, &args.unset)
            }
            Self::Move(args) => match args.to_option.clone() {
                Some(to) => Ask::new("subnet.move", &args).with("to", to),
                None => Ask::new("subnet.move", &args),
            },
            Self::Remove(args) => Ask::new("subnet.remove", &args).destructive(true),
        }
    }
}

fn subnet_add(args: &SubnetAdd) -> Ask {
    let pools: Vec<Value> = args
        .pools
        .iter()
        .map(|range| json!({"range": range}))
        .chain(args.static_pools.iter().map(|range| json!({"range": range, "kind": "static"})))
        .collect();
    let reserved: Vec<Value> = args.reserved.iter().map(|range| json!({"range": range})).collect();
    let tags: Map<String, Value> = args.tags.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let members = json!({
        "network": args.network, "cidr": args.cidr, "name": args.name, "gateway": args.gateway, "dhcp": args.dhcp,
        "dns": params_of(&json!({"servers": args.dns, "search": args.search})), "zones": args.zones, "tags": tags,
        "draining": args.draining, "pools": pools, "reserved": reserved, "if_absent": args.if_absent,
    });
    let mut ask = Ask::new("subnet.add", &members);
    ask.params.extend(params_of(&args.configure));
    // An empty list differs from an absent one, which would create one pool that spans the subnet.
    if args.no_pools { ask.with("pools", json!([])) } else { ask }
}

impl PoolCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::Add(args) => Ask::new("pool.add", &args),
            Self::Modify(args) => Ask::new("pool.modify", &args.configure)
                .with("network", args.network)
                .with("pool", args.pool)
                .with_set(set_of(&args.set), &args.unset),
            Self::Remove(args) => Ask::new("pool.remove", &args).destructive(true),
        }
    }
}

impl ReservedCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::Add(args) => {
                let ask = Ask::new("reserved.add", &args);
                let whom = json!({"scope": args.for_scope, "owner": args.for_owner, "slot": args.for_slot});
                if args.for_owner.is_some() { ask.with("for", params_of(&whom)) } else { ask }
            }
            Self::Remove(args) => Ask::new("reserved.remove", &args).destructive(true),
        }
    }
}

/// Parses one `--subnet` of `network create`: a cidr, then members separated by commas.
pub fn subnet_spec(text: &str) -> Result<Value, String> {
    let mut parts = text.split(',');
    let cidr = parts.next().unwrap_or_default();
    let mut subnet = json!({"cidr": cidr});
    for part in parts {
        let (member, value) = part.split_once('=').map_or((part, None), |(member, value)| (member, Some(value)));
        let is_single = matches!(member, "name" | "gateway" | "dhcp" | "draining");
        if is_single && subnet.get(member).is_some() {
            return Err(format!("`{member}` is given twice; leave one of the two out"));
        }
        let has_pools = match subnet.get("pools").and_then(Value::as_array) {
            Some(pools) if pools.is_empty() => matches!(member, "pool" | "static-pool"),
            Some(_) => member == "no-pools",
            None => false,
        };
        if has_pools {
            return Err("it is to have pools and, by `no-pools`, none; leave one of the two out".to_owned());
        }
        match (member, value) {
            ("name" | "gateway", Some(value)) => subnet[member] = json!(value),
            ("dhcp" | "draining", None) => subnet[member] = json!(true),
            ("no-pools", None) => subnet["pools"] = json!([]),
            ("dns", Some(value)) => push(&mut subnet["dns"]["servers"], json!(value)),
            ("search", Some(value)) => push(&mut subnet["dns"]["search"], json!(value)),
            ("zone", Some(value)) => push(&mut subnet["zones"], json!(value)),
            ("pool", Some(value)) => push(&mut subnet["pools"], json!({"range": value})),
            ("static-pool", Some(value)) => push(&mut subnet["pools"], json!({"range": value, "kind": "static"})),
            ("reserved", Some(value)) => push(&mut subnet["reserved"], json!({"range": value})),
            _ => {
                return Err(format!(
                    "`{part}` is not a member of a subnet; write name=, gateway=, dns=, search=, zone=, pool=, \
                     static-pool=, reserved=, or dhcp, draining, no-pools"
                ));
            }
        }
    }
    Ok(subnet)
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = Value::Array(vec![item]),
    }
}
