//! A list that was not read to its end says so, and so does a release that breaks off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::{allod, lan, text};
use crate::responder::{Responder, refusal};

fn run(server: &Responder, line: &str) -> (Option<i32>, String, String) {
    let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn held(count: usize) -> Vec<Value> {
    (0..count).map(|at| json!({"network": "lan", "address": format!("10.0.{}.{}", at / 256, at % 256)})).collect()
}

#[test]
fn a_dry_run_that_tells_only_the_first_says_so() {
    let server = Responder::start(|_, _| Ok(json!({"released": held(30), "more": true})));
    for line in ["scope release ci --dry-run", "owner release web/0 --dry-run", "deployment delete shop --dry-run"] {
        let (code, _, said) = run(&server, line);
        let first = "these are the first 30 reservations: there are more, and without `--dry-run` all are released\n";
        assert!(code == Some(0) && said.starts_with(first), "{line}: {said}");
    }
    let (_, _, asked) = run(&server, "scope release ci");
    assert!(asked.contains("(at least 30)") && asked.contains("… and at least 10 more\n"), "{asked}");
}

#[test]
fn a_release_that_breaks_off_tells_what_it_released_and_fails() {
    let refusing = |method: &str, released: usize, params: &Value| {
        if params["dry_run"] == true || released == 0 {
            return Ok(json!({"released": held(3), "more": true}));
        }
        match method {
            "scope.release" => Err(refusal(ErrorKind::Internal, "a bug", json!({}))),
            _ => Ok(json!({"released": [], "more": true})),
        }
    };
    let released = AtomicUsize::new(0);
    let server = Responder::start(move |method, params| {
        let before = if params["dry_run"] == true { 0 } else { released.fetch_add(1, Ordering::SeqCst) };
        refusing(method, before % 2, params)
    });
    for (line, why) in [
        ("scope release ci --yes", "cannot release what scope `ci` holds: a bug"),
        ("owner release web/0 --yes", "the server says that more is left, and releases nothing of it"),
    ] {
        let (code, told, said) = run(&server, line);
        assert_eq!((code, told.lines().count()), (Some(1), 4), "{line}: {told}{said}");
        assert!(said.contains("released 3 reservations, and then it broke off: there was more\n"), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
}

/// The command uses the id of the network that it showed. It asks once more whether the network is gone by now, or what
/// stands in the way.
#[test]
fn a_purge_that_breaks_off_is_asked_for_again_and_says_what_is_left_and_why() {
    let purge = |answers: Vec<Result<Value, ErrorKind>>| {
        let asked = AtomicUsize::new(0);
        let server = Responder::start(move |method, params| match method {
            "network.delete" if params["dry_run"] != true => {
                let answer = answers[asked.fetch_add(1, Ordering::SeqCst)].clone();
                answer.map_err(|kind| refusal(kind, "the disk is full", json!({"applied": "unknown"})))
            }
            "network.delete" => Ok(json!({"id": lan()["id"], "holding": 0})),
            "ip.list" => Ok(json!({"count": 9})),
            _ => Ok(lan()),
        });
        let (code, _, said) = run(&server, "network delete lan --purge --yes");
        let asked = server
            .asked()
            .into_iter()
            .filter(|(method, params)| method == "network.delete" && params["dry_run"] != true);
        (code, said, asked.map(|(_, params)| params["network"].clone()).collect::<Vec<_>>())
    };
    let holding = |count: u64| Ok(json!({"id": lan()["id"], "holding": count}));
    let id = || lan()["id"].clone();
    let (code, said, asked) = purge(vec![holding(7), holding(3), Err(ErrorKind::Unavailable)]);
    assert_eq!((code == Some(0), asked), (false, vec![id(), id(), id()]), "{said}");
    let left = "closed; it still holds 3 reservations: it broke off, and goes on by itself as soon as it can\n";
    assert!(said.contains(left) && said.contains("the disk is full"), "{said}");
    for last in [holding(0), Err(ErrorKind::NotFound)] {
        let (code, said, asked) = purge(vec![holding(7), last]);
        assert_eq!((code, asked), (Some(0), vec![id(), id()]), "{said}");
        assert!(said.ends_with("deleted\n"), "{said}");
    }
}

#[test]
fn a_call_of_which_a_table_shows_only_a_part_says_so() {
    let server = Responder::start(|method, _| match method {
        "ip.list" => Ok(json!({"reservations": held(1), "next": "n 1"})),
        _ => Ok(json!({"released": held(1), "more": true})),
    });
    for format in ["table", "env"] {
        let said = run(&server, &format!("call ip.list limit=1 --format {format}")).2;
        assert_eq!(said, "there are more: the same call with `after='n 1'`\n", "{format}");
    }
    assert_eq!(run(&server, "call scope.release scope=ci").2, "there are more: make the same call again\n");
    assert_eq!(run(&server, "call scope.release scope=ci dry_run=true").2, "there are more\n");
    assert_eq!(run(&server, "call ip.list limit=1 --format json").2, "");
}

#[test]
fn a_sweep_that_left_what_is_due_says_so_and_what_to_do() {
    let sweep = |unbound: usize, waiting: usize, more: bool| {
        let server = Responder::start(move |_, _| {
            let mut swept = json!({"unbound": held(unbound), "released": held(2), "waiting": held(waiting)});
            if more {
                swept["more"] = json!(true);
            }
            Ok(swept)
        });
        let dry = run(&server, "claimant sweep prod --none-alive --dry-run").2;
        (run(&server, "claimant sweep prod --none-alive").2, dry)
    };
    let (said, dry) = sweep(1_000, 1_000, true);
    let (counts, again) = said.split_once("; ").unwrap();
    assert_eq!(counts, "1000 unbound, 2 released, 1000 or more missed and waiting for another sweep");
    assert!(again.ends_with("sweep again for the rest\n") && dry.contains("more is due"), "{said}{dry}");
    let (broken_off, _) = sweep(5, 0, true);
    assert!(broken_off.contains("something came in between") && !broken_off.contains("1000"), "{broken_off}");
    let (said, dry) = sweep(1_000, 1_000, false);
    assert!(!said.contains("sweep again") && said.starts_with("1000 unbound"), "{said}");
    assert_eq!(dry, "dry run: nothing was changed\n");
}

/// Answers the requests of `network why-full`: pools with these counts of free addresses, and this many scopes.
fn crowded(free: Vec<u64>, scopes: usize) -> Responder {
    Responder::start(move |method, params| {
        let pool = |(at, free): (usize, &u64)| {
            json!({"range": format!("10.0.{at}.0-10.0.{at}.255"), "kind": "dynamic", "size": "256", "held": "256",
                "free": free.to_string()})
        };
        match method {
            "network.usage" => {
                let pools: Vec<Value> = free.iter().enumerate().map(pool).collect();
                Ok(json!({"size": "9", "held": "9", "free": "0", "subnets": [
                    {"cidr": "10.0.0.0/16", "size": "9", "held": "9", "free": "0", "pools": pools}]}))
            }
            "network.get" => Ok(lan()),
            "network.map" => Ok(json!({"pools": []})),
            "scope.list" => {
                let scope = |at: usize| json!({"scope": format!("s{at}"), "addresses": "1", "unbound": 0});
                Ok(json!({"scopes": (0..scopes).map(scope).collect::<Vec<_>>()}))
            }
            // The time for one pool is later than that for all.
            _ => {
                let at = if params.get("pool").is_some() { "2026-03-09T00:00:00Z" } else { "2026-03-01T00:00:00Z" };
                Err(refusal(ErrorKind::NotEnoughCapacity, "full", json!({"next_free_at": at})))
            }
        }
    })
}

#[test]
fn the_next_address_is_looked_for_in_all_pools_of_a_family_without_room() {
    let server = crowded(vec![0; 20], 0);
    let said = run(&server, "network why-full lan").2;
    assert!(said.contains("the next address is free by itself at 2026-03-01T00:00:00Z\n"), "{said}");
    let asked = server.asked().into_iter().filter(|(method, _)| method == "ip.allocate");
    let expected = json!({"network": "lan", "family": 4, "owner": "why-full", "dry_run": true});
    assert_eq!(asked.map(|(_, params)| params).collect::<Vec<_>>(), [expected]);
}

#[test]
fn pools_and_scopes_that_why_full_leaves_out_are_counted() {
    let server = crowded([vec![0; 9], vec![7; 10]].concat(), 12);
    let (_, told, said) = run(&server, "network why-full lan");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("of the first 8 that are full; 1 more pool was not asked about"), "{said}");
    assert!(said.contains("2 more pools were not looked at: `allod network map lan --pool RANGE`"), "{said}");
    assert!(told.ends_with("and 2 scopes more: `allod scope list lan`\n"), "{told}");
    assert!(!run(&crowded(vec![0; 2], 10), "network why-full lan").1.contains("more"));
}

#[test]
fn what_has_a_free_address_is_not_full() {
    let counts = |free: &'static str| {
        let server = Responder::start(move |_, _| Ok(json!({"size": "65536", "free": free, "subnets": []})));
        run(&server, "network usage lan").1
    };
    assert!(counts("1").ends_with("99 %\n") && counts("0").ends_with("100 %\n") && counts("65535").ends_with(" 0 %\n"));
}

/// The answers of a long list may need more memory than there is.
#[test]
fn a_long_list_is_kept_as_text_until_its_end_is_there() {
    const PAGES: usize = 40;
    for (format, most_mb) in [("table", 80), ("json", 80)] {
        let (pid, seen_kb) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (of, seen) = (Arc::clone(&pid), Arc::clone(&seen_kb));
        let server = Responder::start(move |_, params| {
            let page: usize = params["after"].as_str().map_or(0, |after| after.parse().unwrap());
            if page + 1 == PAGES {
                let status = std::fs::read_to_string(format!("/proc/{}/status", of.load(Ordering::SeqCst))).unwrap();
                let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
                let kb = line.split_whitespace().next().unwrap().parse().unwrap();
                seen.store(kb, Ordering::SeqCst);
            }
            let held = |at: usize| {
                json!({"network": "lan", "network_id": lan()["id"], "address": format!("10.{page}.{}.{}", at / 250, at % 250),
                "prefix_length": 32, "owner": format!("web/{at}"), "scope": "default", "slot": "0", "generation": at,
                "interface": "10.0.0.1/16", "subnet": "10.0.0.0/16", "gateway": "10.0.0.1", "kind": "dynamic",
                "labels": {"a": "b"}, "created_at": "2026-03-01T09:12:44.031Z", "dns": {"servers": ["10.0.0.2"]}})
            };
            let mut answer = json!({"reservations": (0..1_000).map(held).collect::<Vec<_>>(), "cursor": "c"});
            if page + 1 < PAGES {
                answer["next"] = json!((page + 1).to_string());
            }
            Ok(answer)
        });
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_allod"));
        let child = command
            .args(["ip", "list", "--format", format, "--server", &server.address])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        pid.store(u64::from(child.id()), Ordering::SeqCst);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), "40000 reservations\n".to_owned()));
        let kb = seen_kb.load(Ordering::SeqCst);
        assert!(kb < most_mb * 1_000, "{format}: {kb} kB, with a page before the last");
        if format == "json" {
            let whole: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((whole["reservations"].as_array().unwrap().len(), &whole["cursor"]), (40_000, &json!("c")));
            assert_eq!(text(&output.stdout), format!("{whole:#}\n"));
        } else {
            assert_eq!(text(&output.stdout).lines().count(), 40_001);
        }
    }
}
