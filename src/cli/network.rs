//! `allod network …`: the arguments of the network methods, and the calls that they become.
//!
//! `apply`, `dump`, `map` and `why-full` need more than one call each, and have files of their own.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::args::{Ask, Change, Configure, key_or_pair, page_limit, pair, pairs, seconds, set_of};
use super::subnet::subnet_spec;

/// Kinds of networks, for completions; a test compares them with the protocol's.
pub const KINDS: [&str; 3] = ["manual", "dynamic", "vip"];
/// Policies, as [`KINDS`].
pub const POLICIES: [&str; 3] = ["lowest", "random", "oldest"];

/// Networks: create, look at, change, delete; from the command line or from a file.
#[derive(Debug, Subcommand)]
pub enum NetworkCommand {
    /// Make networks match a file (TOML or YAML)
    ///
    /// What the server has beyond the file stays, unless --prune is given. Shows what differs and asks. Without a terminal,
    /// only changes that take something away need --yes. If the server would refuse any change, none
    /// is made. Each network is one commit, changed whole or not at all; a run
    /// that is cut off between two of them is applied again.
    Apply(Apply),
    /// Write networks as a file that `apply` reads (--format toml or yaml)
    Dump(Dump),
    /// Create a network
    // Subnets and pools are added, modified and removed: for networks these words are accepted as well.
    #[command(alias = "add")]
    Create(Box<Create>),
    /// Show a network with its subnets and pools
    Get(Named),
    /// List networks
    List(List),
    /// Change a network; rename it with --name
    #[command(alias = "modify")]
    Update(Box<Update>),
    /// Delete a network; asks first
    #[command(alias = "remove")]
    Delete(Delete),
    /// Bring back a network that was deleted with --force
    Restore(Restore),
    /// Count addresses: held, reserved, cooling, declined, free
    Usage(Named),
    /// Draw which addresses are taken
    Map(Map),
    /// Tell what takes the space of a network, and which command frees it
    WhyFull(Named),
}

/// A network by name or id.
#[derive(Debug, Args, Serialize)]
pub struct Named {
    /// Name or id of the network
    pub network: String,
}

