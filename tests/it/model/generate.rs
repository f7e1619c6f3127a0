//! Sequences of requests over a universe so small that everything collides: four networks in two realms, a few
//! owners and slots, subnets of one to sixteen addresses that overlap each other, pools at odd offsets.
//!
//! A step is drawn from one number and does not shrink by itself; a failing sequence shrinks by losing steps.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::generate_config as config;

/// One request, and how far the clock moves before it.
#[derive(Debug, Clone)]
pub struct Step {
    pub advance_ms: u64,
    pub method: &'static str,
    /// With names in place of what only the run knows: see `Model::resolve`.
    pub params: Value,
}

/// Three networks, then `len` requests of all kinds.
pub fn sequence(len: usize) -> impl Strategy<Value = Vec<Step>> {
    let number = || any::<u64>().no_shrink();
    (vec(number(), 3), vec(number(), len.div_ceil(2)..=len)).prop_map(|(first, then)| {
        let networks = ["n0", "n1", "n2"].iter().zip(first).map(|(name, seed)| config::founding(name, &mut Dice(seed)));
        let requests = then.into_iter().map(|seed| step(&mut Dice(seed)));
        networks.chain(requests).collect()
    })
}

/// A small deterministic source of choices (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Sets a member with a probability in percent.
pub fn maybe(params: &mut Value, dice: &mut Dice, percent: u64, name: &str, value: impl FnOnce(&mut Dice) -> Value) {
    if dice.chance(percent) {
        params[name] = value(dice);
    }
}

type Maker = fn(&mut Dice) -> Value;

/// Every method with its weight.
const METHODS: [(u64, &str, Maker); 34] = [
    (34, "ip.allocate", allocate),
    (18, "ip.claim", claim),
    (12, "ip.acquire", acquire),
    (13, "ip.release", release),
    (3, "ip.renew", renew),
    (3, "ip.bind", bind),
    (3, "ip.unbind", bind),
    (3, "ip.update", update),
    (5, "ip.transfer", transfer),
    (4, "ip.decline", decline),
    (3, "ip.get", get),
    (1, "ip.find", find),
    (4, "ip.list", list),
    (1, "owner.release", owner_release),
    (1, "scope.release", scope_release),
    (3, "network.create", config::network_create),
    (1, "network.get", config::network_only),
    (1, "network.list", config::network_list),
    (4, "network.update", config::network_update),
    (2, "network.delete", config::network_delete),
    (2, "network.restore", config::network_restore),
    (2, "network.usage", config::network_only),
    (2, "network.map", config::network_map),
    (4, "subnet.add", config::subnet_add),
    (5, "subnet.modify", config::subnet_modify),
    (2, "subnet.move", config::subnet_move),
    (1, "subnet.remove", config::subnet_remove),
    (3, "pool.add", config::pool_add),
    (3, "pool.modify", config::pool_modify),
    (3, "pool.remove", config::pool_remove),
    (3, "reserved.add", config::reserved_add),
    (2, "reserved.remove", config::reserved_remove),
    (1, "realm.list", |_| json!({})),
    (1, "scope.list", config::scope_list),
];

