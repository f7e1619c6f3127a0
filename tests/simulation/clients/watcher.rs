//! A client that lists a network, watches it from the list's cursor, and goes on from its last cursor wherever the register
//! is owned. It must be told every event after its list, once and in order, and none before it was certain. In the end its
//! picture must be what is held. It must be told that its cursor is lost when a failover cut its line off, and only then.

use std::collections::BTreeMap;

use allod::actors::events::Cursor;
use allod::core::types::Place;
use allod::server::cursor;
use rand::Rng;
use serde_json::{Value, json};

use super::told::span_of;
use super::{Clients, Route};
use crate::register::Register;
use crate::truth::{Event, Listed, Truth};
use crate::world::{Flaw, World};

/// How often it checks its connection.
const LOOKS_EVERY_MS: u64 = 250;
/// After such a silence it asks another node.
const SILENCE_MS: u64 = 2_500;

/// What was told after one list.
struct Trail {
    begin: Place,
    /// The list, with every change told since.
    held: BTreeMap<u128, u64>,
    at: Place,
    cursor: String,
    told: Vec<(Event, u64)>,
    /// Whether it was told that its line was cut off.
    lost: bool,
}

/// The answer for which it waits.
struct Asked {
    id: u64,
    sent_ns: u64,
    sent_ms: u64,
}

pub struct Watcher {
    base: usize,
    route: Option<Route>,
    asked: Option<Asked>,
    subscription: Option<u64>,
    heard_ms: u64,
    /// The node from which it heard something last.
    heard_at: Option<usize>,
    trail: Option<Trail>,
    ended: Vec<Trail>,
}

/// The place in a cursor that covers one network.
fn place_of(text: &Value) -> Option<Place> {
    let parsed = cursor::parse(text.as_str()?)?;
    match parsed.places() {
        [place] => Some(*place),
        [] => Some(Place::default()),
        _ => None,
    }
}

/// The cursor with the same number on the present line, whatever its own line was.
fn renamed(place: Place, register: &Register) -> String {
    let line = &register.lines()[usize::from(place.shard)];
    let there = line.iter().find(|written| written.batch.seq.0 == place.seq);
    let (epoch, digest) = there.map_or((place.epoch, place.digest), |there| (there.batch.epoch.0, there.digest.0));
    cursor::write(&Cursor::new(false, [Place { epoch, digest, ..place }]))
}

impl Watcher {
    pub(super) fn new(base: usize) -> Self {
        let (trail, ended) = (None, Vec::new());
        Self { base, route: None, asked: None, subscription: None, heard_ms: 0, heard_at: None, trail, ended }
    }

    fn hang_up(&mut self) {
        (self.route, self.asked, self.subscription) = (None, None, None);
    }

    pub(super) fn node_gone(&mut self, node: usize) {
        if self.route.as_ref().is_some_and(|route| route.node == node) {
            self.hang_up();
        }
    }
}

impl Clients {
    /// Takes a list of the network as a new beginning.
    pub(super) fn listed(&mut self, base: usize, (sent_ns, told_ns): (u64, u64), result: &Value) -> Option<Listed> {
        let Some(at) = place_of(&result["cursor"]) else {
            self.problem(format!("a list without a cursor: {result}"));
            return None;
        };
        let shown = result["reservations"].as_array()?.iter().filter_map(span_of);
        let held = shown.map(|(span, generation)| (span.0, generation)).collect();
        let listed = Listed { network: self.bases[base].name.clone(), held, at, sent_ns, told_ns };
        self.lists.push(listed.clone());
        Some(listed)
    }

    /// Checks its connection again and again.
    pub(super) fn watch(world: &mut World, at: usize) {
        world.after(LOOKS_EVERY_MS, move |world| Self::watch(world, at));
        let now_ms = world.now_ms;
        let leaves = !world.calm && world.draws.random_ratio(1, 40);
        let watcher = &mut world.clients.watchers[at];
        let unheard = watcher.asked.as_ref().is_some_and(|asked| now_ms > asked.sent_ms + SILENCE_MS);
        if leaves || unheard || now_ms > watcher.heard_ms + SILENCE_MS {
            watcher.hang_up();
        }
        if leaves && world.draws.random_bool(0.3) {
            let watcher = &mut world.clients.watchers[at];
            watcher.ended.extend(watcher.trail.take());
        }
        if world.clients.watchers[at].route.is_none() {
            let owners: Vec<usize> = (0..world.nodes.len()).filter(|&node| world.nodes[node].believes()).collect();
            if owners.is_empty() {
                return;
            }
            let node = owners[world.draws.random_range(0..owners.len())];
            world.clients.next_connection += 1;
            let connection = world.clients.next_connection;
            let Some(lines) = world.connect(node, connection) else { return };
            let watcher = &mut world.clients.watchers[at];
            watcher.heard_ms = now_ms;
            watcher.route = Some(Route { node, connection, lines });
        }
        let watcher = &world.clients.watchers[at];
        if watcher.subscription.is_none() && watcher.asked.is_none() {
            Self::ask_to_watch(world, at);
        }
    }

