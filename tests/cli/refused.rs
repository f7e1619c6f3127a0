//! What is refused, and in which words: command lines and files that cannot be meant, and refusals of the server.

use std::sync::atomic::{AtomicBool, Ordering};

use allod::cli::failure::Failure;
use allod::client::{ClientError, RpcError};
use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::{allod, lan, text};
use crate::responder::{Responder, refusal};
use crate::write;

/// A refusal of the server, as it is printed.
fn refused(method: &str, params: Value, kind: ErrorKind, message: &str, facts: Value) -> String {
    let error = RpcError::from_value(&refusal(kind, message, facts));
    Failure::of_method(method, &params, &ClientError::Rpc(error)).text()
}

#[test]
fn a_value_that_cannot_be_meant_is_refused_before_anything_is_asked() {
    let server = Responder::start(|_, _| Ok(json!({"time": "2026-03-01T12:00:00.000Z"})));
    for (line, said) in [
        ("claimant sweep default --alive x --max-share nan", "'nan' for '--max-share <RATIO>': a share is written"),
        ("claimant sweep default --alive x --max-share inf", "a share is written as 0.2, from 0 to 1"),
        ("claimant sweep default --alive x --max-share -1", "a share is written as 0.2, from 0 to 1"),
        ("claimant sweep default --alive x --grace -5s", "'-5s' for '--grace <DURATION>': a duration is written"),
        ("ip allocate lan --owner a --ttl -5s", "a duration is written as 90s"),
        ("server ping --timeout 0", "must be at least 1s"),
        ("network create n --subnet 10.9.0.0/24,no-pools,pool=10.9.0.0/25", "to have pools and, by `no-pools`, none"),
        ("network create n --subnet 10.9.0.0/24,pool=10.9.0.0/25,no-pools", "to have pools and, by `no-pools`, none"),
        ("network create n --subnet 10.9.0.0/24,gateway=10.9.0.1,gateway=10.9.0.2", "`gateway` is given twice"),
        ("network create n --tag a=b --tag a=c", "`a` is given twice, as `b` and as `c`"),
        ("ip allocate lan --owner a --label a=b --label a=b", "`a` is given twice"),
        (
            "ip acquire --owner a --ip network=lan,network=dmz",
            "`network=dmz` says a second time what is \"lan\" already",
        ),
        ("ip acquire --owner a --ip network=lan,optional=true", "`optional` takes no value"),
        ("ip acquire --owner a --ip family=300", "`family` must be 4 or 6, not `300`"),
        ("claimant sweep default", "<--sweep <NAME>|--alive <CLAIMANT>|--none-alive>"),
        ("ip renew lan --owner a", "<--ttl <DURATION>|--permanent>"),
        ("pool add lan", "<RANGE|--subnet <SUBNET>>"),
        ("pool remove lan", "<POOL|--range <RANGE>|--subnet <SUBNET>>"),
        ("ip list --limit 20000", "20000 is not in 1..=10000"),
        ("plan --reservations many", "is a number as 1000000, 1M or 1e6"),
        ("plan --reservations 1M --history-bytes much", "is a number of bytes as 5368709120, 5GiB or 5GB"),
        ("ip release lan 10.0.0.5", "<--owner <OWNER>|--if-generation <GENERATION>|--force>"),
        ("export --format env", "an export is not a list of variables"),
        ("history --from 1h --to 2h", "it would end, at 2026-03-01T10:00:00.000Z, before it begins"),
        ("history --at 2026-03-01T12:00:01Z", "2026-03-01T12:00:01.000Z is to come"),
        ("serve --store memory --listen bogus", "must be an address and a port, for example 127.0.0.1:7400"),
        ("serve --store memory --http localhost:7401", "must be an address and a port, for example 127.0.0.1:7400"),
        ("migrate redis:/127.0.0.1:6379/0 d", "`redis:/127.0.0.1:6379/0` reads as the address of a server"),
        ("migrate d 127.0.0.1:6379", "`127.0.0.1:6379` reads as the address of a server"),
        ("migrate localhost:6379/0 d --dry-run", "`localhost:6379/0` reads as the address of a server"),
        ("who 10.0.0.5 --at 2027-01-01T00:00:00Z", "2027-01-01T00:00:00.000Z is to come: the server's time is"),
    ] {
        let output = allod(&server.address, &line.split_whitespace().collect::<Vec<_>>());
        let words = text(&output.stderr);
        assert!(output.status.code() == Some(64) && words.contains(said), "{line}: {words}");
    }
    assert!(server.methods().iter().all(|method| method == "server.info"), "{:?}", server.methods());
}

