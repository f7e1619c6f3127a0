//! `allod who ADDRESS`: who holds an address, since when, and who granted it; or why nobody holds it; and what to type next.
//! With `--at TIME` the same for a past time, from the history (`then`). The reasons why nobody holds it are in `nobody`.

mod nobody;
mod then;

use clap::Args;
use serde_json::{Map, Value, json};

use nobody::Place;

use super::apply::networks_with;
use super::block;
use super::exit::Exit;
use super::history::{PAGE, Pages};
use super::output::table::fields;
use super::output::{Format, labels, list, print, text_of};
use super::quote::{owner_options, shell};
use super::session::{Done, Session, Stop};
use super::time::{self, Time};

/// `allod who`.
#[derive(Debug, Args)]
pub struct Who {
    /// The address, or a block: ADDRESS/LEN
    address: String,
    /// Who held it at that time (2026-03-01T09:12:44Z, or how long ago: 2h)
    #[arg(long, value_name = "TIME", value_parser = time::parse, allow_hyphen_values = true)]
    at: Option<Time>,
}

/// Looks an address up in all realms.
pub async fn run(session: &mut Session, args: &Who) -> Done<Exit> {
    let address = block::first(&args.address);
    if let Some(at) = args.at {
        return then::run(session, address, at).await;
    }
    let params = json!({"address": address});
    let result = session.call("ip.find", params.clone()).await.map_err(of_who)?;
    if session.options.style.format != Format::Table {
        session.print("ip.find", params.as_object().unwrap_or(&serde_json::Map::new()), &result)?;
        return Ok(Exit::Success);
    }
    let mut found: Vec<Value> = result.get("found").and_then(Value::as_array).cloned().unwrap_or_default();
    found.sort_by_key(|one| one.get("network").map(text_of));
    if found.is_empty() {
        let unknown = json!({"address": address, "state": "unknown"});
        print(&describe(&unknown, None, None))?;
        session.say(&format!("\nnext: {}", next(address, &unknown, None)));
        return Ok(Exit::Success);
    }
    if found.iter().any(|one| one.get("reservation").is_some())
        && let Ok(deleted) = session.call("network.list", json!({"deleted": true})).await
    {
        found.iter_mut().for_each(|one| name_by_id(one, &deleted));
    }
    for (at, one) in found.iter().enumerate() {
        let granted = granted_by(session, address, one).await;
        let network = network_of(session, address, one).await;
        let place = network.as_ref().and_then(|(network, is_deleted)| Place::of(address, network, *is_deleted));
        let gap = if at > 0 { "\n" } else { "" };
        print(&format!("{gap}{}", describe(one, place.as_ref(), granted.as_ref())))?;
        session.say(&format!("\nnext: {}", next(address, one, place.as_ref())));
    }
    Ok(Exit::Success)
}

/// A failure of `ip.find`, with a hint about the command that was typed.
fn of_who(stop: Stop) -> Stop {
    match stop {
        Stop::Failed(mut failure) => {
            failure.hint = failure.hint.replace("allod ip find", "allod who");
            Stop::Failed(failure)
        }
        Stop::Quiet => Stop::Quiet,
    }
}

/// Replaces the name of a network by its id if the network is deleted and remembered: its name no longer leads to it.
fn name_by_id(found: &mut Value, deleted: &Value) {
    if let Some(held) = found.get_mut("reservation")
        && let (Some(name), Some(id)) = (held.get("network").cloned(), held.get("network_id").cloned())
        && list(deleted, "networks").any(|network| network.get("id") == Some(&id))
    {
        held["deleted"] = name;
        held["network"] = id.clone();
        found["network"] = id;
    }
}

/// The network of an address that nobody holds, and whether it is deleted and remembered: then its name may belong to
/// another network. Without it the answer is only shorter.
async fn network_of(session: &mut Session, address: &str, found: &Value) -> Option<(Value, bool)> {
    let name = found.get("network").filter(|_| found.get("reservation").is_none())?;
    let named = session.call("network.get", json!({"network": name})).await;
    if let Ok(network) = named
        && Place::of(address, &network, false).is_some()
    {
        return Some((network, false));
    }
    let deleted = networks_with(session, None, json!({"deleted": true})).await.ok()?;
    let is = |network: &Value| network.get("name") == Some(name) && Place::of(address, network, true).is_some();
    deleted.into_iter().find(is).map(|network| (network, true))
}

/// The event that granted the reservation, or the last event if nobody holds the address. The history may not reach back so
/// far, or may not be readable for us; the rest of the answer does not need it.
async fn granted_by(session: &mut Session, address: &str, found: &Value) -> Option<Value> {
    let network = found.get("network").or_else(|| found.get("reservation")?.get("network"))?;
    let params = Map::from_iter([("network".to_owned(), network.clone()), ("address".to_owned(), address.into())]);
    let generation = found.get("reservation").and_then(|held| held.get("generation"));
    let (mut pages, mut last) = (Pages::new(params), None);
    loop {
        let events = pages.next(session, PAGE).await.ok()?;
        if events.is_empty() {
            return last;
        }
        let is = |event: &Value| generation.is_none_or(|it| event.get("generation") == Some(it) && is_grant(event));
        last = events.into_iter().rfind(is).or(last);
    }
}