    fn ask_to_watch(world: &mut World, at: usize) {
        let sent_ns = world.stamp_ns();
        world.clients.next_id += 1;
        let id = world.clients.next_id;
        let (watcher, sent_ms) = (&mut world.clients.watchers[at], world.now_ms);
        watcher.asked = Some(Asked { id, sent_ns, sent_ms });
        let network = &world.clients.bases[watcher.base].name;
        let flawed = world.plan.flaw == Some(Flaw::CursorsAreNumbers);
        let (method, params) = match &watcher.trail {
            None => ("ip.list", json!({"network": network})),
            Some(trail) => {
                let since = if flawed { renamed(trail.at, &world.register) } else { trail.cursor.clone() };
                ("events.watch", json!({"network": network, "since": since}))
            }
        };
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        world.note(|| format!("watcher {at} asks {line}"));
        let latency = world.draws.random_range(1..4);
        world.after(latency, move |world| {
            let watcher = &world.clients.watchers[at];
            let waits = watcher.asked.as_ref().is_some_and(|asked| asked.id == id);
            if let Some(route) = watcher.route.as_ref().filter(|_| waits) {
                // If the node is gone, the line is lost.
                let _ = route.lines.send(line.into_bytes());
            }
        });
    }

    /// Takes a line if it is for a watcher. False if it is not.
    pub(super) fn watched(world: &mut World, connection: u64, line: &Value) -> bool {
        let of = |watcher: &Watcher| watcher.route.as_ref().is_some_and(|route| route.connection == connection);
        let Some(at) = world.clients.watchers.iter().position(of) else { return false };
        world.note(|| format!("watcher {at} is told {line}"));
        let (now_ns, now_ms) = (world.stamp_ns(), world.now_ms);
        let watcher = &mut world.clients.watchers[at];
        watcher.heard_ms = now_ms;
        let node = watcher.route.as_ref().map(|route| route.node);
        if let Some(method) = line["method"].as_str() {
            if watcher.subscription != line["params"]["subscription"].as_u64() {
                world.clients.problem(format!("of no subscription: {line}"));
                return true;
            }
            if std::mem::replace(&mut watcher.heard_at, node).is_some_and(|before| Some(before) != node) {
                world.hit("a watch went on at another node");
            }
            match method {
                "event" => Self::told_event(world, at, &line["params"]["event"], now_ns),
                "bookmark" => Self::told_bookmark(world, at, &line["params"]["cursor"]),
                // This watcher reads everything as it comes.
                "lagged" => world.clients.problem(format!("a watcher that keeps up is lagged: {line}")),
                "cursor_lost" => Self::told_lost(world, at, &line["params"]["last_common"]),
                _ => world.clients.problem(format!("what is that? {line}")),
            }
            return true;
        }
        let Some(asked) = watcher.asked.take_if(|asked| Some(asked.id) == line["id"].as_u64()) else {
            world.clients.problem(format!("an answer that no watcher asked for: {line}"));
            return true;
        };
        let error = &line["error"]["data"];
        if error["kind"] == "cursor_lost" {
            Self::told_lost(world, at, &error["last_common"]);
        } else if error["kind"].is_string() {
            if !["not_ready", "unavailable", "overloaded"].contains(&error["kind"].as_str().unwrap_or_default()) {
                world.clients.problem(format!("watcher {at} is refused {line}"));
            }
            // The node cannot answer now; another one is asked soon.
            world.clients.watchers[at].hang_up();
        } else if let Some(subscription) = line["result"]["subscription"].as_u64() {
            watcher.subscription = Some(subscription);
            world.hit("watch");
        } else {
            let (base, text) = (watcher.base, line["result"]["cursor"].as_str().unwrap_or_default().to_owned());
            let Some(Listed { held, at: begin, .. }) =
                world.clients.listed(base, (asked.sent_ns, now_ns), &line["result"])
            else {
                return true;
            };
            let trail = Trail { begin, held, at: begin, cursor: text, told: Vec::new(), lost: false };
            world.clients.watchers[at].trail = Some(trail);
            Self::ask_to_watch(world, at);
        }
        true
    }

