//! What an allocation costs in instructions: recorded, and compared with what is recorded.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::program::{is_there, load, said};
use crate::skips::skip;

/// Few requests, for the server is a debug build, and each run of it begins and ends under valgrind.
fn instructions(file: &Path, more: &[&str]) -> Output {
    let words = ["instructions", "--store", "memory", "--requests", "64,320", "--file"];
    load().args(words).arg(file).args(more).output().unwrap()
}

#[test]
fn a_count_is_recorded_and_one_that_is_a_tenth_above_the_record_fails() {
    if !is_there("valgrind") {
        return skip("there is no valgrind");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("instructions.json");
    let output = instructions(&file, &["--record"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let mut recorded: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let count = recorded["memory"]["instructions"].as_u64().unwrap();
    assert!(count > 10_000, "a debug build allocates in {count} instructions?");
    assert!(recorded["memory"]["compiler"].as_str().unwrap().starts_with("rustc version 1."), "{recorded}");

    // As if it had been twice as fast when it was recorded, by another compiler.
    recorded["memory"] = json!({"instructions": count / 2, "compiler": "rustc version 1.0.0"});
    std::fs::write(&file, recorded.to_string()).unwrap();
    let output = instructions(&file, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for told in [(count / 2).to_string().as_str(), "too much", "rustc version 1.0.0", "--record", "--profile"] {
        assert!(said(&output).contains(told), "{told}: {}", said(&output));
    }
}

#[test]
fn what_is_missing_to_count_is_named() {
    let file = Path::new("nowhere.json");
    for (output, told) in [
        (instructions(file, &["--program", "nowhere/allod"]), "nowhere/allod"),
        (load().args(["instructions", "--requests", "5,5"]).output().unwrap(), "the larger"),
        (load().arg("instructions").env("PATH", "").output().unwrap(), "valgrind"),
    ] {
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(told), "{told}: {}", said(&output));
    }
    if is_there("valgrind") {
        let output = instructions(file, &[]);
        assert_eq!(
            (output.status.code(), said(&output).contains("nowhere.json")),
            (Some(2), true),
            "{}",
            said(&output)
        );
    }
}
