//! What is said about the answer to a repeat: the first try, whose answer was lost, may have done what the repeat finds.

use std::sync::atomic::{AtomicBool, Ordering};

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::{allod, lan, text};
use crate::responder::{Responder, refusal};
use crate::write;

/// The answer that nobody knows whether the request took effect.
fn unknown() -> Value {
    refusal(ErrorKind::Unavailable, "the store does not answer", json!({"applied": "unknown", "retry_after_ms": 1}))
}

/// Loses the first answer to method `lost`, and gives it `answer` after that; `rest` answers everything else.
fn losing(
    lost: &'static str,
    answer: Value,
    rest: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
) -> Responder {
    let was_lost = AtomicBool::new(false);
    Responder::start(move |method, params| match method {
        _ if method != lost || params["dry_run"] == true => Ok(rest(method, params)),
        _ if !was_lost.swap(true, Ordering::SeqCst) => Err(unknown()),
        _ => Ok(answer.clone()),
    })
}

#[test]
fn what_the_first_try_may_have_done_is_not_said_to_have_been_so_before() {
    let mut there = lan();
    there["created"] = json!(false);
    let subnet = json!({"cidr": "10.0.0.0/24", "created": false});
    let held = json!({"network": "lan", "address": "10.0.0.5", "prefix_length": 32, "scope": "default", "owner": "a",
        "slot": "0", "created": false});
    let nothing = json!({"released": []});
    for (line, method, answer, said) in [
        (
            "ip release lan 10.0.0.5 --if-generation 4",
            "ip.release",
            nothing.clone(),
            "nothing is held there now: the first answer was lost, and it may have been released then\n",
        ),
        (
            "network create lan --if-absent",
            "network.create",
            there,
            "it exists: the first answer was lost, and the first attempt may have made it\n",
        ),
        (
            "subnet add lan 10.0.0.0/24 --if-absent",
            "subnet.add",
            subnet,
            "it exists: the first answer was lost, and the first attempt may have made it\n",
        ),
        (
            "ip claim lan 10.0.0.5 --owner a",
            "ip.claim",
            held.clone(),
            "it is held: the first answer was lost, and the first attempt may have granted it\n",
        ),
        (
            "ip allocate lan --owner a --replace",
            "ip.allocate",
            held.clone(),
            "it is held: the first answer was lost, and the first attempt may have granted it; what the first attempt released \
             is not listed again; `allod history --scope default` shows it\n",
        ),
        (
            "ip acquire lan --owner a --ip any --exact --scope ci",
            "ip.acquire",
            json!({"reservations": [&held]}),
            "the first answer was lost: what was held before may have been granted by the first attempt; what the first attempt \
             released is not listed again; `allod history --scope ci` shows it\n",
        ),
        (
            "call ip.claim network=lan address=10.0.0.5 owner=a",
            "ip.claim",
            held,
            "it is held: the first answer was lost, and the first attempt may have granted it\n",
        ),
        (
            "deployment commit shop --plan 7",
            "deployment.commit",
            nothing,
            "the first answer was lost: what the first attempt released is not listed again; `allod history --scope shop` shows \
             it\n",
        ),
    ] {
        let server = losing(method, answer, |_, _| json!({"instances": []}));
        let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), said), "{line}");
        assert!(!text(&output.stdout).contains("held before"), "{line}: {}", text(&output.stdout));
        assert_eq!(server.methods().iter().filter(|asked| **asked == method).count(), 2, "{line}");
    }
}

