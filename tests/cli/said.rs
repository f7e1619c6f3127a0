//! What is said on stderr about an answer, and about what a dry run would remove.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

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

/// As when the unit is told to reload, which runs the check with the stderr of the unit.
#[test]
fn a_warning_about_a_configuration_has_that_priority_in_a_journal_and_elsewhere_none() {
    let directory = tempfile::tempdir().unwrap();
    let [config, log] = ["server.toml", "log"].map(|name| directory.path().join(name));
    std::fs::write(&config, "[store]\nkind = \"redis\"\nredis = \"redis://:secret@127.0.0.1:6379\"\n").unwrap();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).unwrap();
    let told = |journal: &dyn Fn(&std::fs::Metadata) -> String| {
        let file = std::fs::File::create(&log).unwrap();
        let journal = journal(&file.metadata().unwrap());
        let program = env!("CARGO_BIN_EXE_allod");
        let mut check = Command::new(program);
        check.arg("check-config").arg(&config).env("JOURNAL_STREAM", journal).stderr(file);
        assert!(check.status().unwrap().success());
        std::fs::read_to_string(&log).unwrap()
    };
    let in_journal = told(&|file| format!("{}:{}", file.dev(), file.ino()));
    assert!(in_journal.starts_with("<4>warning: `store.redis` in "), "{in_journal}");
    let elsewhere = told(&|_| "1:1".to_owned());
    assert_eq!(in_journal.strip_prefix("<4>"), Some(elsewhere.as_str()));
}

#[test]
fn that_nobody_owns_the_register_is_said_and_nobody_is_shown_as_a_follower() {
    let shown = |owner: bool| {
        let server = Responder::start(move |_, _| {
            let mut node = json!({"name": "n1", "address": "127.0.0.1:7400", "version": "0.1.0", "seen_ms": 3});
            if owner {
                node["owner"] = json!(true);
            }
            Ok(json!({"nodes": [node]}))
        });
        let output = allod(&server.address, &["cluster", "nodes"]);
        assert_eq!(output.status.code(), Some(0));
        (text(&output.stdout), text(&output.stderr))
    };
    let (table, said) = shown(false);
    assert!(table.contains("n1    waiting") && said.starts_with("nobody owns the register"), "{table}{said}");
    let (table, said) = shown(true);
    assert!(table.contains("n1    owner") && said.is_empty(), "{table}{said}");
}

#[test]
fn what_was_released_with_its_claimant_is_not_shown_as_if_it_were_held() {
    let held = |more: serde_json::Value| {
        let mut held = json!({"network": "lan", "address": "10.0.0.5", "prefix_length": 32, "scope": "default",
            "owner": "web/0", "slot": "0", "claimant": "vm-1"});
        held.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        held
    };
    let (goes, stays) = (held(json!({"released": true})), held(json!({})));
    let server =
        Responder::start(move |_, params| Ok(if params["address"] == "10.0.0.5" { &goes } else { &stays }.clone()));
    let unbind = |address: &str| allod(&server.address, &["ip", "unbind", "lan", address, "--claimant", "vm-1"]);
    let output = unbind("10.0.0.5");
    assert!(text(&output.stdout).starts_with("released  yes, with its claimant; this is how it was\n"));
    assert_eq!(text(&output.stderr), "released: it was to go with its claimant\n");
    let output = unbind("10.0.0.6");
    assert!(!text(&output.stdout).contains("released") && output.stderr.is_empty());
}

