//! Requests that change or read configuration.

use serde_json::{Value, json};

use super::generate::{Dice, Step, maybe, name_of, network, owner, pool_reference, subnet_reference};

pub fn cidr(dice: &mut Dice) -> &'static str {
    dice.pick(&[
        "10.0.0.0/28",
        "10.0.0.0/28",
        "10.0.0.0/29",
        "10.0.0.8/29",
        "10.0.0.16/28",
        "10.0.0.32/30",
        "10.0.0.36/31",
        "10.0.0.38/32",
        "10.0.0.0/27",
        "fd00::/124",
        "fd00::10/126",
        "fd00::/125",
        "fd00::20/127",
        "fd00::22/128",
    ])
}

pub fn range(dice: &mut Dice) -> String {
    let fixed =
        ["10.0.0.0/28", "10.0.0.3-10.0.0.9", "10.0.0.5+3", "10.0.0.5", "fd00::3-fd00::9", "10.0.0.8/30", "fd00::11"];
    if dice.chance(60) {
        return dice.pick(&fixed).to_string();
    }
    let first = dice.below(16);
    format!("10.0.0.{first}-10.0.0.{}", first + dice.below(6))
}

/// The networks with which a sequence begins: n0 and n1 share the default realm, n2 has its own.
pub fn founding(name: &str, dice: &mut Dice) -> Step {
    let mut params = json!({ "name": name });
    if name == "n2" {
        params["realm"] = json!("lab");
    }
    let (v4, v6) = if name == "n1" { ("10.0.0.16/28", "fd00::10/126") } else { ("10.0.0.0/28", "fd00::/124") };
    let pools = [
        json!([{ "range": format!("{}+7", if name == "n1" { "10.0.0.17" } else { "10.0.0.3" }), "name": "p-dyn" }]),
        json!([
            { "range": format!("{}+3", if name == "n1" { "10.0.0.17" } else { "10.0.0.1" }), "name": "p-static",
              "kind": "static" },
            { "range": format!("{}+5", if name == "n1" { "10.0.0.21" } else { "10.0.0.5" }), "name": "p-dyn" },
            { "range": format!("{}+2", if name == "n1" { "10.0.0.28" } else { "10.0.0.12" }), "name": "p-dyn" },
        ]),
    ];
    let mut first = json!({ "cidr": v4, "name": "sub-a" });
    maybe(&mut first, dice, 70, "pools", |dice| pools[dice.below(2) as usize].clone());
    maybe(&mut first, dice, 40, "gateway", |_| json!(if name == "n1" { "10.0.0.17" } else { "10.0.0.1" }));
    maybe(&mut first, dice, 25, "zones", |_| json!(["z1"]));
    maybe(&mut first, dice, 30, "dhcp", |_| json!(true));
    let mut subnets = vec![first];
    if dice.chance(60) {
        let mut second = json!({ "cidr": v6 });
        maybe(&mut second, dice, 25, "zones", |_| json!(["z2"]));
        subnets.push(second);
    }
    params["subnets"] = json!(subnets);
    settings(&mut params, dice);
    Step { advance_ms: 1, method: "network.create", params }
}

fn settings(params: &mut Value, dice: &mut Dice) {
    maybe(params, dice, 60, "policy", |dice| json!(dice.pick(&["lowest", "oldest", "random"])));
    maybe(params, dice, 45, "cooldown_seconds", |dice| json!(dice.pick(&[0, 2, 5])));
    maybe(params, dice, 30, "cooldown_yields", |dice| json!(dice.chance(60)));
    maybe(params, dice, 10, "static_only", |dice| json!(dice.chance(70)));
    maybe(params, dice, 6, "protected", |dice| json!(dice.chance(50)));
    maybe(params, dice, 20, "limits", |dice| json!({ dice.pick(&["per_owner", "per_scope"]): 1 + dice.below(5) }));
    maybe(params, dice, 15, "tags", |dice| json!({ "t": dice.pick(&["1", "2"]) }));
    maybe(params, dice, 10, "description", |_| json!("a network"));
}

