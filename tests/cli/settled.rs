//! How a plan of a deployment ends: what the server is asked, and what is said about the addresses that moved.

use std::sync::atomic::{AtomicBool, Ordering};

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::{allod, text};
use crate::responder::{Responder, refusal};
use crate::write;

fn held(address: &str, generation: u64) -> Value {
    json!({"network": "lan", "address": address, "prefix_length": 32, "generation": generation,
        "created_at": format!("2026-03-01T09:0{generation}:00.000Z")})
}

/// Shows one state of the deployment until the plan is committed or reverted, and another one after that.
fn server(before: Value, after: Value, released: Value) -> Responder {
    let ended = AtomicBool::new(false);
    Responder::start(move |method, params| match method {
        "deployment.get" => Ok(if ended.load(Ordering::SeqCst) { &after } else { &before }.clone()),
        "events.history" => Ok(json!({"events": [{"type": "transferred", "network": "lan", "address": "10.20.0.10",
            "prefix_length": 32, "generation": 5, "before": {"owner": "a"}, "after": {"owner": "c"}}]})),
        _ => {
            ended.fetch_or(params["dry_run"] != true, Ordering::SeqCst);
            Ok(json!({"released": released}))
        }
    })
}

fn run(server: &Responder, line: &str) -> (Option<i32>, String) {
    let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
    (output.status.code(), text(&output.stderr))
}

#[test]
fn what_a_commit_hands_over_is_told_though_nothing_is_released() {
    let before = json!({"instances": [{"id": "a", "reservations": [held("10.20.0.10", 1)], "obsolete": []}]});
    let after = json!({"instances": [{"id": "b", "reservations": [held("10.20.0.10", 2)], "obsolete": []}]});
    let server = server(before, after, json!([]));
    let (code, said) = run(&server, "deployment commit cy --plan 7");
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "this moved:\nADDRESS     NETWORK  WHAT\n10.20.0.10  lan      a → b\n")
    );
    assert_eq!(server.asked()[1].1, json!({"deployment": "cy", "plan": 7}));
    // This is said only if it is so.
    assert_eq!(run(&server, "deployment commit cy --plan 7").1, "nothing was to be released\n");
}

#[test]
fn a_revert_says_what_comes_back_before_it_is_confirmed_and_after_it_is_done() {
    let mut obsolete = held("10.20.0.12", 1);
    obsolete["obsolete"] = json!({"since": "2026-03-01T09:05:00.000Z", "plan": 7});
    let before = json!({"uncommitted_since": "2026-03-01T09:04:00.000Z", "instances": [
        {"id": "c", "reservations": [held("10.20.0.10", 5)], "obsolete": [obsolete]}]});
    let after = json!({"instances": [{"id": "a", "reservations": [held("10.20.0.10", 6)], "obsolete": []},
        {"id": "c", "reservations": [held("10.20.0.12", 1)], "obsolete": []}]});
    let rows = |last: &str| format!("ADDRESS     NETWORK  WHAT\n{last}");
    let would = "this would come back:\n".to_owned()
        + &rows("10.20.0.12  lan      current again for c\n10.20.0.10  lan      c → a\n")
        + "so it undoes what an earlier partial commit of the plan did for those instances\n";
    let server = server(before, after, json!([]));
    assert_eq!(
        run(&server, "deployment revert cy --plan 7 --dry-run").1,
        format!("{would}dry run: nothing was changed\n")
    );
    let (code, refused) = run(&server, "deployment revert cy --plan 7");
    assert!(code == Some(1) && refused.starts_with(&would) && refused.contains("`--yes`"), "{refused}");
    let done =
        "this moved:\n".to_owned() + &rows("10.20.0.10  lan      c → a\n10.20.0.12  lan      current again for c\n");
    assert_eq!(run(&server, "deployment revert cy --plan 7 --yes").1, would + &done);
}

