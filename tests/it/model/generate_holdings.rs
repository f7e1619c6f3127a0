//! Requests about what is held: releases, changes, hand-overs, reads.

use serde_json::{Value, json};

use super::generate::{
    Dice, address, address_in, address_text, hit, mac, maybe, name_of, network, owner, pool_reference,
};
use super::generate_config as config;

fn generation(params: &mut Value, dice: &mut Dice, percent: u64) {
    if dice.chance(percent) {
        let stale = json!(3);
        let network = name_of(params);
        let address =
            params["address"].as_str().map_or_else(|| address_text(dice), |address| address.replace("$held:", "@"));
        params["if_generation"] =
            if dice.chance(25) { stale } else { json!(format!("$generation:{network}:{address}")) };
    }
}

pub fn release(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    if dice.chance(45) {
        hit(&mut params, dice, true, true);
        if dice.chance(40) {
            generation(&mut params, dice, 100);
        }
        return params;
    }
    let by_address = dice.chance(60);
    if by_address {
        params["address"] = address_in(&params, dice);
        maybe(&mut params, dice, 30, "force", |_| json!(true));
        generation(&mut params, dice, 40);
    }
    if !by_address || dice.chance(50) {
        owner(&mut params, dice, 40);
    }
    maybe(&mut params, dice, 15, "strict", |_| json!(true));
    params
}

/// By address, or by owner and slot.
pub fn target(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    if dice.chance(75) {
        let by_address = dice.chance(60);
        hit(&mut params, dice, by_address, !by_address);
        generation(&mut params, dice, 20);
    } else if dice.chance(50) {
        params["address"] = address_in(&params, dice);
    } else {
        owner(&mut params, dice, 40);
    }
    params
}

pub fn renew(dice: &mut Dice) -> Value {
    let mut params = target(dice);
    params["ttl_seconds"] = if dice.chance(30) { Value::Null } else { json!(1 + dice.below(6)) };
    params
}

pub fn bind(dice: &mut Dice) -> Value {
    let mut params = target(dice);
    params["claimant"] = json!(dice.pick(&["vm1", "vm2"]));
    params
}

pub fn update(dice: &mut Dice) -> Value {
    let mut params = target(dice);
    let mut set = json!({});
    maybe(&mut set, dice, 40, "labels", |dice| json!({ dice.pick(&["k", "l"]): dice.pick(&[Some("w"), None]) }));
    maybe(&mut set, dice, 30, "note", |dice| json!(dice.pick(&[Some("other"), None])));
    maybe(&mut set, dice, 20, "hostname", |_| json!("h3"));
    maybe(&mut set, dice, 30, "mac", mac);
    maybe(&mut set, dice, 10, "owner_uid", |_| json!("u3"));
    params["set"] = if set == json!({}) && dice.chance(90) { json!({ "note": "updated" }) } else { set };
    params
}

pub fn transfer(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    params["address"] = address_in(&params, dice);
    if dice.chance(80) {
        hit(&mut params, dice, true, true);
        params.as_object_mut().and_then(|members| members.remove("slot"));
    }
    if params["owner"].is_null() || dice.chance(10) {
        owner(&mut params, dice, 0);
    }
    let mut to = json!({});
    owner(&mut to, dice, 40);
    if dice.chance(40) {
        to["network"] = params["network"].clone();
        hit(&mut to, dice, false, true);
        to.as_object_mut().and_then(|members| members.remove("network"));
    }
    params["to"] = to;
    maybe(&mut params, dice, 35, "exchange", |_| json!(true));
    generation(&mut params, dice, 20);
    params
}

pub fn decline(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    params["address"] = address_in(&params, dice);
    if dice.chance(75) {
        hit(&mut params, dice, true, true);
    }
    if params["owner"].is_null() || dice.chance(10) {
        owner(&mut params, dice, 0);
    }
    maybe(&mut params, dice, 60, "probation_seconds", |dice| json!(1 + dice.below(20)));
    maybe(&mut params, dice, 40, "again", |_| json!(true));
    maybe(&mut params, dice, 10, "seen", |_| json!("02:00:00:00:00:99"));
    params
}