/// A subnet's members, for `subnet.add` and for new networks.
fn subnet(dice: &mut Dice) -> Value {
    let cidr = if dice.chance(40) { dice.pick(&["10.0.0.0/28", "10.0.0.16/28"]) } else { cidr(dice) };
    let mut subnet = json!({ "cidr": cidr });
    let base = cidr.split('/').next().unwrap_or_default();
    let near = |dice: &mut Dice| {
        let address = match base.rsplit_once(['.', ':']) {
            Some((front, last)) if base.contains('.') => {
                format!("{front}.{}", last.parse::<u64>().unwrap_or(0) + dice.below(5))
            }
            _ => format!("fd00::{:x}", dice.below(36)),
        };
        json!(address)
    };
    maybe(&mut subnet, dice, 15, "name", |dice| json!(dice.pick(&["sub-a", "sub-b"])));
    maybe(&mut subnet, dice, 30, "gateway", near);
    maybe(&mut subnet, dice, 15, "dhcp", |_| json!(true));
    maybe(&mut subnet, dice, 15, "zones", |dice| json!([dice.pick(&["z1", "z2"])]));
    maybe(&mut subnet, dice, 10, "draining", |_| json!(true));
    maybe(&mut subnet, dice, 10, "dns", |_| json!({ "servers": ["10.9.9.9"], "search": ["example"] }));
    if dice.chance(45) {
        let mut pools = Vec::new();
        for _ in 0..dice.below(3) {
            let mut pool = json!({ "range": if dice.chance(30) { cidr.to_string() } else { range(dice) } });
            maybe(&mut pool, dice, 60, "name", |dice| json!(dice.pick(&["p-dyn", "p-static"])));
            maybe(&mut pool, dice, 25, "kind", |_| json!("static"));
            pools.push(pool);
        }
        subnet["pools"] = json!(pools);
    }
    maybe(&mut subnet, dice, 10, "reserved", |dice| json!([{ "range": range(dice) }]));
    subnet
}

fn if_version(params: &mut Value, dice: &mut Dice) {
    let network = params["network"].as_str().unwrap_or("n0").trim_start_matches("$id:").to_string();
    maybe(params, dice, 8, "if_version", |dice| {
        if dice.chance(40) { json!(99_999) } else { json!(format!("$version:{network}")) }
    });
}

pub fn network_create(dice: &mut Dice) -> Value {
    if dice.chance(40) {
        let name = dice.pick(&["n0", "n1", "n2"]);
        return founding(name, dice).params;
    }
    let mut params = json!({ "name": dice.pick(&["n0", "n1", "n2", "n3", "n3"]) });
    maybe(&mut params, dice, 50, "realm", |dice| json!(dice.pick(&["lab", "default", "own"])));
    maybe(&mut params, dice, 12, "kind", |dice| json!(dice.pick(&["dynamic", "vip", "manual"])));
    if params["kind"] != "dynamic" || dice.chance(20) {
        maybe(&mut params, dice, 70, "subnets", |dice| (0..dice.below(3)).map(|_| subnet(dice)).collect());
    }
    settings(&mut params, dice);
    maybe(&mut params, dice, 30, "if_absent", |_| json!(true));
    params
}

pub fn network_only(dice: &mut Dice) -> Value {
    json!({ "network": network(dice) })
}

pub fn network_list(dice: &mut Dice) -> Value {
    let mut params = json!({});
    maybe(&mut params, dice, 20, "realm", |dice| json!(dice.pick(&["lab", "default"])));
    maybe(&mut params, dice, 20, "tag", |dice| json!(dice.pick(&["t", "t=1"])));
    maybe(&mut params, dice, 20, "limit", |dice| json!(1 + dice.below(2)));
    maybe(&mut params, dice, 20, "usage", |_| json!(true));
    params
}

