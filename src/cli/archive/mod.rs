//! `allod export` and `allod import`: networks and reservations as JSON lines.
//!
//! ```text
//! {"format":"allod-export","version":2}
//! {"network":{"name":"lan","subnets":[…]}}              members of network.create
//! {"reservation":{"network":"lan","address":"10.0.0.5","owner":"web/0",…}}
//! {"end":{"networks":1,"reservations":1}}
//! ```
//!
//! The last line tells a file that was cut off: what is missing in it would be granted to others. Version 1 has none, and is
//! read as before. Where networks were left out, as they were stopped, it names them: `"left_out":["lan"]`.
//!
//! What carries over: realms, networks with subnets, pools and reserved ranges; of each current reservation network,
//! address, block, scope, owner, slot, uid, kind, claimant, labels, note, host name, MAC, and the rest of its lease. What
//! does not: ids, generations, times, versions, history, cooling and declined addresses, since when an address is free (`oldest`
//! asks), pools that are no more, obsolete reservations, uncommitted plans, and networks that are deleted and remembered, with
//! what is held in them.
//!
//! A reservation that is not there yet is claimed, which makes its `kind` `static`; what had been granted automatically is
//! then let go and granted again (`stages`). Only in a network that is in service it may stay a claim: that is not
//! changed for an import, and gives the address back by itself only where its cooldown is long enough and its pools allow it.
//! What was reserved there since is not claimed.
//!
//! An export is no snapshot of one instant: what is granted while it runs may be missing, what was there throughout is
//! in it once. An import that broke off is repeated as it is.

mod claiming;
#[cfg(test)]
mod fuzzing;
mod granting;
mod import;
mod lines;
mod macs;
mod places;
mod recording;
mod rehearsal;
mod stages;
mod stopped;

use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::apply::file;
use super::exit::Exit;
use super::failure::Failure;
use super::pages;
use super::progress::Progress;
use super::quote::shell;
use super::session::{Done, Session};
use crate::core::plural::counted;
use stopped::There;

pub use import::import;

/// First line of an export.
pub(super) const FORMAT: &str = "allod-export";
/// Version of the form. Later ones keep reading it.
pub(super) const VERSION: u64 = 2;
/// From this version on the last line says how many there are.
pub(super) const ENDS_SINCE: u64 = 2;

/// Members of a reservation that are exported, in this order.
const MEMBERS: [&str; 16] = [
    "network",
    "address",
    "prefix_length",
    "scope",
    "owner",
    "slot",
    "owner_uid",
    "kind",
    "claimant",
    "release_with_claimant",
    "transient",
    "labels",
    "note",
    "hostname",
    "mac",
    "expires_in_seconds",
];

/// `allod export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Only this realm
    #[arg(long)]
    realm: Option<String>,
}

/// `allod import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The file; `-` is stdin
    file: PathBuf,
    /// Check the file against the server, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Writes everything to stdout.
pub async fn export(session: &mut Session, args: &Export) -> Done<Exit> {
    let there = There::of(session, args.realm.as_deref(), &json!({})).await?;
    let networks = &there.networks;
    // A whole file of nothing would pass for a copy of the realm that was meant.
    if let Some(realm) = args.realm.as_deref().filter(|_| networks.is_empty() && there.left_out.is_empty()) {
        let remembered = session.call("network.list", json!({"realm": realm, "deleted": true, "limit": 1})).await?;
        let any = remembered["networks"].as_array().is_some_and(|networks| !networks.is_empty());
        let (why, hint) = if any {
            let hint = "`allod network list --deleted` shows them; `allod network restore ID` brings one back";
            ("the networks that were in it are deleted, and remembered for what they hold", hint)
        } else {
            ("no network is in it", "`allod realm list` shows those that have networks")
        };
        return Err(Failure::new(format!("export realm `{realm}`"), why, hint).into());
    }
    let half_done = networks.iter().filter(|network| stages::is_half_done(network));
    let half_done: Vec<&str> = half_done.filter_map(|network| network["name"].as_str()).collect();
    if let Some(first) = half_done.first() {
        let reason = format!(
            "an import left {} half done (`{}`): what is meant is not known, and a file of what is there would be taken for it",
            counted(half_done.len(), "network"),
            half_done.join("`, `")
        );
        let hint = format!(
            "`allod import` of the same file again ends it; if that file is gone, `allod network get {}` shows what to set: \
             cooldown, pools and reserved ranges",
            shell(first)
        );
        return Err(Failure::new("export the register", reason, hint).into());
    }
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    writeln!(stdout, "{}", json!({"format": FORMAT, "version": VERSION}))?;
    for network in networks {
        writeln!(stdout, "{}", json!({"network": file::table_of(network, false)}))?;
    }
    let lists = there.lists(&filter(args, false));
    let progress = Progress::towards("exporting", count(session, &lists).await?);
    let (mut written, mut left_out) = (0, 0);
    for list in lists {
        write_held(session, list, networks, &mut stdout, &progress, (&mut written, &mut left_out)).await?;
    }
    let obsolete = count(session, &there.lists(&filter(args, true))).await?;
    let mut end = json!({"networks": networks.len(), "reservations": written});
    if !there.left_out.is_empty() {
        end["left_out"] = json!(there.names_left_out());
    }
    writeln!(stdout, "{}", json!({"end": end}))?;
    stdout.flush()?;
    drop(progress);
    session.say(&format!("{}, {}", counted(networks.len(), "network"), counted(written, "reservation")));
    if left_out > 0 {
        session.say(&format!(
            "left out: {} of networks that are deleted and remembered, or that were made meanwhile; `allod network restore` \
             what `allod network list --deleted` shows, and export again, to have them in it",
            counted(left_out, "reservation")
        ));
    }
    let (declined, cooling) = out_of_circulation(session, args.realm.as_deref()).await?;
    if declined + cooling > 0 {
        session.say(&format!(
            "left out: {} at which somebody else answers and {} let go a moment ago, in their cooldown; who imports the file may \
             be given them. `allod network usage` shows where they are",
            counted(declined, "address"),
            counted(cooling, "address")
        ));
    }
    if obsolete > 0 {
        session.say(&format!(
            "left out: {} that plans of deployments made obsolete and that {} held until their commit; who imports the file \
             may be given these addresses. `allod deployment list` shows which plans wait: commit or revert them, and \
             export again",
            counted(obsolete, "reservation"),
            if obsolete == 1 { "is" } else { "are" }
        ));
    }
    stopped::tell_shown(session, networks).await?;
    there.missing()?;
    Ok(Exit::Success)
}

