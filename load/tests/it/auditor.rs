//! A server that breaks a rule of the audit is caught, and the rule is named; a server that breaks none is not.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::liar::Liar;
use crate::program::{Server, load, report, said};

const FILL: &[&str] = &["run", "fill", "--requests", "200", "--brief"];
const CHURN: &[&str] = &["run", "churn", "--cidr", "10.0.0.0/24", "--fill-level", "0.3", "--requests", "200"];
/// Three lanes ask for blocks and one for single addresses. Over one connection none of them gets ahead of the others.
const BLOCKS: &[&str] = &["run", "blocks", "--connections", "1", "--depth", "4"];

/// Changes the `nth` successful answer of this method; `change` also gets all earlier answers.
fn once(
    method: &'static str,
    nth: usize,
    change: impl Fn(&mut Value, &[Value]) + Send + 'static,
) -> impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static {
    let mut before: Vec<Value> = Vec::new();
    move |request, mut answer| {
        if request["method"] == method && answer.get("result").is_some() {
            if before.len() == nth {
                change(&mut answer["result"], &before);
            }
            before.push(answer["result"].clone());
        }
        vec![answer]
    }
}

/// Asserts that the rule is among those that were broken.
#[track_caller]
fn assert_caught(rule: &str, liar: &Liar, words: &[&str]) -> HashMap<String, u64> {
    let faults = liar.found_by(words);
    assert!(faults.contains_key(rule), "{rule} is not among {faults:?}");
    faults
}

#[test]
fn a_server_that_tells_the_truth_breaks_no_rule() {
    let liar = Liar::who(|_, answer| vec![answer]);
    assert_eq!(liar.found_by(FILL), HashMap::new());
    assert_eq!(liar.found_by(FILL), HashMap::new(), "on a network that is there and holds something");
}

#[test]
fn an_address_that_is_handed_out_twice_is_caught() {
    let liar = Liar::who(once("ip.allocate", 100, |result, before| result["address"] = before[3]["address"].clone()));
    assert_caught("no_address_twice", &liar, FILL);
}

#[test]
fn an_address_inside_a_held_block_is_caught() {
    // The lanes hold blocks and single addresses; a single address is granted inside a block.
    let mut block = None;
    let mut lied = false;
    let liar = Liar::who(move |request, mut answer| {
        let is_block = request["params"]["prefix_length"] == 28;
        if request["method"] == "ip.allocate" && answer.get("result").is_some() {
            let first: std::net::Ipv4Addr = answer["result"]["address"].as_str().unwrap().parse().unwrap();
            match block {
                None if is_block => block = Some(u32::from(first)),
                Some(first) if !is_block && !lied => {
                    lied = true;
                    answer["result"]["address"] = json!(std::net::Ipv4Addr::from(first + 5));
                }
                _ => {}
            }
        }
        vec![answer]
    });
    let words = [BLOCKS, &["--requests", "100", "--hold", "100"]].concat();
    assert_caught("no_address_twice", &liar, &words);
}

#[test]
fn another_address_for_the_same_owner_is_caught() {
    let storm = ["run", "restart-storm", "--owners", "100"];
    let liar = Liar::who(once("ip.allocate", 150, |result, _| result["address"] = json!("10.0.77.77")));
    assert_caught("same_slot_same_address", &liar, &storm);
    let shows_another = |result: &mut Value, _: &[Value]| result["reservation"]["owner"] = json!("somebody/else");
    let mixed = ["run", "mixed", "--networks", "2", "--prefill", "10", "--requests", "300"];
    assert_caught("same_slot_same_address", &Liar::who(once("ip.get", 5, shows_another)), &mixed);
}

#[test]
fn an_address_that_comes_back_before_its_cooldown_is_over_is_caught() {
    let mut released: Option<Value> = None;
    let mut lied = false;
    let liar = Liar::who(move |request, mut answer| {
        match request["method"].as_str() {
            Some("ip.release") if released.is_none() => released = answer["result"]["released"].get(0).cloned(),
            Some("ip.allocate") if !lied && answer.get("result").is_some() => {
                if let Some(address) = &released {
                    answer["result"]["address"] = address.clone();
                    lied = true;
                }
            }
            _ => {}
        }
        vec![answer]
    });
    let faults = assert_caught("cooldown", &liar, &[CHURN, &["--cooldown", "3600"]].concat());
    assert!(!faults.contains_key("no_address_twice"), "it was let go, so nobody held it: {faults:?}");
}

