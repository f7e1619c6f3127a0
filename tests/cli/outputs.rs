//! Answers as table, JSON and shell assignments.

use std::process::Command;

use allod::cli::output::{Format, Style};
use serde_json::{Value, json};

use crate::golden;

fn reservation(address: &str, owner: &str) -> Value {
    let v6 = address.contains(':');
    json!({
        "network": "lan", "network_id": "00000000-0000-4000-8000-000000000001", "address": address,
        "prefix_length": if v6 { 128 } else { 32 },
        "interface": format!("{address}/{}", if v6 { 64 } else { 24 }),
        "subnet": if v6 { "fd00::/64" } else { "10.0.0.0/24" },
        "subnet_id": "00000000-0000-4000-8000-0000000000aa",
        "pool": if v6 { "fd00::-fd00::ffff:ffff:ffff:ffff" } else { "10.0.0.0-10.0.0.255" },
        "gateway": if v6 { "fe80::1" } else { "10.0.0.1" }, "dhcp": !v6,
        "dns": {"servers": ["10.0.0.2", "10.0.0.3"]}, "scope": "default", "owner": owner, "slot": "0",
        "kind": "dynamic", "claimant": "vm-4711", "labels": {"tier": "front"}, "note": "it's a 'test' $(reboot)",
        "created_at": "2026-03-01T09:12:44.031Z", "generation": 12, "created": true,
    })
}

fn network() -> Value {
    json!({
        "id": "00000000-0000-4000-8000-000000000001", "name": "lan", "realm": "default", "kind": "manual",
        "policy": "lowest", "cooldown_seconds": 60, "cooldown_yields": false, "static_only": false,
        "protected": true, "tags": {"site": "a"}, "description": "offices", "version": 7,
        "subnets": [
            {"id": "00000000-0000-4000-8000-0000000000aa", "cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "dhcp": true,
             "draining": false, "pools": [{"range": "10.0.0.10-10.0.0.20", "kind": "dynamic", "draining": true}],
             "reserved": [{"range": "10.0.0.12-10.0.0.12", "note": "printer", "for": {"owner": "print/0"}}]},
            {"id": "00000000-0000-4000-8000-0000000000ab", "cidr": "fd00::/64", "dhcp": false, "draining": false,
             "zones": ["z1", "z2"], "pools": [{"range": "fd00::-fd00::ffff:ffff:ffff:ffff", "kind": "dynamic"}]},
        ],
    })
}

fn usage() -> Value {
    let counts = |size: &str, held: &str, free: &str| {
        json!({"size": size, "held": held, "dynamic": held, "static": "0", "obsolete": "1", "reserved": "3",
            "cooling": "0", "declined": "0", "free": free, "used_ratio": 0.5, "reservations": 5})
    };
    let with = |mut of: Value, more: Value| {
        for (member, value) in more.as_object().unwrap() {
            of[member] = value.clone();
        }
        of
    };
    let pool = with(counts("11", "5", "3"), json!({"range": "10.0.0.10-10.0.0.20", "name": "web", "kind": "dynamic"}));
    let wide =
        with(counts("18446744073709551616", "5", "18446744073709551608"), json!({"cidr": "fd00::/64", "pools": []}));
    let subnet = with(counts("256", "5", "248"), json!({"cidr": "10.0.0.0/24", "pools": [pool]}));
    with(counts("18446744073709551872", "10", "18446744073709551856"), json!({"subnets": [subnet, wide]}))
}

