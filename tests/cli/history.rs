//! `allod history` and `allod who --at`: what the server is asked, and what is printed.

use std::process::Output;

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::{self, text};
use crate::golden;
use crate::responder::{Responder, refusal};

const NOW: &str = "2026-03-01T12:00:00.000Z";

fn allod(server: &Responder, arguments: &[&str]) -> Output {
    commands::allod(&server.address, arguments)
}

fn said(output: &Output) -> String {
    let (out, err, code) = (text(&output.stdout), text(&output.stderr), output.status.code().unwrap());
    format!("{out}-- stderr, exit {code}\n{err}\n")
}

fn event(minute: u32, kind: &str, owner: &str, more: Value) -> Value {
    let state = |owner: &str| {
        json!({"scope": "default", "owner": owner, "slot": "0", "kind": "dynamic", "release_with_claimant": false,
            "transient": false, "created_at": "2026-03-01T09:10:00.000Z", "generation": 12})
    };
    let mut event = json!({"cursor": format!("c{minute}"), "time": format!("2026-03-01T09:{minute}:00.000Z"), "type": kind,
        "network": "lan", "network_id": "00000000-0000-4000-8000-000000000001", "address": "10.0.0.5",
        "prefix_length": 32, "scope": "default", "owner": owner, "slot": "0", "generation": 12, "kind": "dynamic",
        "by": "anonymous", "after": state(owner)});
    for (member, value) in more.as_object().unwrap() {
        event[member] = value.clone();
    }
    event
}

/// Some minutes in the history of 10.0.0.5.
fn events() -> Vec<Value> {
    let mut transferred = event(14, "transferred", "web/1", json!({"generation": 13, "reason": "TICKET-2"}));
    transferred["before"] = transferred["after"].clone();
    transferred["before"]["owner"] = json!("web/0");
    transferred["after"]["generation"] = json!(13);
    let mut bound = event(12, "bound", "web/0", json!({"claimant": "vm-1"}));
    bound["after"]["claimant"] = json!("vm-1");
    let network = json!({"time": "2026-03-01T09:09:00.000Z", "type": "network_created", "network": "lan",
        "network_id": "00000000-0000-4000-8000-000000000001", "by": "admin", "cursor": "c9"});
    let mut released = event(16, "released", "web/1", json!({"reason": "gone"}));
    released.as_object_mut().unwrap().remove("after");
    vec![
        network,
        event(10, "granted", "web/0", json!({"reason": "a new machine", "by": "token:ci"})),
        bound,
        transferred,
        released,
        event(18, "granted", "db/0", json!({"scope": "shop", "slot": "1", "generation": 15})),
    ]
}

/// Answers pages of two events, as asked.
fn historian() -> Responder {
    Responder::start(|method, params| {
        if method == "server.info" {
            return Ok(json!({"time": NOW}));
        }
        if method == "network.get" {
            return Ok(json!({"name": "lan"}));
        }
        let text = |member: &str| params[member].as_str();
        let wanted = |event: &&Value| {
            let time = event["time"].as_str().unwrap();
            text("from").is_none_or(|from| time >= from)
                && text("to").is_none_or(|to| time <= to)
                && text("address").is_none_or(|address| event["address"] == address)
                && text("after").is_none_or(|after| time > &format!("2026-03-01T09:{:0>2}:30.000Z", &after[1..])[..])
        };
        let mut found: Vec<Value> = events().iter().filter(wanted).cloned().collect();
        if let Some(at) = text("at") {
            found.retain(|event| event["time"].as_str().unwrap() <= at && event.get("address").is_some());
            let last = found.pop().filter(|event| event.get("after").is_some());
            return Ok(json!({"events": last.into_iter().collect::<Vec<_>>()}));
        }
        let page = usize::try_from(params["limit"].as_u64().unwrap()).unwrap().min(2);
        if found.len() <= page {
            return Ok(json!({"events": found}));
        }
        found.truncate(page);
        Ok(json!({"next": found[page - 1]["cursor"].clone(), "events": found}))
    })
}