#[test]
fn who_used_an_address_until_now_is_told() {
    let held = json!({"network": "lan", "address": "10.0.0.5", "prefix_length": 32, "scope": "default", "owner": "web/0",
        "slot": "0", "claimant": "vm-2", "previous_claimant": "vm-1", "created": false});
    let server = Responder::start(move |method, _| match method {
        "ip.acquire" => Ok(json!({"reservations": [held]})),
        _ => Ok(held.clone()),
    });
    let told =
        text(&allod(&server.address, &["ip", "allocate", "lan", "--owner", "web/0", "--claimant", "vm-2"]).stdout);
    assert!(told.contains("claimant         vm-2\nclaimant before  vm-1\n"), "{told}");
    let several =
        allod(&server.address, &["ip", "acquire", "lan", "--owner", "web/0", "--ip", "any", "--claimant", "vm-2"]);
    assert_eq!(text(&several.stderr), "10.0.0.5 is used by `vm-2` now, before by `vm-1`\n");
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

/// A network with everything that a command can remove.
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

/// A repeat is answered with what is there. What else the command line says is not recorded, and must not be ignored in silence.
#[test]
fn what_a_repeat_did_not_change_is_said_with_what_changes_it() {
    let held = |created: bool| {
        json!({"network": "lan", "address": "10.0.0.5", "prefix_length": 32, "owner": "web/0", "note": "old",
            "mac": "52:54:00:12:34:56", "transient": false, "release_with_claimant": false, "created": created})
    };
    let server = Responder::start(move |method, params| match method {
        "ip.acquire" => Ok(json!({"reservations": [held(true), held(false)]})),
        _ => Ok(held(params["owner"] == "new")),
    });
    for (line, said) in [
        (
            "ip allocate lan --owner web/0 --note new --hostname web",
            "10.0.0.5 was held before: a repeat leaves its note and hostname as they are; `allod ip update lan 10.0.0.5` \
             changes them\n",
        ),
        (
            "ip claim lan 10.0.0.5 --owner web/0 --mac 52:54:00:12:34:99",
            "10.0.0.5 was held before: a repeat leaves its mac as it is; `allod ip update lan 10.0.0.5` changes it\n",
        ),
        (
            "ip acquire lan --owner web/0 --ip any --ip any --transient --note new",
            "10.0.0.5 was held before: a repeat leaves its note and transient as they are; `allod ip update lan 10.0.0.5` \
             changes what may be changed of a reservation\n",
        ),
        (
            "ip allocate lan --owner web/0 --release-with-claimant",
            "10.0.0.5 was held before: a repeat leaves its \
             release_with_claimant as it is; it is said when an address is taken, and not changed\n",
        ),
        // The same values in another spelling, an automatic MAC where there is one, and a new reservation.
        ("ip allocate lan --owner web/0 --note old --mac 52-54-00-12-34-56", ""),
        ("ip allocate lan --owner web/0 --mac auto", ""),
        ("ip allocate lan --owner new --note other", ""),
        ("ip allocate lan --owner web/0 --note new --dry-run", "dry run: nothing was changed\n"),
    ] {
        let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), said), "{line}");
    }
}

#[test]
fn one_address_is_one_address() {
    let server = Responder::start(|_, params| {
        let range = "10.0.0.5-10.0.0.5";
        Ok(match params["format"].as_str() {
            Some("runs") => json!({"pools": [{"range": range}]}),
            _ => json!({"pools": [{"range": range, "map": "."}]}),
        })
    });
    let told = text(&allod(&server.address, &["network", "map", "lan"]).stdout);
    assert!(told.starts_with("pool 10.0.0.5: 1 address, 0 taken\n"), "{told}");
}

#[test]
fn an_optional_wish_that_got_nothing_is_named() {
    let server = Responder::start(|_, _| {
        Ok(
            json!({"reservations": [{"network": "lan", "address": "10.0.0.5", "prefix_length": 32, "owner": "a", "slot": "0"}]}),
        )
    });
    let line = ["ip", "acquire", "lan", "--owner", "a", "--ip", "any", "--ip", "network=dmz,family=6,optional"];
    let no_room = "no room for `--ip network=dmz,family=6,optional`, which was optional\n";
    assert_eq!(text(&allod(&server.address, &line).stderr), no_room);
    let dry = text(&allod(&server.address, &[&line[..], &["--dry-run"]].concat()).stderr);
    assert_eq!(dry, format!("dry run: nothing was changed\n{no_room}"));
}

#[test]
fn a_plan_that_was_called_for_is_told_by_its_number() {
    let server = Responder::start(|_, _| Ok(json!({"plan": 1_795_000_000_007_u64, "instances": [], "obsolete": []})));
    let output = allod(&server.address, &["call", "deployment.apply", "deployment=shop", "instances=[]"]);
    assert_eq!(text(&output.stdout), "plan  1795000000007\n");
    for line in [&["deployment.apply", "dry_run=true"][..], &["deployment.plan"]] {
        let line = [&["call"], line, &["deployment=shop", "instances=[]"]].concat();
        assert_eq!(text(&allod(&server.address, &line).stdout), "", "{line:?}");
    }
}