fn step(dice: &mut Dice) -> Step {
    let total: u64 = METHODS.iter().map(|(weight, _, _)| weight).sum();
    let mut left = dice.below(total);
    let chosen = METHODS.iter().find(|(weight, _, _)| match left.checked_sub(*weight) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    let (_, method, maker) = chosen.copied().unwrap_or(METHODS[0]);
    let mut params = maker(dice);
    let reads = ["ip.get", "ip.find", "ip.list", "network.get", "network.list", "network.usage", "network.map", "realm.list", "scope.list"];
    if !reads.contains(&method) {
        maybe(&mut params, dice, 6, "dry_run", |_| json!(true));
        maybe(&mut params, dice, 3, "reason", |_| json!("because"));
    }
    if dice.chance(13) {
        spoil(&mut params, dice);
    }
    let advance_ms = match dice.below(20) {
        0..=15 => 1 + dice.below(300),
        16..=18 => dice.below(4) * 1000,
        _ => dice.pick(&[5_000, 10_000, 25_000]),
    };
    Step { advance_ms, method, params }
}

/// Wrong in meaning or form, but still a request.
fn spoil(params: &mut Value, dice: &mut Dice) {
    let names: Vec<String> = params.as_object().map(|members| members.keys().cloned().collect()).unwrap_or_default();
    let some = names.get(dice.below(names.len().max(1) as u64) as usize).cloned().unwrap_or_else(|| "odd".into());
    match dice.below(10) {
        0 => params["no_such_member"] = json!(true),
        1 => params[some] = json!(7.5),
        2 => drop(params.as_object_mut().and_then(|members| members.remove(&some))),
        3 | 4 if params.get("network").is_some() => params["network"] = json!("nowhere"),
        5 if params.get("address").is_some() => params["address"] = json!("10.0.0.05"),
        6 | 7 if params.get("address").is_some() => params["address"] = json!(dice.pick(&["192.0.2.1", "fd00:1::1", "10.0.0.255"])),
        8 if params.get("owner").is_some() => params["owner"] = json!(dice.pick(&["", "  ", "a\u{7}"])),
        9 if params.get("subnet").is_some() => params["subnet"] = json!(dice.pick(&["192.0.2.0/24", "nosuch"])),
        _ => params[some] = json!(-1),
    }
}

pub fn network(dice: &mut Dice) -> Value {
    match dice.below(40) {
        0 | 1 => json!(format!("$id:{}", dice.pick(&["n0", "n1", "n2"]))),
        2 => json!(format!("$closed:{}", dice.pick(&["n0", "n1", "n2"]))),
        3 => json!("n3"),
        4..=18 => json!("n0"),
        19..=28 => json!("n1"),
        _ => json!("n2"),
    }
}

/// The name behind a network's reference.
pub fn name_of(params: &Value) -> String {
    let reference = params["network"].as_str().unwrap_or("n0");
    reference.rsplit(':').next().unwrap_or("n0").to_string()
}

pub fn address_text(dice: &mut Dice) -> String {
    match dice.below(5) {
        0 => format!("fd00::{:x}", dice.below(36)),
        1 => format!("10.0.0.{}", dice.below(44)),
        _ => format!("10.0.0.{}", dice.below(17)),
    }
}

fn address(dice: &mut Dice) -> Value {
    json!(address_text(dice))
}

/// Mostly an address of the network that is named.
fn address_in(params: &Value, dice: &mut Dice) -> Value {
    if dice.chance(20) {
        return address(dice);
    }
    json!(format!("$in:{}:{}", name_of(params), dice.below(20)))
}

/// Speaks of something held: its address, its owner, or both.
fn hit(params: &mut Value, dice: &mut Dice, by_address: bool, by_owner: bool) {
    let which = format!("{}:{}", name_of(params), dice.below(32));
    if by_address {
        params["address"] = json!(format!("$held:{which}"));
    }
    if by_owner {
        for member in ["owner", "scope", "slot"] {
            params[member] = json!(format!("${member}:{which}"));
        }
    }
}

pub fn owner(params: &mut Value, dice: &mut Dice, slot_percent: u64) {
    params["owner"] = json!(dice.pick(&["a", "a", "b", "c", "d"]));
    maybe(params, dice, 20, "scope", |_| json!("s1"));
    maybe(params, dice, slot_percent, "slot", |dice| json!(dice.pick(&["0", "1", "2"])));
}

pub fn pool_reference(name: &str, dice: &mut Dice) -> Value {
    match dice.below(10) {
        5..=7 => json!(format!("$pool:{name}:{}", dice.below(4))),
        0 => json!("p-static"),
        1 => json!("p-none"),
        2 => json!("10.0.0.0/28"),
        3 => json!("10.0.0.3-10.0.0.9"),
        _ => json!("p-dyn"),
    }
}

pub fn subnet_reference(name: &str, dice: &mut Dice) -> Value {
    match dice.below(10) {
        0..=2 => json!("sub-a"),
        3..=6 => json!(format!("$cidr:{name}:{}", dice.below(4))),
        7 => json!("sub-b"),
        8 => json!("$subnet:10.0.0.0/28"),
        _ => json!(config::cidr(dice)),
    }
}

fn options(params: &mut Value, dice: &mut Dice) {
    maybe(params, dice, 10, "owner_uid", |dice| json!(dice.pick(&["u1", "u2"])));
    maybe(params, dice, 6, "must_create", |_| json!(true));
    maybe(params, dice, 15, "replace", |_| json!(true));
    maybe(params, dice, 5, "transient", |_| json!(true));
    maybe(params, dice, 25, "ttl_seconds", |dice| json!(1 + dice.below(15)));
    maybe(params, dice, 20, "claimant", |dice| json!(dice.pick(&["vm1", "vm2"])));
    maybe(params, dice, 15, "release_with_claimant", |_| json!(true));
    maybe(params, dice, 15, "labels", |dice| json!({ dice.pick(&["k", "l"]): dice.pick(&["v", ""]) }));
    maybe(params, dice, 6, "note", |_| json!("noted"));
    maybe(params, dice, 6, "hostname", |dice| json!(dice.pick(&["h1", "h2"])));
    maybe(params, dice, 8, "mac", mac);
    maybe(params, dice, 8, "brief", |_| json!(true));
}

fn mac(dice: &mut Dice) -> Value {
    json!(dice.pick(&["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:0A"]))
}

/// Filters of an automatic wish.
fn wish(params: &mut Value, name: &str, dice: &mut Dice) {
    maybe(params, dice, 20, "family", |dice| json!(dice.pick(&[4, 6])));
    maybe(params, dice, 10, "subnet", |dice| subnet_reference(name, dice));
    maybe(params, dice, 12, "pool", |dice| pool_reference(name, dice));
    maybe(params, dice, 10, "zone", |dice| json!(dice.pick(&["z1", "z2", "z9"])));
    if dice.chance(14) {
        let (family, lengths) = dice.pick(&[(4, [28, 29, 30, 31, 32, 31, 30]), (6, [125, 126, 127, 128, 126, 127, 120])]);
        params["family"] = json!(family);
        params["prefix_length"] = json!(dice.pick(&lengths));
    }
}

fn allocate(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    owner(&mut params, dice, 40);
    let name = name_of(&params);
    wish(&mut params, &name, dice);
    options(&mut params, dice);
    params
}

fn claim(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    params["address"] = address_in(&params, dice);
    if dice.chance(12) {
        hit(&mut params, dice, true, false);
    }
    owner(&mut params, dice, 50);
    options(&mut params, dice);
    maybe(&mut params, dice, 15, "force", |_| json!(true));
    if dice.chance(12) {
        let (address, length) = dice.pick(&[("10.0.0.4", 30), ("10.0.0.8", 29), ("10.0.0.2", 31), ("10.0.0.3", 31), ("fd00::4", 126)]);
        params["address"] = json!(address);
        params["prefix_length"] = json!(length);
    }
    params
}

fn acquire(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    owner(&mut params, dice, 0);
    options(&mut params, dice);
    // One MAC for several addresses, and answers that do not say of which network they speak, are left out.
    for unsure in ["mac", "brief"] {
        params.as_object_mut().and_then(|members| members.remove(unsure));
    }
    let mut items = Vec::new();
    for _ in 0..dice.pick(&[0, 1, 1, 2, 2, 3, 3]) {
        let mut item = json!({});
        match dice.below(3) {
            0 => item["address"] = address_in(&params, dice),
            _ => wish(&mut item, &name_of(&params), dice),
        }
        maybe(&mut item, dice, 25, "network", network);
        maybe(&mut item, dice, 30, "slot", |dice| json!(dice.pick(&["0", "1", "2"])));
        maybe(&mut item, dice, 20, "optional", |_| json!(true));
        items.push(item);
    }
    params["ips"] = json!(items);
    maybe(&mut params, dice, 15, "slot_prefix", |_| json!("x"));
    maybe(&mut params, dice, 20, "exact", |_| json!(true));
    params
}

fn generation(params: &mut Value, dice: &mut Dice, percent: u64) {
    if dice.chance(percent) {
        let stale = json!(3);
        let network = name_of(params);
        let address = params["address"].as_str().map_or_else(|| address_text(dice), |address| address.replace("$held:", "@"));
        params["if_generation"] = if dice.chance(25) { stale } else { json!(format!("$generation:{network}:{address}")) };
    }
}

fn release(dice: &mut Dice) -> Value {
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
fn target(dice: &mut Dice) -> Value {
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

fn renew(dice: &mut Dice) -> Value {
    let mut params = target(dice);
    params["ttl_seconds"] = if dice.chance(30) { Value::Null } else { json!(1 + dice.below(6)) };
    params
}

fn bind(dice: &mut Dice) -> Value {
    let mut params = target(dice);
    params["claimant"] = json!(dice.pick(&["vm1", "vm2"]));
    params
}

fn update(dice: &mut Dice) -> Value {
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

fn transfer(dice: &mut Dice) -> Value {
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

fn decline(dice: &mut Dice) -> Value {
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

fn get(dice: &mut Dice) -> Value {
    let mut params = json!({ "address": address(dice) });
    match dice.below(3) {
        0 => params["network"] = network(dice),
        1 => params["realm"] = json!(dice.pick(&["default", "lab"])),
        _ => {}
    }
    params
}

fn find(dice: &mut Dice) -> Value {
    json!({ "address": address(dice) })
}

fn list(dice: &mut Dice) -> Value {
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

fn owner_release(dice: &mut Dice) -> Value {
    let mut params = json!({});
    owner(&mut params, dice, 0);
    maybe(&mut params, dice, 80, "network", network);
    params
}

fn scope_release(dice: &mut Dice) -> Value {
    json!({ "scope": dice.pick(&["s1", "s1", "s1", "s1", "s9", "default"]) })
}
