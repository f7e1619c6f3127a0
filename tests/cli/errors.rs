//! Every kind of error, as it is printed.

use allod::cli::failure::Failure;
use allod::client::{ClientError, RpcError};
use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::golden;
use crate::responder::refusal;

/// A request that may be refused with this kind, and the server's message and facts.
fn example(kind: ErrorKind) -> (&'static str, Value, &'static str, Value) {
    let held_by = json!({"scope": "default", "owner": "web/3", "slot": "0", "since": "2026-03-01T09:12:44.031Z"});
    let allocate = json!({"network": "lan", "owner": "db/0"});
    let claim = json!({"network": "lan", "address": "10.0.0.7", "owner": "db/0"});
    match kind {
        ErrorKind::ParseError => ("ip.allocate", allocate, "no JSON: expected `,` or `}` at column 12", json!({})),
        ErrorKind::InvalidRequest => ("ip.allocate", allocate, "the request has no `method`", json!({})),
        ErrorKind::MethodNotFound => {
            ("ip.alocate", allocate, "there is no method `ip.alocate`; did you mean `ip.allocate`?", json!({}))
        }
        ErrorKind::InvalidArgument => (
            "subnet.add",
            json!({"network": "lan", "cidr": "10.0.0.5/24"}),
            "`cidr` has host bits; the prefix is 10.0.0.0/24",
            json!({"field": "cidr"}),
        ),
        ErrorKind::Internal => {
            ("ip.allocate", allocate, "this is a bug; the log has it under 7f3a", json!({"id": "7f3a"}))
        }
        ErrorKind::NotFound => ("ip.allocate", allocate, "network `lan` does not exist", json!({"field": "network"})),
        ErrorKind::AlreadyExists => (
            "ip.claim",
            claim,
            "`db/0` already holds 10.0.0.5 in network `lan`; release it first, or name another slot (`ip.allocate`, `ip.claim` \
             and `ip.acquire` also accept `replace`)",
            json!({"address": "10.0.0.5", "differs": ["address"]}),
        ),
        ErrorKind::AlreadyInUse => (
            "ip.claim",
            claim,
            "10.0.0.7 of network `lan` is held by `web/3`; ask for another address, or have it released",
            json!({"address": "10.0.0.7", "held_by": held_by}),
        ),
        ErrorKind::NotEnoughCapacity => (
            "ip.allocate",
            allocate,
            "network `lan` has no free address: 250 of 254 held, 4 reserved, 0 cooling, 0 declined; add a pool, or \
             release something",
            json!({"network": "lan", "size": "254", "held": "250", "pools": [
                {"range": "10.0.0.0-10.0.0.127", "size": "128", "held": "126", "reserved": "2", "cooling": "0", "declined": "0"},
                {"range": "10.0.0.130-10.0.0.255", "size": "126", "held": "124", "reserved": "2", "cooling": "0",
                 "declined": "0"}]}),
        ),
        ErrorKind::OutOfRange => {
            ("ip.claim", claim, "10.0.0.7 lies in no subnet of network `lan`", json!({"address": "10.0.0.7"}))
        }
        ErrorKind::Reserved => (
            "ip.claim",
            claim,
            "10.0.0.7 is inside the reserved range 10.0.0.0/28; use `force`, or reserved.remove it",
            json!({"address": "10.0.0.7"}),
        ),
        ErrorKind::Overlap => (
            "subnet.add",
            json!({"network": "lan", "cidr": "10.0.0.0/24"}),
            "10.0.0.0/24 overlaps 10.0.0.0/16 of network `core`; choose another range, or a realm of its own",
            json!({"with": {"network": "core", "cidr": "10.0.0.0/16"}}),
        ),
        ErrorKind::InUse => (
            "subnet.remove",
            json!({"network": "lan", "subnet": "10.0.0.0/24"}),
            "subnet 10.0.0.0/24 is in use: 2 reservations (10.0.0.5, 10.0.0.6); release them first",
            json!({"count": 2, "first": ["10.0.0.5", "10.0.0.6"]}),
        ),
        ErrorKind::NotOwner => (
            "ip.release",
            claim,
            "10.0.0.7 is not held by `db/0` but by `web/3`",
            json!({"address": "10.0.0.7", "held_by": held_by}),
        ),
        ErrorKind::WrongKind => {
            ("ip.claim", claim, "network `lan` is dynamic: it takes no static addresses", json!({}))
        }
        ErrorKind::Conflict => (
            "ip.release",
            json!({"network": "lan", "address": "10.0.0.7", "if_generation": 4}),
            "10.0.0.7 is at generation 9, not 4: it has changed hands since",
            json!({"address": "10.0.0.7", "expected": 4, "actual": 9}),
        ),
        ErrorKind::QuotaExceeded => (
            "ip.allocate",
            allocate,
            "`db/0` holds 8 reservations in network `lan`, its limit is 8",
            json!({"network": "lan", "max": 8}),
        ),
        ErrorKind::Brake => (
            "claimant.sweep",
            json!({"scope": "prod", "alive": []}),
            "the sweep would release 40 of 50 reservations, more than a share of 0.2",
            json!({"would_release": 40}),
        ),
        ErrorKind::CursorLost => {
            ("events.watch", json!({"since": "x9"}), "the history before `c3` is gone", json!({"last_common": "c3"}))
        }
        ErrorKind::Unavailable => ("ip.allocate", allocate, "the store does not answer", json!({"applied": "unknown"})),
        ErrorKind::Overloaded => {
            ("ip.allocate", allocate, "8192 requests wait for network `lan`", json!({"retry_after_ms": 250}))
        }
        ErrorKind::NotReady => (
            "ip.allocate",
            allocate,
            "the server is loading its networks",
            json!({"reason": "loading", "retry_after_ms": 2000}),
        ),
        ErrorKind::Moved => {
            ("ip.allocate", allocate, "node `b` serves network `lan`", json!({"node": "b", "address": "10.1.0.2:7400"}))
        }
        ErrorKind::NetworkStopped => {
            ("ip.allocate", allocate, "network `lan` was stopped: its self-check failed", json!({"network": "lan"}))
        }
        ErrorKind::RateLimited => {
            ("ip.allocate", allocate, "more than 100 requests a second", json!({"retry_after_ms": 900}))
        }
        ErrorKind::Unauthenticated => ("ip.allocate", allocate, "this server wants a token", json!({})),
        ErrorKind::PermissionDenied => {
            ("network.delete", json!({"network": "lan"}), "token `ci` may not delete networks", json!({}))
        }
        ErrorKind::LineTooLong => {
            ("ip.acquire", json!({"owner": "a", "ips": []}), "the line is longer than 1048576 bytes", json!({}))
        }
    }
}