#[test]
fn a_network_of_a_file_is_made_although_the_first_answer_was_lost() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("networks.toml");
    write(&file, b"[[network]]\nname = \"lan\"\nsubnets = [{ cidr = \"10.0.0.0/24\" }]\n");
    let server = losing("network.create", lan(), |method, _| match method {
        "network.list" => json!({"networks": []}),
        _ => lan(),
    });
    let output = allod(&server.address, &["network", "apply", file.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(0) && said.ends_with("1 change made\n"), "{said}");
    let register = directory.path().join("register.jsonl");
    write(
        &register,
        b"{\"format\":\"allod-export\",\"version\":1}\n{\"network\":{\"name\":\"lan\",\"subnets\":[{\"cidr\":\"10.0.0.0/24\"}]}}\n",
    );
    let server = losing("network.create", lan(), |_, _| json!({"networks": []}));
    let output = allod(&server.address, &["import", register.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// What the check did not find a moment before is the import's own work: it counts, and what had been granted automatically is
/// granted again.
#[test]
fn a_claim_of_an_import_is_its_own_although_the_first_answer_was_lost() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("register.jsonl");
    write(
        &file,
        b"{\"format\":\"allod-export\",\"version\":1}\n\
          {\"network\":{\"name\":\"lan\",\"subnets\":[{\"cidr\":\"10.0.0.0/24\"}]}}\n\
          {\"reservation\":{\"network\":\"lan\",\"address\":\"10.0.0.5\",\"owner\":\"web/0\",\"kind\":\"dynamic\"}}\n",
    );
    let file = file.to_str().unwrap();
    let held = |created: bool| json!({"address": "10.0.0.5", "generation": 7, "created": created, "kind": "static"});
    let answers = move |method: &str, _: &Value| match method {
        "network.list" => {
            let mut lan = lan();
            lan["cooldown_seconds"] = json!(3600);
            json!({"networks": [lan]})
        }
        "ip.release" => json!({"released": [{"address": "10.0.0.5"}]}),
        _ => held(true),
    };
    let server = losing("ip.claim", held(false), answers);
    let output = allod(&server.address, &["import", file]);
    assert_eq!(text(&output.stderr), "imported 0 networks and 1 reservation\n");
    assert_eq!(output.status.code(), Some(0));
    let made = |method: &str| {
        server.asked().into_iter().filter(|(asked, _)| asked == method).map(|(_, params)| params).collect()
    };
    let released: Vec<Value> = made("ip.release");
    assert_eq!(released, [json!({"network": "lan", "address": "10.0.0.5", "if_generation": 7})]);
    let granted: Vec<Value> = made("ip.allocate");
    assert_eq!(granted.len(), 1, "{:?}", server.asked());
    // Without a lost answer, what is there now is somebody else's.
    let server = Responder::start(move |method, params| {
        Ok(if method == "ip.claim" && params["dry_run"] != true { held(false) } else { answers(method, params) })
    });
    let output = allod(&server.address, &["import", file]);
    assert_eq!(text(&output.stderr), "imported 0 networks and 0 reservations\n1 reservation had been there already\n");
    assert!(!server.methods().contains(&"ip.release".to_owned()));
}

#[test]
fn a_run_of_changes_that_breaks_off_tells_how_far_it_came_and_that_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("networks.toml");
    write(&file, b"[[network]]\nname = \"lan\"\n[[network]]\nname = \"dmz\"\n");
    let server = Responder::start(|method, params| match (method, params["name"].as_str()) {
        ("network.list", _) => Ok(json!({"networks": []})),
        (_, Some("dmz")) if params["dry_run"] != true => Err(refusal(ErrorKind::Internal, "a bug", json!({}))),
        _ => Ok(lan()),
    });
    let path = file.to_str().unwrap();
    let output = allod(&server.address, &["network", "apply", path]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("a bug; 1 of 2 changes were made before\n"), "{said}");
    assert!(said.ends_with("then the same command again goes on from there\n"), "{said}");
    let output = allod(&server.address, &["network", "apply", path, "--format", "json"]);
    let said: Value = serde_json::from_str(text(&output.stderr).lines().last().unwrap()).unwrap();
    assert_eq!((&said["changes_made"], &said["error"]["message"]), (&json!(1), &json!("a bug")), "{said}");
}

#[test]
fn a_network_that_somebody_else_made_meanwhile_is_not_said_to_have_been_made() {
    let directory = tempfile::tempdir().unwrap();
    let (file, register) = (directory.path().join("networks.toml"), directory.path().join("register.jsonl"));
    write(&file, b"[[network]]\nname = \"first\"\n[[network]]\nname = \"raced\"\n");
    let lines = "{\"format\":\"allod-export\",\"version\":1}\n{\"network\":{\"name\":\"raced\"}}\n";
    write(&register, lines.as_bytes());
    let server = Responder::start(|method, params| match method {
        "network.list" => Ok(json!({"networks": []})),
        _ => Ok(json!({"name": params["name"], "created": params["name"] != "raced" || params["dry_run"] == true})),
    });
    let meanwhile = "network `raced` was created by somebody else meanwhile";
    let output = allod(&server.address, &["network", "apply", file.to_str().unwrap()]);
    let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.code() == Some(1) && !said.contains("2 changes made"), "{said}");
    assert!(said.contains(&format!("{meanwhile}; 1 of 2 changes were made before")), "{said}");
    assert!(
        said.ends_with("`allod network get raced` shows it; then the same command again goes on from there"),
        "{said}"
    );
    let output = allod(&server.address, &["import", register.to_str().unwrap()]);
    let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.code() == Some(1) && said.contains(meanwhile) && !said.contains("imported 1"), "{said}");
    assert!(said.ends_with("then the same command again goes on from there"), "{said}");
}
