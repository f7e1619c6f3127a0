//! Computes what an event changed in the configuration of a network. The event contains the current settings, and only those
//! subnets that changed; a comparison with earlier events shows the changes. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::show::{list, text};
use super::super::text_of;

/// Members that change with every event, or are shown elsewhere.
const UNTOLD: [&str; 6] = ["version", "deleted", "subnets", "removed", "id", "realm"];
/// Longer values are not shown.
const VALUE_MAX: usize = 40;

/// What earlier events said about networks and subnets, by their ids.
#[derive(Debug, Default)]
pub struct Earlier {
    networks: BTreeMap<String, Value>,
    subnets: BTreeMap<String, Value>,
}

impl Earlier {
    /// What this event changed in a network; empty for any other event. The event is remembered for the next one.
    pub fn changed(&mut self, event: &Value) -> String {
        let is_of_network = matches!(&*text(event, "type"), "network_created" | "network_changed");
        let Some(after) = event.get("after").filter(|_| is_of_network) else { return String::new() };
        let mut parts = Vec::new();
        let had = self.networks.insert(text(event, "network_id"), after.clone());
        let is_new = text(event, "type") == "network_created";
        let settings = had.map(|had| differences(&had, after)).unwrap_or_default();
        let tells_subnets = ["subnets", "removed"].iter().any(|member| list(after, member).next().is_some());
        parts.extend(settings);
        for subnet in list(after, "subnets") {
            let had = self.subnets.insert(text(subnet, "id"), subnet.clone());
            let differs = had.map(|had| differences(&had, subnet)).filter(|differs| !differs.is_empty());
            let differs = differs.map_or_else(String::new, |differs| format!(": {}", differs.join(", ")));
            parts.push(format!("subnet {}{differs}", text(subnet, "cidr")));
        }
        for id in list(after, "removed").map(text_of) {
            let named = self.subnets.get(&id).map_or(id, |subnet| text(subnet, "cidr"));
            parts.push(format!("subnet {named} gone"));
        }
        if parts.is_empty() && !is_new && !tells_subnets {
            // The first known event of this network: its earlier settings are unknown.
            return "settings".to_owned();
        }
        parts.join("; ")
    }
}

/// The members that changed, with the new value if it is short.
fn differences(before: &Value, after: &Value) -> Vec<String> {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else { return Vec::new() };
    let told = |name: &&String| !UNTOLD.contains(&name.as_str());
    let now =
        after.iter().filter(|(name, value)| told(name) && before.get(*name) != Some(*value)).map(|(name, value)| {
            let short =
                Some(text_of(value)).filter(|text| text.len() <= VALUE_MAX && !value.is_object() && !value.is_array());
            short.map_or_else(|| name.clone(), |value| format!("{name}={value}"))
        });
    let gone = before.keys().filter(told).filter(|name| !after.contains_key(*name)).map(|name| format!("{name} gone"));
    now.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, after: Value) -> Value {
        json!({"type": kind, "network_id": "n1", "network": "lan", "after": after})
    }

    #[test]
    fn what_changed_of_a_network_is_told_against_what_was_said_before() {
        let subnet = |gateway: &str| json!({"id": "s1", "cidr": "10.0.0.0/24", "gateway": gateway});
        let mut earlier = Earlier::default();
        let mut told = |kind: &str, after: Value| earlier.changed(&event(kind, after));
        let created = json!({"name": "lan", "policy": "lowest", "version": 1, "subnets": [subnet("10.0.0.1")]});
        assert_eq!(told("network_created", created), "subnet 10.0.0.0/24");
        let settings = json!({"name": "lan", "policy": "random", "tags": {"a": "b"}, "version": 2});
        assert_eq!(told("network_changed", settings), "policy=random; tags");
        let moved = json!({"name": "lan", "policy": "random", "version": 3, "subnets": [subnet("10.0.0.254")]});
        assert_eq!(told("network_changed", moved), "tags gone; subnet 10.0.0.0/24: gateway=10.0.0.254");
        let removed = json!({"name": "lan", "policy": "random", "version": 4, "removed": ["s1", "s2"]});
        assert_eq!(told("network_changed", removed), "subnet 10.0.0.0/24 gone; subnet s2 gone");
    }

    #[test]
    fn an_event_that_comes_first_tells_what_it_has() {
        let changed = |after: Value| Earlier::default().changed(&event("network_changed", after));
        assert_eq!(changed(json!({"name": "lan", "policy": "random"})), "settings");
        assert_eq!(changed(json!({"name": "lan", "subnets": [{"id": "s", "cidr": "fd00::/64"}]})), "subnet fd00::/64");
    }
}
