//! Prepares a run: creates or finds its networks, and inspects what is in them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::advice::Advice;
use crate::audit::{Auditor, Ground};
use crate::audited::Audited;
use crate::control::{Control, Usage};
use crate::driver::Shape;
use crate::interrupt;
use crate::scenario::{NetworkPlan, Scenario};

/// The display is updated after this many networks.
const TOLD_EACH: usize = 10;
/// How long networks that existed before are watched for other users.
const WATCHED: Duration = Duration::from_millis(200);
/// The most events of a network that are inspected.
const EVENTS: u64 = 100;

/// A network of the run.
pub struct Place {
    pub name: String,
    /// The run created it, so everything in it belongs to the run.
    pub is_made: bool,
    /// The cursor behind all events that were there when the network was found.
    cursor: Value,
}

/// A scenario that is ready to be driven, and its networks.
pub struct Prepared {
    pub audited: Audited,
    pub places: Vec<Place>,
}

impl Prepared {
    /// A scenario whose networks do not exist yet.
    pub fn new(scenario: Box<dyn Scenario>, networks: usize, shape: &Shape) -> Self {
        let audit = Auditor::new(shape.lanes(), networks, shape.seed);
        Self { audited: Audited::new(scenario, audit), places: Vec::new() }
    }

    /// Creates or finds the networks, and reads what they may hand out and already hold. Faults that are found before an
    /// error stay with the audit.
    ///
    /// # Errors
    /// As of [`Control::call`].
    pub fn make(
        &mut self,
        control: &mut Control,
        networks: &[NetworkPlan],
        create: bool,
        advice: &Advice,
        doing: &dyn Fn(&str),
    ) -> io::Result<()> {
        let Self { audited, places } = self;
        for (number, network) in networks.iter().enumerate() {
            if number % TOLD_EACH == 0 {
                doing(&format!("making networks, {number} of {}", networks.len()));
            }
            let name = &network.name;
            let is_made =
                create && control.create_network(network).map_err(|error| left_by_another(name, error, advice))?;
            let there = control.call("network.get", &json!({"network": name}))?;
            // With `cooldown_yields` a cooling address may be granted at any time when nothing else is free.
            let cooldown = if there["cooldown_yields"] == true { &Value::Null } else { &there["cooldown_seconds"] };
            let cooldown = Duration::from_secs(cooldown.as_u64().unwrap_or(0));
            audited.audit.add(name, Ground::read(&there), cooldown, network.blocks);
            places.push(Place { name: name.clone(), is_made, cursor: there["cursor"].clone() });
            let mut usage = control.usage(name)?;
            if usage.held > 0 {
                audited.audit.read_before(control, number)?;
                // Every lease that ends from now on was listed. One that ended while they were listed is counted no more.
                usage = control.usage(name)?;
            }
            let Usage { held, capacity, .. } = usage;
            audited.capacity += capacity;
            audited.held_before += held;
        }
        Ok(())
    }
}

/// Refuses existing networks that someone else uses at the moment: the audit could not tell whose changes are whose.
///
/// # Errors
/// There is such a network, or a signal came.
pub fn check_quiet(control: &mut Control, places: &[Place], advice: &Advice) -> io::Result<()> {
    let found: Vec<&Place> = places.iter().filter(|place| !place.is_made && place.cursor.is_string()).collect();
    if found.is_empty() {
        return Ok(());
    }
    std::thread::park_timeout(WATCHED);
    interrupt::check(0)?;
    for Place { name, cursor, .. } in found {
        let asked = json!({"network": name, "after": cursor, "limit": EVENTS});
        // A network whose history cannot be read, or is forgotten, is assumed to be quiet.
        let Ok(told) = control.call("events.history", &asked) else { continue };
        let events = told["events"].as_array().map_or(&[][..], Vec::as_slice);
        if let Some(event) = events.iter().find(|event| event["type"] == "granted" || event["type"] == "released") {
            let text = |member: &str| event[member].as_str().unwrap_or_default();
            return Err(io::Error::other(format!(
                "network `{name}` is in use: {} was {} a moment ago, of `{}`; wait until that is over{}",
                text("address"),
                text("type"),
                text("owner"),
                advice.in_use
            )));
        }
    }
    Ok(())
}

/// Refuses networks that existed before the run.
pub fn check_all_made(places: &[Place], advice: &Advice) -> io::Result<()> {
    let Some(found) = places.iter().find(|place| !place.is_made) else { return Ok(()) };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "network `{name}` was there before, and this run takes only networks that it makes{}. `allod network delete {name} \
             --purge` removes it",
            advice.is_there,
            name = found.name
        ),
    ))
}

/// Makes sure that all servers have the same network. A server with another register would refuse requests, or hand out held
/// addresses.
///
/// # Errors
/// A server has another network of this name, or none.
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

/// Explains that an earlier run may have left the network: networks are kept after a run, so that the next one can use them.
fn left_by_another(network: &str, error: io::Error, advice: &Advice) -> io::Error {
    let text = error.to_string();
    if !text.contains("already_exists") {
        return error;
    }
    io::Error::other(format!(
        "{text}\nan earlier run may have left it: `allod network delete {network} --purge` removes it{}",
        advice.is_other
    ))
}