#[test]
fn an_apply_that_keeps_all_names_no_end_of_a_plan_unless_one_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cy.yaml");
    write(&file, b"deployment: cy\ninstances: [{id: a, networks: [{network: lan}]}]\n");
    let apply = |state: &str, deployment: Value| {
        let answer = json!({"plan": 7, "instances": [{"id": "a", "networks": [{"network": "lan", "slot": "0",
            "state": state, "reservation": held("10.20.0.10", 1)}]}], "obsolete": []});
        let server = Responder::start(move |method, _| {
            Ok(if method == "deployment.get" { &deployment } else { &answer }.clone())
        });
        run(&server, &format!("deployment apply {}", file.display())).1
    };
    let settled = || json!({"plan": 7, "instances": []});
    let open = json!({"plan": 7, "uncommitted_since": "2026-03-01T09:04:00.000Z", "instances": []});
    assert_eq!(apply("kept", settled()), "plan 7 of 1 instance: 1 kept; nothing is left to commit or to revert\n");
    assert!(apply("kept", open).contains("`allod deployment commit cy --plan 7`"));
    assert!(apply("new", settled()).contains("`allod deployment commit cy --plan 7`"));
}

#[test]
fn a_plan_shows_which_reserved_range_what_it_keeps_lies_in_and_for_whom_that_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cy.yaml");
    write(&file, b"deployment: cy\ninstances: [{id: a, networks: [{network: lan}]}]\n");
    let server = Responder::start(|_, _| {
        let slot = |address: &str, reserved: Value| json!({"network": "lan", "slot": "0", "state": "kept", "reservation": held(address, 1), "reserved": reserved});
        let range = |range: &str, note: &str| json!({"range": range, "note": note});
        let mut printers = range("10.20.0.10-10.20.0.19", "printers");
        printers["for"] = json!({"owner": "print/0", "scope": "office"});
        Ok(json!({"instances": [
            {"id": "a", "networks": [slot("10.20.0.10", printers)]},
            {"id": "b", "networks": [slot("10.20.0.20", range("10.20.0.20-10.20.0.20", ""))]},
        ], "obsolete": []}))
    });
    let output = allod(&server.address, &["deployment", "plan", file.to_str().unwrap()]);
    assert_eq!(
        text(&output.stdout),
        "STATE  ADDRESS     NETWORK  INSTANCE  LIES IN\n\
         kept   10.20.0.10  lan      a         10.20.0.10-10.20.0.19, reserved for print/0 (scope office): printers\n\
         kept   10.20.0.20  lan      b         10.20.0.20, reserved\n"
    );
}

#[test]
fn an_instance_that_holds_nothing_is_named_as_it_is_easily_misspelt() {
    let of = |id: &str| json!({"instances": [{"id": id, "reservations": [held("10.20.0.10", 1)], "obsolete": []}]});
    let server = server(of("a"), of("b"), json!([]));
    // An instance that holds something before or after is known: a promise that is kept gives an instance its first address.
    let (code, said) = run(&server, "deployment commit cy --plan 7 --instance a --instance b --instance typo");
    assert_eq!(code, Some(0));
    assert!(said.starts_with("deployment `cy` has no instance `typo` that holds anything\nthis moved:\n"), "{said}");
    let (_, said) = run(&server, "deployment revert cy --plan 7 --instance typo --dry-run");
    assert!(said.starts_with("deployment `cy` has no instance `typo`"), "{said}");
}

#[test]
fn a_sweep_over_nothing_says_so() {
    let sweep = |count: u64, waiting: Value| {
        let server = Responder::start(move |method, _| match method {
            "ip.list" => Ok(json!({"count": count})),
            _ => Ok(json!({"unbound": [], "released": [], "waiting": waiting})),
        });
        run(&server, "claimant sweep prod --none-alive").1
    };
    let nothing = "nothing is held in scope `prod`; `allod scope list` shows the scopes there are\n";
    assert!(sweep(0, json!([])).ends_with(nothing));
    assert!(!sweep(1, json!([])).contains("nothing is held"));
    let waiting = json!([{"network": "lan", "address": "10.0.0.5", "claimant": "vm"}]);
    assert!(!sweep(0, waiting).contains("nothing is held"));
}