#[test]
fn a_block_around_an_address_that_cools_is_caught() {
    // After the release of a single address, a block around it is granted.
    let mut released = None;
    let mut lied = false;
    let liar = Liar::who(move |request, mut answer| {
        let is_block = request["params"]["prefix_length"] == 28;
        match request["method"].as_str() {
            Some("ip.release") if released.is_none() => {
                // A block goes by its prefix, which is no address.
                let first: Option<std::net::Ipv4Addr> =
                    answer["result"]["released"][0].as_str().and_then(|address| address.parse().ok());
                released = first.map(u32::from);
            }
            Some("ip.allocate") if is_block && !lied && answer.get("result").is_some() => {
                if let Some(address) = released {
                    answer["result"]["address"] = json!(std::net::Ipv4Addr::from(address - address % 16));
                    lied = true;
                }
            }
            _ => {}
        }
        vec![answer]
    });
    let blocks = [BLOCKS, &["--requests", "200", "--hold", "1", "--cooldown", "3600"]].concat();
    assert_caught("cooldown", &liar, &blocks);
    let honest = Liar::who(|_, answer| vec![answer]);
    assert_eq!(honest.found_by(&blocks), HashMap::new());
}

#[test]
fn an_address_that_nobody_may_get_is_caught() {
    for (address, why) in [
        ("10.0.0.1", "the gateway"),
        ("10.0.0.5", "a reserved range"),
        ("10.0.0.0", "the network address"),
        ("192.0.2.7", "outside every subnet"),
    ] {
        let liar = Liar::who(once("ip.allocate", 50, move |result, _| result["address"] = json!(address)));
        let faults = liar.found_by(FILL);
        assert!(faults.contains_key("inside_pools"), "{why}: {faults:?}");
    }
}

#[test]
fn what_was_not_asked_for_is_caught() {
    let sweep = ["run", "claim-and-sweep", "--requests", "200"];
    let other = |result: &mut Value, _: &[Value]| result["address"] = json!("10.9.9.9");
    assert_caught("as_asked", &Liar::who(once("ip.claim", 20, other)), &sweep);
    let no_block = |request: &Value, mut answer: Value| {
        if request["params"]["prefix_length"] == 28 && answer.get("result").is_some() {
            answer["result"]["address"] = json!("10.0.9.9");
        }
        vec![answer]
    };
    assert_caught("as_asked", &Liar::who(no_block), &["run", "blocks", "--requests", "100"]);
    let half = |result: &mut Value, _: &[Value]| result["prefix_length"] = json!(29);
    let blocks = ["run", "blocks", "--requests", "100"];
    let is_block = |request: &Value, answer: &Value| {
        request["params"]["prefix_length"] == 28 && answer["result"]["prefix_length"] == 28
    };
    let halves = move |request: &Value, mut answer: Value| {
        if is_block(request, &answer) {
            half(&mut answer["result"], &[]);
        }
        vec![answer]
    };
    assert_caught("as_asked", &Liar::who(halves), &blocks);
    let full = ["run", "fill", "--requests", "200"];
    for (member, other) in [("owner", "somebody/else"), ("network", "another")] {
        let change = move |result: &mut Value, _: &[Value]| result[member] = json!(other);
        let faults = assert_caught("as_asked", &Liar::who(once("ip.allocate", 50, change)), &full);
        assert_eq!(faults.len(), 1, "{member}: {faults:?}");
    }
    let fewer = |result: &mut Value, _: &[Value]| drop(result["instances"].as_array_mut().unwrap().pop());
    let deployments = ["run", "deployments", "--requests", "40"];
    assert_caught("as_asked", &Liar::who(once("deployment.apply", 5, fewer)), &deployments);
}

#[test]
fn a_release_that_lets_go_something_else_is_caught() {
    let more = |result: &mut Value, _: &[Value]| {
        result["released"].as_array_mut().unwrap().push(json!("10.0.0.10"));
    };
    assert_caught("releases_what_was_held", &Liar::who(once("ip.release", 10, more)), CHURN);
    for released in [json!([]), json!(["10.0.0.77"])] {
        let change = move |result: &mut Value, _: &[Value]| result["released"] = released.clone();
        assert_caught("releases_what_was_held", &Liar::who(once("ip.release", 10, change)), CHURN);
    }
    let sweep = ["run", "claim-and-sweep", "--requests", "200"];
    let forgets = |request: &Value, mut answer: Value| {
        if request["method"] == "claimant.sweep" && answer["result"]["released"].get(0).is_some() {
            answer["result"]["released"].as_array_mut().unwrap().pop();
        }
        vec![answer]
    };
    assert_caught("releases_what_was_held", &Liar::who(forgets), &sweep);
    let commit = once("deployment.commit", 7, |result, _| {
        result["released"] = json!([{"network": "load-00", "address": "10.0.0.99"}])
    });
    assert_caught("releases_what_was_held", &Liar::who(commit), &["run", "deployments", "--requests", "60"]);
}

