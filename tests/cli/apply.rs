//! What is shown before something is changed, and what is said afterwards: network files, pools that are cut, lists.

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::{allod, lan, text};
use crate::responder::{Responder, refusal};
use crate::write;

#[test]
fn apply_shows_differences_and_exits_with_2_when_dry() {
    let server = Responder::start(|_, _| Ok(json!({"networks": [lan()]})));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("networks.toml");
    let path = file.to_str().unwrap();
    write(&file, b"[[network]]\nname = \"lan\"\ncooldown_seconds = 60\n");
    let output = allod(&server.address, &["network", "apply", path, "--dry-run"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""));
    assert_eq!(text(&output.stderr), "network `lan`\n  ~ cooldown_seconds: 0 → 60\ndry run: nothing was changed\n");
    // For programs the same is on stdout.
    let output = allod(&server.address, &["network", "apply", path, "--dry-run", "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let params = json!({"network": lan()["id"], "set": {"cooldown_seconds": 60}, "if_version": 1});
    let step = json!({"network": "lan", "method": "network.update", "changes": ["~ cooldown_seconds: 0 → 60"],
        "params": params});
    assert_eq!((output.status.code(), shown), (Some(2), json!({"differences": [step]})));
    assert_eq!(allod(&server.address, &["network", "apply", path, "--prune"]).status.code(), Some(1));
    assert!(server.asked().iter().all(|(method, params)| method == "network.list" || params["dry_run"] == true));
    assert_eq!(allod(&server.address, &["network", "apply", path]).status.code(), Some(0));
    assert_eq!(
        (server.methods().pop().unwrap().as_str(), server.asked().pop().unwrap().1.get("dry_run")),
        ("network.update", None)
    );
    write(&file, b"[[network]]\nname = \"lan\"\n");
    assert_eq!(allod(&server.address, &["network", "apply", path, "--dry-run"]).status.code(), Some(0));
    let same = allod(&server.address, &["network", "apply", path, "--dry-run", "--format", "json"]);
    assert_eq!(text(&same.stdout), "{\n  \"differences\": []\n}\n");
}

#[test]
fn apply_with_prune_needs_no_yes_where_nothing_goes() {
    let mut random = lan();
    random["policy"] = json!("random");
    let server = Responder::start(move |_, _| Ok(json!({"networks": [random]})));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("networks.toml");
    let path = file.to_str().unwrap();
    let subnets = "subnets = [{ cidr = \"10.0.0.0/24\" }]\n";
    let added = "[[network]]\nname = \"new\"\n";
    write(&file, format!("[[network]]\nname = \"lan\"\npolicy = \"random\"\n{subnets}{added}").as_bytes());
    let output = allod(&server.address, &["network", "apply", path, "--prune"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(server.asked().iter().any(|(method, params)| method == "network.create" && params["dry_run"] != true));
    // A setting that the file leaves out goes back to its default, and a network that it does not name is removed.
    server.forget();
    for file_text in [format!("[[network]]\nname = \"lan\"\n{subnets}{added}"), added.to_owned()] {
        write(&file, file_text.as_bytes());
        let output = allod(&server.address, &["network", "apply", path, "--prune"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("it removes something"), "{}", text(&output.stderr));
    }
    assert!(server.asked().iter().all(|(method, params)| method == "network.list" || params["dry_run"] == true));
    let output = allod(&server.address, &["network", "apply", path, "--prune", "--only-named"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn apply_changes_nothing_where_the_server_would_refuse_a_part() {
    let server = Responder::start(|method, _| match method {
        "network.list" => Ok(json!({"networks": [lan()]})),
        "network.create" => Err(refusal(ErrorKind::WrongKind, "a dynamic network has no subnets", json!({}))),
        _ => Ok(json!({})),
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("networks.toml");
    let path = file.to_str().unwrap();
    write(
        &file,
        b"[[network]]\nname = \"lan\"\ncooldown_seconds = 60\n\
          [[network]]\nname = \"cloud\"\nkind = \"dynamic\"\nsubnets = [{ cidr = \"10.1.0.0/24\" }]\n",
    );
    for arguments in [&["network", "apply", path, "--dry-run"][..], &["network", "apply", path, "--yes"]] {
        let output = allod(&server.address, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let json = allod(&server.address, &[arguments, &["--format", "json"]].concat());
        let shown: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        let refused = &shown["differences"][1]["refused"];
        assert_eq!((json.status.code(), &refused["reason"]), (Some(1), &json!("a dynamic network has no subnets")));
        for part in [
            "  + subnet 10.1.0.0/24\n  ! refused: a dynamic network has no subnets\n    hint: ",
            "the server refuses 1 of 2 changes; nothing was changed",
        ] {
            assert!(said.contains(part), "{part} is not in\n{said}");
        }
        assert!(server.asked().iter().all(|(method, params)| method == "network.list" || params["dry_run"] == true));
    }
}

#[test]
fn who_may_only_look_is_still_shown_the_differences() {
    let server = Responder::start(|method, _| match method {
        "network.list" => Ok(json!({"networks": [lan()]})),
        _ => Err(refusal(ErrorKind::PermissionDenied, "the token may only read", json!({}))),
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("networks.toml");
    write(&file, b"[[network]]\nname = \"lan\"\ncooldown_seconds = 60\n");
    let path = file.to_str().unwrap();
    let output = allod(&server.address, &["network", "apply", path, "--dry-run"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("~ cooldown_seconds: 0 → 60"));
    assert_eq!(allod(&server.address, &["network", "apply", path, "--yes"]).status.code(), Some(1));
}

#[test]
fn dump_writes_what_apply_reads() {
    let server = Responder::start(|_, _| Ok(json!({"networks": [lan()]})));
    for format in ["toml", "yaml"] {
        let dump = allod(&server.address, &["network", "dump", "--format", format]);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(format!("networks.{format}"));
        write(&file, &dump.stdout);
        let output = allod(&server.address, &["network", "apply", file.to_str().unwrap(), "--dry-run", "--prune"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert_eq!(allod(&server.address, &["server", "ping", "--format", "yaml"]).status.code(), Some(64));
}

#[test]
fn a_subnet_that_would_cut_a_pool_is_asked_about() {
    let server = Responder::start(|method, _| match method {
        "network.get" => {
            let mut network = lan();
            network["subnets"][0]["pools"] =
                json!([{"range": "10.0.0.10-10.0.0.20"}, {"range": "10.0.0.200-10.0.0.210"}]);
            Ok(network)
        }
        _ => Ok(json!({"id": "00000000-0000-4000-8000-0000000000aa", "cidr": "10.0.0.0/25",
            "pools": [{"range": "10.0.0.10-10.0.0.20"}]})),
    });
    let line = ["subnet", "modify", "lan", "10.0.0.0/24", "--cidr", "10.0.0.0/25"];
    let output = allod(&server.address, &line);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("\n  - remove pool 10.0.0.200-10.0.0.210\n") && said.contains("`--yes`"), "{said}");
    assert!(server.asked().iter().all(|(method, params)| method == "network.get" || params["dry_run"] == true));
    assert_eq!(allod(&server.address, &[&line[..], &["--yes"]].concat()).status.code(), Some(0));
    assert_eq!(server.asked().pop().unwrap().1.get("dry_run"), None);
    let dry = allod(&server.address, &[&line[..], &["--dry-run"]].concat());
    assert_eq!(dry.status.code(), Some(0));
    assert!(text(&dry.stderr).contains("- remove pool 10.0.0.200-10.0.0.210"));
}

#[test]
fn a_list_says_that_there_is_more_and_that_nothing_matches() {
    let server = Responder::start(|method, params| match method {
        _ if params.get("limit").is_none() => Ok(json!({"networks": [], "deployments": []})),
        "network.list" => Ok(json!({"networks": [lan()], "next": "lan"})),
        _ => Ok(json!({"deployments": [{"deployment": "shop"}], "next": "shop"})),
    });
    for (line, said) in [
        (&["network", "list", "--limit", "1"][..], "1 network, and there are more: `--after lan`\n"),
        (&["deployment", "list", "--limit", "1"], "1 deployment, and there are more: `--after shop`\n"),
        (&["network", "list", "--realm", "lab"], "no network matches\n"),
        (&["network", "list", "--tag", "site=a"], "no network matches\n"),
        (&["network", "list", "--deleted"], "no network matches\n"),
    ] {
        assert_eq!(text(&allod(&server.address, line).stderr), said, "{line:?}");
    }
    assert!(text(&allod(&server.address, &["network", "list"]).stderr).contains("make one"));
}

#[test]
fn who_keeps_a_part_of_a_range_that_is_reserved_for_another_is_said() {
    let server = Responder::start(|_, _| {
        Ok(json!({"reserved": [
            {"range": "10.0.0.199", "for": {"scope": "default", "owner": "other"}},
            {"range": "10.0.0.200", "for": {"scope": "default", "owner": "printer/0"}, "note": "printer"},
            {"range": "10.0.0.210", "for": {"scope": "default", "owner": "elsewhere"}},
        ]}))
    });
    let output = allod(&server.address, &["reserved", "add", "lan", "10.0.0.199-10.0.0.201", "--for-owner", "other"]);
    assert_eq!(
        text(&output.stderr),
        "10.0.0.200 stays reserved for `printer/0`; `allod reserved remove lan 10.0.0.200` ends that\n"
    );
}

#[test]
fn what_the_server_has_more_than_the_file_is_told_and_left() {
    let mut more = lan();
    more["subnets"][0]["reserved"] = json!([{"range": "10.0.0.9-10.0.0.9"}]);
    let mut other = lan();
    (other["name"], other["id"]) = (json!("dmz"), json!("00000000-0000-4000-8000-000000000002"));
    other["subnets"] = json!([]);
    let server = Responder::start(move |_, _| Ok(json!({"networks": [more, other]})));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("networks.toml");
    let said = |content: &str| {
        write(&file, content.as_bytes());
        let output = allod(&server.address, &["network", "apply", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let head = "nothing to change: the server has all that the file says, and more, which `--prune` would remove:\n";
    let dmz = "  1 other network of the same realms\n";
    let pool = "  network `lan`: - remove pool 10.0.0.0-10.0.0.255 (subnet 10.0.0.0/24)\n";
    let range = "  network `lan`: - let 10.0.0.9 go back into circulation (subnet 10.0.0.0/24)\n";
    let subnet = "  network `lan`: - remove subnet 10.0.0.0/24\n";
    let table = "[[network]]\nname = \"lan\"\nsubnets = ";
    assert_eq!(
        said(&format!("{table}[{{ cidr = \"10.0.0.0/24\", pools = [] }}]")),
        format!("{head}{pool}{range}{dmz}")
    );
    assert_eq!(said(&format!("{table}[]")), format!("{head}{subnet}{dmz}"));
    // A former name that belongs to another network is ignored.
    let said = said("[[network]]\nname = \"lan\"\nrenamed_from = \"dmz\"\n");
    assert!(
        said.starts_with("network `lan`: `renamed_from = \"dmz\"` is ignored, because there are networks of both"),
        "{said}"
    );
    assert!(server.methods().iter().all(|method| method == "network.list"));
}

#[test]
fn prune_stays_inside_the_networks_that_the_file_names_where_that_is_asked() {
    let mut lab = lan();
    (lab["name"], lab["id"]) = (json!("lab"), json!("00000000-0000-4000-8000-000000000002"));
    lab["subnets"] = json!([]);
    let server = Responder::start(move |method, _| match method {
        "network.list" => Ok(json!({"networks": [lan(), lab]})),
        _ => Ok(json!({})),
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lan.toml");
    write(&file, b"[[network]]\nname = \"lan\"\nsubnets = [{ cidr = \"10.0.0.0/24\", pools = [] }]\n");
    let apply = |options: &[&str]| {
        let output = allod(&server.address, &[&["network", "apply", file.to_str().unwrap()], options].concat());
        (output.status.code(), text(&output.stderr))
    };
    let pool = "- remove pool 10.0.0.0-10.0.0.255";
    let (code, said) = apply(&["--dry-run", "--prune"]);
    assert!(code == Some(2) && said.contains(pool) && said.contains("- delete the network"), "{said}");
    let (code, said) = apply(&["--dry-run", "--prune", "--only-named"]);
    assert!(code == Some(2) && said.contains(pool) && !said.contains("delete the network"), "{said}");
    assert_eq!(apply(&["--only-named"]).0, Some(64));
    assert_eq!(apply(&["--prune", "--only-named", "--yes"]).0, Some(0));
    let deletes = |(method, params): &(String, Value)| method == "network.delete" && params["dry_run"] != true;
    assert!(!server.asked().iter().any(deletes));
}

#[test]
fn a_file_without_networks_must_say_that_there_are_to_be_none() {
    let server = Responder::start(|_, _| Ok(json!({"networks": []})));
    let directory = tempfile::tempdir().unwrap();
    for (name, content, code) in [
        ("a.toml", "", 1),
        ("a.yaml", "# nothing\n", 1),
        ("a.json", "{}", 1),
        ("a.toml", "network = []", 0),
        ("a.yaml", "network: []", 0),
    ] {
        let file = directory.path().join(name);
        write(&file, content.as_bytes());
        let output = allod(&server.address, &["network", "apply", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(code), "{content}: {}", text(&output.stderr));
        assert_eq!(
            code == 1,
            text(&output.stderr).contains("it holds no networks; if that is intended, say so"),
            "{content}"
        );
    }
    for format in ["toml", "yaml", "json"] {
        let file = directory.path().join(format!("dumped.{format}"));
        write(&file, &allod(&server.address, &["network", "dump", "--format", format]).stdout);
        assert_eq!(
            allod(&server.address, &["network", "apply", file.to_str().unwrap()]).status.code(),
            Some(0),
            "{format}"
        );
    }
}
