//! Lists over several pages, while networks are renamed and subnets move between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allod::actors::clock::ManualClock;
use allod::core::types::WallTime;
use serde_json::{Value, json};

use crate::clock::RealLeases;
use crate::stores;
use crate::support::{Client, TestServer, line};

/// Networks `a` to `e`, each with two reservations.
fn five(client: &mut Client) {
    for (at, name) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/24")}]}));
        for owner in ["x", "y"] {
            client.ok("ip.allocate", json!({"network": name, "owner": owner, "slot": name}));
        }
    }
}

/// All pages of a list with so many rows each; after each page one of the changes is made.
fn pages(client: &mut Client, (method, list): (&str, &str), limit: usize, changes: &[(&str, Value)]) -> Vec<Value> {
    let (mut ask, mut all) = (json!({"limit": limit}), Vec::new());
    let mut changes = changes.iter();
    loop {
        let page = client.ok(method, ask.clone());
        all.extend(page[list].as_array().unwrap().iter().cloned());
        let Some(next) = page.get("next") else { return all };
        ask["after"] = next.clone();
        if let Some((method, params)) = changes.next() {
            client.ok(method, params.clone());
        }
    }
}

fn rename(name: &str, to: &str) -> (&'static str, Value) {
    ("network.update", json!({"network": name, "set": {"name": to}}))
}

fn moves(subnet: u8, from: &str, to: &str) -> (&'static str, Value) {
    ("subnet.move", json!({"network": from, "subnet": format!("10.{subnet}.0.0/24"), "to": to}))
}

const HELD: (&str, &str) = ("ip.list", "reservations");

/// The addresses that [`five`] made, in the order of a list that begins at that time.
fn each() -> Vec<String> {
    (0..5).flat_map(|at| [format!("10.{at}.0.1"), format!("10.{at}.0.2")]).collect()
}

fn addresses(listed: &[Value]) -> Vec<&str> {
    listed.iter().map(|held| held["address"].as_str().unwrap()).collect()
}

#[test]
fn what_was_there_throughout_is_listed_once_whatever_its_network_is_renamed_to_between_two_pages() {
    let server = TestServer::new();
    let mut client = server.client();
    five(&mut client);
    // Renames across the page's end: of a listed network forward, of an unlisted one back, and of the one in which the page
    // ends.
    let renames = [rename("a", "z"), rename("e", "aa"), rename("c", "bb"), rename("z", "cc")];
    let listed = pages(&mut client, HELD, 2, &renames);
    assert_eq!(addresses(&listed), each());
    assert_eq!(listed[9]["network"], "aa", "each is shown with its name of then");
    // A new list uses the present names.
    let listed = pages(&mut client, HELD, 2, &[]);
    let networks: Vec<&str> = listed.iter().step_by(2).map(|held| held["network"].as_str().unwrap()).collect();
    assert_eq!(networks, ["aa", "b", "bb", "cc", "d"]);
}

#[test]
fn a_network_is_listed_once_whatever_it_is_renamed_to_between_two_pages() {
    let server = TestServer::new();
    let mut client = server.client();
    five(&mut client);
    let listed = pages(&mut client, ("network.list", "networks"), 2, &[rename("a", "z"), rename("e", "aa")]);
    let cidrs: Vec<&str> = listed.iter().map(|network| network["subnets"][0]["cidr"].as_str().unwrap()).collect();
    assert_eq!(cidrs, (0..5).map(|at| format!("10.{at}.0.0/24")).collect::<Vec<_>>());
}

#[test]
fn a_place_that_another_server_told_goes_by_the_names_of_now() {
    let server = TestServer::new();
    let mut client = server.client();
    five(&mut client);
    let next = client.ok("ip.list", json!({"limit": 3}))["next"].as_str().unwrap().to_owned();
    let ((place, _), (_, arrangement)) = (next.rsplit_once(' ').unwrap(), next.rsplit_once('.').unwrap());
    for after in [format!("{place} 7.3.{arrangement}"), place.to_owned()] {
        assert_eq!(
            client.ok("ip.list", json!({"after": after}))["reservations"].as_array().unwrap().len(),
            7,
            "{after}"
        );
    }
    let moments = ["7", "7.3", "x.3.0", "7.3.0", "7.3.0.1"].map(|moment| format!("{place} {moment}"));
    for wrong in moments.into_iter().chain([format!("{next} 1"), "a".to_owned()]) {
        assert_eq!(client.kind("ip.list", json!({"after": wrong})), "invalid_argument");
    }
}