/// `network.create`.
#[derive(Debug, Args, Serialize)]
pub struct Create {
    /// Name, unique over all realms
    name: String,
    /// Realm; inside one no address belongs to two networks [default: default]
    #[arg(long)]
    realm: Option<String>,
    /// manual, dynamic or vip [default: manual]
    #[arg(long, value_parser = KINDS, hide_possible_values = true)]
    kind: Option<String>,
    /// A subnet: CIDR and members, as 10.0.0.0/24,gateway=10.0.0.1,dhcp,
    /// pool=10.0.0.10-10.0.0.99; may be repeated. Members: name, gateway, dhcp,
    /// dns, search, zone, pool, static-pool, no-pools, reserved, draining
    #[arg(long = "subnet", value_name = "CIDR[,…]", value_parser = subnet_spec)]
    subnets: Vec<serde_json::Value>,
    #[command(flatten)]
    #[serde(flatten)]
    members: Members,
    /// Answer what is there already if it is equal
    #[arg(long)]
    if_absent: bool,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// Members that `network.create` and the `set` of `network.update` have in common.
#[derive(Debug, Args, Serialize)]
struct Members {
    /// Which free address is taken: lowest, random or oldest [of a new network:
    /// lowest]
    #[arg(long, value_parser = POLICIES, hide_possible_values = true)]
    policy: Option<String>,
    /// Keep released addresses from other owners for this long
    #[arg(long = "cooldown", value_name = "DURATION", value_parser = seconds, allow_hyphen_values = true)]
    #[serde(rename = "cooldown_seconds")]
    cooldown: Option<u64>,
    /// Hand out cooling addresses when nothing else is free
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    cooldown_yields: Option<bool>,
    /// Claims only inside static pools
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    static_only: Option<bool>,
    /// Cannot be deleted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    protected: Option<bool>,
    #[command(flatten)]
    #[serde(rename = "limits")]
    limits: Limits,
    #[command(flatten)]
    #[serde(rename = "l2")]
    l2: L2,
    /// A tag; may be repeated. A key with `=` is written {"KEY":"VALUE"}
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    #[serde(serialize_with = "pairs")]
    tags: Vec<(String, String)>,
    /// Text for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

/// `limits`.
#[derive(Debug, Args, Serialize)]
struct Limits {
    /// Most reservations of one owner
    #[arg(long = "limit-per-owner", value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    per_owner: Option<u64>,
    /// Most reservations of one scope
    #[arg(long = "limit-per-scope", value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    per_scope: Option<u64>,
}

/// `l2`.
#[derive(Debug, Args, Serialize)]
struct L2 {
    /// How interfaces are attached: bridged, routed, …
    #[arg(long = "l2-mode", value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// What they are attached to: br0
    #[arg(long = "l2-link", value_name = "LINK")]
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    /// First bytes of the MACs that are made here: aa:00:00
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    mac_prefix: Option<String>,
}

/// `network.list`.
#[derive(Debug, Args, Serialize)]
pub struct List {
    /// Of this realm
    #[arg(long)]
    realm: Option<String>,
    /// With this tag: KEY or KEY=VALUE
    #[arg(long, value_name = "KEY[=VALUE]", value_parser = key_or_pair)]
    tag: Option<String>,
    /// With counts of addresses
    #[arg(long)]
    usage: bool,
    /// Those deleted with --force that still hold reservations
    #[arg(long)]
    deleted: bool,
    /// At most this many (1 to 10000); all of them by default
    #[arg(long, value_name = "COUNT", value_parser = page_limit())]
    limit: Option<u64>,
    /// Continue after this (`next` of an earlier answer)
    #[arg(long, value_name = "NEXT")]
    after: Option<String>,
}

/// `network.update`.
#[derive(Debug, Args)]
pub struct Update {
    /// Name or id of the network
    network: String,
    /// Rename it; reservations survive
    #[arg(long, value_name = "NEW")]
    name: Option<String>,
    #[command(flatten)]
    members: Members,
    /// Clear a member: description, l2.link, limits.per_owner, tags.KEY, …
    #[arg(long, value_name = "MEMBER")]
    unset: Vec<String>,
    #[command(flatten)]
    configure: Configure,
}

/// `network.delete`.
#[derive(Debug, Args, Serialize)]
pub struct Delete {
    /// Name or id of the network
    network: String,
    /// Close it although it holds reservations, but remember them
    #[arg(long)]
    force: bool,
    /// Release all its reservations now
    #[arg(long, conflicts_with = "force")]
    purge: bool,
    #[command(flatten)]
    #[serde(flatten)]
    configure: Configure,
}

/// `network.restore`.
#[derive(Debug, Args, Serialize)]
pub struct Restore {
    /// Id of the network (`allod network list --deleted`)
    network: String,
    #[command(flatten)]
    #[serde(flatten)]
    configure: Configure,
}

/// `network.map`.
#[derive(Debug, Args)]
pub struct Map {
    /// Name or id of the network
    pub network: String,
    /// Only this subnet (cidr, name or id)
    #[arg(long)]
    pub subnet: Option<String>,
    /// Only this pool (name or range)
    #[arg(long)]
    pub pool: Option<String>,
}

/// `allod network apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The file; `-` reads it from stdin (TOML, unless it does not parse)
    pub file: PathBuf,
    /// Also remove what the file does not have; asks first
    ///
    /// Removes members, pools, reserved ranges and subnets of the networks in
    /// the file, and networks of the same realms that the file does not list.
    #[arg(long)]
    pub prune: bool,
    /// With --prune: leave networks alone that the file does not name
    #[arg(long, requires = "prune")]
    pub only_named: bool,
    /// Show the differences and exit with 2 if there are any, or with 1 if the
    /// server would refuse one (for programs: with --format json); with --prune
    /// what the server has beyond the file is a difference as well
    #[arg(long)]
    pub dry_run: bool,
    /// Why, kept in the history
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `allod network dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// Only these networks
    #[arg(value_name = "NETWORK")]
    pub networks: Vec<String>,
    /// Of this realm
    #[arg(long, conflicts_with = "networks")]
    pub realm: Option<String>,
    /// With ids, so that later renames are recognised without `renamed_from`
    #[arg(long)]
    pub ids: bool,
}

impl NetworkCommand {
    /// The call for the command, or the command itself if it needs more than one.
    pub fn ask(self) -> Result<Ask, NetworkCommand> {
        Ok(match self {
            Self::Apply(_) | Self::Dump(_) | Self::Map(_) | Self::WhyFull(_) => return Err(self),
            Self::Create(args) => create(&args),
            Self::Get(args) => Ask::new("network.get", &args),
            Self::List(args) => Ask::new("network.list", &args),
            Self::Update(args) => {
                let mut set = set_of(&args.members);
                set.extend(args.name.map(|name| ("name".to_owned(), name.into())));
                Ask::new("network.update", &args.configure).with("network", args.network).with_set(set, &args.unset)
            }
            Self::Delete(args) => Ask::new("network.delete", &args).destructive(true),
            Self::Restore(args) => Ask::new("network.restore", &args),
            Self::Usage(args) => Ask::new("network.usage", &args),
        })
    }
}

fn create(args: &Create) -> Ask {
    let mut ask = Ask::new("network.create", args);
    // Here `--protected=false` is a value of its own, which `if_absent` compares.
    let members = [
        ("cooldown_yields", args.members.cooldown_yields),
        ("static_only", args.members.static_only),
        ("protected", args.members.protected),
    ];
    for (member, value) in members {
        if let Some(value) = value {
            ask = ask.with(member, value);
        }
    }
    ask
}
