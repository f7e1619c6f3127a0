//! Sequences of requests over a universe so small that everything collides: four networks in two realms, a few
//! owners and slots, subnets of one to sixteen addresses that overlap each other, pools at odd offsets.
//!
//! A step is drawn from one number and does not shrink by itself; a failing sequence shrinks by losing steps.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{generate_config as config, generate_holdings as holdings};

/// One request, and how far the clock moves before it.
#[derive(Debug, Clone)]
pub struct Step {
    pub advance_ms: u64,
    pub method: &'static str,
    /// With names for values that only the run knows: see `Model::resolve`.
    pub params: Value,
}

/// Three networks, then about `len` requests of all kinds.
pub fn sequence(len: usize) -> impl Strategy<Value = Vec<Step>> {
    let number = || any::<u64>().no_shrink();
    (vec(number(), 3), vec(number(), len.div_ceil(2)..=len)).prop_map(|(first, then)| {
        let networks = ["n0", "n1", "n2"].iter().zip(first).map(|(name, seed)| config::founding(name, &mut Dice(seed)));
        let requests = then.into_iter().flat_map(|seed| scene(&mut Dice(seed)));
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
const METHODS: [(u64, &str, Maker); 36] = [
    (34, "ip.allocate", allocate),
    (18, "ip.claim", claim),
    (12, "ip.acquire", acquire),
    (13, "ip.release", holdings::release),
    (3, "ip.renew", holdings::renew),
    (3, "ip.bind", holdings::bind),
    (3, "ip.unbind", holdings::bind),
    (3, "ip.update", holdings::update),
    (5, "ip.transfer", holdings::transfer),
    (4, "ip.decline", holdings::decline),
    (3, "ip.get", holdings::get),
    (1, "ip.find", holdings::find),
    (4, "ip.list", holdings::list),
    (1, "owner.release", holdings::owner_release),
    (1, "scope.release", holdings::scope_release),
    (1, "claimant.mark", holdings::mark),
    (5, "claimant.sweep", holdings::sweep),
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
    (3, "subnet.remove", config::subnet_remove),
    (3, "pool.add", config::pool_add),
    (3, "pool.modify", config::pool_modify),
    (3, "pool.remove", config::pool_remove),
    (5, "reserved.add", config::reserved_add),
    (3, "reserved.remove", config::reserved_remove),
    (1, "realm.list", |_| json!({})),
    (1, "scope.list", config::scope_list),
];

/// Mostly one request; now and then a few that chance would seldom bring together.
fn scene(dice: &mut Dice) -> Vec<Step> {
    let name = dice.pick(&["n0", "n1", "n2"]);
    let now = |method: &'static str, params: Value| Step { advance_ms: 1, method, params };
    match dice.below(100) {
        // What a removed subnet leaves behind when it returns.
        0 => {
            let cidr = if name == "n1" { "10.0.0.16/28" } else { "10.0.0.0/28" };
            let mut again = json!({ "network": name, "owner": "e" });
            wish(&mut again, name, dice);
            vec![
                now("scope.release", json!({ "scope": "s1" })),
                now("scope.release", json!({ "scope": "default" })),
                now("subnet.remove", json!({ "network": name, "subnet": cidr })),
                now("subnet.add", json!({ "network": name, "cidr": cidr })),
                now("ip.allocate", again),
                now("network.usage", json!({ "network": name })),
            ]
        }
        // A network that is deleted by force, what still works in it, and its restore.
        1 => {
            let closed = json!(format!("$closed:{name}"));
            let mut of_it = |method, maker: Maker| {
                let mut params = maker(dice);
                params["network"] = closed.clone();
                now(method, params)
            };
            vec![
                now("network.update", json!({ "network": name, "set": { "protected": false } })),
                now("ip.allocate", json!({ "network": name, "owner": "e", "slot": "9" })),
                now("network.delete", json!({ "network": name, "force": true })),
                of_it("ip.allocate", allocate),
                of_it("ip.release", holdings::release),
                of_it("ip.bind", holdings::bind),
                of_it("ip.unbind", holdings::bind),
                of_it("subnet.add", config::subnet_add),
                of_it("network.usage", config::network_only),
                now("network.restore", json!({ "network": closed })),
            ]
        }
        // Two sweeps in a row, which release what was not heard of in between; and one that would release too much.
        2 => {
            let scope = dice.pick(&["default", "s1"]);
            let claimed = |slot: &str, released: bool| {
                let holder = json!({ "network": name, "scope": scope, "owner": "e", "slot": slot });
                let of_it = json!({ "claimant": "vm3", "release_with_claimant": released });
                let members = [holder, of_it].into_iter().flat_map(|part| part.as_object().unwrap().clone());
                now("ip.allocate", members.collect())
            };
            let sweep = |share: f64| {
                let alive = json!({ "scope": scope, "alive": ["vm1"], "grace_seconds": 0, "max_share": share });
                now("claimant.sweep", alive)
            };
            vec![claimed("8", false), claimed("9", true), sweep(1.0), sweep(0.0), sweep(1.0)]
        }
        _ => vec![step(dice)],
    }
}

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
    let reads = [
        "ip.get",
        "ip.find",
        "ip.list",
        "network.get",
        "network.list",
        "network.usage",
        "network.map",
        "realm.list",
        "scope.list",
    ];
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

/// Makes a request wrong in meaning or form, but still a request.
fn spoil(params: &mut Value, dice: &mut Dice) {
    let names: Vec<String> = params.as_object().map(|members| members.keys().cloned().collect()).unwrap_or_default();
    let some = names.get(dice.below(names.len().max(1) as u64) as usize).cloned().unwrap_or_else(|| "odd".into());
    match dice.below(10) {
        0 => params["no_such_member"] = json!(true),
        1 => params[some] = json!(7.5),
        2 => {
            // Not generated: a scope or slot without owner.
            let with = if some == "owner" { vec!["owner", "scope", "slot"] } else { vec![some.as_str()] };
            for name in with {
                params.as_object_mut().and_then(|members| members.remove(name));
            }
        }
        3 | 4 if params.get("network").is_some() => params["network"] = json!("nowhere"),
        5 if params.get("address").is_some() => params["address"] = json!("10.0.0.05"),
        6 | 7 if params.get("address").is_some() => {
            params["address"] = json!(dice.pick(&["192.0.2.1", "fd00:1::1", "10.0.0.255"]))
        }
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

/// The name in a reference to a network.
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

pub fn address(dice: &mut Dice) -> Value {
    json!(address_text(dice))
}

/// Mostly an address of the network that the request names.
pub fn address_in(params: &Value, dice: &mut Dice) -> Value {
    if dice.chance(20) {
        return address(dice);
    }
    json!(format!("$in:{}:{}", name_of(params), dice.below(20)))
}

/// Refers to something held: by its address, its owner, or both.
pub fn hit(params: &mut Value, dice: &mut Dice, by_address: bool, by_owner: bool) {
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

pub fn mac(dice: &mut Dice) -> Value {
    json!(dice.pick(&["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:0A"]))
}

/// Filters of an automatic wish.
fn wish(params: &mut Value, name: &str, dice: &mut Dice) {
    maybe(params, dice, 20, "family", |dice| json!(dice.pick(&[4, 6])));
    maybe(params, dice, 10, "subnet", |dice| subnet_reference(name, dice));
    maybe(params, dice, 12, "pool", |dice| pool_reference(name, dice));
    maybe(params, dice, 10, "zone", |dice| json!(dice.pick(&["z1", "z2", "z9"])));
    if dice.chance(14) {
        let (family, lengths) =
            dice.pick(&[(4, [28, 29, 30, 31, 32, 31, 30]), (6, [125, 126, 127, 128, 126, 127, 120])]);
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
        let (address, length) =
            dice.pick(&[("10.0.0.4", 30), ("10.0.0.8", 29), ("10.0.0.2", 31), ("10.0.0.3", 31), ("fd00::4", 126)]);
        params["address"] = json!(address);
        params["prefix_length"] = json!(length);
    }
    params
}

fn acquire(dice: &mut Dice) -> Value {
    let mut params = json!({ "network": network(dice) });
    owner(&mut params, dice, 0);
    options(&mut params, dice);
    // Not generated: one MAC for several addresses, and answers that do not name their networks.
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