#[test]
fn what_was_there_throughout_is_listed_once_wherever_its_subnet_moves_between_two_pages() {
    // A listed subnet moves forward, an unlisted one back, so does the one in which the page ends; one moves twice, one is
    // also renamed.
    let stories = [
        (2, vec![moves(0, "a", "e"), moves(4, "e", "a"), moves(2, "c", "b")]),
        (1, vec![moves(0, "a", "c"), moves(0, "c", "e"), moves(3, "d", "a"), rename("d", "aa")]),
        (3, vec![moves(1, "b", "d"), moves(3, "d", "a"), moves(1, "d", "b")]),
    ];
    for (limit, changes) in stories {
        let server = TestServer::new();
        let mut client = server.client();
        five(&mut client);
        let listed = pages(&mut client, HELD, limit, &changes);
        assert_eq!(addresses(&listed), each(), "{changes:?}");
        let now = client.ok("ip.list", json!({}));
        assert_eq!(now["reservations"].as_array().unwrap().len(), 10);
    }
}

/// It was to be listed in its old place, which is gone.
#[test]
fn a_list_is_begun_again_where_a_network_is_deleted_out_of_which_a_subnet_moved_meanwhile() {
    let server = TestServer::new();
    let mut client = server.client();
    five(&mut client);
    let next = client.ok("ip.list", json!({"limit": 1}))["next"].clone();
    let (method, params) = moves(4, "e", "a");
    client.ok(method, params);
    let page = |client: &mut Client| client.call("ip.list", json!({"after": next}));
    assert_eq!(page(&mut client)["result"]["reservations"].as_array().unwrap().len(), 9);
    client.ok("network.delete", json!({"network": "e"}));
    assert_eq!(page(&mut client)["error"]["data"]["kind"], "invalid_argument");
    assert_eq!(client.ok("ip.list", json!({}))["reservations"].as_array().unwrap().len(), 10);
}

#[test]
fn filters_hold_for_what_moved_between_two_pages_too() {
    let server = TestServer::new();
    let mut client = server.client();
    five(&mut client);
    let mut ask = json!({"limit": 1, "owner": "y", "range": "10.1.0.0-10.4.0.255"});
    let mut found = Vec::new();
    for (method, params) in [moves(4, "e", "a"), moves(1, "b", "e"), moves(0, "a", "e"), rename("c", "z")] {
        let page = client.ok("ip.list", ask.clone());
        found.extend(addresses(page["reservations"].as_array().unwrap()).into_iter().map(str::to_owned));
        ask["after"] = page.get("next").cloned().unwrap_or_default();
        client.ok(method, params);
    }
    assert_eq!(found, ["10.1.0.2", "10.2.0.2", "10.3.0.2", "10.4.0.2"]);
}

#[test]
fn a_list_that_is_asked_for_while_subnets_move_has_each_once() {
    let server = TestServer::new();
    let mut client = server.client();
    five(&mut client);
    let mut mover = server.client();
    let moving = std::thread::spawn(move || {
        for _ in 0..40 {
            for (from, to) in [("a", "e"), ("e", "c"), ("c", "a")] {
                let (method, params) = moves(0, from, to);
                mover.ok(method, params);
            }
        }
    });
    let mut looks = 0;
    while !moving.is_finished() || looks < 20 {
        let whole = client.ok("ip.list", json!({}));
        let mut listed = addresses(whole["reservations"].as_array().unwrap());
        listed.sort_unstable();
        assert_eq!(listed, each());
        assert_eq!(addresses(&pages(&mut client, HELD, 3, &[])).len(), 10);
        looks += 1;
    }
    moving.join().unwrap();
}

/// No server knows the names that networks had before it started. A client that takes what is not listed for free needs the
/// complete list.
#[test]
fn a_list_goes_on_behind_a_restart_where_all_is_as_it_was_and_is_refused_where_it_is_not() {
    let reopen = stores::reopened(2);
    let tenures = AtomicU64::new(20);
    // Each server draws other random numbers, as in production.
    let start = || {
        TestServer::over(reopen(), |options| {
            let own = ManualClock::new(WallTime(1_772_356_364_031), tenures.fetch_add(1, Ordering::Relaxed));
            options.clock = Arc::new(RealLeases(Arc::new(own)));
        })
    };
    let server = start();
    let mut client = server.client();
    five(&mut client);
    let first = client.ok("ip.list", json!({"limit": 3}));
    let networks = client.ok("network.list", json!({"limit": 2}));
    server.stop();

    let server = start();
    let mut client = server.client();
    let rest = client.ok("ip.list", json!({"after": first["next"]}));
    let mut all = first["reservations"].as_array().unwrap().clone();
    all.extend(rest["reservations"].as_array().unwrap().iter().cloned());
    assert_eq!(addresses(&all), each());
    server.stop();

    for change in [rename("e", "aa"), moves(3, "d", "a")] {
        let server = start();
        let mut client = server.client();
        client.ok(change.0, change.1);
        for (method, after) in [("ip.list", &first["next"]), ("network.list", &networks["next"])] {
            let told = client.call(method, json!({ "after": after }));
            let data = &told["error"]["data"];
            assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("after")), "{told}");
        }
        assert_eq!(client.ok("ip.list", json!({}))["reservations"].as_array().unwrap().len(), 10);
        server.stop();
    }
}