/// Does a hint name something to type or to set?
fn names_a_remedy(hint: &str) -> bool {
    hint.contains("`allod ") || hint.contains("`--") || hint.contains("(setting `") || hint.contains("the setting `")
}

#[test]
fn every_kind_is_printed_with_a_hint_that_names_a_command_or_a_setting() {
    let mut text = String::new();
    for &kind in ErrorKind::ALL {
        let (method, params, message, facts) = example(kind);
        let error = RpcError::from_value(&refusal(kind, message, facts));
        let failure = Failure::of_method(method, &params, &ClientError::Rpc(error));
        assert!(names_a_remedy(&failure.hint), "{kind}: {}", failure.hint);
        text.push_str(&format!("# {kind}, exit {}\n{}\n", failure.exit as u8, failure.text()));
    }
    golden("errors.txt", &text);
}

#[test]
fn a_register_that_waits_to_be_accepted_is_told_apart_from_a_store_that_fails() {
    let hint = |kind: ErrorKind, data: Value| {
        let error = RpcError::from_value(&refusal(kind, "why", data));
        Failure::of_method("ip.allocate", &json!({"network": "lan"}), &ClientError::Rpc(error)).hint
    };
    let restored = hint(ErrorKind::NotReady, json!({"reason": "restored"}));
    assert!(restored.contains("`allod ip claim") && restored.contains("`--accept-restored`"), "{restored}");
    assert!(hint(ErrorKind::Unavailable, json!({"applied": false})).contains("`allod doctor`"));
}

