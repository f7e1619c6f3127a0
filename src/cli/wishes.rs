//! Finds the optional wishes of an `ip.acquire` that got nothing: its answer leaves them out. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::args::Ask;
use super::output::{list, text_of};
use crate::core::plural::counted;

/// A line about these wishes; none if each got an address.
pub fn left_out(ask: &Ask, result: &Value) -> Option<String> {
    let wishes: Vec<&Value> = ask.params.get("ips").and_then(Value::as_array).into_iter().flatten().collect();
    let missing = wishes.len().saturating_sub(list(result, "reservations").count());
    // Only optional wishes are ever left out.
    let count = missing.min(wishes.iter().filter(|wish| is_optional(wish)).count());
    if count == 0 {
        return None;
    }
    let left_out = unmet(ask, &wishes, result);
    if left_out.len() != count {
        return Some(format!("{} found no room and got nothing", counted(count, "optional wish")));
    }
    let wishes: Vec<String> = left_out.into_iter().map(|wish| format!("`--ip {}`", typed(wish))).collect();
    Some(format!("no room for {}, which {} optional", wishes.join(", "), if count == 1 { "was" } else { "were" }))
}

fn is_optional(wish: &Value) -> bool {
    wish.get("optional") == Some(&Value::Bool(true))
}

/// The answer has the order of the wishes, so an optional wish was left out if the next reservation is of another slot or
/// network.
fn unmet<'a>(ask: &'a Ask, wishes: &[&'a Value], result: &Value) -> Vec<&'a Value> {
    let mut reservations = list(result, "reservations").peekable();
    let mut places = BTreeMap::<&str, usize>::new();
    let prefix = ask.text("slot_prefix").unwrap_or_default();
    let mut unmet = Vec::new();
    for &wish in wishes {
        let text = |member: &str| wish.get(member).and_then(Value::as_str);
        let network = text("network").or_else(|| ask.text("network")).unwrap_or_default();
        let place = places.entry(network).or_default();
        let slot = text("slot").map_or_else(|| format!("{prefix}{place}"), str::to_owned);
        *place += 1;
        let fits = |held: &&Value| {
            let is = |member: &str, value: &str| held.get(member).and_then(Value::as_str) == Some(value);
            is("slot", &slot) && (is("network", network) || is("network_id", network))
        };
        if reservations.next_if(fits).is_none() && is_optional(wish) {
            unmet.push(wish);
        }
    }
    unmet
}

/// A wish in the form of `--ip`.
fn typed(wish: &Value) -> String {
    let nothing = Map::new();
    let members = wish.as_object().unwrap_or(&nothing);
    let part = |(name, value): (&String, &Value)| match value {
        Value::Bool(true) => name.clone(),
        value if name == "address" => text_of(value),
        value => format!("{name}={}", text_of(value)),
    };
    members.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_optional_wish_that_got_nothing_is_named() {
        let said = |params: Value, held: &[(&str, &str)]| {
            let held: Vec<Value> = held
                .iter()
                .map(|(network, slot)| json!({"network": network, "network_id": "7", "slot": slot}))
                .collect();
            left_out(&Ask::new("ip.acquire", &params), &json!({"reservations": held}))
        };
        let params = json!({"network": "lan", "slot_prefix": "nic", "ips": [
            {"network": "dmz", "family": 6, "optional": true}, {}, {"address": "10.0.0.5", "slot": "x", "optional": true}]});
        assert_eq!(said(params.clone(), &[("dmz", "nic0"), ("lan", "nic0"), ("lan", "x")]), None);
        let dmz = "no room for `--ip network=dmz,family=6,optional`, which was optional";
        assert_eq!(said(params.clone(), &[("lan", "nic0"), ("lan", "x")]).as_deref(), Some(dmz));
        let both = said(params.clone(), &[("lan", "nic0")]).unwrap();
        assert!(both.ends_with("`--ip 10.0.0.5,slot=x,optional`, which were optional"), "{both}");
        // If they cannot be distinguished, they are only counted.
        let counted = said(params, &[("other", "0"), ("lan", "x")]);
        assert_eq!(counted.as_deref(), Some("1 optional wish found no room and got nothing"));
    }
}
