//! The arguments of the granting methods: `ip.allocate`, `ip.claim`, `ip.acquire`.

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::args::{Change, pair, pairs, seconds};
use super::super::block;

/// Options of everything that grants.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Options of the grant")]
pub struct Grant {
    /// Tells two owners of one name apart
    #[arg(long, value_name = "UID")]
    owner_uid: Option<String>,
    /// Refuse if the slot holds a reservation already
    #[arg(long)]
    must_create: bool,
    /// Release what the slot holds instead, in the same commit
    #[arg(long)]
    replace: bool,
    /// For short-lived machines, such as compilation machines
    #[arg(long)]
    transient: bool,
    /// Release it automatically unless it is renewed in time (90s, 15m, 1h, 2d)
    #[arg(long = "ttl", value_name = "DURATION", value_parser = seconds, allow_hyphen_values = true)]
    #[serde(rename = "ttl_seconds")]
    ttl: Option<u64>,
    /// Who uses it now: a machine or a network interface
    #[arg(long)]
    claimant: Option<String>,
    /// Release it when the claimant goes
    #[arg(long)]
    release_with_claimant: bool,
    /// A label; may be repeated. A key with `=` is written {"KEY":"VALUE"}
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    #[serde(serialize_with = "pairs")]
    labels: Vec<(String, String)>,
    /// A note for people
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Host name
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Hardware address, or `auto` to have one made
    #[arg(long)]
    mac: Option<String>,
    /// Wait up to this long for an address to become free
    #[arg(long = "wait", value_name = "DURATION", value_parser = seconds, allow_hyphen_values = true)]
    #[serde(rename = "wait_seconds")]
    wait: Option<u64>,
}

/// Who is to have one address.
#[derive(Debug, Args, Serialize)]
struct Holder {
    /// Who keeps it: an instance
    #[arg(long)]
    owner: String,
    /// Deployment, tenant or namespace of the owner [default: default]
    #[arg(long)]
    scope: Option<String>,
    /// Which of the owner's addresses [default: 0]
    #[arg(long)]
    slot: Option<String>,
}

/// `ip.allocate`.
#[derive(Debug, Args, Serialize)]
pub struct Allocate {
    /// Network to take it from
    network: String,
    #[command(flatten)]
    #[serde(flatten)]
    holder: Holder,
    /// 4 or 6
    #[arg(long, value_parser = clap::value_parser!(u8).range(4..=6))]
    family: Option<u8>,
    /// Only from this subnet (cidr, name or id)
    #[arg(long)]
    subnet: Option<String>,
    /// Only from this pool (name or range)
    #[arg(long)]
    pool: Option<String>,
    /// Only from subnets that serve this zone
    #[arg(long)]
    zone: Option<String>,
    /// Take a block of this prefix length instead of one address
    #[arg(long, value_name = "BITS")]
    prefix_length: Option<u8>,
    #[command(flatten)]
    #[serde(flatten)]
    grant: Grant,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// `ip.claim`.
#[derive(Debug, Args, Serialize)]
pub struct Claim {
    /// Network in which it lies
    network: String,
    /// The address wanted, or ADDRESS/LEN for a block
    address: String,
    #[command(flatten)]
    #[serde(flatten)]
    holder: Holder,
    /// Claim the block of this prefix length that begins there
    #[arg(long, value_name = "BITS")]
    prefix_length: Option<u8>,
    /// Also inside a reserved range
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    #[serde(flatten)]
    grant: Grant,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// `ip.acquire`.
#[derive(Debug, Args, Serialize)]
pub struct Acquire {
    /// Network of wishes that name none
    network: Option<String>,
    /// Who keeps them: an instance
    #[arg(long)]
    owner: String,
    /// Deployment, tenant or namespace of the owner [default: default]
    #[arg(long)]
    scope: Option<String>,
    /// Prefix of the numbers of slots that are not named
    #[arg(long, value_name = "TEXT")]
    slot_prefix: Option<String>,
    /// A wish: `any`, an ADDRESS, a block as ADDRESS/LEN, or members as
    /// network=lan,family=6,pool=web,slot=a,optional; may be repeated
    #[arg(long = "ip", value_name = "WISH", required = true, value_parser = wish)]
    ips: Vec<Value>,
    /// Release everything else that the owner holds in the networks named
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    #[serde(flatten)]
    grant: Grant,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// Parses one wish of `--ip`: `any`, an address, or `member=value` parts separated by commas.
fn wish(text: &str) -> Result<Value, String> {
    let mut members = Map::new();
    for part in text.split(',') {
        let twice = match part.split_once('=') {
            Some((member @ ("family" | "prefix_length"), number)) => {
                let most = if member == "family" { "4 or 6" } else { "a number up to 128" };
                let number: u8 = number.parse().map_err(|_| format!("`{member}` must be {most}, not `{number}`"))?;
                members.insert(member.to_owned(), json!(number))
            }
            Some((member @ ("network" | "address" | "pool" | "subnet" | "zone" | "slot"), value)) => {
                members.insert(member.to_owned(), json!(value))
            }
            Some(("optional", _)) => {
                return Err("`optional` takes no value: write it alone, or leave it out".to_owned());
            }
            Some((member, _)) => {
                return Err(format!(
                    "unknown member `{member}`; known are network, address, pool, subnet, family, zone, prefix_length, \
                     slot and optional"
                ));
            }
            None if part == "any" => None,
            None if part == "optional" => members.insert(part.to_owned(), json!(true)),
            None if part.contains(['.', ':']) => {
                let (address, length) =
                    block::parts(part).map_or((part, None), |(address, length)| (address, Some(length)));
                let twice = length.and_then(|length| members.insert("prefix_length".to_owned(), json!(length)));
                members.insert("address".to_owned(), json!(address)).or(twice)
            }
            None => return Err(format!("`{part}` is neither `any`, an address, nor member=value")),
        };
        if let Some(value) = twice {
            return Err(format!("`{part}` says a second time what is {value} already"));
        }
    }
    Ok(Value::Object(members))
}