/// The client's error when the outcome of a call is unknown.
fn unknown(cause: ClientError) -> ClientError {
    ClientError::Unknown { method: "ip.release".into(), cause: Box::new(cause), look: "look with `ip.get`" }
}

/// The last try got no answer, but why an earlier one was refused is known.
#[test]
fn what_a_call_was_refused_with_before_its_time_was_over_is_told_with_its_facts() {
    let refused = |kind| {
        ClientError::Rpc(RpcError::from_value(&refusal(kind, "the store is away", json!({"applied": "unknown"}))))
    };
    for error in [refused(ErrorKind::Unavailable), unknown(refused(ErrorKind::NotReady))] {
        let failure = Failure::of_method("ip.release", &json!({"network": "lan", "owner": "web/0"}), &error);
        assert_eq!(failure.exit as u8, 1, "{error}");
        assert!(failure.text().contains("the store is away"), "{}", failure.text());
        assert!(failure.json().contains(r#""applied":"unknown""#), "{}", failure.json());
    }
}

/// What is refused before it is looked at, or by a store that is away, changes nothing; but that is said of one try, and nobody
/// answered the other.
#[test]
fn a_refusal_of_one_try_is_not_said_to_be_the_end_of_a_call_that_another_may_have_carried_out() {
    let unavailable = (ErrorKind::Unavailable, "nothing was changed: the disk is full", json!({"applied": false}));
    let not_begun = [ErrorKind::Overloaded, ErrorKind::NotReady, ErrorKind::RateLimited]
        .map(|kind| (kind, "8192 requests wait", json!({"retry_after_ms": 50})));
    let params = json!({"network": "lan", "owner": "web/0"});
    for (kind, message, facts) in not_begun.into_iter().chain([unavailable]) {
        let of_one_try = RpcError::from_value(&refusal(kind, message, facts));
        let refused = ClientError::Rpc(of_one_try.in_doubt());
        let release = Failure::of_method("ip.release", &params, &unknown(refused.clone()));
        let allocate = Failure::of_method("ip.allocate", &params, &refused);
        let drain = Failure::of_method("cluster.drain", &json!({"node": "c"}), &refused);
        for (said, what_to_do) in [
            (release, "look first"),
            (allocate, "it is safe to repeat"),
            (drain, "`allod cluster nodes` shows how far"),
        ] {
            let both = format!(": one try got no answer, and another was refused: {message}");
            let (text, json) = (said.text(), said.json());
            assert!(text.contains(&both) && json.contains(&both[2..]), "{kind}: {text}{json}");
            assert!(!said.hint.contains("nothing was changed") && !said.hint.contains("try again"), "{kind}: {text}");
            assert!(said.hint.contains(what_to_do) && json.contains(r#""applied":"unknown""#), "{kind}: {text}{json}");
        }
        // A repeat whose refusal the first try may have caused.
        let repeat = Failure::of_method("ip.release", &params, &unknown(ClientError::Rpc(of_one_try))).text();
        let both = format!(": the answer was lost, and a repeat was refused: {message}");
        assert!(repeat.contains(&both) && repeat.contains("look first"), "{kind}: {repeat}");
        // Of a call that asks the same at any time nothing is in doubt.
        let read = ClientError::Rpc(RpcError::from_value(&refusal(kind, "why", json!({"retry_after_ms": 50}))));
        let is_begun = kind == ErrorKind::Unavailable;
        assert!(is_begun || Failure::of_method("ip.list", &params, &read).hint.contains("try again in 1 s"), "{kind}");
    }
    // A store that does not know itself: its message says so.
    let by_itself = json!({"applied": "unknown"});
    let by_itself = RpcError::from_value(&refusal(ErrorKind::Unavailable, "nobody knows", by_itself));
    assert_eq!(by_itself.in_doubt(), by_itself);
}

#[test]
fn what_is_not_there_is_looked_for_where_it_would_be() {
    let looked = |method: &str, message: &str| {
        let params = json!({"network": "lan", "owner": "web/0", "subnet": "nope"});
        let error = RpcError::from_value(&refusal(ErrorKind::NotFound, message, json!({})));
        Failure::of_method(method, &params, &ClientError::Rpc(error)).hint
    };
    let subnets = "`allod network get lan` shows its subnets and pools";
    assert_eq!(looked("ip.allocate", "subnet `nope` does not exist"), subnets);
    assert_eq!(looked("network.map", "pool `nope` does not exist"), subnets);
    assert_eq!(
        looked("ip.renew", "reservation `10.0.0.9` does not exist"),
        "`allod ip list --network lan` shows what is held there"
    );
    let remembered = looked("network.restore", "network `lan` does not exist");
    assert_eq!(remembered, "`allod network list --deleted` shows those that can be restored, by their ids");
}

/// The drain goes on although nobody waits for it, and may be done later.
#[test]
fn a_node_of_which_nobody_knows_whether_it_went_out_of_service_is_not_said_to_stay() {
    let said = |params: Value, error: &ClientError| Failure::of_method("cluster.drain", &params, error).text();
    let timed_out = ClientError::TimedOut { method: "cluster.drain".into(), seconds: 30 };
    let unanswered = refusal(ErrorKind::Unavailable, "no answer", json!({"applied": "unknown"}));
    for error in [timed_out, ClientError::Rpc(RpcError::from_value(&unanswered))] {
        let out = said(json!({"node": "c"}), &error);
        assert!(out.starts_with("allod: cannot tell whether `c` is out of service: no answer"), "{out}");
        let back = said(json!({"drain": false}), &error);
        assert!(back.starts_with("allod: cannot tell whether the node is back in service: no answer"), "{back}");
    }
    let refused = refusal(ErrorKind::Unavailable, "nothing was changed", json!({"applied": false}));
    let refused = said(json!({"node": "c"}), &ClientError::Rpc(RpcError::from_value(&refused)));
    assert!(refused.starts_with("allod: cannot take `c` out of service: nothing was changed"), "{refused}");
    assert!(refused.contains("hint: nothing was changed; `allod cluster nodes`"), "{refused}");
}

#[test]
fn every_way_to_lose_a_server_is_printed() {
    let errors = [
        ClientError::Connect { address: "127.0.0.1:7400".into(), cause: "connection refused".into() },
        ClientError::NotSent { cause: "key must be a string".into() },
        ClientError::Lost { cause: "the connection was closed".into() },
        ClientError::TimedOut { method: "ip.release".into(), seconds: 30 },
        ClientError::Malformed { cause: "`HTTP/1.1 400 Bad Request`".into() },
        unknown(ClientError::Lost { cause: "the connection was closed".into() }),
        unknown(ClientError::Rpc(RpcError::from_value(&refusal(
            ErrorKind::Conflict,
            "10.0.0.7 is at generation 9, not 4: it has changed hands since",
            json!({}),
        )))),
    ];
    let mut text = String::new();
    for error in errors {
        for method in ["ip.allocate", "ip.release"] {
            let failure = Failure::of_method(method, &json!({"network": "lan", "owner": "web/0"}), &error);
            assert!(names_a_remedy(&failure.hint), "{error}: {}", failure.hint);
            assert_eq!(failure.exit as u8, 3);
            text.push_str(&format!("# {method}, exit 3\n{}\n", failure.text()));
        }
    }
    golden("lost.txt", &text);
}