pub fn get(dice: &mut Dice) -> Value {
    let mut params = json!({ "address": address(dice) });
    match dice.below(3) {
        0 => params["network"] = network(dice),
        1 => params["realm"] = json!(dice.pick(&["default", "lab"])),
        _ => {}
    }
    params
}

pub fn find(dice: &mut Dice) -> Value {
    json!({ "address": address(dice) })
}

pub fn list(dice: &mut Dice) -> Value {
    let mut params = json!({});
    maybe(&mut params, dice, 30, "network", network);
    maybe(&mut params, dice, 10, "realm", |dice| json!(dice.pick(&["default", "lab"])));
    maybe(&mut params, dice, 10, "scope", |dice| json!(dice.pick(&["default", "s1"])));
    maybe(&mut params, dice, 10, "owner", |_| json!("a"));
    maybe(&mut params, dice, 5, "owner_prefix", |_| json!("b"));
    maybe(&mut params, dice, 5, "claimant", |_| json!("vm1"));
    maybe(&mut params, dice, 8, "bound", |dice| json!(dice.chance(50)));
    maybe(&mut params, dice, 8, "label", |dice| json!(dice.pick(&["k", "k=v", "l=", "l"])));
    maybe(&mut params, dice, 8, "subnet", |dice| json!(config::cidr(dice)));
    let name = name_of(&params);
    maybe(&mut params, dice, 8, "pool", |dice| pool_reference(&name, dice));
    maybe(&mut params, dice, 8, "kind", |dice| json!(dice.pick(&["dynamic", "static"])));
    maybe(&mut params, dice, 8, "range", |dice| json!(config::range(dice)));
    maybe(&mut params, dice, 4, "hostname", |_| json!("h1"));
    maybe(&mut params, dice, 4, "mac", mac);
    maybe(&mut params, dice, 5, "obsolete", |dice| json!(dice.chance(30)));
    maybe(&mut params, dice, 6, "expires_before", |_| json!("$time:+3000"));
    maybe(&mut params, dice, 6, "created_before", |_| json!("$time:-2000"));
    maybe(&mut params, dice, 15, "count_only", |_| json!(true));
    maybe(&mut params, dice, 40, "limit", |dice| json!(1 + dice.below(3)));
    maybe(&mut params, dice, 15, "after", |_| json!("$next"));
    params
}

pub fn owner_release(dice: &mut Dice) -> Value {
    let mut params = json!({});
    owner(&mut params, dice, 0);
    maybe(&mut params, dice, 80, "network", network);
    params
}

pub fn scope_release(dice: &mut Dice) -> Value {
    json!({ "scope": dice.pick(&["s1", "s1", "s1", "s1", "s9", "default"]) })
}

fn claimants(dice: &mut Dice) -> Value {
    json!(dice.pick::<&[&str]>(&[&[], &["vm1"], &["vm2"], &["vm1", "vm2"]]))
}

pub fn mark(dice: &mut Dice) -> Value {
    json!({ "scope": dice.pick(&["default", "s1"]), "sweep": dice.pick(&["x", "y"]), "claimants": claimants(dice) })
}

/// Mostly a sweep that may release everything, so that much is released; now and then one that brakes.
pub fn sweep(dice: &mut Dice) -> Value {
    let mut params = json!({ "scope": dice.pick(&["default", "default", "s1"]) });
    if dice.chance(80) {
        params["alive"] = claimants(dice);
    } else {
        params["sweep"] = json!(dice.pick(&["x", "y"]));
    }
    maybe(&mut params, dice, 40, "network", network);
    maybe(&mut params, dice, 85, "grace_seconds", |dice| json!(dice.below(3)));
    maybe(&mut params, dice, 75, "max_share", |dice| json!(dice.pick(&[1.0, 1.0, 0.5, 0.0])));
    params
}