    fn told_event(world: &mut World, at: usize, event: &Value, now_ns: u64) {
        world.hit("event");
        if world.plan.flaw == Some(Flaw::EventForgotten) && world.draws.random_ratio(1, 40) {
            return;
        }
        let span = event["address"].as_str().and_then(|text| text.parse::<std::net::Ipv4Addr>().ok());
        let address = span.map(|address| u128::from(u32::from(address)));
        let generation = event["after"]["generation"].as_u64();
        let place = place_of(&event["cursor"]);
        let Some(trail) = &mut world.clients.watchers[at].trail else { return };
        let Some(place) = place else {
            return world.clients.problem(format!("an event without a cursor: {event}"));
        };
        (trail.at, trail.cursor) = (place, event["cursor"].as_str().unwrap_or_default().to_owned());
        if let Some(address) = address {
            match generation {
                Some(generation) => drop(trail.held.insert(address, generation)),
                None => drop(trail.held.remove(&address)),
            }
        }
        let step = (place.seq, place.steps.unwrap_or_default());
        trail.told.push((Event { at: step, address, generation, confirmed_ns: 0 }, now_ns));
    }

    fn told_bookmark(world: &mut World, at: usize, text: &Value) {
        world.hit("bookmark");
        if let (Some(place), Some(trail)) = (place_of(text), &mut world.clients.watchers[at].trail) {
            (trail.at, trail.cursor) = (place, text.as_str().unwrap_or_default().to_owned());
        }
    }

    /// A cursor may be lost only if something behind it was really cut off, which cannot happen when events are told only
    /// once they are certain. A subscription may be further on than the last event that it told, and what follows may be cut
    /// off, too. The last common place must be on the present line.
    fn told_lost(world: &mut World, at: usize, common: &Value) {
        world.hit("cursor lost");
        let Some(mut trail) = world.clients.watchers[at].trail.take() else { return };
        let certain = world.plan.rules.confirmation;
        if certain || !world.register.was_cut_behind(trail.at.shard, trail.at.seq) {
            world.clients.problem(format!("a cursor is lost, and its line was not cut off: {:?}", trail.at));
        }
        let stands = |place: Place| {
            let line = &world.register.lines()[usize::from(trail.at.shard)];
            let there = line.iter().find(|written| written.batch.seq.0 == place.seq);
            place.seq == 0 || there.is_some_and(|there| there.digest.0 == place.digest)
        };
        if !place_of(common).is_some_and(stands) {
            let problem = format!("the last common place of {:?} is none of the line: {common}", trail.at);
            world.clients.problem(problem);
        }
        trail.lost = true;
        let watcher = &mut world.clients.watchers[at];
        watcher.ended.push(trail);
        watcher.subscription = None;
    }

    /// Does every watcher know everything that has happened by now?
    pub fn watched_all(&self, truth: &Truth<'_>) -> bool {
        self.watchers.iter().all(|watcher| {
            let network = &self.bases[watcher.base].name;
            let knows = |trail: &Trail| truth.has(network, &trail.at) && truth.events(network, &trail.at).is_empty();
            watcher.trail.as_ref().is_some_and(knows)
        })
    }

    /// What watchers were told must be what happened.
    ///
    /// If lines were cut off, a picture that was given up before its watcher was told so is not judged.
    pub fn judge_watchers(&self, truth: &Truth<'_>, cuts: bool, problems: &mut Vec<String>) {
        for (number, watcher) in self.watchers.iter().enumerate() {
            let network = &self.bases[watcher.base].name;
            if watcher.trail.is_none() {
                problems.push(format!("watcher {number} of {network} has no picture in the end"));
            }
            for trail in watcher.ended.iter().filter(|trail| !trail.lost && !cuts).chain(&watcher.trail) {
                let happened = truth.events(network, &trail.begin);
                for (at, (told, told_ns)) in trail.told.iter().enumerate() {
                    let Some(event) =
                        happened.get(at).filter(|event| Event { confirmed_ns: 0, ..(*event).clone() } == *told)
                    else {
                        problems.push(format!(
                            "watcher {number} of {network} was told {told:?}, and what happened next is {:?}",
                            happened.get(at)
                        ));
                        break;
                    };
                    if event.confirmed_ns > *told_ns {
                        problems.push(format!("watcher {number} of {network} was told {told:?} while it was in doubt"));
                    }
                }
            }
            let Some(trail) = &watcher.trail else { continue };
            if !truth.has(network, &trail.at) {
                problems.push(format!(
                    "watcher {number} of {network} was never told that its line was cut off: {:?}",
                    trail.at
                ));
            }
            let left = truth.events(network, &trail.at);
            if !left.is_empty() {
                problems.push(format!("watcher {number} of {network} was never told of {left:?}"));
            }
            let held: BTreeMap<u128, u64> =
                truth.held(network, None).iter().map(|(first, held)| (*first, held.generation)).collect();
            if left.is_empty() && trail.held != held {
                problems.push(format!("watcher {number} of {network} sees {:?}, and held is {held:?}", trail.held));
            }
        }
    }
}
