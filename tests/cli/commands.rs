//! The program itself, against canned answers: exit codes, streams, and what the server is asked.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use allod::cli::{network, subnet};
use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::responder::{Responder, refusal};
use crate::write;

pub fn allod(server: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allod"));
    command.args(arguments).env("ALLOD_SERVER", server).env_remove("ALLOD_TOKEN").stdin(Stdio::null());
    command.output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn lan() -> Value {
    json!({
        "id": "00000000-0000-4000-8000-000000000001", "name": "lan", "realm": "default", "kind": "manual",
        "policy": "lowest", "cooldown_seconds": 0, "version": 1,
        "subnets": [{"id": "00000000-0000-4000-8000-0000000000aa", "cidr": "10.0.0.0/24", "dhcp": false,
            "draining": false, "pools": [{"range": "10.0.0.0-10.0.0.255", "kind": "dynamic", "draining": false}]}],
    })
}

#[test]
fn data_goes_to_stdout_and_words_to_stderr() {
    let server = Responder::start(|_, _| Ok(json!({"released": ["10.0.0.5"]})));
    let output = allod(&server.address, &["ip", "release", "lan", "--owner", "web/0"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "ADDRESS\n10.0.0.5\n");
    assert_eq!(text(&output.stderr), "released 1 reservation\n");
    assert_eq!(server.asked(), [("ip.release".to_owned(), json!({"network": "lan", "owner": "web/0"}))]);
}

#[test]
fn a_command_line_that_contradicts_itself_is_refused_before_anything_is_asked_or_made() {
    let server = Responder::start(|_, _| Ok(json!({})));
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    for (line, said) in [
        ("ip update lan 10.0.0.5 --note x --unset note", "`note` is to be set and"),
        ("subnet modify lan 10.0.0.0/24 --dns 10.0.0.1 --unset dns.servers", "`dns.servers` is to be set and"),
        (&format!("serve --data {data} --store memory --redis redis://127.0.0.1:1"), "`--store memory` that it is not"),
        (&format!("doctor --data {data} --store embedded --redis redis://127.0.0.1:1"), "`--store embedded` that it"),
    ] {
        let output = allod(&server.address, &line.split_whitespace().collect::<Vec<_>>());
        let words = text(&output.stderr);
        assert!(output.status.code() == Some(64) && words.contains(said), "{line}: {words}");
        assert!(words.contains("hint: leave one of the two out"), "{line}: {words}");
    }
    assert!(server.asked().is_empty() && !std::path::Path::new(data).exists());
}

#[test]
fn flags_become_members() {
    let server = Responder::start(|_, _| Ok(json!({})));
    let run = |arguments: &[&str]| {
        let output = allod(&server.address, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        // Other requests of the command are about another noun, or come earlier.
        let is_meant = |(method, _): &(String, Value)| arguments[0] == "call" || method.starts_with(arguments[0]);
        let (method, params) = server.asked().into_iter().rfind(is_meant).unwrap();
        let checked = allod::wire::parse(&method, &params.to_string());
        assert!(checked.is_ok(), "{method} {params}: {}", checked.unwrap_err().message);
        params
    };
    let allocate = "ip allocate lan --owner web/0 --scope prod --slot a --family 6 --ttl 1h --claimant vm \
                    --label k=v --label empty= --must-create --wait 5m --dry-run --reason why";
    assert_eq!(
        run(&allocate.split_whitespace().collect::<Vec<_>>()),
        json!({"network": "lan", "owner": "web/0", "scope": "prod", "slot": "a", "family": 6, "must_create": true,
            "ttl_seconds": 3600, "claimant": "vm", "labels": {"k": "v", "empty": ""}, "wait_seconds": 300,
            "dry_run": true, "reason": "why"})
    );
    for (line, expected) in [
        ("ip renew lan 10.0.0.5 --permanent", json!({"network": "lan", "address": "10.0.0.5", "ttl_seconds": null})),
        (
            "ip acquire lan --owner web/0 --ip any --ip network=dmz,family=6,optional --ip 10.0.0.9",
            json!({"network": "lan", "owner": "web/0", "ips": [{}, {"network": "dmz", "family": 6, "optional": true},
                {"address": "10.0.0.9"}]}),
        ),
        (
            "ip transfer lan 10.0.0.5 --owner a --to-owner b --to-slot 1",
            json!({"network": "lan", "address": "10.0.0.5", "owner": "a", "to": {"owner": "b", "slot": "1"}}),
        ),
        (
            "ip update lan 10.0.0.5 --note x --unset labels.k",
            json!({"network": "lan", "address": "10.0.0.5", "set": {"note": "x", "labels": {"k": null}}}),
        ),
        ("ip list --bound false --limit 3", json!({"bound": false, "limit": 3})),
        (
            "claimant mark prod --sweep nightly vm-1 vm-2",
            json!({"scope": "prod", "sweep": "nightly", "claimants": ["vm-1", "vm-2"]}),
        ),
        (
            "claimant sweep prod --sweep nightly --grace 2m --max-share 0.1 --network lan",
            json!({"scope": "prod", "sweep": "nightly", "grace_seconds": 120, "max_share": 0.1, "network": "lan"}),
        ),
        (
            "claimant sweep prod --alive vm-1 --alive vm-2 --grace 0",
            json!({"scope": "prod", "alive": ["vm-1", "vm-2"], "grace_seconds": 0}),
        ),
        ("claimant sweep prod --none-alive --dry-run", json!({"scope": "prod", "alive": [], "dry_run": true})),
        (
            "network create lan --subnet 10.0.0.0/24,gateway=10.0.0.1,dhcp,pool=10.0.0.10-10.0.0.99,dns=10.0.0.2 \
             --subnet fd00::/64,no-pools --limit-per-owner 3 --policy random --protected",
            json!({"name": "lan", "subnets": [
                {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "dhcp": true, "pools": [{"range": "10.0.0.10-10.0.0.99"}],
                 "dns": {"servers": ["10.0.0.2"]}},
                {"cidr": "fd00::/64", "pools": []}],
                "policy": "random", "protected": true, "limits": {"per_owner": 3}}),
        ),
        (
            "network update lan --name office --protected=false --unset description",
            json!({"network": "lan", "set": {"protected": false, "description": null, "name": "office"}}),
        ),
        (
            "subnet add lan 10.1.0.0/24 --gateway 10.1.0.1 --static-pool 10.1.0.8/29 --reserve 10.1.0.9",
            json!({"network": "lan", "cidr": "10.1.0.0/24", "gateway": "10.1.0.1",
                "pools": [{"range": "10.1.0.8/29", "kind": "static"}], "reserved": [{"range": "10.1.0.9"}]}),
        ),
        (
            "subnet add lan 10.1.0.0/24 --reserved 10.1.0.9",
            json!({"network": "lan", "cidr": "10.1.0.0/24", "reserved": [{"range": "10.1.0.9"}]}),
        ),
        (
            "subnet modify lan 10.1.0.0/24 --dhcp false --dns 10.0.0.2 --unset gateway",
            json!({"network": "lan", "subnet": "10.1.0.0/24", "set": {"dhcp": false, "gateway": null,
                "dns": {"servers": ["10.0.0.2"]}}}),
        ),
        ("subnet modify lan a --draining", json!({"network": "lan", "subnet": "a", "set": {"draining": true}})),
        ("pool modify lan web --draining", json!({"network": "lan", "pool": "web", "set": {"draining": true}})),
        (
            "pool modify lan web --draining false --kind static",
            json!({"network": "lan", "pool": "web", "set": {"draining": false, "kind": "static"}}),
        ),
        ("subnet move lan a --to dmz", json!({"network": "lan", "subnet": "a", "to": "dmz"})),
        ("subnet move lan a dmz", json!({"network": "lan", "subnet": "a", "to": "dmz"})),
        (
            "reserved add lan 10.0.0.7 --note printer --for-owner print/0",
            json!({"network": "lan", "range": "10.0.0.7", "note": "printer", "for": {"owner": "print/0"}}),
        ),
        (
            "pool add lan --subnet 10.0.0.0/24 --name web",
            json!({"network": "lan", "subnet": "10.0.0.0/24", "name": "web"}),
        ),
        ("deployment list --limit 3", json!({"limit": 3})),
        ("scope list lan --limit 3 --after a", json!({"network": "lan", "limit": 3, "after": "a"})),
        ("deployment get shop", json!({"deployment": "shop"})),
        ("cluster locate lan", json!({"network": "lan"})),
        ("cluster drain", json!({})),
        (
            "cluster drain node-1 --undo --reason upgrade",
            json!({"node": "node-1", "reason": "upgrade", "drain": false}),
        ),
        (
            "call ip.allocate network=lan owner=123 slot=0 labels.a.b=1",
            json!({"network": "lan", "owner": "123",
            "slot": "0", "labels": {"a.b": "1"}}),
        ),
    ] {
        assert_eq!(run(&line.split_whitespace().collect::<Vec<_>>()), expected, "{line}");
    }
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let refusing = Responder::start(|_, _| {
        Err(refusal(ErrorKind::NotFound, "network `lan` does not exist", json!({"field": "network"})))
    });
    let refused = allod(&refusing.address, &["ip", "allocate", "lan", "--owner", "web/0"]);
    assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(1), ""));
    assert_eq!(
        text(&refused.stderr),
        "allod: cannot allocate an address in network `lan` for `web/0`: network `lan` does not exist\n\n\
         hint: `allod network list` shows the networks there are, and with `--deleted` those that can be restored\n"
    );
    assert_eq!(allod("127.0.0.1:1", &["server", "ping"]).status.code(), Some(3));
    // An empty variable counts as not set: then the default address is tried, where somebody else may listen.
    let unset = text(&allod("", &["server", "ping", "--timeout", "1s"]).stderr);
    assert!(!unset.contains("is not the address of a server"), "{unset}");
    assert_eq!(allod("", &["--server", "", "server", "ping"]).status.code(), Some(64));
    for wrong in [&["ip", "allocate"][..], &["no-such-command"], &[], &["--prefix", "9", "server", "ping"]] {
        assert_eq!(allod(&refusing.address, wrong).status.code(), Some(64), "{wrong:?}");
    }
    for (nonsense, said) in [
        (
            "nonsense",
            "`nonsense` is not the address of a server: that is a host and a port, for example 127.0.0.1:7400",
        ),
        ("localhost:port", "is a host and a port"),
        ("http://localhost:7400", "hint: leave the rest out: `--server localhost:7400`"),
    ] {
        let output = allod(&refusing.address, &["--server", nonsense, "server", "ping"]);
        assert_eq!(output.status.code(), Some(64), "{nonsense}");
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    let unnamed = allod(&refusing.address, &["ip", "release", "lan"]);
    assert_eq!(unnamed.status.code(), Some(64));
    assert!(text(&unnamed.stderr).contains("<ADDRESS|--owner <OWNER>>"), "{}", text(&unnamed.stderr));
    for asked in [&["--help"][..], &["--version"], &["ip", "allocate", "--help"]] {
        let output = allod(&refusing.address, asked);
        assert_eq!(output.status.code(), Some(0), "{asked:?}");
        assert!(output.stderr.is_empty() && !output.stdout.is_empty(), "{asked:?}");
    }
}

#[test]
fn what_takes_away_is_refused_where_nobody_can_be_asked() {
    let released = || json!({"released": [{"network": "lan", "address": "10.0.0.5"}], "more": false, "holding": 1});
    let server = Responder::start(move |_, _| Ok(released()));
    for arguments in [
        &["owner", "release", "web/0"][..],
        &["scope", "release", "prod"],
        &["ip", "release", "lan", "10.0.0.5", "--force"],
        &["network", "delete", "lan"],
        &["network", "delete", "lan", "--purge"],
        &["network", "delete", "lan", "--force"],
        &["subnet", "remove", "lan", "10.0.0.0/24"],
        &["pool", "remove", "lan", "web"],
        &["reserved", "remove", "lan", "10.0.0.9"],
        &["deployment", "revert", "shop", "--plan", "7"],
        &["deployment", "delete", "shop"],
    ] {
        let output = allod(&server.address, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains("`--yes`"), "{}", text(&output.stderr));
        let changing = |(method, params): &(String, Value)| {
            params["dry_run"] != true
                && !matches!(method.as_str(), "ip.get" | "ip.list" | "network.get" | "deployment.get")
        };
        assert!(!server.asked().iter().any(changing), "{arguments:?}: {:?}", server.asked());
        assert_eq!(allod(&server.address, &[arguments, &["--yes"]].concat()).status.code(), Some(0), "{arguments:?}");
        assert_eq!(server.asked().pop().unwrap().1.get("dry_run"), None, "{arguments:?}");
        server.forget();
    }
}

#[test]
fn a_deployment_is_applied_from_a_file_and_says_the_next_command() {
    let held = |address: &str, owner: &str| json!({"network": "lan", "address": address, "prefix_length": 32, "owner": owner, "scope": "the shop", "slot": "0"});
    let answer = json!({"plan": 1_795_000_000_007_u64, "instances": [
        {"id": "web/0", "networks": [{"network": "lan", "slot": "0", "state": "new",
            "reservation": held("10.0.0.50", "web/0"), "replaces": "10.0.0.2"}]},
        {"id": "web/1", "networks": [{"network": "lan", "slot": "0", "state": "kept", "reservation": held("10.0.0.3", "web/1")}]},
        {"id": "web/2", "networks": [{"network": "lan", "slot": "0", "state": "promised",
            "reservation": held("10.0.0.2", "web/2")}]},
        {"id": "web/3", "networks": [{"network": "cloud", "slot": "0", "state": "none"}]}],
        "obsolete": [held("10.0.0.2", "web/0")]});
    let server = Responder::start(move |_, _| Ok(answer.clone()));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.yaml");
    write(&file, b"deployment: the shop\ninstances:\n- {id: web/0, networks: [{network: lan, address: 10.0.0.50}]}\n");
    let path = file.to_str().unwrap();
    let output = allod(&server.address, &["deployment", "apply", path, "--reason", "why"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "plan  1795000000007\n\n\
         STATE     ADDRESS    NETWORK  INSTANCE  IN PLACE OF\n\
         new       10.0.0.50  lan      web/0     10.0.0.2\n\
         kept      10.0.0.3   lan      web/1\n\
         promised  10.0.0.2   lan      web/2\n\
         none                 cloud    web/3\n\
         obsolete  10.0.0.2   lan      web/0\n"
    );
    assert_eq!(
        text(&output.stderr),
        "plan 1795000000007 of 4 instances: 1 new, 1 promised, 1 kept, 1 obsolete\n\
         once they use what is theirs now:\n  `allod deployment commit 'the shop' --plan 1795000000007`\n\
         to take it back: `allod deployment revert 'the shop' --plan 1795000000007`\n"
    );
    let wishes = json!({"deployment": "the shop", "instances": [
        {"id": "web/0", "networks": [{"network": "lan", "address": "10.0.0.50"}]}]});
    let mut applied = wishes.clone();
    applied["reason"] = json!("why");
    assert_eq!(server.asked().pop().unwrap(), ("deployment.apply".to_owned(), applied));
    for line in [&["deployment", "plan", path][..], &["deployment", "apply", path, "--dry-run"]] {
        let output = allod(&server.address, line);
        assert!(text(&output.stderr).ends_with("1 obsolete; nothing was changed\n"), "{}", text(&output.stderr));
    }
    assert_eq!(server.asked()[1], ("deployment.plan".to_owned(), wishes));
}

#[test]
fn a_wrong_deployment_file_is_refused_before_anything_is_asked() {
    let server = Responder::start(|_, _| Ok(json!({})));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.toml");
    write(&file, b"deployment = \"shop\"\n[[instances]]\nid = \"a\"\nnetworks = [{ network = \"lan\", adress = \"10.0.0.5\" }]\n");
    let output = allod(&server.address, &["deployment", "apply", file.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    let said = text(&output.stderr);
    assert!(said.contains("`instances[0].networks[0].adress` is not a member here; did you mean `address`?"), "{said}");
    assert!(said.contains("\nhint: ") && server.asked().is_empty(), "{said}");
    let missing = allod(&server.address, &["deployment", "plan", "no-such-file.toml"]);
    assert!(text(&missing.stderr).contains("read the deployment of `no-such-file.toml`"), "{}", text(&missing.stderr));
}

#[test]
fn an_import_says_only_what_happened() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("register.jsonl");
    write(
        &file,
        b"{\"format\":\"allod-export\",\"version\":1}\n\
          {\"network\":{\"name\":\"lan\",\"subnets\":[{\"cidr\":\"10.0.0.0/24\"}]}}\n\
          {\"reservation\":{\"network\":\"lan\",\"address\":\"10.0.0.5\",\"owner\":\"web/0\",\"kind\":\"dynamic\"}}\n",
    );
    for (created, dry, wet) in [
        (
            false,
            "0 networks and 0 reservations would be imported; nothing was changed\n",
            "imported 0 networks and 0 reservations\n1 reservation had been there already\n",
        ),
        (
            true,
            "0 networks and 1 reservation would be imported; nothing was changed\n\
             1 reservation of the import had been granted automatically and would come back as kind `static`: in a network that \
             is in \
             service, or a register that was restored, they are claimed\n",
            "imported 0 networks and 1 reservation\n\
             1 reservation of the import had been granted automatically and came back as kind `static`: in a network that is in \
             service, or a register that was restored, they are claimed\n",
        ),
    ] {
        let server = Responder::start(move |method, _| {
            Ok(if method == "network.list" { json!({"networks": [lan()]}) } else { json!({"created": created}) })
        });
        let file = file.to_str().unwrap();
        let output = allod(&server.address, &["import", file, "--dry-run"]);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), dry));
        let output = allod(&server.address, &["import", file]);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), wet));
    }
}

