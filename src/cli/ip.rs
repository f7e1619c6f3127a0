//! `allod ip …`: the arguments of the allocation methods, and the calls that they become.

mod granting;

use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;
use serde_json::json;

pub use self::granting::{Acquire, Allocate, Claim, Grant};
use super::args::{Ask, Change, Target, key_or_pair, page_limit, pair, pairs, params_of, seconds, set_of};
use super::subnet::POOL_KINDS;
use super::time;

/// Addresses: take, claim, renew, hand over, release, look up.
#[derive(Debug, Subcommand)]
pub enum IpCommand {
    /// Take one free address, or get again the one that is held already
    ///
    /// Safe to repeat: an owner's slot gets the same address every time.
    Allocate(Allocate),
    /// Take one address by name
    Claim(Claim),
    /// Take several addresses, all or none, over any networks and families
    Acquire(Acquire),
    /// Give an address back
    ///
    /// With an address, say who is meant to hold it, so that nobody else's goes:
    /// --owner, or --if-generation; or --force.
    #[command(override_usage = "allod ip release [OPTIONS] <NETWORK> <ADDRESS|--owner <OWNER>>")]
    Release(Release),
    /// Renew a lease, or make it permanent
    #[command(override_usage = "allod ip renew [OPTIONS] <--ttl <DURATION>|--permanent>\n\
                                \x20                     <NETWORK> <ADDRESS|--owner <OWNER>>")]
    Renew(Renew),
    /// Note who uses the address now
    ///
    /// In a dynamic network an address with --owner is written down, too, as what
    /// the infrastructure picked: it is held by that slot from then on, until it is
    /// released, or another address is bound for the slot. Refused where somebody
    /// else holds it, or another network of the realm has space there. With
    /// --if-generation only what is held already is bound.
    #[command(override_usage = "allod ip bind [OPTIONS] --claimant <CLAIMANT>\n\
                                \x20                    <NETWORK> <ADDRESS|--owner <OWNER>>")]
    Bind(Bind),
    /// Note that the claimant no longer uses it
    #[command(override_usage = "allod ip unbind [OPTIONS] --claimant <CLAIMANT>\n\
                                \x20                      <NETWORK> <ADDRESS|--owner <OWNER>>")]
    Unbind(Bind),
    /// Change labels, note, hostname, MAC or uid of a reservation
    #[command(override_usage = "allod ip update [OPTIONS] <NETWORK> <ADDRESS|--owner <OWNER>>")]
    Update(Update),
    /// Hand an address to another owner in one step
    #[command(override_usage = "allod ip transfer [OPTIONS] --owner <OWNER> --to-owner <OWNER>\n\
                                \x20                        <NETWORK> <ADDRESS>")]
    Transfer(Transfer),
    /// Report that somebody else answers at this address
    Decline(Decline),
    /// Show the state of one address
    Get(Get),
    /// Show the state of one address in all realms
    Find(Find),
    /// List reservations
    List(Box<List>),
}

/// `ip.release`. An address alone does not say whose reservation is meant.
#[derive(Debug, Args, Serialize)]
#[command(group(ArgGroup::new("meant").args(["owner", "if_generation", "force"]).multiple(true).required(true)))]
pub struct Release {
    #[command(flatten)]
    #[serde(flatten)]
    target: Target,
    /// Refuse if nothing is held there
    #[arg(long)]
    strict: bool,
    /// Release it whoever holds it; asks first
    #[arg(long)]
    force: bool,
}

/// `ip.renew`.
#[derive(Debug, Args, Serialize)]
#[command(group(ArgGroup::new("until").args(["ttl", "permanent"]).multiple(true).required(true)))]
pub struct Renew {
    #[command(flatten)]
    #[serde(flatten)]
    target: Target,
    /// For this long from now on (90s, 15m, 1h, 2d)
    #[arg(long = "ttl", value_name = "DURATION", value_parser = seconds, allow_hyphen_values = true)]
    #[serde(rename = "ttl_seconds")]
    ttl: Option<u64>,
    /// For good
    #[arg(long, conflicts_with = "ttl")]
    #[serde(skip)]
    permanent: bool,
}

/// `ip.bind` and `ip.unbind`.
#[derive(Debug, Args, Serialize)]
pub struct Bind {
    #[command(flatten)]
    #[serde(flatten)]
    target: Target,
    /// Who uses it: a machine or a network interface
    #[arg(long)]
    claimant: String,
}

/// `ip.update`.
#[derive(Debug, Args)]
pub struct Update {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    set: UpdateSet,
    /// Clear a member: note, hostname, mac, owner_uid, labels or labels.KEY
    #[arg(long, value_name = "MEMBER")]
    unset: Vec<String>,
}

/// What `ip.update` may set.
#[derive(Debug, Args, Serialize)]
struct UpdateSet {
    /// Set a label; may be repeated. A key with `=` is written {"KEY":"VALUE"}
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    #[serde(serialize_with = "pairs")]
    labels: Vec<(String, String)>,
    /// Set the note
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Set the host name
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Set the hardware address, or `auto` to have one made
    #[arg(long)]
    mac: Option<String>,
    /// Set the uid of the owner
    #[arg(long, value_name = "UID")]
    owner_uid: Option<String>,
}