/// Writes what this list has, and counts what was written and what was not.
async fn write_held(
    session: &mut Session,
    mut list: Value,
    networks: &[Value],
    to: &mut impl Write,
    progress: &Progress,
    (written, left_out): (&mut u64, &mut u64),
) -> Done<()> {
    list["limit"] = json!(crate::limits::LIST_PAGE_RECORDS_MAX);
    let listed: HashSet<&Value> = networks.iter().filter_map(|network| network.get("id")).collect();
    loop {
        let page = page(session, &list).await?;
        for held in page["reservations"].as_array().into_iter().flatten() {
            // Of one that is remembered, or new since: an import would not know it.
            if held.get("network_id").is_some_and(|id| listed.contains(id)) {
                writeln!(to, "{}", json!({"reservation": exported(held)}))?;
                *written += 1;
            } else {
                *left_out += 1;
            }
        }
        progress.at(*written + *left_out);
        match page.get("next") {
            Some(next) => list["after"] = next.clone(),
            None => return Ok(()),
        }
    }
}

/// A page of what is exported. What is written already cannot be begun again.
async fn page(session: &mut Session, params: &Value) -> Done<Value> {
    let members = params.as_object().cloned().unwrap_or_default();
    session.try_call("ip.list", members).await.map_err(|error| {
        let failure = if pages::is_forgotten(&error) {
            let reason = "networks or subnets changed so much meanwhile that the list of what is held cannot be gone on with: what \
                          was written is incomplete";
            Failure::new("export the register", reason, "export again, to a new file: this one lacks its last line, and no import takes it")
        } else {
            Failure::of_method("ip.list", params, &error)
        };
        failure.into()
    })
}

/// How many addresses are declined and how many cool: nobody holds them, and no export has them.
async fn out_of_circulation(session: &mut Session, realm: Option<&str>) -> Done<(u64, u64)> {
    let there = There::of(session, realm, &json!({"usage": true})).await?;
    let count = |state: &str| {
        let of = |network: &Value| network["usage"][state].as_str()?.parse::<u64>().ok();
        there.networks.iter().filter_map(of).sum()
    };
    Ok((count("declined"), count("cooling")))
}

/// What is held there, obsolete or current.
fn filter(args: &Export, obsolete: bool) -> Value {
    let mut filter = json!({"obsolete": obsolete});
    if let Some(realm) = &args.realm {
        filter["realm"] = json!(realm);
    }
    filter
}

/// How much these lists have.
async fn count(session: &mut Session, lists: &[Value]) -> Done<u64> {
    let mut count = 0;
    for list in lists {
        let mut list = list.clone();
        list["count_only"] = json!(true);
        count += session.call("ip.list", list).await?["count"].as_u64().unwrap_or(0);
    }
    Ok(count)
}

/// What of a reservation is exported.
fn exported(held: &Value) -> Value {
    let single = if held["address"].as_str().is_some_and(|address| address.contains(':')) { 128 } else { 32 };
    let members = MEMBERS.iter().filter_map(|&member| {
        let value = held.get(member)?;
        let plain = *value == json!(false)
            || (member == "prefix_length" && *value == json!(single))
            || (member == "scope" && value == "default")
            || (member == "slot" && value == "0");
        (!plain).then(|| (member.to_owned(), value.clone()))
    });
    Value::Object(members.collect::<Map<_, _>>())
}
