//! `allod export` and `allod import`: networks and reservations as JSON lines.
//!
//! ```text
//! {"format":"allod-export","version":2}
//! {"network":{"name":"lan","subnets":[…]}}              members of network.create
//! {"reservation":{"network":"lan","address":"10.0.0.5","owner":"web/0",…}}
//! {"end":{"networks":1,"reservations":1,"crc32":"5d0c0a97"}}
//! ```
//!
//! The last line reveals a file that was cut off: addresses missing in it would be granted to others. Version 1 has no such
//! line, and can still be read. Its checksum (`sum`) reveals a changed byte, which may have made one address another; earlier
//! releases wrote no checksum, and a user who changes a file on purpose removes it. If networks were left out because they
//! were stopped, the last line names them: `"left_out":["lan"]`.
//!
//! These carry over: realms, networks with subnets, pools and reserved ranges; and of each current reservation network,
//! address, block, scope, owner, slot, uid, kind, claimant, labels, note, host name, MAC, and the rest of its lease. These
//! do not: ids, generations, times, versions, history, cooling and declined addresses, how long an address has been free
//! (which `oldest` uses), former pools, obsolete reservations, uncommitted plans, and networks that are deleted and
//! remembered, with the reservations in them.
//!
//! A reservation that does not exist yet is claimed, which makes its `kind` `static`. If it had been granted automatically,
//! it is then released and granted again (`stages`). Only in a network in service it may stay a claim: an import does not
//! change such a network, which gives the same address back only if its cooldown is long enough and its pools allow that.
//! Addresses that were reserved there since the export are not claimed.
//!
//! An export is not a snapshot of one moment: a reservation that is made while it runs may be missing; one that exists
//! throughout is in it once. It fails if the configuration of a network that it contains changes while it runs. An import that
//! broke off is simply repeated.

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
mod sum;

use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::apply::file;
use super::exit::Exit;
use super::failure::Failure;
use super::output::Unwritten;
use super::pages;
use super::progress::Progress;
use super::quote::shell;
use super::session::{Done, Session};
use crate::core::plural::counted;
use stopped::There;
use sum::LinesSum;

pub use import::import;