/// `ip.transfer`.
#[derive(Debug, Args, Serialize)]
pub struct Transfer {
    /// Network in which it lies
    network: String,
    /// The address handed over, or ADDRESS/LEN for a block
    address: String,
    /// Who holds it now
    #[arg(long)]
    owner: String,
    /// Scope of the one who holds it now [default: default]
    #[arg(long)]
    scope: Option<String>,
    /// Who gets it
    // Without this alias, clap would guess that `--to` means another `--to-…` option.
    #[arg(long, value_name = "OWNER", alias = "to")]
    #[serde(skip)]
    to_owner: String,
    /// Scope of the one who gets it [default: default]
    #[arg(long, value_name = "SCOPE")]
    #[serde(skip)]
    to_scope: Option<String>,
    /// Slot of the one who gets it [default: 0]
    #[arg(long, value_name = "SLOT")]
    #[serde(skip)]
    to_slot: Option<String>,
    /// Swap it for what the other one holds
    #[arg(long)]
    exchange: bool,
    /// Refuse if the address has changed hands since this generation
    #[arg(long, value_name = "GENERATION")]
    if_generation: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// `ip.decline`.
#[derive(Debug, Args, Serialize)]
pub struct Decline {
    /// Network in which it lies
    network: String,
    /// The address at which somebody else answers (of a block: ADDRESS/LEN)
    address: String,
    /// Who holds it
    #[arg(long)]
    owner: String,
    /// Scope of the owner [default: default]
    #[arg(long)]
    scope: Option<String>,
    /// Slot of the owner that holds it [default: any]
    #[arg(long)]
    slot: Option<String>,
    /// Who answered there, as far as known (a MAC)
    #[arg(long)]
    seen: Option<String>,
    /// Keep it out of circulation for this long [default: 1d]
    #[arg(long = "probation", value_name = "DURATION", value_parser = seconds, allow_hyphen_values = true)]
    #[serde(rename = "probation_seconds")]
    probation: Option<u64>,
    /// Take another address in the same commit
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// `ip.get`.
#[derive(Debug, Args, Serialize)]
pub struct Get {
    /// The address
    address: String,
    /// In this network
    #[arg(long, conflicts_with = "realm")]
    network: Option<String>,
    /// In this realm [default: default]
    #[arg(long)]
    realm: Option<String>,
}

/// `ip.find`.
#[derive(Debug, Args, Serialize)]
pub struct Find {
    /// The address
    address: String,
}

/// `ip.list`. Without a limit all pages are fetched.
#[derive(Debug, Args, Serialize)]
pub struct List {
    /// Of this network
    #[arg(long)]
    network: Option<String>,
    /// Of this realm
    #[arg(long)]
    realm: Option<String>,
    /// Of this scope
    #[arg(long)]
    scope: Option<String>,
    /// Of this owner
    #[arg(long)]
    owner: Option<String>,
    /// Of owners whose names begin with this
    #[arg(long, value_name = "TEXT")]
    owner_prefix: Option<String>,
    /// Used by this claimant
    #[arg(long)]
    claimant: Option<String>,
    /// With a claimant (true) or without (false)
    #[arg(long, value_name = "BOOL")]
    #[serde(skip)]
    bound: Option<bool>,
    /// With this label: KEY or KEY=VALUE
    #[arg(long, value_name = "KEY[=VALUE]", value_parser = key_or_pair)]
    label: Option<String>,
    /// In this subnet (cidr, name or id)
    #[arg(long)]
    subnet: Option<String>,
    /// In this pool (name or range)
    #[arg(long)]
    pool: Option<String>,
    /// dynamic or static
    #[arg(long, value_parser = POOL_KINDS, hide_possible_values = true)]
    kind: Option<String>,
    /// In this range
    #[arg(long)]
    range: Option<String>,
    /// With this host name
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// With this hardware address
    #[arg(long)]
    mac: Option<String>,
    /// Obsolete ones (true) or current ones (false)
    #[arg(long, value_name = "BOOL")]
    #[serde(skip)]
    obsolete: Option<bool>,
    /// Whose lease ends before this time (2026-03-01T09:12:44Z)
    #[arg(long, value_name = "TIME", value_parser = time::written)]
    expires_before: Option<String>,
    /// Granted before this time (2026-03-01T09:12:44Z)
    #[arg(long, value_name = "TIME", value_parser = time::written)]
    created_before: Option<String>,
    /// Only count them
    #[arg(long)]
    #[serde(rename = "count_only")]
    count: bool,
    /// At most this many (1 to 10000); all of them by default
    #[arg(long, value_name = "COUNT", value_parser = page_limit())]
    limit: Option<u64>,
    /// Continue after this (`next` of an earlier answer)
    #[arg(long, value_name = "NEXT")]
    after: Option<String>,
}

impl IpCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::Allocate(args) => Ask::new("ip.allocate", &args),
            Self::Claim(args) => Ask::new("ip.claim", &args),
            Self::Acquire(args) => Ask::new("ip.acquire", &args),
            Self::Release(args) => Ask::new("ip.release", &args).destructive(args.force),
            // `ttl_seconds` is always sent: null makes a reservation permanent.
            Self::Renew(args) => Ask::new("ip.renew", &args).with("ttl_seconds", args.ttl),
            Self::Bind(args) => Ask::new("ip.bind", &args),
            Self::Unbind(args) => Ask::new("ip.unbind", &args),
            Self::Update(args) => Ask::new("ip.update", &args.target).with_set(set_of(&args.set), &args.unset),
            Self::Transfer(args) => {
                let to = json!({"owner": args.to_owner, "scope": args.to_scope, "slot": args.to_slot});
                Ask::new("ip.transfer", &args).with("to", params_of(&to))
            }
            Self::Decline(args) => Ask::new("ip.decline", &args),
            Self::Get(args) => Ask::new("ip.get", &args),
            Self::Find(args) => Ask::new("ip.find", &args),
            Self::List(args) => {
                let mut ask = Ask::new("ip.list", &args);
                for (member, value) in [("bound", args.bound), ("obsolete", args.obsolete)] {
                    if let Some(value) = value {
                        ask = ask.with(member, value);
                    }
                }
                ask
            }
        }
    }
}