/// Otherwise the new network would be told from its beginning, as if it came after what the old one had.
#[test]
fn a_place_in_a_network_that_is_gone_is_no_place_in_the_next_one_of_its_name() {
    let server = TestServer::new();
    let mut client = server.client();
    let make = |client: &mut Client| {
        client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]}));
        for owner in ["a", "b", "c"] {
            client.ok("ip.allocate", json!({"network": "lan", "owner": owner}));
        }
    };
    make(&mut client);
    let next = client.ok("ip.list", json!({"network": "lan", "limit": 2}))["next"].clone();
    for owner in ["a", "b", "c"] {
        client.ok("owner.release", json!({"owner": owner}));
    }
    client.ok("network.delete", json!({"network": "lan"}));
    make(&mut client);
    let told = client.call("ip.list", json!({"network": "lan", "limit": 2, "after": next}));
    let data = &told["error"]["data"];
    assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("after")), "{told}");
}

const SCOPES: (&str, &str) = ("scope.list", "scopes");

#[test]
fn scopes_are_listed_by_name_page_by_page_each_once_with_what_it_holds_in_all_networks() {
    let server = TestServer::new();
    let mut client = server.client();
    five(&mut client);
    // Each network has scopes of its own among the common ones.
    for (at, network) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        for scope in ["a", "n", "z", &format!("m{at}"), &format!("x{at}")] {
            client.ok("ip.allocate", json!({"network": network, "owner": "o", "scope": scope}));
        }
    }
    let whole = client.ok("scope.list", json!({}));
    assert!(whole.get("next").is_none(), "{whole}");
    let whole = whole["scopes"].as_array().unwrap().clone();
    let name = |scope: &Value| scope["scope"].as_str().unwrap().to_owned();
    let names: Vec<String> = whole.iter().map(name).collect();
    assert_eq!((names.len(), names.is_sorted()), (14, true), "{names:?}");
    let held = |name: &str| whole.iter().find(|scope| scope["scope"] == name).unwrap()["reservations"].clone();
    assert_eq!(["a", "default", "m3", "z"].map(held), [5, 10, 1, 5].map(Value::from));
    for limit in [1, 3, 7, 13, 14] {
        assert_eq!(pages(&mut client, SCOPES, limit, &[]), whole, "{limit} a page");
    }
    // After a scope that is gone the list goes on as if it were still there.
    let gone = [("scope.release", json!({"scope": "m1"}))];
    let listed: Vec<String> = pages(&mut client, SCOPES, 4, &gone).iter().map(name).collect();
    assert_eq!(listed, names);
    let first = client.ok("scope.list", json!({"network": "b", "limit": 2}));
    assert_eq!(first["scopes"].as_array().unwrap().iter().map(name).collect::<Vec<_>>(), ["a", "default"]);
    let rest = client.ok("scope.list", json!({"network": "b", "after": first["next"]}));
    assert_eq!(rest["scopes"].as_array().unwrap().iter().map(name).collect::<Vec<_>>(), ["n", "x1", "z"]);
    assert!(rest.get("next").is_none(), "{rest}");
    assert_eq!(client.kind("scope.list", json!({"network": "none"})), "not_found");
    let told = client.call("scope.list", json!({"after": "\u{1}"}));
    assert_eq!(told["error"]["data"]["field"], "after", "{told}");
}

#[test]
fn a_page_of_scopes_is_no_longer_than_an_answer_may_be_however_long_their_names_are() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    // As JSON each name takes twice the bytes.
    let scopes: Vec<String> = (0..7_400).map(|n| format!("{n:06}{}", "\"".repeat(250))).collect();
    for some in scopes.chunks(400) {
        let ask = |scope| json!({"network": "lan", "owner": "o", "scope": scope, "brief": true});
        client.raw(some.iter().map(|scope| line(1, "ip.allocate", &ask(scope))).collect::<String>());
        some.iter().for_each(|_| assert!(client.answer().get("result").is_some()));
    }
    // A client that knows nothing of pages is given as much as fits into one answer.
    let (mut listed, mut ask) = (Vec::new(), json!({}));
    loop {
        client.send("scope.list", ask.clone());
        let text = client.judged_line();
        assert!(text.len() <= 4 << 20, "{} bytes", text.len());
        let page = serde_json::from_str::<Value>(&text).unwrap()["result"].clone();
        assert!(page["scopes"].as_array().unwrap().len() > 3_000 || page.get("next").is_none());
        listed
            .extend(page["scopes"].as_array().unwrap().iter().map(|scope| scope["scope"].as_str().unwrap().to_owned()));
        let Some(next) = page.get("next") else { break };
        ask["after"] = next.clone();
    }
    assert_eq!(listed, scopes);
}