fn answers() -> Vec<(&'static str, Value)> {
    let map = "X".repeat(3) + &".".repeat(61) + &".X".repeat(20);
    vec![
        ("ip.allocate", reservation("10.0.0.5", "web/0")),
        ("ip.acquire", json!({"reservations": [reservation("10.0.0.5", "web/0"), reservation("fd00::5", "web/0")]})),
        (
            "ip.list",
            json!({"reservations": [reservation("10.0.0.5", "web/0"), reservation("fd00::5", "db/17")], "cursor": "c"}),
        ),
        ("ip.list", json!({"count": 2, "cursor": "c"})),
        ("ip.release", json!({"released": ["10.0.0.5"]})),
        (
            "ip.get",
            json!({"address": "10.0.0.5", "state": "held", "network": "lan", "reservation": reservation("10.0.0.5", "web/0")}),
        ),
        ("ip.get", json!({"address": "10.0.0.9", "state": "free", "network": "lan"})),
        ("ip.find", json!({"found": []})),
        ("owner.release", json!({"released": [{"network": "lan", "address": "10.0.0.5"}], "more": false})),
        ("network.get", network()),
        ("network.list", json!({"networks": [network()]})),
        ("network.usage", usage()),
        (
            "network.map",
            json!({"pools": [{"range": "10.0.0.2-10.0.0.105", "name": "web", "first": "10.0.0.2",
            "last": "10.0.0.105", "map": map}]}),
        ),
        ("network.delete", json!({"id": "00000000-0000-4000-8000-000000000001", "holding": 0})),
        (
            "scope.list",
            json!({"scopes": [{"scope": "prod", "reservations": 4, "addresses": "4", "obsolete": 0, "unbound": 1}]}),
        ),
        ("realm.list", json!({"realms": [{"realm": "default", "networks": 2}]})),
        (
            "claimant.sweep",
            json!({"unbound": [{"network": "lan", "address": "10.0.0.5", "claimant": "vm-1"}],
            "released": [], "waiting": []}),
        ),
        (
            "deployment.apply",
            json!({"plan": 1_795_000_000_000_u64, "instances": [{"id": "web/0", "networks": [
                {"network": "lan", "slot": "0", "state": "promised", "reservation": reservation("10.0.0.5", "web/0"),
                 "replaces": "10.0.0.6"},
                {"network": "lan", "slot": "v6", "state": "new", "reservation": reservation("fd00::5", "web/0")}]}],
                "obsolete": [reservation("10.0.0.7", "db/17")]}),
        ),
        (
            "deployment.get",
            json!({"deployment": "shop", "plan": 1_795_000_000_000_u64, "uncommitted_since": "2026-03-01T09:12:44.031Z",
                "instances": [{"id": "web/0", "reservations": [reservation("10.0.0.5", "web/0")],
                    "obsolete": [reservation("10.0.0.6", "web/0")]}]}),
        ),
        (
            "deployment.list",
            json!({"deployments": [
                {"deployment": "prod", "plan": 1_795_000_000_001_u64},
                {"deployment": "shop", "plan": 1_795_000_000_000_u64, "uncommitted_since": "2026-03-01T09:12:44.031Z"}]}),
        ),
        ("deployment.commit", json!({"released": [{"network": "lan", "address": "10.0.0.6"}]})),
        (
            "cluster.nodes",
            json!({"nodes": [
                {"name": "north", "id": "0f", "version": "0.1.0", "address": "10.0.0.1:7400", "owner": true,
                 "draining": false, "seen_ms": 120},
                {"name": "south", "id": "1f", "version": "0.1.0", "owner": false, "draining": true, "seen_ms": 1_031},
            ]}),
        ),
        ("cluster.conflicts", json!({ "conflicts": [conflict()] })),
        ("cluster.accept", json!({"accepted": []})),
        ("cluster.drain", json!({"node": "south", "draining": true, "owner": "north"})),
        (
            "rpc.discover",
            json!({"openrpc": "1.3.2", "methods": [
                {"name": "ip.get", "summary": "Tells what is known about an address.", "params": [{"name": "address"}]},
                {"name": "deployment.apply",
                 "summary": "Grants what a deployment wishes, and makes obsolete what it wishes no more.", "params": []}]}),
        ),
        ("server.ping", json!("pong")),
        ("server.info", json!({"version": "0.1.0", "limits": {"max_line_bytes": 1048576}})),
    ]
}

fn conflict() -> Value {
    json!({"network": "lan", "network_id": "0f", "address": "10.0.0.5", "prefix_length": 32,
        "late": {"scope": "default", "owner": "web/0", "slot": "0", "generation": 7, "since": "2026-03-01T09:12:44.031Z"},
        "present": {"address": "10.0.0.5", "prefix_length": 32, "scope": "default", "owner": "db/17", "slot": "0",
            "generation": 9, "since": "2026-03-01T09:13:44.031Z"}, "found_at": "2026-03-01T09:14:44.031Z"})
}