#[test]
fn a_generation_that_does_not_rise_is_caught() {
    let liar =
        Liar::who(once("ip.allocate", 100, |result, before| result["generation"] = before[0]["generation"].clone()));
    assert_caught("generations_rise", &liar, FILL);
    let without = |result: &mut Value, _: &[Value]| drop(result.as_object_mut().unwrap().remove("generation"));
    assert_caught("generations_rise", &Liar::who(once("ip.allocate", 100, without)), FILL);
}

#[test]
fn generations_of_more_lanes_and_networks_than_are_remembered_are_told_as_not_audited() {
    // 65 536 lanes; with a cell for each network, the limit of 2^24 is exceeded from 257 networks on.
    let many = ["--connections", "64", "--depth", "1024", "--cidr", "10.0.0.0/24", "--requests", "300"];
    for (networks, is_audited) in [("257", false), ("2", true)] {
        let server = Server::start();
        let address = server.address.to_string();
        let words = [&["run", "fill", "--server", &address, "--networks", networks], &many[..]].concat();
        let (code, found) = report(&words);
        let rules = if is_audited { json!([]) } else { json!(["generations_rise"]) };
        assert_eq!((code, &found["not_audited"]), (0, &rules), "{networks}: {found}");
        // The networks exist now.
        let output = load().args(&words).output().unwrap();
        let told = said(&output).contains("not audited: generations_rise");
        assert_eq!(told, !is_audited, "{networks}: {}", said(&output));
    }
}

#[test]
fn a_refusal_of_what_is_right_is_caught_and_one_for_want_of_room_is_none() {
    let mut answered = 0;
    let liar = Liar::who(move |request, mut answer| {
        answered += usize::from(request["method"] == "ip.allocate");
        if answered == 50 && request["method"] == "ip.allocate" {
            let error = json!({"code": -32603, "message": "a bug", "data": {"kind": "internal", "retry": "later"}});
            answer = json!({"jsonrpc": "2.0", "id": answer["id"], "error": error});
        }
        vec![answer]
    });
    assert_caught("refuses_nothing_right", &liar, FILL);
    let honest = Liar::who(|_, answer| vec![answer]);
    let full = ["run", "fill", "--cidr", "10.0.0.0/26", "--requests", "200"];
    assert_eq!(honest.found_by(&full), HashMap::new());
}

#[test]
fn an_answer_that_comes_twice_or_never_is_caught() {
    for times in [2, 0] {
        let mut answered = 0;
        let liar = Liar::who(move |request, answer| {
            answered += usize::from(request["method"] == "ip.allocate");
            let is_it = answered == 50 && request["method"] == "ip.allocate";
            vec![answer; if is_it { times } else { 1 }]
        });
        assert_caught("answers_once", &liar, FILL);
    }
}

