//! An event as a line for people. Events come one by one, so the columns have the widths that usually suffice.

use serde_json::Value;

use super::super::output::text_of;

/// The heading.
pub const HEAD: &str = "TIME                      EVENT            ADDRESS          NETWORK       OWNER\n";

/// The line of an event.
pub fn of(event: &Value) -> String {
    let text = |name: &str| event.get(name).map(text_of).unwrap_or_default();
    let address = match event.get("prefix_length").and_then(Value::as_u64) {
        Some(length) if length != if text("address").contains(':') { 128 } else { 32 } => {
            format!("{}/{length}", text("address"))
        }
        _ => text("address"),
    };
    let mut line =
        format!("{}  {:<15}  {address:<15}  {:<12}  {}", text("time"), text("type"), text("network"), text("owner"));
    // Defaults are not shown.
    for (name, plain) in [("scope", "default"), ("slot", "0"), ("claimant", ""), ("reason", "")] {
        let value = text(name);
        if !value.is_empty() && value != plain {
            line = format!("{line}  {name}={value}");
        }
    }
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_that_says_what_is_not_plain() {
        let event = json!({"time": "2026-03-01T09:12:44.031Z", "type": "granted", "network": "lan", "address": "10.0.0.5",
            "prefix_length": 32, "owner": "web/0", "scope": "default", "slot": "0"});
        assert_eq!(of(&event), "2026-03-01T09:12:44.031Z  granted          10.0.0.5         lan           web/0\n");
        let event = json!({"time": "T", "type": "released", "network": "lan", "address": "fd00::", "prefix_length": 64,
            "owner": "web/0", "scope": "shop", "slot": "a", "reason": "TICKET-1"});
        assert_eq!(
            of(&event),
            "T  released         fd00::/64        lan           web/0  scope=shop  slot=a  reason=TICKET-1\n"
        );
        let event = json!({"time": "T", "type": "network_created", "network": "lan"});
        assert_eq!(of(&event), "T  network_created                   lan\n");
    }
}
