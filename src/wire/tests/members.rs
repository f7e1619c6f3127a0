//! Which member of the params is wrong, and what the error says about it.

use crate::wire::errors::ErrorKind;
use crate::wire::methods::parse;

/// Method, params, the member that is wrong, and a part of the message.
#[rustfmt::skip]
const REFUSED: &[(&str, &str, &str, &str)] = &[
    // Missing.
    ("ip.allocate", r#"{"owner":"web/0"}"#, "network", "`network` is missing"),
    ("ip.allocate", r#"{}"#, "network", "is missing"),
    ("ip.claim", r#"{"network":"lan","owner":"a"}"#, "address", "is missing"),
    ("ip.renew", r#"{"network":"lan","address":"10.0.0.5"}"#, "ttl_seconds", "is missing"),
    ("ip.transfer", r#"{"network":"lan","address":"10.0.0.5","owner":"a","to":{"slot":"1"}}"#, "to.owner", "is missing"),
    ("network.create", r#"{"name":"lan","subnets":[{"name":"a"}]}"#, "subnets[0].cidr", "is missing"),
    // Unknown, at every depth.
    ("ip.allocate", r#"{"network":"lan","ownr":"web/0"}"#, "ownr", "did you mean `owner`?"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","zzzzzz":1}"#, "zzzzzz", "known are `network`"),
    ("network.create", r#"{"name":"lan","subnets":[{"cidr":"10.0.0.0/24","gatway":"10.0.0.1"}]}"#, "subnets[0].gatway", "did you mean `gateway`?"),
    ("network.create", r#"{"name":"lan","subnets":[{"cidr":"10.0.0.0/24","pools":[{"range":"10.0.0.1","x":1}]}]}"#, "subnets[0].pools[0].x", "is not a member"),
    ("network.update", r#"{"network":"lan","set":{"realm":"x"}}"#, "set.realm", "is not a member"),
    ("network.update", r#"{"network":"lan","set":{"l2":{"mod":"x"}}}"#, "set.l2.mod", "did you mean `mode`?"),
    ("network.update", r#"{"network":"lan","set":{"subnets":[{},{"gatewy":"x"}]}}"#, "set.subnets[1].gatewy", "did you mean `gateway`?"),
    ("ip.acquire", r#"{"owner":"a","ips":[{},{"netwrk":"x"}]}"#, "ips[1].netwrk", "did you mean `network`?"),
    ("ip.get", r#"{"address":"10.0.0.1","dry_run":true}"#, "dry_run", "is not a member"),
    ("server.ping", r#"{"x":1}"#, "x", "is not a member"),
    ("server.ping", r#"{"":1}"#, "", "is not a member"),
    // Given twice.
    ("ip.allocate", r#"{"network":"lan","network":"lan","owner":"a"}"#, "network", "is given twice"),
    ("ip.claim", r#"{"network":"lan","owner":"a","address":"10.0.0.1","note":"a","note":"b"}"#, "note", "is given twice"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","labels":{"k":"1","k":"2"}}"#, "labels.k", "is given twice"),
    ("ip.transfer", r#"{"network":"lan","address":"10.0.0.5","owner":"a","to":{"owner":"b","owner":"c"}}"#, "to.owner", "is given twice"),
    // Null.
    ("ip.allocate", r#"{"network":null,"owner":"a"}"#, "network", "must be the name or id of a network, not null"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","scope":null}"#, "scope", "must be a scope, not null"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","ttl_seconds":null}"#, "ttl_seconds", "not null"),
    ("ip.update", r#"{"network":"lan","address":"10.0.0.5","set":null}"#, "set", "must be an object, not null"),
    ("subnet.modify", r#"{"network":"lan","subnet":"a","set":{"cidr":null}}"#, "set.cidr", "not null"),
    ("network.create", r#"{"name":"lan","tags":{"k":null}}"#, "tags.k", "not null"),
    // Wrong type.
    ("ip.allocate", r#"{"network":5,"owner":"a"}"#, "network", "not 5"),
    ("ip.allocate", r#"{"network":"lan","owner":["a"]}"#, "owner", "must be an owner, not a list"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","brief":"yes"}"#, "brief", "must be true or false, not string \"yes\""),
    ("ip.allocate", r#"{"network":"lan","owner":"a","brief":1}"#, "brief", "must be true or false"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","ttl_seconds":"60"}"#, "ttl_seconds", "must be a whole number from 1 to"),
    ("ip.transfer", r#"{"network":"lan","address":"10.0.0.5","owner":"a","to":["b"]}"#, "to", "must be an object, not a list"),
    ("network.create", r#"{"name":"lan","kind":{"manual":null}}"#, "kind", "must be one of `manual` `dynamic` `vip`, not an object"),
    ("network.create", r#"{"name":"lan","subnets":[["10.0.0.0/24"]]}"#, "subnets[0]", "must be an object, not a list"),
    // Numbers out of bounds, fractions, and huge numbers.
    ("ip.allocate", r#"{"network":"lan","owner":"a","ttl_seconds":0}"#, "ttl_seconds", "must be a whole number from 1 to 3162240000, not 0"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","ttl_seconds":-5}"#, "ttl_seconds", "not -5"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","ttl_seconds":1.5}"#, "ttl_seconds", "not 1.5"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","ttl_seconds":60.0}"#, "ttl_seconds", "not 60.0"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","ttl_seconds":18446744073709551616}"#, "ttl_seconds", "must be a whole number"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","ttl_seconds":1e999}"#, "ttl_seconds", "out of range"),
    ("ip.renew", r#"{"network":"lan","owner":"a","ttl_seconds":0}"#, "ttl_seconds", "not 0"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","prefix_length":129}"#, "prefix_length", "from 0 to 128, not 129"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","family":5}"#, "family", "must be 4 or 6, not 5"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","family":"4"}"#, "family", "must be 4 or 6, not string"),
    ("ip.list", r#"{"limit":0}"#, "limit", "from 1 to 10000, not 0"),
    ("ip.list", r#"{"limit":10001}"#, "limit", "not 10001"),
    ("ip.get", r#"{"address":"10.0.0.1","deadline_ms":0}"#, "deadline_ms", "not 0"),
    // Texts.
    ("ip.get", concat!(r#"{"address":""#, "1111111111", "1111111111", "1111111111", "1111111111", "1111111111", "1111111111",
        "1111111111", "1111111111", "1111111111", r#""}"#), "address", "1111111111…\", not an"),
    ("ip.allocate", r#"{"network":"lan","owner":"a\tb"}"#, "owner", r"has the character '\t' at position 1; only printable characters"),
    ("ip.allocate", r#"{"network":"lan","owner":""}"#, "owner", "`owner` must not be empty"),
    ("ip.allocate", r#"{"network":"lan","owner":"\ud800"}"#, "owner", "cannot be read"),
    ("ip.allocate", r#"{"network":"a b","owner":"a"}"#, "network", "has the character ' ' at position 1"),
    ("ip.allocate", r#"{"network":"10.0.0.1","owner":"a"}"#, "network", "reads as an address"),
    ("ip.claim", r#"{"network":"lan","owner":"a","address":"010.0.0.1"}"#, "address", "leading zeros"),
    ("ip.claim", r#"{"network":"lan","owner":"a","address":"::ffff:10.0.0.1"}"#, "address", "IPv4-mapped"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","subnet":"10.0.0.5/24"}"#, "subnet", "the prefix is 10.0.0.0/24"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","pool":"10.0.0.9-10.0.0.1"}"#, "pool", "ends before it begins"),
    ("subnet.add", r#"{"network":"lan","cidr":"10.0.0.1/24"}"#, "cidr", "host bits"),
    ("network.create", r#"{"name":"lan","policy":"first"}"#, "policy", r#"must be "lowest", "random" or "oldest", not "first""#),
    ("network.create", r#"{"name":"lan","subnets":[{"cidr":"10.0.0.0/24","dns":{"servers":["10.0.0.1","x"]}}]}"#, "subnets[0].dns.servers[1]", "not an address"),
    ("network.create", r#"{"name":"lan","l2":{"mac_prefix":"5"}}"#, "l2.mac_prefix", "three bytes of a MAC"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","mac":"automatic"}"#, "mac", "neither \"auto\" nor a MAC"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","hostname":"a..b"}"#, "hostname", "empty part"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","labels":{"":"x"}}"#, "labels.", "is not a valid key: it must not be empty"),
    ("ip.allocate", r#"{"network":"lan","owner":"a","labels":{"k":5}}"#, "labels.k", "must be a text, not 5"),
    ("ip.list", r#"{"label":"=v"}"#, "label", "whose key must not be empty"),
    ("ip.list", r#"{"expires_before":"2026-03-01T09:12:44Z"}"#, "expires_before", "three digits of milliseconds"),
    // Lists.
    ("ip.acquire", r#"{"owner":"a","ips":[]}"#, "ips", "must have 1 to 256 entries, not 0"),
    ("ip.acquire", r#"{"owner":"a","ips":{}}"#, "ips", "must be a list, not an object"),
];

#[test]
fn a_refusal_names_the_member_and_says_what_is_wrong_with_it() {
    for &(method, params, field, part) in REFUSED {
        let error = parse(method, params).expect_err(params);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{params}");
        assert_eq!(error.data.field.as_deref(), Some(field), "{params}: {}", error.message);
        assert!(error.message.contains(part), "{params}: {}", error.message);
        assert!(error.message.starts_with(method), "{}", error.message);
    }
}

#[test]
fn a_refusal_of_one_of_several_addresses_tells_which() {
    for (ips, index) in [(r#"[{},{"address":"x"}]"#, Some(1)), (r#"[{"netwrk":"x"}]"#, Some(0)), ("[]", None)] {
        let error = parse("ip.acquire", &format!(r#"{{"owner":"a","ips":{ips}}}"#)).unwrap_err();
        assert_eq!(error.data.index, index, "{ips}");
    }
}

#[test]
fn lists_and_labels_are_bounded() {
    let many = |count: usize, one: &str| vec![one; count].join(",");
    let ips = |count| format!(r#"{{"owner":"a","ips":[{}]}}"#, many(count, "{}"));
    assert!(parse("ip.acquire", &ips(256)).is_ok());
    let error = parse("ip.acquire", &ips(257)).unwrap_err();
    assert_eq!((error.data.field.as_deref(), error.message.contains("more than 256")), (Some("ips"), true));

    let labels = |count: usize| {
        let entries: Vec<String> = (0..count).map(|at| format!(r#""k{at}":"""#)).collect();
        format!(r#"{{"network":"lan","owner":"a","labels":{{{}}}}}"#, entries.join(","))
    };
    assert!(parse("ip.allocate", &labels(32)).is_ok());
    assert_eq!(parse("ip.allocate", &labels(33)).unwrap_err().data.field.as_deref(), Some("labels"));
    // A patch may remove as many entries as it adds.
    let patch = |texts: usize, nulls: usize| {
        let text = (0..texts).map(|at| format!(r#""k{at}":"""#));
        let entries: Vec<String> = text.chain((0..nulls).map(|at| format!(r#""n{at}":null"#))).collect();
        format!(r#"{{"network":"lan","owner":"a","set":{{"labels":{{{}}}}}}}"#, entries.join(","))
    };
    assert!(parse("ip.update", &patch(32, 32)).is_ok());
    for (texts, nulls, part) in [(32, 33, "more than 64"), (33, 0, "more than 32")] {
        let error = parse("ip.update", &patch(texts, nulls)).unwrap_err();
        assert_eq!(
            (error.data.field.as_deref(), error.message.contains(part)),
            (Some("set.labels"), true),
            "{error:?}"
        );
    }

    let text =
        |member: &str, bytes: usize| format!(r#"{{"network":"lan","owner":"a","{member}":"{}"}}"#, "x".repeat(bytes));
    for (member, max) in [("note", 1024), ("reason", 256), ("slot", 256), ("claimant", 256), ("owner_uid", 256)] {
        assert!(parse("ip.allocate", &text(member, max)).is_ok(), "{member}");
        let error = parse("ip.allocate", &text(member, max + 1)).unwrap_err();
        assert_eq!(error.data.field.as_deref(), Some(member));
        assert!(error.message.contains(&format!("at most {max}")), "{}", error.message);
    }
}

/// A wrong name may be as long as a body, and an answer may not.
#[test]
fn of_a_name_that_is_too_long_only_the_beginning_is_answered() {
    let long = "é".repeat(3 << 20);
    for (method, params, before) in [
        ("server.ping", format!(r#"{{"{long}":1}}"#), ""),
        ("ip.transfer", format!(r#"{{"to":{{"{long}":1}}}}"#), "to."),
        ("ip.acquire", format!(r#"{{"owner":"a","ips":[{{}},{{"{long}":1}}]}}"#), "ips[1]."),
        ("network.update", format!(r#"{{"network":"n","set":{{"subnets":[{{"{long}":{{}}}}]}}}}"#), "set.subnets[0]."),
        ("ip.allocate", format!(r#"{{"labels":{{"{long}":"v"}}}}"#), "labels."),
        ("ip.update", format!(r#"{{"set":{{"labels":{{"{long}":null}}}}}}"#), "set.labels."),
    ] {
        let error = parse(method, &params).unwrap_err();
        let field = format!("{before}{}…", "é".repeat(80));
        assert!(error.data.field.as_ref() == Some(&field), "{method}: {:.200}", error.message);
        let answer = serde_json::to_string(&error).unwrap();
        assert!(answer.len() < 4_096, "{method}: {} bytes", answer.len());
    }
    // A name may contain what follows names in serde's texts.
    let error = parse("server.ping", &format!(r#"{{"x`, expected `{long}`, there are no fields":1}}"#)).unwrap_err();
    let answer = serde_json::to_string(&error).unwrap();
    assert!(error.data.field.unwrap().starts_with("x`, expected `é") && answer.len() < 4_096, "{} bytes", answer.len());
    // The longest key of a label is told whole.
    let key = "k".repeat(128);
    let error = parse("ip.allocate", &format!(r#"{{"labels":{{"{key}":5}}}}"#)).unwrap_err();
    assert_eq!(error.data.field, Some(format!("labels.{key}")));
}

#[test]
fn params_of_any_depth_are_refused_and_never_crash() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let deep = format!(r#"{{"network":"lan","owner":{}1{}}}"#, open.repeat(100_000), close.repeat(100_000));
        assert_eq!(parse("ip.allocate", &deep).unwrap_err().data.field.as_deref(), Some("owner"));
        let deep = format!(r#"{{"network":"lan","deep":{}1{}}}"#, open.repeat(100_000), close.repeat(100_000));
        assert_eq!(parse("ip.allocate", &deep).unwrap_err().data.field.as_deref(), Some("deep"));
    }
}

#[test]
fn an_unknown_method_is_met_with_the_nearest_known_one() {
    for (asked, part) in [
        ("ip.alocate", "did you mean `ip.allocate`"),
        ("inventory.compare", "not served by this version"),
        ("", "there is no method ``"),
        ("xyz", "rpc.discover"),
        ("IP.ALLOCATE", "did you mean `ip.allocate`"),
    ] {
        let error = parse(asked, "{}").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MethodNotFound);
        assert!(error.message.contains(part), "{}", error.message);
    }
}

#[test]
fn null_is_taken_where_the_protocol_says_so() {
    for (method, params) in [
        ("ip.renew", r#"{"network":"lan","owner":"a","ttl_seconds":null}"#),
        (
            "subnet.modify",
            r#"{"network":"lan","subnet":"a","set":{"gateway":null,"name":null,"dns":null,"zones":null,"tags":{"k":null}}}"#,
        ),
        (
            "network.update",
            r#"{"network":"lan","set":{"l2":{"mode":null},"limits":null,"tags":null,"description":null}}"#,
        ),
        (
            "network.update",
            r#"{"network":"lan","set":{"subnets":[{"gateway":null,"name":"a","dns":null,"zones":null,"tags":{"k":null}}]}}"#,
        ),
        (
            "ip.update",
            r#"{"network":"lan","address":"10.0.0.1","set":{"labels":{"k":null},"note":null,"hostname":null,"mac":null,"owner_uid":null}}"#,
        ),
    ] {
        let request = parse(method, params).unwrap_or_else(|error| panic!("{error}"));
        // Null and absent are told apart, also when written again.
        assert_eq!(request.params_json().unwrap(), params);
    }
}
