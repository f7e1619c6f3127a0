//! The queries on a long history, and the answers that are expected.

use std::io;

use serde_json::{Value, json};

use crate::control::Control;
use crate::scenario::NetworkPlan;

/// The network, realm, owner and scope of the events to be found.
const NEEDLE: &str = "needle";
/// Their address.
const ADDRESS: &str = "192.0.2.77";
/// Events of the needle: two each at the beginning, in the middle and at the end.
const NEEDLES: usize = 6;
/// Events of a page by default.
const PAGE: usize = 100;

/// Creates the network of the needle.
///
/// # Errors
/// As of [`Control::call`]; or the network exists already: with a second history the expected answers would not be known.
pub fn make_needle(control: &mut Control) -> io::Result<()> {
    let network = NetworkPlan {
        name: NEEDLE.to_owned(),
        cidr: "192.0.2.0/24".to_owned(),
        policy: "lowest".to_owned(),
        cooldown_seconds: 0,
        blocks: false,
    };
    if control.create_network(&network)? {
        return Ok(());
    }
    let text = format!(
        "there is a network `{NEEDLE}` already, so this register has been filled: `--events 0` asks what it has"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Makes two events: the address is claimed and released.
///
/// # Errors
/// As of [`Control::call`].
pub fn needle(control: &mut Control) -> io::Result<()> {
    let params = json!({"network": NEEDLE, "scope": NEEDLE, "owner": NEEDLE, "address": ADDRESS});
    let granted = control.call("ip.claim", &params)?["created_at"].clone();
    // Wait for the clock, so that there is a time at which the address is held.
    while control.call("server.info", &json!({}))?["time"].as_str() <= granted.as_str() {}
    control.call("ip.release", &params)?;
    Ok(())
}

/// One query.
pub struct Query {
    pub name: String,
    pub params: Value,
    told: Told,
}

/// The expected answer.
#[derive(Clone, Copy)]
enum Told {
    /// This many events of the needle, without the creation of its network.
    Needles(usize),
    /// At least a full page.
    Many,
    /// Any answer.
    Something,
}

impl Query {
    /// What is wrong in the answer, if anything; `all`: the answer was read to its end.
    pub fn wrong(&self, told: &[Value], all: bool) -> Option<String> {
        let of_needle =
            told.iter().filter(|event| event["network"] == NEEDLE && event.get("address").is_some()).count();
        let is_right = match self.told {
            Told::Needles(expected) => of_needle == expected && all,
            Told::Many => told.len() >= PAGE,
            Told::Something => true,
        };
        let name = &self.name;
        if let Some(event) = told.iter().find(|event| !self.asks_for(event)) {
            return Some(format!("{name}: what was not asked for is told: {event}"));
        }
        (!is_right).then(|| {
            format!(
                "{name}: {} events were told, {of_needle} of them of `{NEEDLE}`, whose events are looked for",
                told.len()
            )
        })
    }

    /// Does an event match the query? An event without such a member may match, as the creation of a network, which has no
    /// owner.
    fn asks_for(&self, event: &Value) -> bool {
        // Each network is in a realm of the same name.
        let members = [
            ("network", "network"),
            ("realm", "network"),
            ("scope", "scope"),
            ("owner", "owner"),
            ("address", "address"),
        ];
        members.into_iter().all(|(asked, told)| match (self.params.get(asked), event.get(told)) {
            (Some(asked), Some(told)) => asked == told,
            _ => true,
        })
    }
}

/// Positions in the history.
pub struct Places {
    /// The times of the second needle's grant, in the middle of the history, and of its release.
    middle: (Value, Value),
    /// Cursors over all networks, after the grants of the second and of the third needle.
    far: (Value, Value),
    /// After an event of a busy network in the middle.
    far_in_busy: Value,
}

impl Places {
    /// Looks for the needle.
    ///
    /// # Errors
    /// As of [`Control::call`]; or the history has no needle.
    pub fn find(control: &mut Control) -> io::Result<Self> {
        let (mut needles, mut params) = (Vec::new(), json!({"owner": NEEDLE}));
        loop {
            let mut page = control.call("events.history", &params)?;
            needles.append(page["events"].as_array_mut().unwrap_or(&mut Vec::new()));
            match page.get("next") {
                Some(next) => params["after"] = next.clone(),
                None => break,
            }
        }
        if needles.len() != NEEDLES {
            let text =
                format!("the history has {} events of `{NEEDLE}`, not {NEEDLES}; let this make it", needles.len());
            return Err(io::Error::other(text));
        }
        let time = |at: usize| needles[at]["time"].clone();
        let busy = json!({"network": "load-00", "from": time(2), "limit": 1});
        let page = control.call("events.history", &busy)?;
        Ok(Self {
            middle: (time(2), time(3)),
            far: (needles[2]["cursor"].clone(), needles[4]["cursor"].clone()),
            far_in_busy: page["events"][0]["cursor"].clone(),
        })
    }
}

/// The names of all queries, which are the same for each history.
pub fn names() -> Vec<String> {
    let nowhere = Places { middle: Default::default(), far: Default::default(), far_in_busy: Value::Null };
    queries(&nowhere).into_iter().map(|query| query.name).collect()
}

/// All queries.
pub fn queries(places: &Places) -> Vec<Query> {
    let (at, to) = (&places.middle.0, &places.middle.1);
    let ask = |name: &str, params: Value, told: Told| Query { name: name.to_owned(), params, told };
    let needles = Told::Needles;
    vec![
        ask("nothing: the beginning", json!({}), Told::Many),
        ask("rare network", json!({"network": NEEDLE}), needles(6)),
        ask("rare realm", json!({"realm": NEEDLE}), needles(6)),
        ask("rare owner", json!({"owner": NEEDLE}), needles(6)),
        ask("rare scope", json!({"scope": NEEDLE}), needles(6)),
        ask("rare address", json!({"address": ADDRESS}), needles(6)),
        ask("address, owner and network", json!({"address": ADDRESS, "owner": NEEDLE, "network": NEEDLE}), needles(6)),
        ask("owner that never was", json!({"owner": "never"}), needles(0)),
        ask("address that never was", json!({"address": "198.51.100.1"}), needles(0)),
        ask("scope that never was", json!({"scope": "never"}), needles(0)),
        ask("realm that never was", json!({"realm": "never"}), needles(0)),
        ask("busy network", json!({"network": "load-00"}), Told::Many),
        ask("busy realm", json!({"realm": "load-00"}), Told::Many),
        ask("busy scope", json!({"scope": "default"}), Told::Many),
        ask("address of a busy network", json!({"network": "load-00", "address": "10.1.2.3"}), Told::Something),
        ask("address at a time", json!({"address": ADDRESS, "at": at}), needles(1)),
        ask("owner at a time", json!({"owner": NEEDLE, "at": at}), needles(1)),
        ask("scope at a time", json!({"scope": NEEDLE, "at": at}), needles(1)),
        ask("rare network at a time", json!({"network": NEEDLE, "at": at}), needles(1)),
        ask("rare realm at a time", json!({"realm": NEEDLE, "at": at}), needles(1)),
        ask("address that never was, at a time", json!({"address": "198.51.100.1", "at": at}), needles(0)),
        ask("from a time", json!({"from": at}), Told::Many),
        ask("up to a time", json!({"to": at}), Told::Many),
        ask("between two times", json!({"from": at, "to": to}), Told::Something),
        ask("rare owner from a time", json!({"owner": NEEDLE, "from": at}), needles(4)),
        ask("busy network from a time", json!({"network": "load-00", "from": at}), Told::Many),
        ask("after, in the middle", json!({"after": places.far.0}), Told::Many),
        ask("after, at the end", json!({"after": places.far.1}), Told::Needles(1)),
        ask("rare owner, after, in the middle", json!({"owner": NEEDLE, "after": places.far.0}), needles(3)),
        ask(
            "busy network, after, in the middle",
            json!({"network": "load-00", "after": places.far_in_busy}),
            Told::Many,
        ),
        ask("busy network at a time", json!({"network": "load-00", "at": at}), Told::Something),
        ask("everything at a time", json!({"at": at}), Told::Many),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_is_wrong_however_much_of_what_was_is_told() {
        let query = Query { name: "rare owner".to_owned(), params: json!({"owner": NEEDLE}), told: Told::Needles(2) };
        let of = |owner: &str| json!({"network": NEEDLE, "address": ADDRESS, "owner": owner});
        let made = json!({"network": NEEDLE, "type": "network_created"});
        assert_eq!(query.wrong(&[made.clone(), of(NEEDLE), of(NEEDLE)], true), None);
        for (told, all) in
            [(vec![of(NEEDLE)], true), (vec![of(NEEDLE), of("a")], true), (vec![of(NEEDLE), of(NEEDLE)], false)]
        {
            assert!(query.wrong(&told, all).is_some(), "{told:?} {all}");
        }
        let more = [of(NEEDLE), of(NEEDLE), json!({"network": "load-00", "address": "10.0.0.1", "owner": "a"})];
        assert!(query.wrong(&more, true).is_some_and(|wrong| wrong.contains("load-00")));
    }
}
