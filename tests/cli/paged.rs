//! Lists of several pages, while networks and subnets come, go and move, so that the server refuses to continue a list.

use std::sync::atomic::{AtomicUsize, Ordering};

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::{allod, lan, text};
use crate::responder::{Responder, refusal};

/// The server's refusal to continue a list that it no longer knows.
fn forgotten() -> Value {
    refusal(
        ErrorKind::InvalidArgument,
        "`after` goes on with a list that is not known any more",
        json!({"field": "after"}),
    )
}

/// Answers lists of two pages; refuses the second page this many times.
fn refusing(times: usize) -> Responder {
    let refused = AtomicUsize::new(0);
    Responder::start(move |method, params| {
        if params.get("count_only").is_some() {
            return Ok(json!({"count": 2}));
        }
        let (list, item) = match method {
            "network.list" => ("networks", lan()),
            "scope.list" => ("scopes", json!({"scope": "a"})),
            _ => ("reservations", json!({"network": "lan", "network_id": lan()["id"], "address": "10.0.0.1"})),
        };
        match params.get("after") {
            None => Ok(json!({list: [item], "next": "n1"})),
            Some(_) if refused.fetch_add(1, Ordering::SeqCst) < times => Err(forgotten()),
            Some(_) => Ok(json!({list: [item]})),
        }
    })
}

#[test]
fn a_list_that_cannot_be_gone_on_with_is_begun_again_and_shown_once() {
    for (line, list) in [("ip list", "reservations"), ("network list", "networks"), ("scope list", "scopes")] {
        let server = refusing(2);
        let line = format!("{line} --format json");
        let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown[list].as_array().unwrap().len(), 2, "{line}");
        assert_eq!(server.asked().iter().filter(|(_, params)| params.get("after").is_none()).count(), 3, "{line}");
        assert_eq!(text(&output.stderr).matches("the list is begun again").count(), 1, "{line}");
    }
}

#[test]
fn a_list_that_never_comes_to_its_end_shows_nothing_and_says_what_to_do() {
    for (line, hint) in [
        ("ip list", "one network at a time, `--network NAME`"),
        ("ip list --network lan", "try again in a moment"),
        ("network list", "try again in a moment"),
        ("network dump", "try again in a moment"),
    ] {
        let server = refusing(usize::MAX);
        let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{line}: {said}");
        assert!(said.contains("incomplete") && said.contains(hint), "{line}: {said}");
        assert_eq!(server.asked().iter().filter(|(_, params)| params.get("after").is_none()).count(), 4, "{line}");
    }
}

#[test]
fn where_a_list_goes_on_by_the_word_of_who_asks_it_is_not_begun_again() {
    let server = refusing(usize::MAX);
    let output = allod(&server.address, &["ip", "list", "--after", "n1"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("`after` goes on with a list"), "{}", text(&output.stderr));
    assert_eq!(server.asked().len(), 1);
}

/// A mistyped realm must not end in an export that is complete and empty.
#[test]
fn an_export_of_a_realm_without_networks_fails_and_writes_nothing() {
    let server = Responder::start(|method, _| match method {
        "network.list" => Ok(json!({"networks": []})),
        _ => Ok(json!({"reservations": [], "count": 0})),
    });
    let output = allod(&server.address, &["export", "--realm", "typo"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    let said = text(&output.stderr);
    assert!(
        said.contains("cannot export realm `typo`: no network is in it") && said.contains("`allod realm list`"),
        "{said}"
    );
    let server = Responder::start(|method, params| match (method, params.get("deleted")) {
        ("network.list", Some(_)) => Ok(json!({"networks": [lan()]})),
        ("network.list", None) => Ok(json!({"networks": []})),
        _ => Ok(json!({"reservations": [], "count": 0})),
    });
    let output = allod(&server.address, &["export", "--realm", "tenant"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    let said = text(&output.stderr);
    assert!(said.contains("are deleted") && said.contains("`allod network restore ID`"), "{said}");
    // A whole register may be empty.
    let output = allod(&server.address, &["export"]);
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(0), 2));
}

/// What was written stays written, but it lacks its last line, without which no import accepts it.
#[test]
fn an_export_that_is_cut_off_says_so_and_has_no_end() {
    let refused = AtomicUsize::new(0);
    let server = Responder::start(move |method, params| match (method, params.get("after")) {
        ("network.list", _) => Ok(json!({"networks": [lan()]})),
        _ if params.get("count_only").is_some() => Ok(json!({"count": 2})),
        (_, None) => {
            let held = json!({"network": "lan", "network_id": lan()["id"], "address": "10.0.0.1", "owner": "a"});
            Ok(json!({"reservations": [held], "next": "n1"}))
        }
        (_, Some(_)) => {
            refused.fetch_add(1, Ordering::SeqCst);
            Err(forgotten())
        }
    });
    let output = allod(&server.address, &["export"]);
    let (written, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(written.contains("10.0.0.1") && !written.contains("\"end\""), "{written}");
    assert!(said.contains("incomplete") && said.contains("hint: export again"), "{said}");
}

/// Networks are written first, and reservations, page by page, as they are then: no import would take such a file.
#[test]
fn an_export_beside_which_a_network_changed_fails_and_has_no_end() {
    let named = |name: &str, version: u64| {
        let mut network = lan();
        (network["name"], network["version"]) = (json!(name), json!(version));
        network
    };
    // Renamed, given another subnet, deleted and made anew; and one that was not there.
    let mut anew = lan();
    anew["id"] = json!("00000000-0000-4000-8000-000000000002");
    for (later, is_whole) in [
        (vec![named("lan-1", 2)], false),
        (vec![named("lan", 2)], false),
        (vec![anew.clone()], false),
        (vec![], false),
        (vec![lan(), anew], true),
        (vec![lan()], true),
    ] {
        let (listed, then) = (AtomicUsize::new(0), later.clone());
        let server = Responder::start(move |method, params| match method {
            "network.list" if listed.fetch_add(1, Ordering::SeqCst) == 0 => Ok(json!({"networks": [lan()]})),
            "network.list" => Ok(json!({"networks": then})),
            _ if params.get("count_only").is_some() => Ok(json!({"count": 1})),
            _ => {
                let held = json!({"network": "lan-1", "network_id": lan()["id"], "address": "10.0.0.1", "owner": "a"});
                Ok(json!({"reservations": [held]}))
            }
        });
        let output = allod(&server.address, &["export"]);
        let (written, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(i32::from(!is_whole)), "{later:?}: {said}");
        assert_eq!(written.contains("\"end\""), is_whole, "{later:?}: {written}");
        assert!(
            is_whole || said.contains("network `lan` ") && said.contains("hint: export again"),
            "{later:?}: {said}"
        );
    }
}