#[test]
fn the_history_is_told_to_its_end_and_in_every_format() {
    let server = historian();
    let mut text = String::new();
    for line in [
        "history",
        "history 10.0.0.5 --from 2026-03-01T09:13:00Z",
        "history 10.0.0.5 --limit 3",
        "history 10.0.0.5 --after c14",
        "history --to 2026-03-01T08:00:00+00:00",
        "history 10.0.0.5 --at 2026-03-01T10:15:00+01:00",
        "history 10.0.0.5 --at 9h",
        "history 10.0.0.5 --limit 1 --format json",
        "history 10.0.0.5 --limit 1 --format env",
        "call events.history address=10.0.0.5 after=c14 limit=5",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        text.push_str(&format!("$ allod {line}\n{}", said(&allod(&server, &arguments))));
    }
    golden("history.txt", &text);
}

#[test]
fn filters_and_times_become_members() {
    let server = historian();
    let line = "history 10.0.0.5 --network lan --realm r --scope s --owner o --from -2h --to 90m --limit 7";
    allod(&server, &line.split(' ').collect::<Vec<_>>());
    let asked = server.asked();
    let (_, params) = asked.iter().find(|(method, _)| method == "events.history").unwrap();
    assert_eq!(
        params,
        &json!({"address": "10.0.0.5", "network": "lan", "realm": "r", "scope": "s", "owner": "o",
            "from": "2026-03-01T10:00:00.000Z", "to": "2026-03-01T10:30:00.000Z", "limit": 7})
    );
    for line in ["history --at 1h --from 2h", "history --at yesterday", "who 10.0.0.5 --at soon", "history --limit 0"] {
        let output = allod(&server, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(64), "{line}: {}", said(&output));
    }
}

#[test]
fn who_held_it_then_is_told_with_the_grant_and_nobody_with_what_was_before_and_after() {
    let server = historian();
    let mut text = String::new();
    for line in [
        "who 10.0.0.5 --at 2026-03-01T09:11:00Z",
        "who 10.0.0.5 --at 2026-03-01T09:13:00Z",
        "who 10.0.0.5 --at 2026-03-01T09:15:00Z",
        "who 10.0.0.5 --at 2026-03-01T09:17:00Z",
        "who 10.0.0.5 --at 2026-03-01T09:09:30Z",
        "who 10.0.0.5 --at 2026-03-01T09:00:00Z",
        "who 10.0.0.9 --at 1h",
        "who 10.0.0.5 --at 2026-03-01T09:17:00Z --format json",
        "who 10.0.0.5 --at 2026-03-01T09:11:00Z --format env",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        text.push_str(&format!("$ allod {line}\n{}", said(&allod(&server, &arguments))));
    }
    golden("who-at.txt", &text);
}

#[test]
fn the_last_events_are_told_with_what_is_known_of_those_before() {
    let network = |policy: &str, minute: u32| {
        let kind = if minute == 10 { "network_created" } else { "network_changed" };
        json!({"cursor": format!("c{minute}"), "time": format!("2026-03-01T09:{minute}:00.000Z"), "type": kind,
            "network": "lan", "network_id": "n1", "by": "admin", "after": {"name": "lan", "policy": policy}})
    };
    let pages = [vec![network("lowest", 10), network("oldest", 11)], vec![network("random", 12)]];
    let server = Responder::start(move |_, params| match params["after"].as_str() {
        None => Ok(json!({"events": pages[0], "next": "c11"})),
        Some(_) => Ok(json!({"events": pages[1]})),
    });
    let told = String::from_utf8(allod(&server, &["history", "--network", "lan", "--last", "1"]).stdout).unwrap();
    assert!(told.contains("policy=random\n") && told.lines().count() == 2, "{told}");
    let told = String::from_utf8(allod(&server, &["history", "--last", "5", "--format", "json"]).stdout).unwrap();
    assert_eq!(told.lines().count(), 3, "{told}");
    assert_eq!(allod(&server, &["history", "--last", "5", "--limit", "3"]).status.code(), Some(64));
}

