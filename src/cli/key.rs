//! `allod cluster key NETWORK ADDRESS`: the key and field under which Redis has a reservation, as commands for a person who
//! inspects Redis by hand.

use clap::Args;
use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::failure::Failure;
use super::output::{Format, print, text_of};
use super::session::{Done, Session};
use crate::core::address::Address;
use crate::core::types::NetworkId;
use crate::serve::redis_commands_for;

/// `allod cluster key`.
#[derive(Debug, Args)]
pub struct Key {
    /// Name or id
    network: String,
    /// The address
    address: String,
    /// Prefix of all keys (store.prefix) [default: allod]
    #[arg(long, value_name = "TEXT")]
    redis_prefix: Option<String>,
}

/// The prefix of all keys, unless `store.prefix` is set.
const PREFIX_PLAIN: &str = "allod";

impl Key {
    /// Takes the `--prefix` of all commands for that of the keys, which was once called so here.
    pub(super) fn understand(&mut self, prefix: String) {
        if !prefix.is_empty() {
            self.redis_prefix.get_or_insert(prefix);
        }
    }
}

/// Finds the shard of the network and, for an address in a block, the block; prints the commands to type.
pub async fn run(session: &mut Session, args: &Key) -> Done<Exit> {
    let asked = format!("tell the key of {} in network {}", args.address, args.network);
    let located = session.call("cluster.locate", json!({"network": args.network})).await?;
    let found = session.call("ip.get", json!({"network": args.network, "address": args.address})).await?;
    let info = session.call("server.info", json!({})).await?;
    if info["store"] != "redis" {
        let reason = format!("its register is in the {} store, which has no keys", text_of(&info["store"]));
        return Err(Failure::new(asked, reason, "`allod who ADDRESS` shows who holds it, whatever the store").into());
    }
    let strange = |what: &str| {
        let hint = "check that server and command have the same version: `allod server info`, `allod --version`";
        Failure::new(&*asked, format!("the server sent a {what} that is not one"), hint)
    };
    let held = found.get("reservation");
    let first = held.map_or_else(|| args.address.clone(), |held| text_of(&held["address"]));
    let network: NetworkId = text_of(&located["network_id"]).parse().map_err(|_| strange("network"))?;
    let address: Address = first.parse().map_err(|_| strange("address"))?;
    let shard =
        located["shard"].as_u64().and_then(|shard| u16::try_from(shard).ok()).ok_or_else(|| strange("shard"))?;
    let prefix = args.redis_prefix.as_deref().unwrap_or(PREFIX_PLAIN);
    let hint = "name what `store.prefix` of the server is: `--redis-prefix TEXT`";
    let commands = redis_commands_for(prefix, shard, network, address)
        .map_err(|error| Failure::usage(&*asked, error.to_string(), hint))?;
    if session.options.style.format != Format::Table {
        let answer = json!({"network": located["network"], "shard": shard, "address": first, "commands": commands});
        session.print("key", &Map::new(), &answer)?;
        return Ok(Exit::Success);
    }
    print(&commands.iter().map(|command| format!("{command}\n")).collect::<String>())?;
    if commands.len() > 1 {
        session.say("\nLOW is what the first one prints");
    }
    if held.is_none() {
        let state = text_of(found.get("state").unwrap_or(&Value::Null));
        let there = match &*state {
            "cooling" | "declined" => {
                "the record is of its last holder; if that was a block, it is at the first address of the block"
            }
            _ => "there is nothing",
        };
        session.say(&format!("nobody holds it ({state}): {there}"));
    }
    Ok(Exit::Success)
}