pub fn network_update(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    let mut set = json!({});
    settings(&mut set, dice);
    maybe(&mut set, dice, 8, "name", |dice| json!(dice.pick(&["n0", "n1", "n3"])));
    maybe(&mut set, dice, 3, "realm", |_| json!("lab"));
    // Settings that keep everything out are lifted more often than they are set.
    maybe(&mut set, dice, 40, "protected", |_| json!(false));
    maybe(&mut set, dice, 30, "limits", |_| json!({ "per_owner": null, "per_scope": null }));
    let name = name_of(&params);
    maybe(&mut set, dice, 20, "subnets", |dice| entries(&name, dice));
    params["set"] = if set == json!({}) && dice.chance(80) { json!({ "description": "changed" }) } else { set };
    if_version(&mut params, dice);
    params
}

/// Most of what the network has, partly changed, and sometimes something new.
fn entries(name: &str, dice: &mut Dice) -> Value {
    let mut entries = Vec::new();
    let count = 1 + dice.below(3);
    for nth in 0..count {
        let mut entry = if dice.chance(75) { json!({ "cidr": format!("$cidr:{name}:{nth}") }) } else { subnet(dice) };
        if dice.chance(15) {
            entry["id"] = json!(dice.pick(&["$subnet:10.0.0.0/28", "$subnet:10.0.0.16/28"]));
        }
        maybe(&mut entry, dice, 20, "name", |dice| json!(dice.pick(&[Some("sub-a"), Some("sub-b"), None])));
        maybe(&mut entry, dice, 15, "dhcp", |dice| json!(dice.chance(50)));
        maybe(&mut entry, dice, 15, "draining", |dice| json!(dice.chance(30)));
        maybe(&mut entry, dice, 15, "pools", |dice| json!([{ "range": range(dice), "name": "p-dyn" }]));
        maybe(&mut entry, dice, 15, "reserved", |dice| json!([{ "range": range(dice) }]));
        entries.push(entry);
    }
    json!(entries)
}

pub fn network_delete(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    maybe(&mut params, dice, 30, "force", |_| json!(true));
    maybe(&mut params, dice, 6, "purge", |_| json!(true));
    if_version(&mut params, dice);
    params
}

pub fn network_restore(dice: &mut Dice) -> Value {
    json!({ "network": format!("$closed:{}", dice.pick(&["n0", "n1", "n2"])) })
}

pub fn network_map(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    let name = name_of(&params);
    maybe(&mut params, dice, 20, "subnet", |dice| subnet_reference(&name, dice));
    maybe(&mut params, dice, 20, "pool", |dice| pool_reference(&name, dice));
    maybe(&mut params, dice, 40, "format", |dice| json!(dice.pick(&["text", "runs"])));
    params
}

pub fn subnet_add(dice: &mut Dice) -> Value {
    let mut params = subnet(dice);
    params["network"] = network(dice);
    maybe(&mut params, dice, 25, "if_absent", |_| json!(true));
    if_version(&mut params, dice);
    params
}

pub fn subnet_modify(dice: &mut Dice) -> Value {
    let network = network(dice);
    let name = name_of(&json!({ "network": network }));
    let mut params = json!({ "network": network, "subnet": subnet_reference(&name, dice) });
    let mut set = json!({});
    maybe(&mut set, dice, 30, "cidr", |dice| json!(cidr(dice)));
    maybe(&mut set, dice, 25, "gateway", |dice| {
        json!(dice.pick(&[
            None,
            Some("10.0.0.1"),
            Some("10.0.0.5"),
            Some("10.0.0.15"),
            Some("fe80::1"),
            Some("10.0.0.30")
        ]))
    });
    maybe(&mut set, dice, 15, "name", |dice| json!(dice.pick(&[Some("sub-a"), Some("sub-b"), None])));
    maybe(&mut set, dice, 15, "dhcp", |dice| json!(dice.chance(50)));
    maybe(&mut set, dice, 15, "zones", |dice| if dice.chance(50) { json!(["z1"]) } else { json!([]) });
    maybe(&mut set, dice, 25, "draining", |dice| json!(dice.chance(40)));
    maybe(&mut set, dice, 15, "pools", |dice| json!([{ "range": range(dice), "name": "p-dyn" }]));
    params["set"] = if set == json!({}) && dice.chance(80) { json!({ "draining": false }) } else { set };
    if_version(&mut params, dice);
    params
}