/// First line of an export.
pub(super) const FORMAT: &str = "allod-export";
/// Version of the format. Later versions must keep reading it.
pub(super) const VERSION: u64 = 2;
/// Since this version the last line says how many lines there are.
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
    // An empty file would pass for a copy of the realm that was meant.
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
            "an import left {} half done (`{}`): what it should become is not known, and an export of its present state would \
             be mistaken for it",
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
    let mut lines = ExportedLines { to: BufWriter::new(std::io::stdout().lock()), sum: LinesSum::default() };
    lines.write(&json!({"format": FORMAT, "version": VERSION}))?;
    for network in networks {
        lines.write(&json!({"network": file::table_of(network, false)}))?;
    }
    let lists = there.lists(&filter(args, false));
    let progress = Progress::towards("exporting", count(session, &lists).await?);
    let (mut written, mut left_out) = (0, 0);
    for list in lists {
        write_held(session, list, networks, &mut lines, &progress, (&mut written, &mut left_out)).await?;
    }
    let obsolete = count(session, &there.lists(&filter(args, true))).await?;
    let now = There::of(session, args.realm.as_deref(), &json!({"usage": true})).await?;
    if let Some(changed) = there.first_changed(&now) {
        return Err(changed_meanwhile(changed).into());
    }
    let mut end = json!({"networks": networks.len(), "reservations": written});
    if !there.left_out.is_empty() {
        end["left_out"] = json!(there.names_left_out());
    }
    end[sum::MEMBER] = json!(lines.sum.text());
    lines.write(&json!({"end": end}))?;
    lines.to.flush().map_err(Unwritten)?;
    drop(progress);
    session.say(&format!("{}, {}", counted(networks.len(), "network"), counted(written, "reservation")));
    if left_out > 0 {
        session.say(&format!(
            "left out: {} of networks that are deleted and remembered, or were created meanwhile; to include them, use `allod \
             network restore` on what `allod network list --deleted` shows, and export again",
            counted(left_out, "reservation")
        ));
    }
    let (declined, cooling) = out_of_circulation(&now);
    if declined + cooling > 0 {
        session.say(&format!(
            "left out: {} declined and {} in their cooldown; whoever imports the file may be given them. `allod network usage` \
             shows where they are",
            counted(declined, "address"),
            counted(cooling, "address")
        ));
    }
    if obsolete > 0 {
        session.say(&format!(
            "left out: {} that plans of deployments made obsolete and that {} held until their commit; whoever imports the file \
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

/// The output of an export, and the checksum of its lines so far.
struct ExportedLines<W> {
    to: W,
    sum: LinesSum,
}

impl<W: Write> ExportedLines<W> {
    fn write(&mut self, line: &Value) -> Result<(), Unwritten> {
        let line = line.to_string();
        self.sum.add(&line);
        Ok(writeln!(self.to, "{line}")?)
    }
}

/// Writes the reservations of this list, and counts those that were written and those that were left out.
async fn write_held(
    session: &mut Session,
    mut list: Value,
    networks: &[Value],
    to: &mut ExportedLines<impl Write>,
    progress: &Progress,
    (written, left_out): (&mut u64, &mut u64),
) -> Done<()> {
    list["limit"] = json!(crate::limits::LIST_PAGE_RECORDS_MAX);
    let listed: HashSet<&Value> = networks.iter().filter_map(|network| network.get("id")).collect();
    loop {
        let page = page(session, &list).await?;
        for held in page["reservations"].as_array().into_iter().flatten() {
            // A reservation of a remembered network, or of one created since, is left out: an import would not know its
            // network.
            if held.get("network_id").is_some_and(|id| listed.contains(id)) {
                to.write(&json!({"reservation": exported(held)}))?;
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

/// What to do about a file that was begun and has no end.
const AGAIN: &str = "export again, to a new file: this one lacks its last line, and no import takes it";

/// Networks are written first, as they were listed; their reservations, as they are when their page comes: under a new name, or in
/// a subnet that was added or moved here since. No import would take such a file, and nobody would know before it is needed.
fn changed_meanwhile(network: &Value) -> Failure {
    let name = network["name"].as_str().unwrap_or_default();
    let reason = format!(
        "network `{name}` was changed or deleted while the reservations were written: they may not fit what was written of it \
         before"
    );
    Failure::new("export the register", reason, AGAIN)
}

/// A page of reservations. Lines that were written cannot be taken back, so a lost cursor is a failure.
async fn page(session: &mut Session, params: &Value) -> Done<Value> {
    let members = params.as_object().cloned().unwrap_or_default();
    session.try_call("ip.list", members).await.map_err(|error| {
        let failure = if pages::is_forgotten(&error) {
            let reason = "networks or subnets changed too much meanwhile to continue the list of reservations: what was written \
             is incomplete";
            Failure::new("export the register", reason, AGAIN)
        } else {
            Failure::of_method("ip.list", params, &error)
        };
        failure.into()
    })
}

/// How many addresses are declined and how many cool: nobody holds these, and no export contains them.
fn out_of_circulation(there: &There) -> (u64, u64) {
    let count = |state: &str| {
        let of = |network: &Value| network["usage"][state].as_str()?.parse::<u64>().ok();
        there.networks.iter().filter_map(of).sum()
    };
    (count("declined"), count("cooling"))
}

/// The filter for the export, for obsolete or for current reservations.
fn filter(args: &Export, obsolete: bool) -> Value {
    let mut filter = json!({"obsolete": obsolete});
    if let Some(realm) = &args.realm {
        filter["realm"] = json!(realm);
    }
    filter
}

/// The number of reservations in these lists.
async fn count(session: &mut Session, lists: &[Value]) -> Done<u64> {
    let mut count = 0;
    for list in lists {
        let mut list = list.clone();
        list["count_only"] = json!(true);
        count += session.call("ip.list", list).await?["count"].as_u64().unwrap_or(0);
    }
    Ok(count)
}

/// The exported members of a reservation.
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