fn is_grant(event: &Value) -> bool {
    matches!(event.get("type").and_then(Value::as_str), Some("granted" | "transferred"))
}

/// What is known about the address in one network, as fields.
fn describe(found: &Value, place: Option<&Place<'_>>, event: Option<&Value>) -> String {
    let text = |of: &Value, name: &str| of.get(name).map(text_of).unwrap_or_default();
    let state = text(found, "state");
    let by = event.map_or_else(String::new, |event| text(event, "by"));
    let Some(held) = found.get("reservation") else {
        let last = event.map_or_else(String::new, |event| {
            let owner = text(event, "owner");
            let of = if owner.is_empty() { String::new() } else { format!(" (`{owner}`)") };
            format!("{} at {}{of}", text(event, "type"), text(event, "time"))
        });
        let why = place.map_or_else(|| reason(&state).to_owned(), |place| place.why(&state));
        let network = text(found, "network");
        let mut shown = vec![("address", text(found, "address")), ("state", state), ("why", why), ("network", network)];
        shown.extend(place.into_iter().flat_map(Place::fields));
        shown.push(("last event", last));
        return fields(&shown);
    };
    let length = held.get("prefix_length").and_then(Value::as_u64).unwrap_or(32);
    let block = format!("{}/{length}", text(held, "address"));
    let is_block =
        text(held, "address") != text(found, "address") || length != if block.contains(':') { 128 } else { 32 };
    let slot =
        Some(text(held, "slot")).filter(|slot| slot != "0").map_or_else(String::new, |slot| format!(", slot `{slot}`"));
    let scope = Some(text(held, "scope")).filter(|scope| scope != "default" && !scope.is_empty());
    let scope = scope.map_or_else(String::new, |scope| format!(" of scope `{scope}`"));
    let lease = match held.get("expires_at") {
        Some(at) => format!("until {}, unless renewed", text_of(at)),
        None => "for good".to_owned(),
    };
    let claimant = Some(text(held, "claimant")).filter(|claimant| !claimant.is_empty());
    let network = match held.get("deleted") {
        Some(name) => format!("{} (deleted, and remembered while it holds something)", text_of(name)),
        None => text(held, "network"),
    };
    fields(&[
        ("address", text(found, "address")),
        ("state", state),
        ("block", if is_block { block } else { String::new() }),
        ("network", network),
        ("held by", format!("`{}`{scope}{slot}", text(held, "owner"))),
        (
            "used by",
            claimant.map_or_else(|| "nobody (no claimant is bound)".to_owned(), |claimant| format!("`{claimant}`")),
        ),
        ("since", text(held, "created_at")),
        ("granted by", by),
        ("lease", lease),
        ("obsolete", held.get("obsolete").map_or_else(String::new, |o| format!("since {}", text(o, "since")))),
        ("hostname", text(held, "hostname")),
        ("mac", text(held, "mac")),
        ("labels", labels(held)),
        ("note", text(held, "note")),
    ])
}

/// Why an address in this state has no holder, if nothing is known about its network.
fn reason(state: &str) -> &'static str {
    match state {
        "free" => "nobody holds it",
        "reserved" => "it lies in a reserved range, or where something is draining",
        "cooling" => "released a short time ago; its last owner gets it back at once",
        "declined" => "somebody else answers there; it rests until the probation ends",
        "unusable" => "a gateway, network, broadcast or anycast address: never handed out",
        "unknown" => "it lies in no subnet of any network",
        _ => "see the protocol",
    }
}

/// The next command to type.
fn next(address: &str, found: &Value, place: Option<&Place<'_>>) -> String {
    let state = found.get("state").and_then(Value::as_str).unwrap_or_default();
    if let Some(place) = place {
        return place.next(state);
    }
    let held = found.get("reservation").unwrap_or(&Value::Null);
    let network = found.get("network").or_else(|| held.get("network")).and_then(Value::as_str);
    let network = network.map_or_else(|| "NETWORK".to_owned(), shell);
    if state != "held" {
        return advice(state, &network, address);
    }
    let first = held.get("address").and_then(Value::as_str).unwrap_or(address);
    let owner = held.get("owner").and_then(Value::as_str).unwrap_or("OWNER");
    let owner = owner_options(owner, held.get("scope").and_then(Value::as_str));
    let restores = match held.get("deleted") {
        Some(_) => format!(", `allod network restore {network}` brings its network back"),
        None => String::new(),
    };
    format!("`allod ip release {network} {first} {owner}` gives it back{restores}")
}

/// The next command if nobody holds the address and only its state is known.
fn advice(state: &str, network: &str, address: &str) -> String {
    match state {
        "free" => format!("`allod ip claim {network} {address} --owner OWNER` takes it"),
        "cooling" => format!("`allod ip claim {network} {address} --owner OWNER` takes it nevertheless"),
        "declined" => format!(
            "`allod ip claim {network} {address} --owner OWNER --force` takes it nevertheless and ends that, `allod history \
             {address}` shows who declined it"
        ),
        "reserved" | "unusable" => {
            format!("`allod network get {network}` shows its subnets, pools and reserved ranges")
        }
        _ => "`allod subnet add NETWORK CIDR` makes room for it, `allod network list` shows what there is".to_owned(),
    }
}
