//! What is said on stderr about an answer, and about what a dry run would take.

use serde_json::json;

use crate::commands::{allod, lan, text};
use crate::responder::Responder;

#[test]
fn an_answer_with_nothing_to_show_is_put_into_words() {
    let server = Responder::start(|method, _| match method {
        "cluster.conflicts" => Ok(json!({"conflicts": []})),
        "cluster.accept" => Ok(json!({"accepted": []})),
        "reserved.remove" => Ok(json!({"reserved": []})),
        "network.map" => Ok(json!({"pools": []})),
        "ip.acquire" => Ok(json!({"reservations": [], "released": [{"network": "lan", "address": "10.0.0.6"}]})),
        _ => {
            let mut network = lan();
            network["created"] = json!(false);
            Ok(network)
        }
    });
    for (line, said) in [
        ("cluster conflicts", "no conflicts\n"),
        ("cluster accept lan", "no conflicts; nothing was to be decided\n"),
        ("network create lan --if-absent", "it was there already; nothing was changed\n"),
        ("subnet add lan 10.0.0.0/24 --if-absent", "it was there already; nothing was changed\n"),
        ("ip acquire lan --owner a --ip any --exact", "released 1 reservation\n"),
        (
            "network map lan --subnet a --pool b",
            "pool `b` of network `lan` is not in subnet `a`; `allod network get lan` shows which pools are in which\n",
        ),
        (
            "network map lan --subnet a",
            "subnet `a` of network `lan` has no pools; `allod pool add lan RANGE` makes one\n",
        ),
    ] {
        let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), said), "{line}");
    }
}

#[test]
fn a_network_that_is_deleted_is_not_shown_as_any_other() {
    let server = Responder::start(|method, _| match method {
        "network.list" => Ok(json!({"networks": [lan()]})),
        _ => Ok(lan()),
    });
    let id = lan()["id"].as_str().unwrap().to_owned();
    let said = text(&allod(&server.address, &["network", "get", &id]).stderr);
    let restore = format!("`allod network restore {id}` brings it back");
    assert!(said.starts_with("deleted, and remembered") && said.contains(&restore), "{said}");
    server.forget();
    assert_eq!(text(&allod(&server.address, &["network", "get", "lan"]).stderr), "");
    assert_eq!(server.methods(), ["network.get"]);
}

/// A network with what can go.
fn furnished() -> serde_json::Value {
    let mut network = lan();
    network["subnets"] = json!([
        {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "pools": [
            {"range": "10.0.0.10-10.0.0.99", "name": "web", "kind": "dynamic"},
            {"range": "10.0.0.100-10.0.0.199", "kind": "static"}],
            "reserved": [{"range": "10.0.0.20-10.0.0.29", "note": "printers"}, {"range": "10.0.0.40-10.0.0.40",
                "for": {"owner": "db/0"}}]},
        {"cidr": "10.1.0.0/24", "pools": [{"range": "10.1.0.0-10.1.0.255", "name": "web", "kind": "dynamic"}]}]);
    network
}

#[test]
fn what_takes_away_shows_what_goes_before_the_question_and_in_a_dry_run() {
    let server = Responder::start(|method, params| match method {
        "network.delete" => Ok(json!({"id": "0f", "holding": 0})),
        "network.get" => Ok(furnished()),
        "ip.list" if params["count_only"] == true => Ok(json!({"count": 3})),
        "ip.list" => Ok(json!({"reservations": [{"address": "10.0.0.5", "network": "lan", "owner": "a"}]})),
        _ => Ok(json!({})),
    });
    let mut shown_by_all = String::new();
    for line in [
        "network delete lan",
        "network delete lan --purge",
        "subnet remove lan 10.0.0.0/24",
        "pool remove lan web",
        "pool remove lan --range 10.0.0.90-10.0.0.110",
        "reserved remove lan 10.0.0.24-10.0.0.63",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let asked = text(&allod(&server.address, &arguments).stderr);
        let dry = text(&allod(&server.address, &[&arguments[..], &["--dry-run"]].concat()).stderr);
        let (shown, refused) = asked.split_once("allod: cannot").unwrap();
        assert!(refused.contains("`--yes`") && dry.starts_with(shown), "{line}:\n{asked}\n{dry}");
        assert!(dry.ends_with("dry run: nothing was changed\n"), "{dry}");
        shown_by_all.push_str(&format!("$ allod {line}\n{shown}\n"));
    }
    assert_eq!(shown_by_all.lines().find(|line| line.chars().count() > 80), None);
    crate::golden("goes.txt", &shown_by_all);
}
