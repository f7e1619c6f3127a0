//! A client that lists what there is and then watches knows everything without asking again, and afterwards history tells
//! the same. Several shards each tell in their own order; their events are ordered by time.

use std::collections::BTreeMap;

use allod::core::address::Address;
use serde_json::{Map, Value, json};

use super::{LAST, Subject};

/// Members of a reservation that events contain as well.
const TOLD: [&str; 17] = [
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
    "created_at",
    "expires_at",
    "generation",
    "obsolete",
    "prefix_length",
];

/// Network and address.
type Place = (String, Address);

#[derive(Debug, Default)]
pub struct Picture {
    held: BTreeMap<Place, Value>,
    /// Network, type and place of everything told; with several shards ordered by network, since only within a network is
    /// there an order.
    pub told: Vec<Value>,
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_else(|| panic!("{member} of {value}")).to_owned()
}

fn place_of(value: &Value) -> Place {
    (text(value, "network_id"), text(value, "address").parse().unwrap())
}

fn state_of(reservation: &Value) -> Value {
    let member = |name: &&str| Some(((*name).to_owned(), reservation.get(*name)?.clone()));
    Value::Object(TOLD.iter().filter_map(member).collect::<Map<String, Value>>())
}

/// Every reservation, and the cursor after them.
pub fn list(server: &mut Subject) -> Result<(Picture, Value), String> {
    let listed = server.ask("ip.list", &json!({"limit": 10_000}))?["result"].take();
    let (mut picture, cursor) = (Picture::default(), listed["cursor"].clone());
    for reservation in listed["reservations"].as_array().ok_or(format!("{listed}"))? {
        picture.held.insert(place_of(reservation), state_of(reservation));
    }
    Ok((picture, cursor))
}

impl Picture {
    fn follow(&mut self, event: &Value) -> Result<(), String> {
        let story = ["network_id", "type", "address", "generation", "owner", "reason", "before", "after"];
        self.told.push(story.iter().map(|member| event[*member].clone()).collect());
        if event["address"].is_null() {
            // When a subnet moves, each of its addresses has events of its own, in both networks.
            return Ok(());
        }
        let place = place_of(event);
        let known = self.held.remove(&place);
        if let Some(mut before) = event.get("before").cloned() {
            let length = known.as_ref().map_or(Value::Null, |known| known["prefix_length"].clone());
            before["prefix_length"] = length;
            if event["type"] == "expired" {
                // The event does not say when exactly an expired lease ended.
                before["expires_at"] = known.as_ref().map_or(Value::Null, |known| known["expires_at"].clone());
            }
            if known.as_ref() != Some(&before) {
                return Err(format!("before {event}\nit was known as {known:?}"));
            }
        } else if known.is_some() {
            return Err(format!("it was known as {known:?} before {event}"));
        }
        if let Some(mut after) = event.get("after").cloned() {
            after["prefix_length"] = event["prefix_length"].clone();
            self.held.insert(place, after);
        }
        Ok(())
    }

    /// Follows events as they were told; with several ends, in the order of their times.
    fn follow_all(&mut self, mut events: Vec<Value>, ends: usize) -> Result<(), String> {
        if ends > 1 {
            events.sort_by_key(|event| text(event, "time"));
        }
        events.iter().try_for_each(|event| self.follow(event))?;
        if ends > 1 {
            self.told.sort_by_key(|story| story[0].as_str().map(str::to_owned));
        }
        Ok(())
    }

    /// Compares this picture with what there is.
    pub fn is_of(&self, now: &Picture) -> Result<(), String> {
        for (place, held) in &now.held {
            if self.held.get(place) != Some(held) {
                return Err(format!("{place:?} is held as {held}, and was told as {:?}", self.held.get(place)));
            }
        }
        let gone = self.held.keys().find(|place| !now.held.contains_key(place));
        gone.map_or(Ok(()), |place| Err(format!("{place:?} is free, and was told as {}", self.held[place])))
    }
}

/// Is it one of the networks that are made when everything else is done?
fn is_the_end(event: &Value) -> bool {
    event["type"] == "network_created" && event["network"].as_str().is_some_and(|name| name.starts_with(LAST))
}

/// Follows everything until so many of the last networks were made, for pictures by subscription.
pub fn follow(server: &mut Subject, ends: usize, pictures: &mut [(Value, Picture)]) -> Result<(), String> {
    let mut told_to: Vec<(usize, Vec<Value>)> = pictures.iter().map(|_| (0, Vec::new())).collect();
    while told_to.iter().any(|(ended, _)| *ended < ends) {
        let mut told = server.told()?;
        let subscription = &told["params"]["subscription"];
        match told["method"].as_str() {
            Some("event") => {}
            Some("bookmark") => continue,
            // The clock jumped, so the server thinks that nobody listened for so long that it kept nothing.
            Some("lagged") => {
                let again = server.watch(&told["params"]["cursor"])?;
                for (number, _) in pictures.iter_mut().filter(|(number, _)| number == subscription) {
                    *number = again.clone();
                }
                continue;
            }
            _ => return Err(format!("told: {told}")),
        }
        let at = pictures.iter().position(|(number, _)| number == subscription);
        let (ended, events) = &mut told_to[at.ok_or_else(|| format!("told to nobody: {told}"))?];
        let event = told["params"]["event"].take();
        if is_the_end(&event) {
            *ended += 1;
        } else {
            events.push(event);
        }
    }
    for ((_, events), (_, picture)) in told_to.into_iter().zip(pictures) {
        picture.follow_all(events, ends)?;
    }
    Ok(())
}

/// The picture that history gives, read page by page.
pub fn look_back(server: &mut Subject, ends: usize) -> Result<Picture, String> {
    let (mut events, mut ended, mut ask) = (Vec::new(), 0, json!({"limit": 50}));
    while ended < ends {
        let page = server.ask("events.history", &ask)?["result"].take();
        for event in page["events"].as_array().ok_or(format!("{page}"))? {
            if is_the_end(event) {
                ended += 1;
            } else {
                events.push(event.clone());
            }
        }
        ask["after"] = page["next"].clone();
        if ask["after"].is_null() && ended < ends {
            return Err("the history ends before its end".to_owned());
        }
    }
    let mut picture = Picture::default();
    picture.follow_all(events, ends).map_err(|problem| format!("the history: {problem}"))?;
    Ok(picture)
}
