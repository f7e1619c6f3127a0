//! Networks fill, an address is in use by a stranger, hundreds wait for one, clients keep their connections, a deploy dies.
//! One server with files.

use std::collections::BTreeSet;

use serde_json::json;

use super::runbook::{Operator, no_unit};
use super::scene::{Caller, Scene, Seen, until};
use crate::clock::Clock;
use crate::server::Starting;

const LAN: &str = "network=\"lan\"";
const SMALL: &str = "network=\"small\"";
/// More than may wait for capacity on one connection, and fewer than may be under way there.
const CROWD: usize = 700;
/// The most connections that the server accepts at once.
const CONNECTIONS_MAX: usize = 24;

pub fn run() -> BTreeSet<&'static str> {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let clock = Clock::new(directory.path(), "server").unwrap();
    let arguments = ["serve", "--store", "embedded", "--data", &data.display().to_string()];
    let mut environment = clock.environment();
    environment.push(("ALLOD_SERVER__MAX_CONNECTIONS".to_owned(), CONNECTIONS_MAX.to_string()));
    let server = Starting::with_environment(&data, &arguments, environment).ready();
    for (network, cidr) in [("lan", "10.2.0.0/26"), ("small", "10.1.0.0/29"), ("tiny", "10.1.2.0/30")] {
        server.allod_ok(&["network", "create", network, "--subnet", cidr]);
    }
    let seen = Seen::at(server.address, server.http);
    let scene = Scene::of(&[&seen]);
    let operator = Operator { rpc: server.address, http: server.http, redis: 0, data: &data };
    let mut caller = Caller::to(server.address).unwrap();

    // One decline is enough.
    let mut declined = String::new();
    scene.provoked("AllodAddressDeclined", LAN, || {
        declined = caller.granted("lan", "d");
        server.allod_ok(&["ip", "decline", "lan", &declined, "--owner", "d", "--seen", "02:00:00:00:00:01"]);
    });
    let history = operator.follows("AllodAddressDeclined", &[("NETWORK", "lan")], &mut no_unit);
    assert!(history.lines().any(|line| line.contains("declined") && line.contains(&declined)), "{history}");

    scene.provoked("AllodNetworkNearlyFull", LAN, || {
        for n in 0..60 {
            caller.granted("lan", &format!("o{n}"));
        }
    });
    scene.fires("AllodNetworkFullSoon", LAN);
    let blanks = [("NETWORK", "lan"), ("SCOPE", "default"), ("CLAIMANT", "machine"), ("OWNER", "o7")];
    let more = |cidr| [&blanks[..], &[("CIDR", cidr)]].concat();
    operator.follows("AllodNetworkNearlyFull", &more("10.3.0.0/24"), &mut no_unit);
    scene.stops("AllodNetworkNearlyFull", LAN);
    // At this pace that much more would also be gone within the day.
    operator.follows("AllodNetworkFullSoon", &more("10.128.0.0/9"), &mut no_unit);
    scene.stops("AllodNetworkFullSoon", LAN);

    refused(&scene, &operator, &mut caller);
    lacked(&scene, &operator, &mut caller);
    crowded(&scene, &operator, &mut caller);
    kept(&scene, &operator);

    std::fs::write(
        directory.path().join("shop.yaml"),
        "deployment: shop\ninstances:\n- { id: web/0, networks: [{ network: lan }] }\n",
    )
    .unwrap();
    let plan = &directory.path().join("shop.yaml").display().to_string();
    let applied: serde_json::Value =
        serde_json::from_str(&server.allod_ok(&["deployment", "apply", plan, "--format", "json"])).unwrap();
    // Five hours pass.
    scene.provoked("AllodDeployUncommitted", "", || clock.jump(5 * 3_600));
    let blanks = [("NAME", "shop"), ("N", &*applied["plan"].to_string())];
    let listed = operator.follows("AllodDeployUncommitted", &blanks, &mut no_unit);
    assert!(listed.contains("shop"), "{listed}");
    scene.stops("AllodDeployUncommitted", "");
    scene.stops("AllodAddressDeclined", LAN);
    scene.end()
}

