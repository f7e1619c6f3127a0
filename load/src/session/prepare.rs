//! What comes before a run: its networks are made or found, and what is found is looked at.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::{Auditor, Ground};
use crate::audited::Audited;
use crate::control::{Control, Usage};
use crate::interrupt;
use crate::scenario::{NetworkPlan, Scenario};

/// A display is told after so many networks.
const TOLD_EACH: usize = 10;
/// So long what was found is watched for others who use it.
const WATCHED: Duration = Duration::from_millis(200);
/// So many events of a network are looked at.
const EVENTS: u64 = 100;

/// A network that the run works on.
pub struct Place {
    pub name: String,
    /// The run made it: what is in it is its own.
    pub is_made: bool,
    /// From here on nothing of its history was seen.
    cursor: Value,
}

/// A scenario that is ready to be driven, and where.
pub struct Prepared {
    pub audited: Audited,
    pub places: Vec<Place>,
}

/// Makes or finds the networks, and reads what they may hand out and hold already. `seed`: of the scenario's owners.
///
/// # Errors
/// As of [`Control::call`].
pub fn prepare(
    control: &mut Control,
    scenario: Box<dyn Scenario>,
    networks: &[NetworkPlan],
    lanes: usize,
    seed: u32,
    create: bool,
    doing: &dyn Fn(&str),
) -> io::Result<Prepared> {
    let mut audit = Auditor::new(lanes, networks.len(), seed);
    let (mut capacity, mut held_before, mut places) = (0, 0, Vec::new());
    for (number, network) in networks.iter().enumerate() {
        if number % TOLD_EACH == 0 {
            doing(&format!("making networks, {number} of {}", networks.len()));
        }
        let mut is_made = false;
        if create {
            let made = control.call("network.create", &network.params());
            is_made = made.map_err(|error| left_by_another(&network.name, error))?["created"] != false;
        }
        let there = control.call("network.get", &json!({"network": network.name}))?;
        let cooldown = Duration::from_secs(there["cooldown_seconds"].as_u64().unwrap_or(0));
        audit.add(&network.name, Ground::read(&there), cooldown, network.blocks);
        places.push(Place { name: network.name.clone(), is_made, cursor: there["cursor"].clone() });
        let Usage { held, capacity: can_hold, .. } = control.usage(&network.name)?;
        if held > 0 {
            audit.read_before(control, number)?;
        }
        capacity += can_hold;
        held_before += held;
    }
    Ok(Prepared { audited: Audited::new(scenario, audit, capacity, held_before), places })
}

/// Refuses networks that were found and that somebody else uses now: the audit would not know whose doing is whose.
///
/// # Errors
/// There is such a network, or a signal came.
pub fn check_quiet(control: &mut Control, places: &[Place]) -> io::Result<()> {
    let found: Vec<&Place> = places.iter().filter(|place| !place.is_made && place.cursor.is_string()).collect();
    if found.is_empty() {
        return Ok(());
    }
    std::thread::park_timeout(WATCHED);
    interrupt::check(0)?;
    for Place { name, cursor, .. } in found {
        let asked = json!({"network": name, "after": cursor, "limit": EVENTS});
        // Who may not tell its history, or has forgotten it, is taken at its word.
        let Ok(told) = control.call("events.history", &asked) else { continue };
        let events = told["events"].as_array().map_or(&[][..], Vec::as_slice);
        if let Some(event) = events.iter().find(|event| event["type"] == "granted" || event["type"] == "released") {
            let text = |member: &str| event[member].as_str().unwrap_or_default();
            return Err(io::Error::other(format!(
                "network `{name}` is in use: {} was {} a moment ago, of `{}`; wait until that run is over, or give this one networks \
                 of its own by --network-prefix",
                text("address"),
                text("type"),
                text("owner")
            )));
        }
    }
    Ok(())
}

/// Refuses networks that were there before, and removes again those that were made beside them.
///
/// # Errors
/// There is such a network.
pub fn check_all_made(control: &mut Control, places: &[Place]) -> io::Result<()> {
    let Some(found) = places.iter().find(|place| !place.is_made) else { return Ok(()) };
    places.iter().filter(|place| place.is_made).try_for_each(|place| control.purge_network(&place.name))?;
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "network `{name}` was there before: each of several levels of --fill-level begins with empty networks, and what this \
             run did not make it does not remove. Take one level, or other networks by --network-prefix, or remove it: `allod \
             network delete {name} --purge`",
            name = found.name
        ),
    ))
}

/// Makes sure that all servers have the same network, for who has another register refuses, or hands out what is held.
///
/// # Errors
/// One has another network, or none.
pub fn one_register(servers: &[SocketAddr], networks: &[NetworkPlan]) -> io::Result<()> {
    let (Some(first), [_, _, ..]) = (networks.first(), servers) else { return Ok(()) };
    let mut known: Option<Value> = None;
    for server in servers {
        let found = Control::connect(&[*server])?.call("network.get", &json!({"network": first.name}));
        let id = found.map_err(|error| named(server, &error))?["id"].take();
        if known.as_ref().is_some_and(|known| *known != id) {
            let text = format!("network `{}` is another one than that of {}", first.name, servers[0]);
            return Err(named(server, &io::Error::other(text)));
        }
        known = Some(id);
    }
    Ok(())
}

fn named(server: &SocketAddr, error: &io::Error) -> io::Error {
    io::Error::other(format!("{server}: {error}; the servers of a run share one register"))
}

/// Networks are kept after a run, for the next one to find.
fn left_by_another(network: &str, error: io::Error) -> io::Error {
    let text = error.to_string();
    if !text.contains("already exists") {
        return error;
    }
    io::Error::other(format!(
        "{text}\nan earlier run may have left it: `allod network delete {network} --purge` removes it, `--no-create` takes it as it \
         is, and --network-prefix makes others"
    ))
}