#[test]
fn what_is_no_server_and_what_is_no_copy_is_said_to_be_none() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("register.jsonl");
    write(&file, b"{}\n");
    let (file, data) = (file.display().to_string(), directory.path().join("data").display().to_string());
    let output = allod("127.0.0.1:9", &["restore", &file, "--data", &data]);
    let words = text(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains(&format!("`allod import {file}`")), "{words}");
    // No process has a number above 2^22.
    let output = allod("127.0.0.1:9", &["reload", "99999999"]);
    let words = text(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains("there is no such process"), "{words}");
}

#[test]
fn a_file_that_is_not_there_is_not_to_be_corrected() {
    let server = Responder::start(|_, _| Ok(json!({})));
    for line in [
        "network apply /nosuch.toml",
        "deployment apply /nosuch.yaml",
        "check-config /nosuch.toml",
        "serve --networks /nosuch.toml",
    ] {
        let output = allod(&server.address, &line.split_whitespace().collect::<Vec<_>>());
        let words = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {words}");
        assert!(words.contains("No such file") && words.contains("hint: name a file that exists"), "{line}: {words}");
    }
}

/// A deployment without instances makes everything that it holds obsolete.
#[test]
fn a_deployment_that_wishes_nothing_must_say_so() {
    let server = Responder::start(|_, _| Ok(json!({"plan": 1, "instances": [], "obsolete": []})));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.yaml");
    let apply = |content: &[u8]| {
        write(&file, content);
        allod(&server.address, &["deployment", "apply", file.to_str().unwrap()])
    };
    let output = apply(b"deployment: shop\n");
    assert!(output.status.code() == Some(1) && server.asked().is_empty(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("`instances: []`"), "{}", text(&output.stderr));
    assert_eq!(apply(b"deployment: shop\ninstances: []\n").status.code(), Some(0));
}

#[test]
fn what_else_is_in_use_than_the_address_is_named_with_the_address_that_has_it() {
    let held_by = json!({"scope": "default", "owner": "x", "slot": "0", "since": "2026-03-01T09:12:44.031Z"});
    let facts = || json!({"address": "10.0.0.64", "held_by": held_by});
    let mac = "02:00:00:00:00:01";
    let sentence = format!("MAC {mac} is used by another reservation of the realm; a MAC is unique in its realm");
    for (method, params) in [
        ("ip.allocate", json!({"network": "lan", "owner": "z", "mac": mac})),
        ("ip.update", json!({"network": "lan", "owner": "z", "set": {"mac": mac}})),
    ] {
        let said = refused(method, params, ErrorKind::AlreadyInUse, &sentence, facts());
        assert!(said.contains(&format!("{sentence}: 10.0.0.64, which `x` holds\n")), "{said}");
        assert!(said.contains("`allod ip list --mac 02:00:00:00:00:01`") && !said.contains("held by"), "{said}");
    }
    // If a gateway is held, the command names only the subnet, so the message must name the address.
    let sentence = "10.0.0.64 of network `lan` is held by `x`; ask for another address, or have it released";
    let gateway = json!({"network": "lan", "subnet": "10.0.0.0/24", "set": {"gateway": "10.0.0.64"}});
    let said = refused("subnet.modify", gateway, ErrorKind::AlreadyInUse, sentence, facts());
    assert!(said.contains(": 10.0.0.64 is held by `x` since 2026-03-01T09:12:44.031Z\n"), "{said}");
    let claim = json!({"network": "lan", "address": "10.0.0.64", "owner": "z"});
    let said = refused("ip.claim", claim, ErrorKind::AlreadyInUse, sentence, facts());
    assert!(said.contains("for `z`: held by `x` since"), "{said}");
    let sentence = "10.0.0.64 of network `lan` is held by `x` with another owner_uid (`u1`, not `u2`): two objects of one name \
                    are two owners; release it, or name another owner";
    let params = json!({"network": "lan", "owner": "x", "owner_uid": "u2"});
    let said = refused("ip.allocate", params, ErrorKind::AlreadyInUse, sentence, facts());
    assert!(said.contains(&format!("{sentence}\n")) && !said.contains("since"), "{said}");
}

#[test]
fn a_hint_is_about_what_was_typed() {
    let lan = || json!({"network": "lan"});
    let exists = ErrorKind::AlreadyExists;
    let taken = "network `b` already exists";
    for (method, params, kind, message, hint) in [
        ("network.update", lan(), exists, taken, "`allod network get b` shows which has the name; choose another"),
        ("network.restore", json!({"network": "0f"}), exists, taken, "`allod network update b --name NEW`"),
        (
            "ip.allocate",
            lan(),
            ErrorKind::InvalidArgument,
            "`mac` cannot be \"auto\" in a network without `l2.mac_prefix`; set it with network.update",
            "`allod network update lan --mac-prefix aa:00:00`",
        ),
        (
            "events.history",
            json!({"after": "foo"}),
            ErrorKind::InvalidArgument,
            "`after` is no cursor",
            "`allod history --help`",
        ),
        (
            "claimant.sweep",
            json!({"scope": "default", "sweep": "nosuch"}),
            ErrorKind::NotFound,
            "sweep `nosuch` of scope `default` does not exist",
            "`allod claimant mark default --sweep nosuch CLAIMANT`",
        ),
    ] {
        let said = refused(method, params, kind, message, json!({}));
        assert!(said.split_once("hint: ").unwrap().1.contains(hint), "{method}: {said}");
    }
    let params = json!({"network": "lan", "owner": "q", "must_create": true, "replace": true});
    let said = refused("ip.allocate", params, exists, "`q` already holds 10.0.0.1", json!({"address": "10.0.0.1"}));
    assert!(said.contains("leave `--must-create` out") && !said.contains("`--replace`"), "{said}");
    let server = Responder::start(|_, _| Err(refusal(ErrorKind::InvalidArgument, "`address` is \"foo\"", json!({}))));
    let output = allod(&server.address, &["who", "foo"]);
    assert!(text(&output.stderr).contains("`allod who --help`"), "{}", text(&output.stderr));
    // A wrong argument is a wrong command line, whoever finds it; a wrong value in a file is not.
    for typed in ["who foo", "ip allocate lan --owner a --family 5", "network map lan", "call ip.get address=foo"] {
        let output = allod(&server.address, &typed.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(64), "{typed}");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.yaml");
    write(&file, b"deployment: shop\ninstances: []\n");
    let output = allod(&server.address, &["deployment", "apply", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[test]
fn no_token_is_read_while_no_server_takes_one() {
    let server = Responder::start(|_, _| Ok(json!("pong")));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_allod"));
    let output =
        command.args(["server", "ping", "--server", &server.address]).env("ALLOD_TOKEN", "x").output().unwrap();
    assert_eq!((output.status.code(), server.methods()), (Some(0), vec!["server.ping".to_owned()]));
}

#[test]
fn a_register_is_moved_neither_into_its_own_directory_nor_around_it() {
    let directory = tempfile::tempdir().unwrap();
    for (from, to, said) in [("d", "d/new", "`d/new` lies inside `d`"), ("d/x", "d", "`d/x` lies inside `d`")] {
        for more in ["--yes", "--dry-run"] {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_allod"));
            let output = command.args(["migrate", from, to, more]).current_dir(directory.path()).output().unwrap();
            assert!(output.status.code() == Some(1) && text(&output.stderr).contains(said), "{}", text(&output.stderr));
        }
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn an_import_that_breaks_off_says_how_far_it_came_and_goes_on_when_it_is_said_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("register.jsonl");
    let path = file.to_str().unwrap();
    write(
        &file,
        b"{\"format\":\"allod-export\",\"version\":2}\n{\"network\":{\"name\":\"lan\",\"subnets\":[{\"cidr\":\"10.0.0.0/24\"}]}}\n\
          {\"reservation\":{\"network\":\"lan\",\"address\":\"10.0.0.5\",\"owner\":\"a\"}}\n\
          {\"end\":{\"networks\":1,\"reservations\":1}}\n",
    );
    for lost_at in ["network.create", "ip.claim"] {
        let server = Responder::start(move |method, params| match method {
            "network.list" => Ok(json!({"networks": []})),
            // The panic ends the thread of the connection, and with it the connection.
            _ => {
                assert!(method != lost_at || params["dry_run"] == true, "the server stops");
                Ok(json!({}))
            }
        });
        let output = allod(&server.address, &["import", path, "--timeout", "1s"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(
            said.contains(&format!(
                "cannot import `{path}`: it broke off, and what was imported by then stays, in networks that"
            )),
            "{said}"
        );
        assert!(said.contains("hint: the same command again goes on from there"), "{said}");
    }
}

/// Somebody may meanwhile be granted what the file has. A network that was opened for the import is closed all the same.
#[test]
fn an_import_of_which_a_claim_is_refused_after_all_leaves_no_network_open() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("register.jsonl");
    write(
        &file,
        b"{\"format\":\"allod-export\",\"version\":1}\n\
          {\"network\":{\"name\":\"lan\",\"static_only\":true,\"subnets\":[{\"cidr\":\"10.0.0.0/24\"}]}}\n\
          {\"reservation\":{\"network\":\"lan\",\"address\":\"10.0.0.5\",\"owner\":\"a\"}}\n",
    );
    let made = AtomicBool::new(false);
    let server = Responder::start(move |method, params| match method {
        "network.list" if made.load(Ordering::Relaxed) => {
            let mut left = lan();
            left["cooldown_seconds"] = json!(3_155_760_123_u64);
            Ok(json!({"networks": [left]}))
        }
        "network.list" => Ok(json!({"networks": []})),
        "network.create" => {
            made.store(params["dry_run"] != true, Ordering::Relaxed);
            Ok(json!({}))
        }
        "ip.claim" => Err(refusal(ErrorKind::AlreadyInUse, "10.0.0.5 is held by `stranger`", json!({}))),
        _ => Ok(json!({})),
    });
    let output = allod(&server.address, &["import", file.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("line 3: 10.0.0.5 is held by `stranger`") && said.contains("the rest was imported"),
        "{said}"
    );
    let (method, params) = server.asked().pop().unwrap();
    assert_eq!((method.as_str(), &params["set"]["static_only"]), ("network.update", &json!(true)), "{params}");
}

#[test]
fn when_an_address_comes_free_is_told_where_there_is_none_now() {
    let server = Responder::start(|method, params| match method {
        "ip.allocate" if params["pool"] == "10.0.0.8-10.0.0.15" => Err(full(json!("2026-03-01T09:20:00.000Z"))),
        "ip.allocate" | "ip.acquire" => Err(full(json!("2026-03-01T09:12:44.031Z"))),
        "network.usage" => {
            Ok(json!({"size": "16", "held": "16", "free": "0", "subnets": [{"cidr": "10.0.0.0/28", "pools": [
            {"range": "10.0.0.8-10.0.0.15", "kind": "dynamic", "size": "8", "held": "8", "free": "0"},
            {"range": "10.0.0.0-10.0.0.7", "kind": "dynamic", "size": "8", "held": "8", "free": "0"}]}]}))
        }
        "scope.list" => Ok(json!({"scopes": []})),
        _ => Ok(crate::commands::lan()),
    });
    for line in ["ip allocate lan --owner a", "ip acquire lan --owner a --ip any"] {
        let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert!(said.contains("it is full; the next one is free at 2026-03-01T09:12:44.031Z\n"), "{said}");
    }
    let said = text(&allod(&server.address, &["network", "why-full", "lan"]).stderr);
    assert!(said.contains("\nthe next address is free by itself at 2026-03-01T09:12:44.031Z\nmore room:"), "{said}");
    let allocates =
        |(method, params): &(String, serde_json::Value)| method == "ip.allocate" && params["dry_run"] != true;
    assert_eq!(server.asked().iter().filter(|asked| allocates(asked)).count(), 1);
}

fn full(next_free_at: serde_json::Value) -> serde_json::Value {
    refusal(ErrorKind::NotEnoughCapacity, "it is full", json!({"network": "lan", "next_free_at": next_free_at}))
}

/// The last line that a command says, which is the only one if nothing was said before.
fn error_of(output: &std::process::Output) -> Value {
    let said = text(&output.stderr);
    serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_program_that_asks_for_json_is_refused_in_json_as_the_server_did() {
    let held_by = json!({"scope": "default", "owner": "web/3", "slot": "0", "since": "2026-03-01T09:12:44.031Z"});
    let facts = json!({"address": "10.0.0.7", "held_by": held_by});
    let error = refusal(ErrorKind::AlreadyInUse, "10.0.0.7 is held by `web/3`", facts);
    let refused = error.clone();
    let server = Responder::start(move |_, _| Err(refused.clone()));
    let claim = ["ip", "claim", "lan", "10.0.0.7", "--owner", "db/0", "--format"];
    let output = allod(&server.address, &[&claim[..], &["json"]].concat());
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
    let told = error_of(&output);
    assert_eq!(told["error"], error);
    assert_eq!(told["hint"], "`allod ip list --network lan --owner web/3` shows what `web/3` holds");
    for format in ["table", "env"] {
        let said = text(&allod(&server.address, &[&claim[..], &[format]].concat()).stderr);
        assert!(said.starts_with("allod: cannot claim `10.0.0.7`"), "{format}: {said}");
    }
    // If the server refuses an argument, the exit code is that of a wrong command line here, too.
    let wrong = refusal(ErrorKind::InvalidArgument, "`cidr` has host bits", json!({"field": "cidr"}));
    let answer = wrong.clone();
    let server = Responder::start(move |_, _| Err(answer.clone()));
    let output = allod(&server.address, &["subnet", "add", "lan", "10.0.0.5/24", "--format", "json"]);
    assert_eq!((output.status.code(), &error_of(&output)["error"]), (Some(64), &wrong));
}

/// `allod-load` accepts the same words.
#[test]
fn json_is_asked_for_by_either_word() {
    let server = Responder::start(|_, _| Ok(json!({"reservations": [], "count": 7})));
    let told = |more: &[&str]| text(&allod(&server.address, &[&["ip", "list", "--count"], more].concat()).stdout);
    assert_eq!(told(&["--json"]), told(&["--format", "json"]));
    assert_eq!(allod(&server.address, &["server", "ping", "--json", "--format", "env"]).status.code(), Some(64));
}

#[test]
fn a_command_that_fails_by_itself_tells_a_program_so_in_json() {
    let server = Responder::start(|_, _| Ok(json!({"time": "2026-03-01T12:00:00.000Z"})));
    let nobody = "127.0.0.1:1";
    for (at, line, code, said) in [
        (nobody, "server ping", 3, "cannot ask the server: no server at `127.0.0.1:1`: "),
        (&server.address, "call ip.get address", 64, "cannot call `ip.get`: `address` is not written as member=value"),
        (&server.address, "network apply /nosuch.toml", 1, "No such file"),
        (&server.address, "server ping --prefix 1", 64, "cannot use that prefix"),
        ("http://x", "server ping", 64, "is a URL"),
        (&server.address, "ip allocate lan --owner a --label a=b --label a=c", 64, "given twice"),
    ] {
        let line = format!("{line} --format json");
        let output = allod(at, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(code), "{line}: {}", text(&output.stderr));
        let told = error_of(&output);
        let message = told["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(said), "{line}: {told}");
        assert_eq!(told["error"].as_object().unwrap().len(), 1, "{line}: {told}");
        assert!(told["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{line}: {told}");
    }
}

#[test]
fn a_value_that_begins_as_an_option_does_is_told_how_it_is_written() {
    for (line, joint) in [
        ("ip allocate lan --owner -dash", "`--owner=-dash`"),
        ("ip allocate lan --owner --dash", "`--owner=--dash`"),
        ("history --network -x", "`--network=-x`"),
        ("ip allocate lan --owner --server 127.0.0.1:1", "`--owner=--server`"),
    ] {
        let output = allod("127.0.0.1:1", &line.split(' ').collect::<Vec<_>>());
        let words = text(&output.stderr);
        assert!(
            output.status.code() == Some(64) && words.contains(joint) && !words.contains("'-- "),
            "{line}: {words}"
        );
    }
    // A flag has no value.
    let words = text(&allod("127.0.0.1:1", &["ip", "allocate", "lan", "--owner", "a", "--dry-run", "-x"]).stderr);
    assert!(!words.contains("--dry-run="), "{words}");
    let words = text(&allod("127.0.0.1:1", &["cluster", "locate", "lan"]).stderr);
    assert!(words.starts_with("allod: cannot locate network `lan`: "), "{words}");
}
