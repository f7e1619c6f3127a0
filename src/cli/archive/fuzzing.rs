//! Malformed exports: each line of any file is either read or refused with a message.

use serde_json::{Value, json};

use super::lines::{Content, read};
use crate::wire::tests::mutation::Fuzzer;

const EXPORT: &str = r#"{"format":"allod-export","version":2}
{"network":{"name":"lan","policy":"random","limits":{"per_owner":2},"subnets":[{"cidr":"10.0.0.0/24","gateway":"10.0.0.1","draining":true,"pools":[{"range":"10.0.0.10-10.0.0.20","name":"p","draining":true}],"reserved":[{"range":"10.0.0.12-10.0.0.12","note":"printer"}]}]}}
{"network":{"name":"six","subnets":[{"cidr":"2001:db8::/64"}]}}
{"reservation":{"network":"lan","address":"10.0.0.10","scope":"s","owner":"a","slot":"1","kind":"dynamic","labels":{"k":"v"},"note":"n","hostname":"h","mac":"52:54:00:12:34:56"}}
{"reservation":{"network":"lan","address":"10.0.0.16","prefix_length":30,"owner":"b","claimant":"vm","release_with_claimant":true,"transient":true,"expires_in_seconds":5}}
{"reservation":{"network":"six","address":"2001:db8::5","owner":"c","owner_uid":"u"}}
{"end":{"networks":2,"reservations":3}}"#;

/// The same file again, written from the parsed content.
fn written(content: &Content) -> String {
    let mut lines = vec![json!({"format": "allod-export", "version": 1}).to_string()];
    lines.extend(content.networks.iter().map(|network| json!({"network": network.table.members}).to_string()));
    lines.extend(content.claims.iter().map(|claim| {
        let mut held = claim.params.clone();
        held.shift_remove("force");
        if let Some(ttl) = held.shift_remove("ttl_seconds") {
            held.insert("expires_in_seconds".to_owned(), ttl);
        }
        json!({ "reservation": held }).to_string()
    }));
    lines.join("\n")
}

fn check_text(text: &str) -> bool {
    let mut content = read(text);
    content.check(&[]);
    let count = text.lines().count().max(1);
    for (line, problem) in &content.problems {
        assert!((1..=count).contains(line) && !problem.trim().is_empty(), "line {line} of {count}: {problem:?}");
    }
    if !content.problems.is_empty() {
        return false;
    }
    let mut again = read(written(&content));
    again.check(&[]);
    assert!(again.problems.is_empty(), "{:?}", again.problems);
    let params = |content: &Content| content.claims.iter().map(|claim| claim.params.clone()).collect::<Vec<_>>();
    assert_eq!(params(&again), params(&content));
    let tables = |content: &Content| {
        let members = content.networks.iter().map(|network| Value::Object(network.table.members.clone()));
        members.collect::<Vec<_>>()
    };
    assert_eq!(tables(&again), tables(&content));
    !content.networks.is_empty()
}

#[test]
fn fuzzing_the_reader_of_exports_finds_no_panic() {
    Fuzzer::over(vec![EXPORT.to_owned()]).run(check_text);
}

#[test]
fn a_line_that_is_too_deep_is_refused_and_the_others_are_read() {
    let deep = format!(r#"{{"reservation":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let mut lines: Vec<&str> = EXPORT.lines().collect();
    lines.push(&deep);
    let content = read(lines.join("\n"));
    assert_eq!((content.claims.len(), content.problems.len()), (3, 1));
    assert!(content.problems.contains_key(&lines.len()));
}
