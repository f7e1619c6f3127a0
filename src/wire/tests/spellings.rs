//! Values: which spellings are accepted, and which are refused.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::address::{Address, Cidr, Family, Range};
use crate::core::types::{Generation, Mac, Name, NetworkId, Owner, Version};
use crate::wire::values::*;

/// Each spelling (JSON) is accepted, and written as the second one.
#[track_caller]
fn taken<T: DeserializeOwned + Serialize + Debug + PartialEq>(cases: &[(&str, &str)]) {
    for (given, written) in cases {
        let value: T = serde_json::from_str(given).unwrap_or_else(|error| panic!("{given}: {error}"));
        assert_eq!(serde_json::to_string(&value).unwrap(), *written, "{given}");
        assert_eq!(serde_json::from_str::<T>(written).unwrap(), value, "{written}");
    }
}

#[track_caller]
fn refused<T: DeserializeOwned + Debug>(cases: &[&str]) {
    for given in cases {
        let value = serde_json::from_str::<T>(given);
        assert!(value.is_err(), "{given} was taken as {value:?}");
    }
}

const NO_TEXTS: &[&str] = &["1", "null", "[]", "{}", "true", "1.5", r#"["a"]"#];

#[test]
fn addresses_prefixes_and_ranges() {
    taken::<Address>(&[(r#""10.0.0.5""#, r#""10.0.0.5""#), (r#""2001:DB8:0::5""#, r#""2001:db8::5""#)]);
    refused::<Address>(NO_TEXTS);
    refused::<Address>(&[
        r#""10.0.0.05""#,
        r#""fe80::1%eth0""#,
        r#""::ffff:10.0.0.1""#,
        r#""10.0.0""#,
        r#"" 10.0.0.1""#,
    ]);
    taken::<Cidr>(&[(r#""10.0.0.0/24""#, r#""10.0.0.0/24""#), (r#""2001:DB8::/32""#, r#""2001:db8::/32""#)]);
    refused::<Cidr>(&[r#""10.0.0.1/24""#, r#""10.0.0.0""#, r#""10.0.0.0/33""#, r#""10.0.0.0/08""#, r#""10.0.0.0/""#]);
    taken::<Range>(&[
        (r#""10.0.0.10-10.0.0.20""#, r#""10.0.0.10-10.0.0.20""#),
        (r#""10.0.0.10+11""#, r#""10.0.0.10-10.0.0.20""#),
        (r#""10.0.0.0/30""#, r#""10.0.0.0-10.0.0.3""#),
        (r#""10.0.0.1""#, r#""10.0.0.1-10.0.0.1""#),
    ]);
    refused::<Range>(&[r#""10.0.0.2-10.0.0.1""#, r#""10.0.0.1-::1""#, r#""10.0.0.1+0""#, r#""255.255.255.255+2""#]);
}

#[test]
fn names_and_identities() {
    taken::<Name>(&[(r#""lan""#, r#""lan""#), (r#""a\u002fb""#, r#""a/b""#)]);
    refused::<Name>(&[r#""""#, r#""-a""#, r#""a b""#, r#""10.0.0.1""#]);
    taken::<Owner>(&[(r#""J\u00f6rg \"x\"""#, r#""Jörg \"x\"""#)]);
    refused::<Owner>(NO_TEXTS);
    refused::<Owner>(&[r#""""#, r#""  ""#, r#""a\nb""#, r#""a\u200bb""#, r#""\ud800""#]);
    taken::<NetworkId>(&[(r#""0f8fad5b-d9cb-469f-a165-70867728950e""#, r#""0f8fad5b-d9cb-469f-a165-70867728950e""#)]);
    refused::<NetworkId>(&[
        r#""0F8FAD5B-D9CB-469F-A165-70867728950E""#,
        r#""0f8fad5bd9cb469fa16570867728950e""#,
        r#""x""#,
    ]);
}

#[test]
fn references_say_what_they_are() {
    let id = r#""0f8fad5b-d9cb-469f-a165-70867728950e""#;
    assert!(matches!(serde_json::from_str(r#""lan""#).unwrap(), NetworkRef::Name(_)));
    assert!(matches!(serde_json::from_str(id).unwrap(), NetworkRef::Id(_)));
    // In capitals it is not an id, but still a name.
    assert!(matches!(serde_json::from_str(&id.to_uppercase()).unwrap(), NetworkRef::Name(_)));
    assert!(matches!(serde_json::from_str(r#""10.0.0.0/24""#).unwrap(), SubnetRef::Cidr(_)));
    assert!(matches!(serde_json::from_str(r#""web/front""#).unwrap(), SubnetRef::Name(_)));
    assert!(matches!(serde_json::from_str(id).unwrap(), SubnetRef::Id(_)));
    // A text that begins like an address was meant as one.
    refused::<SubnetRef>(&[r#""10.0.0.5/24""#, r#""10.0.0.1""#, r#""10.0.0.0-10.0.0.9""#, r#""""#]);
    assert!(matches!(serde_json::from_str(r#""10.0.0.0/24""#).unwrap(), PoolRef::Range(_)));
    assert!(matches!(serde_json::from_str(r#""10.0.0.1+4""#).unwrap(), PoolRef::Range(_)));
    assert!(matches!(serde_json::from_str(r#""web-1""#).unwrap(), PoolRef::Name(_)));
    refused::<PoolRef>(&[r#""10.0.0.5/24""#, r#""10.0.0.9-10.0.0.1""#, "5"]);
}

#[test]
fn macs() {
    taken::<Mac>(&[(r#""52-54-00-AB-CD-09""#, r#""52:54:00:ab:cd:09""#)]);
    refused::<Mac>(&[r#""auto""#, r#""52:54:00""#]);
    taken::<MacChoice>(&[(r#""auto""#, r#""auto""#), (r#""52:54:00:12:34:56""#, r#""52:54:00:12:34:56""#)]);
    refused::<MacChoice>(&[r#""AUTO""#, "null", r#""""#, r#""01:00:5e:00:00:01""#, r#""00:00:00:00:00:00""#]);
    // As in what was recorded earlier.
    taken::<Mac>(&[(r#""01:00:5e:00:00:01""#, r#""01:00:5e:00:00:01""#)]);
    taken::<MacPrefix>(&[(r#""01:00:5e""#, r#""01:00:5e""#)]);
    taken::<MacPrefix>(&[(r#""52:54:0A""#, r#""52:54:0a""#), (r#""52-54-00""#, r#""52:54:00""#)]);
    refused::<MacPrefix>(&[
        r#""""#,
        r#""5""#,
        r#""52""#,
        r#""52:54""#,
        r#""52:54:""#,
        r#""52:54-00""#,
        r#""52:54:00:12:34:56""#,
        r#""gg""#,
    ]);
}

#[test]
fn numbers_are_whole_and_in_bounds() {
    taken::<TtlSeconds>(&[("1", "1"), ("3162240000", "3162240000")]);
    refused::<TtlSeconds>(&["0", "-1", "1.0", "1.5", "1e2", "3162240001", "18446744073709551616", r#""5""#, "null"]);
    taken::<CooldownSeconds>(&[("0", "0")]);
    taken::<PrefixLength>(&[("0", "0"), ("128", "128")]);
    refused::<PrefixLength>(&["129", "-0.5"]);
    taken::<Serial>(&[("9007199254740991", "9007199254740991")]);
    refused::<Serial>(&["9007199254740992"]);
    taken::<Generation>(&[("7", "7")]);
    refused::<Version>(&["-7", "9007199254740992"]);
    taken::<Family>(&[("4", "4"), ("6", "6")]);
    refused::<Family>(&["5", r#""4""#, "4.0", "-4", "null"]);
    taken::<RenewTtl>(&[("null", "null"), ("60", "60")]);
    refused::<RenewTtl>(&["0", r#""60""#, "60.5", "[]"]);
    taken::<Share>(&[("0.2", "0.2"), ("1", "1.0"), ("0", "0.0")]);
    refused::<Share>(&["1.01", "-0.1", r#""0.2""#, "1e999"]);
}

#[test]
fn counts_of_addresses_are_decimal_texts() {
    let largest = format!("\"{}\"", u128::MAX);
    taken::<Count>(&[(r#""0""#, r#""0""#), (&largest, &largest)]);
    refused::<Count>(&[
        "5",
        r#""""#,
        r#""05""#,
        r#""+5""#,
        r#""-5""#,
        r#""1e3""#,
        r#""340282366920938463463374607431768211456""#,
    ]);
}

#[test]
fn times_are_utc_with_milliseconds() {
    taken::<Time>(&[
        (r#""2026-03-01T09:12:44.031Z""#, r#""2026-03-01T09:12:44.031Z""#),
        (r#""1970-01-01T00:00:00.000Z""#, r#""1970-01-01T00:00:00.000Z""#),
        (r#""2024-02-29T23:59:59.999Z""#, r#""2024-02-29T23:59:59.999Z""#),
    ]);
    assert_eq!(serde_json::to_string(&crate::core::types::WallTime(1_000)).unwrap(), r#""1970-01-01T00:00:01.000Z""#);
    assert!(serde_json::to_string(&crate::core::types::WallTime(u64::MAX)).unwrap().starts_with("\"9999-"));
    refused::<Time>(&[
        r#""2026-03-01T09:12:44Z""#,
        r#""2026-03-01T09:12:44.03Z""#,
        r#""2026-03-01T09:12:44.0310Z""#,
        r#""2026-03-01T09:12:44.031+00:00""#,
        r#""2026-03-01 09:12:44.031Z""#,
        r#""2026-03-01t09:12:44.031z""#,
        r#""2026-02-30T09:12:44.031Z""#,
        r#""2026-03-01T09:12:60.031Z""#,
        r#""1969-12-31T23:59:59.999Z""#,
        "0",
        r#""""#,
        r#""2026-03-01T09:12:44,031Z""#,
    ]);
}

#[test]
fn texts_labels_and_filters() {
    taken::<Note>(&[(r#""""#, r#""""#), (r#""a note""#, r#""a note""#)]);
    refused::<Note>(&[r#""two\nlines""#, "null"]);
    refused::<Word>(&[r#""""#]);
    taken::<Hostname>(&[(r#""web-1.example.org""#, r#""web-1.example.org""#), (r#""_dmarc.a""#, r#""_dmarc.a""#)]);
    refused::<Hostname>(&[r#""""#, r#"".""#, r#""a.""#, r#"".a""#, r#""-a""#, r#""a-""#, r#""a b""#, r#""ä""#]);
    refused::<Hostname>(&[&format!("\"{}\"", "a".repeat(64)), &format!("\"{}\"", ["a"; 128].join("."))]);
    taken::<LabelMap>(&[("{}", "{}"), (r#"{"b":"","a":"x"}"#, r#"{"a":"x","b":""}"#)]);
    refused::<LabelMap>(&[
        r#"{"a":1}"#,
        r#"{"a":null}"#,
        r#"{"":"x"}"#,
        r#"{"a":"x","a":"y"}"#,
        "[]",
        "null",
        r#"{"a\n":""}"#,
    ]);
    refused::<LabelMap>(&[&format!(r#"{{"{}":""}}"#, "k".repeat(129)), &format!(r#"{{"k":"{}"}}"#, "v".repeat(257))]);
    taken::<LabelPatch>(&[(r#"{"a":null,"b":"x"}"#, r#"{"a":null,"b":"x"}"#)]);
    refused::<LabelPatch>(&["null", r#"{"a":1}"#]);
    taken::<LabelFilter>(&[(r#""k""#, r#""k""#), (r#""k=v=w""#, r#""k=v=w""#), (r#""k=""#, r#""k=""#)]);
    refused::<LabelFilter>(&[r#""""#, r#""=v""#]);
}

#[test]
fn a_label_filter_asks_for_the_key_or_for_key_and_value() {
    let labels = [("k".into(), "v".into()), ("e".into(), "".into())].into();
    for (filter, passes) in [("k", true), ("k=v", true), ("k=", false), ("e=", true), ("x", false), ("x=", false)] {
        assert_eq!(filter.parse::<LabelFilter>().unwrap().matches(&labels), passes, "{filter}");
    }
}

#[test]
fn a_label_whose_key_has_an_equals_sign_is_found_by_its_key_and_by_its_value() {
    let labels = [("a=b".into(), "c=d".into()), ("a".into(), "x".into())].into();
    let found = ["a=b", "a=b=c=d", "a=x", "a"];
    let others = ["a=b=c", "a=b=", "a=", "a=b=c=d=", "b=c=d", "a=bc=d"];
    for (filter, passes) in found.map(|it| (it, true)).into_iter().chain(others.map(|it| (it, false))) {
        assert_eq!(filter.parse::<LabelFilter>().unwrap().matches(&labels), passes, "{filter}");
    }
    let longest = format!("{}=={}", "k".repeat(127), "v".repeat(256));
    let labels = [(format!("{}=", "k".repeat(127)).into(), "v".repeat(256).into())].into();
    assert!(longest.parse::<LabelFilter>().unwrap().matches(&labels));
}