/// A network is full, and somebody asks it again and again.
fn refused(scene: &Scene, operator: &Operator<'_>, caller: &mut Caller) {
    for n in 0..6 {
        caller.granted("small", &format!("o{n}"));
    }
    let late = json!({"network": "small", "owner": "late"});
    until("AllodNetworkRefuses fires", || {
        let answer = caller.call("ip.allocate", &late).unwrap();
        assert_eq!(answer["error"]["data"]["kind"], "not_enough_capacity", "{answer}");
        scene.is_firing("AllodNetworkRefuses", SMALL)
    });
    scene.fires("AllodNetworkRefuses", SMALL);
    // The answer says which command frees space; that command is taken as it is printed.
    let told = operator.follows("AllodNetworkRefuses", &[("NETWORK", "small")], &mut no_unit);
    let advised = told.split('`').find(|quoted| quoted.starts_with("allod subnet add"));
    let advised = advised.unwrap_or_else(|| panic!("{told}")).split_whitespace().collect::<Vec<_>>().join(" ");
    operator.does(&advised, &[("CIDR", "10.1.1.0/24")], &mut no_unit);
    caller.granted("small", "late");
    scene.stops("AllodNetworkRefuses", SMALL);
}

/// Somebody asks again and again for IPv6, in a network that has none: the network is not full.
fn lacked(scene: &Scene, operator: &Operator<'_>, caller: &mut Caller) {
    let six = json!({"network": "lan", "owner": "six", "family": 6});
    until("AllodNetworkHasNoPool fires", || {
        let answer = caller.call("ip.allocate", &six).unwrap();
        assert_eq!(answer["error"]["data"]["kind"], "not_enough_capacity", "{answer}");
        scene.is_firing("AllodNetworkHasNoPool", LAN)
    });
    scene.fires("AllodNetworkHasNoPool", LAN);
    assert!(!scene.is_firing("AllodNetworkRefuses", LAN));
    let blanks = [("NETWORK", "lan"), ("CIDR", "2001:db8:6::/64")];
    let told = operator.follows("AllodNetworkHasNoPool", &blanks, &mut no_unit);
    assert!(told.contains("10.2.0.0/26"), "{told}");
    let answer = caller.call("ip.allocate", &six).unwrap();
    assert!(answer["result"]["address"].is_string(), "{answer}");
    scene.stops("AllodNetworkHasNoPool", LAN);
}

/// So many requests wait for capacity that further ones are refused.
fn crowded(scene: &Scene, operator: &Operator<'_>, caller: &mut Caller) {
    for n in 0..2 {
        caller.granted("tiny", &format!("o{n}"));
    }
    until("AllodOverloaded fires", || {
        // The previous crowd has hung up, so it no longer waits.
        let mut crowd = Caller::to(operator.rpc).unwrap();
        for n in 0..CROWD {
            let asked = json!({"network": "tiny", "owner": format!("w{n}"), "wait_seconds": 600});
            crowd.send("ip.allocate", &asked).unwrap();
        }
        let refused = crowd.heard().unwrap();
        assert_eq!(refused["error"]["data"]["kind"], "overloaded", "{refused}");
        scene.is_firing("AllodOverloaded", "")
    });
    scene.fires("AllodOverloaded", "");
    let told = operator.follows("AllodOverloaded", &[("NETWORK", "tiny")], &mut no_unit);
    assert!(told.contains("full: 10.1.2.0-10.1.2.3"), "{told}");
    scene.stops("AllodOverloaded", "");
}

/// Clients keep as many connections as the server accepts, so the next ones are turned away.
fn kept(scene: &Scene, operator: &Operator<'_>) {
    let mut kept: Vec<Caller> = Vec::new();
    until("AllodTurnsAway fires", || {
        let mut next = Caller::to(operator.rpc).unwrap();
        match next.call("server.ping", &json!({})) {
            Ok(answer) if answer["error"].is_null() => kept.push(next),
            // The client was told so, or the connection was closed before it could read that.
            Ok(_) | Err(_) => {}
        }
        scene.is_firing("AllodTurnsAway", "")
    });
    scene.fires("AllodTurnsAway", "");
    let told = operator.follows("AllodTurnsAway", &[], &mut no_unit);
    assert!(told.lines().any(|line| line == format!("allod_connections {CONNECTIONS_MAX}")), "{told}");
    drop(kept);
    scene.stops("AllodTurnsAway", "");
}