#[test]
fn a_list_is_fetched_to_its_end() {
    let server = Responder::start(|_, params| {
        let page =
            |address: &str| json!([{"network": "lan", "address": address, "owner": "web/0", "prefix_length": 32}]);
        Ok(match params.get("after") {
            None => json!({"reservations": page("10.0.0.1"), "next": "n1"}),
            Some(_) => json!({"reservations": page("10.0.0.2"), "cursor": "c"}),
        })
    });
    let output = allod(&server.address, &["ip", "list", "--format", "json"]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["reservations"].as_array().unwrap().len(), 2);
    assert_eq!(result.get("next"), None);
    assert_eq!(text(&output.stderr), "2 reservations\n");
}

#[test]
fn a_reader_that_hangs_up_ends_the_command_quietly() {
    let many: Vec<Value> =
        (0..20_000).map(|n| json!({"address": format!("10.0.{}.{}", n / 250, n % 250), "owner": "o"})).collect();
    let server = Responder::start(move |_, _| Ok(json!({"reservations": many})));
    let mut child = Command::new(env!("CARGO_BIN_EXE_allod"))
        .args(["ip", "list", "--server", &server.address])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 7];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn call_reads_params_from_stdin() {
    let server = Responder::start(|_, params| Ok(params.clone()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_allod"))
        .args(["call", "x.y", "-", "--format", "json", "--server", &server.address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"{\"b\":1,\"a\":[2]}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "{\n  \"b\": 1,\n  \"a\": [\n    2\n  ]\n}\n");
}

/// As over the wire: of a member that is given twice, none wins in silence.
#[test]
fn call_asks_nothing_of_params_from_stdin_that_the_server_would_refuse_as_they_stand() {
    let server = Responder::start(|_, params| Ok(params.clone()));
    for (params, problem) in [
        (&br#"{"network":"lan","owner":"a","owner":"b"}"#[..], "duplicate entry with key \"owner\""),
        (br#"{"network":"lan","labels":{"k":"v","k":"w"}}"#, "duplicate entry with key \"k\""),
        (b"[1]", "stdin holds no JSON object"),
        (b"owner: a", "stdin holds no JSON"),
        // As a terminal that writes Latin-1 sends it.
        (b"{\"owner\":\"\xe9\"}", "stdin cannot be read: "),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_allod"))
            .args(["call", "ip.allocate", "-", "--server", &server.address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(params).unwrap();
        let output = child.wait_with_output().unwrap();
        let (said, params) = (text(&output.stderr), String::from_utf8_lossy(params));
        assert_eq!(output.status.code(), Some(64), "{params}: {said}");
        assert!(said.contains(problem), "{params}: {said}");
    }
    assert!(server.asked().is_empty(), "{:?}", server.asked());
}

#[test]
fn what_is_about_one_connection_is_refused_and_says_what_to_type() {
    let server = Responder::start(|_, _| Ok(json!({})));
    for method in ["events.watch", "session.set"] {
        let output = allod(&server.address, &["call", method]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("hint: `allod watch`"), "{}", text(&output.stderr));
    }
    assert!(server.asked().is_empty());
}

#[test]
fn a_command_asks_again_what_was_put_off() {
    let asked = std::sync::atomic::AtomicU32::new(0);
    let server = Responder::start(move |_, _| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0..3 => Err(refusal(ErrorKind::NotReady, "loading", json!({"reason": "loading", "retry_after_ms": 1}))),
        _ => Ok(json!({"released": ["10.0.0.5"]})),
    });
    let output = allod(&server.address, &["ip", "release", "lan", "--owner", "web/0"]);
    assert_eq!((output.status.code(), server.asked().len()), (Some(0), 4));
    // The first of several addresses that answers is asked.
    let servers = format!("127.0.0.1:1,{}", server.address);
    assert_eq!(allod(&servers, &["ip", "release", "lan", "--owner", "web/0"]).status.code(), Some(0));
}

#[test]
fn who_tells_what_to_type_next() {
    let server = Responder::start(|method, _| match method {
        "ip.find" => Ok(json!({"found": [
            {"address": "10.0.0.5", "state": "held", "network": "lan", "reservation": {"network": "lan",
             "address": "10.0.0.5", "prefix_length": 32, "owner": "web/0", "scope": "prod", "slot": "0",
             "created_at": "2026-03-01T09:12:44.031Z", "generation": 3}}]})),
        _ => Ok(json!({"events": [{"type": "granted", "generation": 3, "by": "ci"}]})),
    });
    let output = allod(&server.address, &["who", "10.0.0.5"]);
    assert_eq!(
        text(&output.stdout),
        "address     10.0.0.5\nstate       held\nnetwork     lan\nheld by     `web/0` of scope `prod`\n\
         used by     nobody (no claimant is bound)\nsince       2026-03-01T09:12:44.031Z\ngranted by  ci\n\
         lease       for good\n"
    );
    assert_eq!(
        text(&output.stderr),
        "\nnext: `allod ip release lan 10.0.0.5 --owner web/0 --scope prod` gives it back\n"
    );
}

#[test]
fn completions_and_man_pages_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        let output = allod("127.0.0.1:1", &["completions", shell]);
        let completions = text(&output.stdout);
        for offered in ["why-full", "oldest", "manual", "static"] {
            assert!(completions.contains(offered), "{shell}: {offered}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let output = allod("127.0.0.1:1", &["man", directory.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(directory.path().join("allod-ip-allocate.1")).unwrap();
    assert!(page.contains("owner") && page.contains("ALLOD_SERVER"), "{page}");
}

#[test]
fn the_values_that_completions_offer_are_those_of_the_protocol() {
    let offered = [
        ("network.create", json!({"name": "lan"}), "kind", &network::KINDS[..]),
        ("network.create", json!({"name": "lan"}), "policy", &network::POLICIES),
        ("pool.add", json!({"network": "lan", "range": "10.0.0.0/24"}), "kind", &subnet::POOL_KINDS),
        ("ip.list", json!({}), "kind", &subnet::POOL_KINDS),
    ];
    for (method, mut params, member, values) in offered {
        for value in values {
            params[member] = json!(value);
            assert!(allod::wire::parse(method, &params.to_string()).is_ok(), "{method} {params}");
        }
        // The refusal of a value names all that are allowed.
        params[member] = json!("nonsense");
        let problem = allod::wire::parse(method, &params.to_string()).unwrap_err().message;
        assert_eq!(problem.matches('"').count(), 2 * (values.len() + 1), "{problem}");
    }
}

#[test]
fn a_server_that_has_its_store_alone_has_no_shards_and_says_so() {
    let run = |nodes: serde_json::Value, store: &'static str| {
        let server = Responder::start(move |method, _| match method {
            "server.info" => Ok(json!({"store": store})),
            _ => Ok(json!({"nodes": nodes})),
        });
        let output = allod(&server.address, &["cluster", "shards"]);
        (output.status.code(), text(&output.stderr))
    };
    let node = |name: &str, owner: bool| json!({"name": name, "owner": owner});
    let (code, said) = run(json!([node("north", true)]), "embedded");
    assert_eq!(code, Some(0));
    assert!(said.contains("has its store alone") && said.contains("(store `embedded` of node `north`)"), "{said}");
    assert_eq!(run(json!([node("north", false)]), "redis").0, Some(1));
}

#[test]
fn the_key_of_an_address_has_the_prefix_of_the_register_and_variables_have_that_of_the_command() {
    let server = Responder::start(|method, _| {
        Ok(match method {
            "cluster.locate" => json!({"network": "lan", "network_id": lan()["id"], "shard": 3}),
            "server.info" => json!({"store": "redis"}),
            _ => json!({"state": "held", "reservation": {"address": "10.0.0.5"}}),
        })
    });
    let said = |line: &str| {
        let output = allod(&server.address, &format!("cluster key lan 10.0.0.5{line}").split(' ').collect::<Vec<_>>());
        assert_eq!(text(&output.stderr), "", "{line}");
        text(&output.stdout)
    };
    for (line, begins) in [
        ("", "HGET {allod}:3:"),
        (" --redis-prefix prod:ipam", "HGET {prod:ipam}:3:"),
        // As it was called once.
        (" --prefix allod-test", "HGET {allod-test}:3:"),
        (" --prefix ignored --redis-prefix prod", "HGET {prod}:3:"),
    ] {
        assert!(said(line).starts_with(begins), "{line}: {}", said(line));
    }
    for (line, of_variable, of_key) in [
        ("", "", "{allod}"),
        (" --prefix NIC_", "NIC_", "{allod}"),
        (" --prefix NIC_ --redis-prefix prod", "NIC_", "{prod}"),
    ] {
        let told = said(&format!(" --format env{line}"));
        assert!(told.lines().any(|told| told == format!("{of_variable}NETWORK='lan'")), "{line}: {told}");
        assert!(told.contains(&format!("HGET {of_key}:3:")), "{line}: {told}");
    }
}

#[test]
fn why_full_names_what_takes_the_space_and_what_frees_it() {
    let server = Responder::start(|method, _| {
        let full = json!({"range": "10.0.0.0-10.0.0.255", "kind": "dynamic", "size": "256", "held": "200",
            "obsolete": "20", "reserved": "6", "cooling": "40", "declined": "10", "free": "0"});
        let wide = json!({"range": "fd00::-fd00::ffff:ffff:ffff:ffff", "kind": "dynamic", "size": "18446744073709551616",
            "held": "5", "obsolete": "0", "reserved": "1", "cooling": "0", "declined": "0", "free": "18446744073709551610"});
        Ok(match method {
            "network.usage" => json!({"size": "512", "held": "205", "free": "300", "subnets": [
                {"cidr": "10.0.0.0/24", "size": "256", "held": "200", "free": "0", "pools": [full]},
                {"cidr": "fd00::/64", "size": "18446744073709551616", "held": "5", "free": "1", "pools": [wide]}]}),
            "network.get" => {
                let mut network = lan();
                network["subnets"][0]["draining"] = json!(true);
                network
            }
            _ => json!({"scopes": [{"scope": "ci", "reservations": 5, "addresses": "5", "obsolete": 0, "unbound": 3},
                {"scope": "prod", "reservations": 200, "addresses": "200", "obsolete": 20, "unbound": 0}]}),
        })
    });
    let output = allod(&server.address, &["network", "why-full", "lan"]);
    crate::golden("why-full.txt", &(text(&output.stdout) + &text(&output.stderr)));
    assert!(text(&output.stderr).lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn nobody_is_asked_whether_nothing_may_be_released_and_what_an_owner_waits_for_ends_all_the_same() {
    let server = Responder::start(|_, _| Ok(json!({"released": [], "more": false})));
    for (arguments, said) in [
        (&["owner", "release", "web/0", "--scope", "s"][..], "nothing was held by `web/0` of scope `s`\n"),
        (&["scope", "release", "prod"], "nothing was held\n"),
        (&["ip", "release", "lan", "10.0.0.5", "--force"], "nothing was held: no reservation begins at 10.0.0.5"),
    ] {
        let output = allod(&server.address, arguments);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {printed}");
        assert!(printed.starts_with(said), "{arguments:?}: {printed}");
        let carried_out = server.asked().iter().any(|(_, params)| params["dry_run"] != json!(true));
        assert_eq!(carried_out, arguments[0] != "ip", "{arguments:?}");
        server.forget();
    }
}

#[test]
fn who_held_nothing_is_told_in_which_slot_and_scope_was_looked() {
    let server = Responder::start(|_, _| Ok(json!({"released": []})));
    let output = allod(&server.address, &["ip", "release", "lan", "--owner", "web/0", "--scope", "s"]);
    let list = "`allod ip list --network lan --owner web/0 --scope s`";
    let said = format!("nothing was held in slot `0` by `web/0` of scope `s`; see {list}\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), said));
}

#[test]
fn who_names_a_network_that_is_deleted_and_remembered_by_its_id_and_says_how_it_comes_back() {
    let id = "00000000-0000-4000-8000-000000000001";
    let server = Responder::start(move |method, _| {
        Ok(match method {
            "ip.find" => json!({"found": [{"address": "10.0.0.5", "state": "held", "network": "old",
                "reservation": {"network": "old", "network_id": id, "address": "10.0.0.5", "prefix_length": 32,
                    "owner": "web/0", "scope": "default", "slot": "0", "created_at": "2026-03-01T09:12:44.031Z"}}]}),
            "network.list" => json!({"networks": [{"id": id, "name": "old"}]}),
            _ => json!({"events": []}),
        })
    });
    let output = allod(&server.address, &["who", "10.0.0.5"]);
    let printed = text(&output.stdout);
    assert!(printed.contains("old (deleted, and remembered while it holds something)"), "{printed}");
    let next = format!(
        "next: `allod ip release {id} 10.0.0.5 --owner web/0` gives it back, `allod network restore {id}` brings its \
         network back"
    );
    assert_eq!(text(&output.stderr).trim(), next);
}