#[test]
fn flags_become_members_of_what_ends_a_plan() {
    let server = Responder::start(|_, _| Ok(json!({"released": []})));
    for (line, expected) in [
        (
            "deployment commit shop --plan 7 --instance web/0 --instance web/1 --dry-run",
            json!({"deployment": "shop", "plan": 7, "instances": ["web/0", "web/1"], "dry_run": true}),
        ),
        (
            "deployment revert shop --plan 7 --yes --reason why",
            json!({"deployment": "shop", "plan": 7, "reason": "why"}),
        ),
    ] {
        server.forget();
        assert_eq!(run(&server, line).0, Some(0));
        let made = |(method, params): &(String, Value)| method != "deployment.get" && *params == expected;
        assert!(server.asked().iter().any(made), "{line}: {:?}", server.asked());
    }
}

/// A refusal after which the server counts as lost.
fn lost() -> Value {
    refusal(ErrorKind::Unavailable, "the store does not answer", json!({"applied": "unknown", "retry_after_ms": 50}))
}

#[test]
fn a_commit_that_was_answered_is_done_although_nobody_sees_what_moved() {
    let ended = AtomicBool::new(false);
    let server = Responder::start(move |method, _| match method {
        "deployment.get" if ended.load(Ordering::SeqCst) => Err(lost()),
        "deployment.get" => Ok(json!({"instances": []})),
        _ => {
            ended.store(true, Ordering::SeqCst);
            Ok(json!({"released": [held("10.20.0.10", 1)]}))
        }
    });
    let output = allod(&server.address, &["deployment", "commit", "cy", "--plan", "7", "--timeout", "1s"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(0), 2), "{said}");
    assert!(said.starts_with("it is done; what moved is not known, because it could not be looked up"), "{said}");
    assert!(said.ends_with("`allod deployment get cy` shows what is held now\nreleased 1 reservation\n"), "{said}");
}

/// If the server fails before the commit, or after it, nobody has seen what there was to release.
#[test]
fn a_commit_of_which_the_server_shows_nothing_is_not_said_to_have_let_nothing_go() {
    for refuses_before in [false, true] {
        let ended = AtomicBool::new(false);
        let server = Responder::start(move |method, _| match method {
            "deployment.get" if refuses_before || ended.load(Ordering::SeqCst) => {
                Err(refusal(ErrorKind::Internal, "a bug", json!({})))
            }
            "deployment.get" => Ok(json!({"instances": []})),
            _ => {
                ended.store(true, Ordering::SeqCst);
                Ok(json!({"released": []}))
            }
        });
        let (code, said) = run(&server, "deployment commit cy --plan 7");
        let begins =
            "it is done; what moved is not known, because it could not be looked up: a bug; `allod deployment get cy`";
        assert!(code == Some(0) && said.starts_with(begins), "{said}");
        assert!(!said.contains("nothing was to be released"), "{said}");
    }
}

#[test]
fn what_a_revert_brings_back_is_not_passed_over_where_the_history_does_not_tell() {
    let before = json!({"uncommitted_since": "2026-03-01T09:04:00.000Z", "instances": [
        {"id": "c", "reservations": [held("10.20.0.10", 5)], "obsolete": []}]});
    let server = Responder::start(move |method, _| match method {
        "deployment.get" => Ok(before.clone()),
        "events.history" => Err(refusal(ErrorKind::Internal, "a bug", json!({}))),
        _ => Ok(json!({"released": []})),
    });
    let (code, said) = run(&server, "deployment revert cy --plan 7 --dry-run");
    assert!(code == Some(0) && said.contains("because history does not have it: a bug\n"), "{said}");
}