pub fn subnet_move(dice: &mut Dice) -> Value {
    let network = network(dice);
    let name = name_of(&json!({ "network": network }));
    let mut params =
        json!({ "network": network, "subnet": subnet_reference(&name, dice), "to": super::generate::network(dice) });
    // Not generated: a subnet that moves to the network that has it.
    if params["network"] == params["to"] {
        params["to"] = json!(if params["network"] == "n2" { "n0" } else { "n2" });
    }
    params
}

pub fn subnet_remove(dice: &mut Dice) -> Value {
    let network = network(dice);
    let name = name_of(&json!({ "network": network }));
    let mut params = json!({ "network": network, "subnet": subnet_reference(&name, dice) });
    if_version(&mut params, dice);
    params
}

pub fn pool_add(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    if dice.chance(30) {
        let first = dice.below(12);
        params["range"] = json!(format!("10.0.0.{first}+{}", 1 + dice.below(3)));
    } else if dice.chance(70) {
        params["range"] = json!(range(dice));
    } else {
        params["subnet"] = subnet_reference(&name_of(&params), dice);
    }
    maybe(&mut params, dice, 60, "name", |dice| json!(dice.pick(&["p-dyn", "p-static"])));
    maybe(&mut params, dice, 25, "kind", |dice| json!(dice.pick(&["static", "dynamic"])));
    maybe(&mut params, dice, 25, "if_absent", |_| json!(true));
    if_version(&mut params, dice);
    params
}

pub fn pool_modify(dice: &mut Dice) -> Value {
    let network = network(dice);
    let name = name_of(&json!({ "network": network }));
    let mut params = json!({ "network": network, "pool": pool_reference(&name, dice) });
    let mut set = json!({});
    maybe(&mut set, dice, 30, "range", |dice| json!(range(dice)));
    maybe(&mut set, dice, 20, "name", |dice| json!(dice.pick(&[Some("p-dyn"), Some("p-static"), None])));
    maybe(&mut set, dice, 20, "kind", |dice| json!(dice.pick(&["static", "dynamic"])));
    maybe(&mut set, dice, 40, "draining", |dice| json!(dice.chance(40)));
    params["set"] = if set == json!({}) && dice.chance(80) { json!({ "draining": false }) } else { set };
    if_version(&mut params, dice);
    params
}

pub fn pool_remove(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    match dice.below(7) {
        0 => params["pool"] = pool_reference(&name_of(&params), dice),
        1 => params["subnet"] = subnet_reference(&name_of(&params), dice),
        _ => {
            let first = dice.below(16);
            params["range"] = json!(format!("10.0.0.{first}-10.0.0.{}", first + dice.below(3)));
        }
    }
    params
}

pub fn reserved_add(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice), "range": range(dice) });
    if dice.chance(35) {
        params["range"] = json!(format!("$in:{}:{}", name_of(&params), dice.below(16)));
        let mut whose = json!({});
        owner(&mut whose, dice, 20);
        params["for"] = whose;
    }
    maybe(&mut params, dice, 20, "note", |_| json!("kept"));
    if_version(&mut params, dice);
    params
}

pub fn reserved_remove(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice), "range": range(dice) });
    match dice.below(4) {
        0 => params["range"] = json!(dice.pick(&["10.0.0.0/28", "10.0.0.16/28", "10.0.0.4-10.0.0.11"])),
        1 | 2 => params["range"] = json!(format!("$reserved:{}:{}", name_of(&params), dice.below(4))),
        _ => {}
    }
    params
}

pub fn scope_list(dice: &mut Dice) -> Value {
    let mut params = json!({});
    maybe(&mut params, dice, 40, "network", network);
    params
}
