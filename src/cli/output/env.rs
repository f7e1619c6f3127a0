//! `--format env`: answers as shell assignments that are safe to `eval`.
//!
//! The names are Ganeti's exported variables, in a form that a shell accepts: the address `i` of an answer is `IP_i`, and
//! its subnet is `NETWORK_SUBNET_i`, `NETWORK_GATEWAY_i`, `NETWORK_DHCP_i`. `--prefix INSTANCE_NIC0_` is put in front of
//! each. A variable without a value is written empty, so that no value is left over from an earlier `eval`. Any other answer
//! becomes one variable per member: `SIZE='256'`, `RELEASED_0='10.0.0.7'`.

use serde_json::Value;

use super::super::quote;
use super::text_of;

/// The assignments of an answer, one per line.
pub fn render(result: &Value, prefix: &str) -> String {
    assignments(&variables(result, prefix))
}

/// Variables as shell assignments.
pub fn assignments(variables: &[(String, String)]) -> String {
    variables.iter().map(|(name, value)| format!("{name}={}\n", quote::always(value))).collect()
}

/// The variables of an answer, with the prefix in front of each.
pub fn variables(result: &Value, prefix: &str) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    if let Some(list) = result.get("reservations").and_then(Value::as_array) {
        reservations(&mut lines, &list.iter().collect::<Vec<_>>());
    } else if result.get("address").is_some() && result.get("prefix_length").is_some() {
        reservations(&mut lines, &[result]);
    } else if let Some(held) = result.get("reservation").filter(|_| result.get("state").is_some()) {
        lines.push(("STATE".to_owned(), member(result, "state")));
        reservations(&mut lines, &[held]);
    } else if ["state", "address", "network"].iter().all(|member| result.get(*member).is_some()) {
        flatten(&mut lines, "", result);
        // Nobody holds it. Nothing may be left of the address before, which somebody held.
        let mut nothing = Vec::new();
        reservations(&mut nothing, &[&Value::Null]);
        nothing.retain(|(name, _)| lines.iter().all(|(there, _)| there != name));
        let empty = |name: String| {
            let value = if name == "IP_COUNT" { "0" } else { "" };
            (name, value.to_owned())
        };
        lines.extend(nothing.into_iter().map(|(name, _)| empty(name)));
    } else if let Some(list) =
        result.get("subnets").and_then(Value::as_array).filter(|_| result.get("version").is_some())
    {
        lines.push(("NETWORK_NAME".to_owned(), member(result, "name")));
        for (at, subnet) in list.iter().enumerate() {
            subnet_of(&mut lines, at, &member(subnet, "cidr"), subnet);
        }
    } else {
        flatten(&mut lines, "", result);
    }
    lines.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)).collect()
}

fn reservations(lines: &mut Vec<(String, String)>, list: &[&Value]) {
    lines.push(("IP_COUNT".to_owned(), list.len().to_string()));
    for (at, held) in list.iter().enumerate() {
        lines.push((format!("IP_{at}"), member(held, "address")));
        lines.push((format!("PREFIX_LENGTH_{at}"), member(held, "prefix_length")));
        lines.push((format!("INTERFACE_{at}"), member(held, "interface")));
        lines.push((format!("NETWORK_NAME_{at}"), member(held, "network")));
        subnet_of(lines, at, &member(held, "subnet"), held);
        lines.push((format!("MAC_{at}"), member(held, "mac")));
    }
}

fn subnet_of(lines: &mut Vec<(String, String)>, at: usize, cidr: &str, facts: &Value) {
    let servers = facts.get("dns").and_then(|dns| dns.get("servers")).and_then(Value::as_array);
    let servers: Vec<String> = servers.into_iter().flatten().map(text_of).collect();
    lines.push((format!("NETWORK_SUBNET_{at}"), cidr.to_owned()));
    lines.push((format!("NETWORK_GATEWAY_{at}"), member(facts, "gateway")));
    let dhcp = facts.get("dhcp").and_then(Value::as_bool).unwrap_or(false);
    lines.push((format!("NETWORK_DHCP_{at}"), dhcp.to_string()));
    lines.push((format!("NETWORK_DNS_{at}"), servers.join(" ")));
}

fn member(of: &Value, name: &str) -> String {
    of.get(name).map(text_of).unwrap_or_default()
}

/// Adds one variable per member, named by its path. Labels and tags are left out, because their keys need not be legal
/// names.
fn flatten(lines: &mut Vec<(String, String)>, path: &str, value: &Value) {
    let join = |name: &str| {
        let name: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
        if path.is_empty() { name } else { format!("{path}_{name}") }
    };
    match value {
        Value::Object(members) => {
            for (name, inner) in members.iter().filter(|(name, _)| !matches!(name.as_str(), "labels" | "tags")) {
                flatten(lines, &join(name), inner);
            }
        }
        Value::Array(items) => {
            lines.push((join("count"), items.len().to_string()));
            for (at, inner) in items.iter().enumerate() {
                flatten(lines, &join(&at.to_string()), inner);
            }
        }
        scalar => {
            let name = if path.is_empty() { "RESULT" } else { path };
            // A name may not begin with a digit, as it would for a list at the top level.
            let name = if quote::is_variable(name) { name.to_owned() } else { format!("_{name}") };
            lines.push((name, text_of(scalar)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_line_is_a_legal_assignment() {
        let answers = [
            json!({"reservations": [{"address": "10.0.0.5", "note": "a'b"}]}),
            json!({"a-b": [1, {"c": null}], "labels": {"x.y": "$(reboot)"}}),
            json!([1, 2]),
            json!("pong"),
        ];
        for answer in answers {
            for line in render(&answer, "").lines() {
                let (name, value) = line.split_once('=').unwrap();
                assert!(quote::is_variable(name), "{line}");
                assert!(value.starts_with('\'') && value.ends_with('\''), "{line}");
            }
        }
    }

    #[test]
    fn values_that_are_missing_are_written_empty() {
        let text =
            render(&json!({"address": "fd00::5", "prefix_length": 128, "subnet": "fd00::/64"}), "INSTANCE_NIC0_");
        assert!(text.contains("INSTANCE_NIC0_IP_0='fd00::5'\n"), "{text}");
        assert!(text.contains("INSTANCE_NIC0_NETWORK_GATEWAY_0=''\n"), "{text}");
        assert!(text.contains("INSTANCE_NIC0_NETWORK_DHCP_0='false'\n"), "{text}");
    }

    #[test]
    fn of_an_address_that_nobody_holds_nothing_is_left_of_one_that_somebody_holds() {
        let held = json!({"state": "held", "reservation": {"address": "10.0.0.5", "prefix_length": 32, "mac": "52:54:00:00:00:01"}});
        let free = json!({"network": "lan", "address": "10.0.0.6", "state": "free"});
        let free = variables(&free, "");
        let value = |name: &str| free.iter().find(|(there, _)| there == name).map(|(_, value)| value.as_str());
        for (name, _) in variables(&held, "") {
            let wanted = match &*name {
                "STATE" => "free",
                "IP_COUNT" => "0",
                _ => "",
            };
            assert_eq!(value(&name), Some(wanted), "{name}");
        }
        assert_eq!(value("ADDRESS"), Some("10.0.0.6"));
    }
}