/// A register whose older events can no longer be read, and which has a few recent ones.
fn with_damage_before(damaged: &'static str, times: &'static [&'static str]) -> Responder {
    Responder::start(move |method, params| {
        if method == "server.info" {
            return Ok(json!({"time": NOW}));
        }
        let from = params["from"].as_str().unwrap_or_default();
        if from < damaged {
            return Err(refusal(ErrorKind::CursorLost, "the history is damaged there", json!({})));
        }
        let found = times.iter().filter(|time| **time >= from && params["to"].as_str().is_none_or(|to| **time <= to));
        let made = |time: &&str| json!({"time": time, "type": "released", "network": "lan", "owner": "o"});
        Ok(json!({"events": found.map(made).collect::<Vec<_>>()}))
    })
}

const LATELY: &[&str] =
    &["2026-03-01T10:00:00.000Z", "2026-03-01T11:30:00.000Z", "2026-03-01T11:59:00.000Z", "2026-03-01T11:59:59.000Z"];

#[test]
fn what_happened_long_before_the_last_events_is_not_asked_for() {
    let server = with_damage_before("2026-03-01T08:00:00.000Z", LATELY);
    let told = |line: &str| {
        let output = allod(&server, &line.split(' ').collect::<Vec<_>>());
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let times = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["time"].clone());
        (output.status.code(), times.collect::<Vec<_>>(), String::from_utf8(output.stderr).unwrap())
    };
    for count in 1..=4 {
        let (code, times, said) = told(&format!("history --last {count} --format json"));
        assert_eq!((code, times), (Some(0), LATELY[4 - count..].iter().map(|time| json!(time)).collect()), "{said}");
    }
    let (code, times, _) = told("history --last 1 --to 2026-03-01T11:00:00Z --format json");
    assert_eq!((code, times), (Some(0), vec![json!(LATELY[0])]));
    // There are fewer events than asked for.
    let (code, times, _) = told("history --last 9 --from 2026-03-01T11:00:00Z --format json");
    assert_eq!((code, times.len()), (Some(0), 3));
    let (code, _, said) = told("history --last 5");
    assert!(code == Some(1) && said.contains("`--last 4` shows the rest"), "{said}");
}

#[test]
fn rows_of_a_later_page_stand_under_their_own_headings() {
    let network = |at: u64| {
        json!({"cursor": format!("{at}"), "time": "2026-03-01T09:09:00.000Z", "type": "network_changed", "network": "lan",
            "network_id": "n1", "by": "admin"})
    };
    let server = Responder::start(move |_, params| {
        let (after, limit) =
            (params["after"].as_str().map_or(0, |after| after.parse().unwrap()), params["limit"].as_u64().unwrap());
        // Two pages of one kind of event, and then one of another.
        let all: Vec<Value> = (after + 1..=(after + limit).min(2_001))
            .map(|at| if at > 2_000 { event(10, "granted", "web/0", json!({"by": "ci"})) } else { network(at) })
            .collect();
        let next = (after + limit < 2_001).then(|| (after + limit).to_string());
        Ok(next.map_or_else(|| json!({"events": all}), |next| json!({"events": all, "next": next})))
    });
    let told = String::from_utf8(allod(&server, &["history"]).stdout).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    let headings: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].starts_with("TIME ")).collect();
    assert_eq!((headings.as_slice(), lines.len()), (&[0, 2_001][..], 2_003));
    let place = |line: &str, text: &str| line.find(text).unwrap();
    assert_eq!(place(lines[2_001], "ADDRESS"), place(lines[2_002], "10.0.0.5"));
    assert_eq!(place(lines[2_001], "OWNER"), place(lines[2_002], "web/0"));
}
