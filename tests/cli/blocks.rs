//! Blocks named as answers print them: what the server is asked for `10.0.0.16/28`, and what is refused.

use serde_json::{Value, json};

use crate::commands::{allod, text};
use crate::responder::Responder;

/// A server on which `pod/0` holds 10.0.0.16/28, and nobody anything else.
fn holding() -> Responder {
    let held = json!({"network": "lan", "address": "10.0.0.16", "prefix_length": 28, "scope": "default",
        "owner": "pod/0", "slot": "0", "generation": 7});
    Responder::start(move |method, params| match method {
        "ip.get" if params["address"].as_str().unwrap().starts_with("10.0.0.1") => {
            Ok(json!({"address": params["address"], "state": "held", "network": "lan", "reservation": held}))
        }
        "ip.get" => Ok(json!({"address": params["address"], "state": "free", "network": "lan"})),
        "ip.find" => Ok(json!({"found": []})),
        "events.history" => Ok(json!({"events": []})),
        "ip.release" if params["if_generation"] == 0 => Ok(json!({"released": []})),
        "ip.release" => Ok(json!({"released": ["10.0.0.16"]})),
        "ip.transfer" => Ok(json!({"reservations": [held]})),
        "ip.decline" => Ok(json!({"declined": "10.0.0.16"})),
        _ => Ok(held.clone()),
    })
}

fn run(server: &Responder, line: &str) -> (Option<i32>, String, String, Vec<(String, Value)>) {
    server.forget();
    let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
    (output.status.code(), text(&output.stdout), text(&output.stderr), server.asked())
}

#[test]
fn a_block_as_it_is_printed_names_what_is_held_and_its_generation_goes_along() {
    let server = holding();
    for line in [
        "ip renew lan 10.0.0.16/28 --permanent",
        "ip bind lan 10.0.0.16/28 --claimant vm",
        "ip unbind lan 10.0.0.16/28 --claimant vm",
        "ip update lan 10.0.0.16/28 --note x",
        "ip release lan 10.0.0.16/28 --owner pod/0",
        "ip transfer lan 10.0.0.16/28 --owner pod/0 --to-owner pod/1",
    ] {
        let (code, _, words, asked) = run(&server, line);
        assert_eq!(code, Some(0), "{line}: {words}");
        assert_eq!(asked[0], ("ip.get".to_owned(), json!({"network": "lan", "address": "10.0.0.16"})), "{line}");
        let params = &asked.last().unwrap().1;
        assert_eq!((&params["address"], &params["if_generation"]), (&json!("10.0.0.16"), &json!(7)), "{line}");
    }
    // A generation on the command line is used as it is; a decline takes none.
    let (_, _, _, asked) = run(&server, "ip renew lan 10.0.0.16/28 --permanent --if-generation 5");
    assert_eq!(asked[1].1["if_generation"], 5);
    let (_, _, _, asked) = run(&server, "ip decline lan 10.0.0.16/28 --owner pod/0");
    assert_eq!(asked[1].1, json!({"network": "lan", "address": "10.0.0.16", "owner": "pod/0"}));
}

#[test]
fn another_block_than_the_one_that_is_held_is_refused_before_anything_changes() {
    let server = holding();
    for (line, address) in [
        ("ip release lan 10.0.0.16/29 --owner pod/0", "10.0.0.16"),
        ("ip renew lan 10.0.0.17/28 --permanent", "10.0.0.17"),
        ("ip decline lan 10.0.0.16/32 --owner pod/0", "10.0.0.16"),
    ] {
        let (code, _, words, asked) = run(&server, line);
        assert_eq!(code, Some(1), "{line}");
        assert!(words.contains("what is held there is 10.0.0.16/28, by `pod/0`"), "{line}: {words}");
        assert_eq!(asked, [("ip.get".to_owned(), json!({"network": "lan", "address": address}))], "{line}");
    }
    // If nothing is held there, the server answers; `if_generation` 0 keeps it from releasing what somebody takes meanwhile.
    let (code, _, words, asked) = run(&server, "ip release lan 10.0.0.64/28 --force --yes");
    assert_eq!((code, &asked[1].1["if_generation"]), (Some(0), &json!(0)), "{words}");
}

#[test]
fn a_block_is_claimed_and_looked_up_as_it_is_printed() {
    let server = holding();
    let (_, _, _, asked) = run(&server, "ip claim lan 10.0.0.32/28 --owner pod/1");
    assert_eq!(asked[0].1, json!({"network": "lan", "address": "10.0.0.32", "prefix_length": 28, "owner": "pod/1"}));
    let (code, _, words, asked) = run(&server, "ip claim lan 10.0.0.32/28 --prefix-length 29 --owner pod/1");
    assert!(code == Some(64) && words.contains("a block of /28 and, by `--prefix-length`, of /29"), "{words}");
    assert!(asked.is_empty());
    let (_, _, _, asked) = run(&server, "ip acquire lan --owner pod/1 --ip 10.0.0.32/28");
    assert_eq!(asked[0].1["ips"], json!([{"address": "10.0.0.32", "prefix_length": 28}]));
    for line in ["who 10.0.0.32/28", "history 10.0.0.32/28", "ip get 10.0.0.32/28", "ip find 10.0.0.32/28"] {
        let (code, _, words, asked) = run(&server, line);
        assert_eq!((code, &asked[0].1["address"]), (Some(0), &json!("10.0.0.32")), "{line}: {words}");
    }
}

#[test]
fn a_released_block_is_told_with_its_length_and_a_program_reads_the_answer_as_it_is() {
    let server = holding();
    let (_, told, _, _) = run(&server, "ip release lan 10.0.0.16/28 --owner pod/0");
    assert_eq!(told, "ADDRESS\n10.0.0.16/28\n");
    let (_, told, words, _) = run(&server, "ip release lan 10.0.0.16 --force --yes");
    assert_eq!(told, "ADDRESS\n10.0.0.16/28\n", "{words}");
    let (_, told, _, _) = run(&server, "ip release lan 10.0.0.16/28 --owner pod/0 --format json");
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), json!({"released": ["10.0.0.16"]}));
}