#[test]
fn an_answer_that_cannot_be_read_is_caught_as_that_and_as_nothing_else() {
    for garbage in
        [r#"{"jsonrpc":"2.0","id":ID,"result":{"addr"#, r#"{"jsonrpc":"2.0","id":ID,"result":null}"#, "hello world"]
    {
        let mut answered = 0;
        let liar = Liar::who(move |request, answer| {
            answered += usize::from(request["method"] == "ip.allocate");
            let is_it = answered == 50 && request["method"] == "ip.allocate";
            let line = garbage.replace("ID", &answer["id"].to_string());
            vec![if is_it { json!(line) } else { answer }]
        });
        let faults = assert_caught("answers_once", &liar, FILL);
        assert_eq!(faults.len(), 1, "{garbage}: {faults:?}");
    }
}

#[test]
fn a_request_without_an_answer_breaks_its_own_rule_only_and_is_named() {
    // During the measurement, and before it.
    for (nth, words) in [(50, FILL), (20, CHURN)] {
        let mut answered = 0;
        let liar = Liar::who(move |request, answer| {
            answered += usize::from(request["method"] == "ip.allocate");
            if answered == nth && request["method"] == "ip.allocate" { vec![] } else { vec![answer] }
        });
        let (code, report) = liar.reported_by(words);
        assert_eq!((code, &report["faults"]), (1, &json!({"answers_once": 1})), "{report}");
        assert_eq!(report["lost"], 1, "{report}");
        let what = report["fault_examples"][0]["what"].as_str().unwrap();
        for named in ["allocate of node-000", "in load-00", &liar.address.to_string()] {
            assert!(what.contains(named), "{named}: {what}");
        }
    }
}

#[test]
fn what_may_have_taken_effect_or_not_is_no_fault() {
    let mut answered = 0;
    let liar = Liar::who(move |request, mut answer| {
        answered += usize::from(request["method"] == "ip.allocate");
        if request["method"] == "ip.allocate" && answered.is_multiple_of(30) {
            let error =
                json!({"code": -32020, "message": "gone", "data": {"kind": "unavailable", "applied": "unknown"}});
            answer = json!({"jsonrpc": "2.0", "id": answer["id"], "error": error});
        }
        vec![answer]
    });
    let (code, report) = liar.reported_by(FILL);
    assert_eq!((code, &report["faults"]), (0, &json!({})), "{report}");
    assert!(report["unknown"].as_u64().unwrap() >= 6 && report["held"] != report["held_by_server"], "{report}");
    let server = liar.address.to_string();
    let output = load().args(FILL).args(["--server", &server, "--connections", "1", "--depth", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("may have taken effect or not"), "{}", said(&output));
    assert!(!said(&output).contains("WRONG"), "{}", said(&output));
}

#[test]
fn a_listing_that_differs_is_caught() {
    let twice = |result: &mut Value, _: &[Value]| {
        let first = result["reservations"][0].clone();
        result["reservations"].as_array_mut().unwrap().push(first);
    };
    assert_caught("listing_agrees", &Liar::who(once("ip.list", 0, twice)), FILL);
    let without = |result: &mut Value, _: &[Value]| drop(result["reservations"].as_array_mut().unwrap().pop());
    assert_caught("listing_agrees", &Liar::who(once("ip.list", 0, without)), FILL);
    let other_owner =
        |result: &mut Value, _: &[Value]| result["reservations"][0]["owner"] = json!("node-0000/pod-abcdef");
    assert_caught("listing_agrees", &Liar::who(once("ip.list", 0, other_owner)), FILL);
    let one_more = |result: &mut Value, _: &[Value]| {
        let mut more = result["reservations"][0].clone();
        more["address"] = json!("10.200.0.1");
        result["reservations"].as_array_mut().unwrap().push(more);
    };
    assert_caught("listing_agrees", &Liar::who(once("ip.list", 0, one_more)), FILL);
}

#[test]
fn a_count_that_differs_is_caught() {
    // The first count is read before the run.
    let liar = Liar::who(once("network.usage", 1, |result, _| result["held"] = json!("199")));
    let faults = assert_caught("count_agrees", &liar, FILL);
    assert_eq!(faults.len(), 1, "{faults:?}");
    let liar = Liar::who(once("network.usage", 1, |result, _| result["held"] = json!("199")));
    let words = "p99-isolation --seconds 1 --connections 1 --depth 1 --server";
    let output = load().args(words.split(' ')).arg(liar.address.to_string()).output().unwrap();
    assert!(output.status.code() == Some(1) && said(&output).contains("WRONG: count_agrees"), "{}", said(&output));
}

#[test]
fn what_yields_its_cooldown_where_nothing_else_is_free_is_no_fault() {
    for (yields, refused) in [(true, false), (false, true)] {
        let liar = Liar::who(|_, answer| vec![answer]);
        let network = json!({"name": "load-00", "realm": "load-00", "cooldown_seconds": 3_600, "cooldown_yields": yields,
            "subnets": [{"cidr": "10.0.0.0/28"}]});
        assert!(liar.call("network.create", &network)["result"].is_object());
        let (code, report) = liar.reported_by(&[
            "run",
            "churn",
            "--no-create",
            "--prefill",
            "0",
            "--requests",
            "100",
            "--listing",
            "always",
        ]);
        assert_eq!((&report["faults"], &report["settings"]["cidr"]), (&json!({}), &Value::Null), "{report}");
        assert_eq!((code == 2, report["refused"].as_object().unwrap().is_empty()), (false, !refused), "{report}");
    }
}

/// A block and an address that owners of another program hold before the run.
const STRANGERS: [(&str, &str, u64); 2] = [("somebody/0", "10.0.3.0", 28), ("somebody/1", "10.0.9.9", 32)];

/// A server whose network `load-00` contains strangers, behind a liar.
fn where_strangers_are(lie: impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static) -> Liar {
    let liar = Liar::who(lie);
    assert_eq!(liar.found_by(&["run", "fill", "--requests", "20"]), HashMap::new());
    for (owner, address, prefix_length) in STRANGERS {
        let params = json!({"network": "load-00", "owner": owner, "address": address, "prefix_length": prefix_length});
        assert!(liar.call("ip.claim", &params)["result"].is_object());
    }
    liar
}

#[test]
fn an_address_inside_a_block_of_before_the_run_is_caught_in_every_scenario() {
    // The address is reported as granted, and listed as reported.
    for (listing, inside) in [("auto", "10.0.3.7"), ("never", "10.0.3.8"), ("auto", "10.0.9.9")] {
        let mut moved: Option<Value> = None;
        let mut answered = 0;
        let liar = where_strangers_are(move |request, mut answer| {
            if request["method"] == "ip.allocate" && answer.get("result").is_some() {
                answered += 1;
                if answered == 50 {
                    moved = Some(std::mem::replace(&mut answer["result"]["address"], json!(inside)));
                }
            }
            if request["method"] == "ip.list" && request["params"]["network"] == "load-00" {
                for reservation in answer["result"]["reservations"].as_array_mut().unwrap() {
                    if Some(&reservation["address"]) == moved.as_ref() {
                        reservation["address"] = json!(inside);
                    }
                }
            }
            vec![answer]
        });
        let faults = liar.found_by(&[FILL, &["--listing", listing]].concat());
        assert!(faults.contains_key("no_address_twice"), "{listing} {inside}: {faults:?}");
    }
    let honest = where_strangers_are(|_, answer| vec![answer]);
    assert_eq!(honest.found_by(FILL), HashMap::new());
    assert_eq!(honest.found_by(&["run", "blocks", "--requests", "100"]), HashMap::new());
}

#[test]
fn reservations_that_overlap_in_the_listing_are_caught() {
    let liar = where_strangers_are(|request, mut answer| {
        if request["method"] == "ip.list" {
            let list = answer["result"]["reservations"].as_array_mut().unwrap();
            let block = list.iter().position(|one| one["prefix_length"] == 28);
            if let Some(at) = block {
                let mut inside = list[at].clone();
                (inside["address"], inside["prefix_length"], inside["owner"]) =
                    (json!("10.0.3.4"), json!(32), json!("x"));
                list.insert(at + 1, inside);
            }
        }
        vec![answer]
    });
    assert_caught("no_address_twice", &liar, FILL);
}

#[test]
fn blocks_of_ipv6_are_counted_however_large_they_are() {
    let honest = Liar::who(|_, answer| vec![answer]);
    let words = ["run", "blocks", "--cidr", "2001:db8::/48", "--prefix-length", "64", "--requests", "400"];
    assert_eq!(honest.found_by(&words), HashMap::new());
}

/// The answer of a server that does not know whether the request took effect.
fn unknown(id: &Value) -> Value {
    let error = json!({"code": -32020, "message": "gone", "data": {"kind": "unavailable", "applied": "unknown"}});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

#[test]
fn what_is_repeated_because_its_fate_was_unknown_may_be_answered_as_done_or_not() {
    for (method, scenario) in [
        ("claimant.sweep", "claim-and-sweep"),
        ("ip.claim", "claim-and-sweep"),
        ("deployment.commit", "deployments"),
        ("deployment.revert", "deployments"),
        ("deployment.apply", "deployments"),
        ("ip.claim", "claims"),
        ("ip.release", "claims"),
    ] {
        for is_made in [true, false] {
            let mut answered = 0;
            // A request that should not take effect is replaced by one that does nothing, and its answer by one of unknown
            // outcome.
            let liar = Liar::altering(
                move |request| {
                    let is_it = request["method"] == method && request["id"].is_u64();
                    answered += u64::from(is_it);
                    let is_unknown = is_it && answered % 15 == 5;
                    if is_unknown && !is_made {
                        (request["method"], request["params"]) = (json!("server.ping"), json!({}));
                    }
                    is_unknown
                },
                |answer| unknown(&answer["id"]),
            );
            let words = ["run", scenario, "--requests", "600"];
            let (code, report) = liar.reported_by(&words);
            let told = (code, &report["faults"], &report["not_made"]);
            assert_eq!(told, (0, &json!({}), &Value::Null), "{method}, made: {is_made}: {report}");
            assert!(report["refused"]["unavailable"].as_u64().unwrap() > 1, "{method}, made: {is_made}: {report}");
        }
    }
}

#[test]
fn owners_that_the_run_never_named_are_somebody_elses_and_no_fault() {
    // Another program releases and claims addresses: what it released is granted again, and what it claimed is listed.
    for (listing, lets_go) in [("auto", true), ("never", false)] {
        owners_that_the_run_never_named(listing, lets_go);
    }
}

/// With `--listing never` the other program only claims an address, so that the count differs; the run must list all the
/// same.
fn owners_that_the_run_never_named(listing: &str, lets_go: bool) {
    let liar = where_strangers_are(|_, answer| vec![answer]);
    // This liar is moved into a thread that never ends, so it must not own a server.
    let stranger = Liar::beside(liar.address, |_, answer| vec![answer]);
    let (begun, told) = std::sync::mpsc::channel();
    let mut begun = Some(begun);
    let beside = Liar::beside(liar.address, move |request, answer| {
        if request["method"] == "ip.allocate"
            && let Some(begun) = begun.take()
        {
            // The run waits for its answer until the other program has made its calls.
            let params = json!({"network": "load-00", "owner": "somebody/1"});
            assert!(!lets_go || stranger.call("ip.release", &params)["result"].is_object());
            let params = json!({"network": "load-00", "owner": "somebody/2", "address": "10.0.9.10"});
            assert!(stranger.call("ip.claim", &params)["result"].is_object());
            begun.send(()).unwrap();
        }
        vec![answer]
    });
    let (code, report) = beside.reported_by(&["run", "fill", "--requests", "200", "--listing", listing]);
    told.recv().unwrap();
    assert_eq!((code, &report["faults"]), (2, &json!({})), "{report}");
    let why = report["not_made"].as_str().unwrap();
    assert!(why.contains("somebody else uses these networks") && why.contains("somebody/2"), "{why}");
    assert!(why.contains("--network-prefix"), "{why}");
}

#[test]
fn a_network_that_another_run_uses_is_refused_and_one_of_its_own_is_not() {
    let server = Server::start();
    let address = server.address.to_string();
    let small = [
        "run",
        "churn",
        "--cidr",
        "10.0.0.0/22",
        "--prefill",
        "0",
        "--connections",
        "1",
        "--depth",
        "2",
        "--server",
        &address,
    ];
    let mut first = load();
    first.args(small).args(["--seconds", "50", "--quiet", "--json"]);
    let first = first.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begun = std::time::Instant::now();
    let refused = loop {
        // The network does not exist before the first run has made it.
        let words =
            ["run", "churn", "--requests", "10", "--quiet", "--no-create", "--fill-level", "0", "--server", &address];
        let output = load().args(words).output().unwrap();
        if said(&output).contains("is in use") {
            break output;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{}", said(&output));
    };
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("--network-prefix"), "{}", said(&refused));
    let (code, report) = report(&[&small[..], &["--requests", "50", "--network-prefix", "mine-"]].concat());
    assert_eq!((code, &report["faults"]), (0, &json!({})), "{report}");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(first.id().cast_signed()).unwrap(),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let first = first.wait_with_output().unwrap();
    let first: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(first["faults"], json!({}), "{first}");
}

#[test]
fn a_refusal_that_comes_twice_is_caught() {
    let liar = Liar::who(|_, answer| {
        let is_full = answer["error"]["data"]["kind"] == "not_enough_capacity";
        vec![answer; if is_full { 2 } else { 1 }]
    });
    assert_caught("answers_once", &liar, &["run", "fill", "--cidr", "10.0.0.0/26", "--requests", "200"]);
}

#[test]
fn a_new_address_that_is_told_as_held_before_is_caught() {
    let liar = Liar::who(|request, mut answer| {
        if request["method"] == "ip.allocate" && answer["result"]["created"] == true {
            answer["result"]["created"] = json!(false);
        }
        vec![answer]
    });
    assert_caught("as_asked", &liar, FILL);
}

#[test]
fn a_renewal_that_tells_of_somebody_else_or_of_nothing_is_caught() {
    let mixed = ["run", "mixed", "--networks", "2", "--prefill", "10", "--requests", "600"];
    for (rule, answered) in [("as_asked", Some("somebody/else")), ("answers_once", None)] {
        let liar = Liar::who(once("ip.renew", 3, move |result, _| match answered {
            Some(owner) => result["owner"] = json!(owner),
            None => *result = json!({}),
        }));
        assert_caught(rule, &liar, &mixed);
    }
}
