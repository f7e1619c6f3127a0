//! The cost of an allocation in instructions is recorded, and compared with the recorded cost.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::liar::Liar;
use crate::program::{is_there, load, ready, said, write_script};
use crate::skips::skip;

/// Few requests, because the server is a debug build, and each of its runs starts and ends under valgrind.
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

    // As if the server had been twice as fast when it was recorded, with another compiler.
    recorded["memory"] = json!({"instructions": count / 2, "compiler": "rustc version 1.0.0"});
    std::fs::write(&file, recorded.to_string()).unwrap();
    let output = instructions(&file, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for told in [(count / 2).to_string().as_str(), "too much", "rustc version 1.0.0", "--record", "--profile"] {
        assert!(said(&output).contains(told), "{told}: {}", said(&output));
    }
}

#[test]
fn a_count_that_is_too_large_remains_the_outcome_whatever_fails_afterwards() {
    let liar = Liar::who(|_, answer| vec![answer]);
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    // A fake valgrind that counts a million more in each run, and runs the command after its options.
    let valgrind = format!(
        "[ \"$1\" = --version ] && exit; for word; do case $word in --callgrind-out-file=*) file=${{word#*=}};; esac; done; \
         echo >> {runs}; echo \"totals: $(wc -l < {runs})000000\" > \"$file\"; \
         while [ \"${{1#--}}\" != \"$1\" ]; do shift; done; exec \"$@\"",
        runs = at("runs").display()
    );
    write_script(&at("valgrind"), &valgrind);
    write_script(&at("allod"), &ready(liar.address));
    let recorded = json!({"memory": {"instructions": 1, "compiler": "rustc version 1.0.0"}});
    std::fs::write(at("recorded.json"), recorded.to_string()).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let words = ["instructions", "--store", "memory,embedded", "--requests", "64,320", "--program"];
    let mut command = load();
    command.args(words).arg(at("allod")).arg("--file").arg(at("recorded.json")).env("PATH", path);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for told in ["too much", "no count is recorded for embedded"] {
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
        (load().args(["instructions", "--record", "--file", "/nowhere/at/all.json"]).output().unwrap(), "/nowhere/at"),
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