fn rendered(format: Format) -> String {
    let style = Style { format, prefix: String::new(), width: Some(80) };
    let mut text = String::new();
    for (method, result) in answers() {
        let params = json!({"address": "10.0.0.9"});
        let shown = anstream::adapter::strip_str(&style.render(method, &params, &result)).to_string();
        text.push_str(&format!("# {method}\n{shown}\n"));
    }
    text
}

#[test]
fn answers_as_tables() {
    let text = rendered(Format::Table);
    let wide = text.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);
    golden("tables.txt", &text);
}

#[test]
fn a_list_of_deleted_networks_shows_the_ids_by_which_they_are_called() {
    let style = Style { format: Format::Table, prefix: String::new(), width: Some(80) };
    let shows_ids = |params: Value| {
        let table = style.render("network.list", &params, &json!({"networks": [network()]}));
        table.contains("00000000-0000-4000-8000-000000000001")
    };
    assert!(shows_ids(json!({"deleted": true})) && !shows_ids(json!({})));
}

#[test]
fn answers_as_shell_assignments() {
    golden("env.txt", &rendered(Format::Env));
}

#[test]
fn json_is_the_answer_itself_with_its_members_in_order() {
    let style = Style { format: Format::Json, ..Style::default() };
    for (method, result) in answers() {
        let text = style.render(method, &json!({}), &result);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap().to_string(), result.to_string());
    }
}

/// A note with quotes and a command substitution arrives unchanged, and nothing is run.
#[test]
fn assignments_survive_eval() {
    let style = Style { format: Format::Env, prefix: "INSTANCE_NIC0_".into(), width: None };
    let mut first = reservation("10.0.0.5", "web/0");
    first["mac"] = json!("a'b\"c $(echo pwned) `echo pwned` \\ ; exit 9");
    let assignments =
        style.render("ip.acquire", &json!({}), &json!({"reservations": [first, reservation("fd00::5", "web/0")]}));
    let script = "set -eu; eval \"$1\"; printf '%s|' \"$INSTANCE_NIC0_IP_COUNT\" \"$INSTANCE_NIC0_IP_1\" \
                  \"$INSTANCE_NIC0_NETWORK_SUBNET_0\" \"$INSTANCE_NIC0_NETWORK_GATEWAY_0\" \
                  \"$INSTANCE_NIC0_NETWORK_DHCP_0\" \"$INSTANCE_NIC0_MAC_0\"";
    let output = Command::new("sh").args(["-c", script, "sh", &assignments]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "2|fd00::5|10.0.0.0/24|10.0.0.1|true|a'b\"c $(echo pwned) `echo pwned` \\ ; exit 9|"
    );
}

fn table(method: &str, result: &Value) -> String {
    let style = Style { format: Format::Table, prefix: String::new(), width: None };
    anstream::adapter::strip_str(&style.render(method, &json!({}), result)).to_string()
}

#[test]
fn what_an_exact_acquire_lets_go_is_in_the_table() {
    let released = json!([{"network": "lan", "address": "10.0.0.6"}]);
    let text = table("ip.acquire", &json!({"reservations": [reservation("10.0.0.5", "web/0")], "released": released}));
    assert!(text.ends_with("\n\nRELEASED  NETWORK\n10.0.0.6  lan\n"), "{text}");
}

#[test]
fn a_network_is_shown_with_dns_and_with_the_scope_and_slot_for_which_a_range_is_reserved() {
    let mut network = network();
    network["subnets"][0]["dns"] = json!({"servers": ["10.0.0.2", "10.0.0.3"], "search": ["example.org"]});
    network["subnets"][0]["reserved"] = json!([
        {"range": "10.0.0.12-10.0.0.12", "for": {"scope": "default", "owner": "a"}},
        {"range": "10.0.0.13-10.0.0.13", "for": {"scope": "sc", "owner": "b", "slot": "3"}}]);
    let text = table("network.get", &network);
    for part in ["DNS", "10.0.0.2 10.0.0.3  example.org", "reserved for a\n", "reserved for b (scope sc, slot 3)\n"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}
