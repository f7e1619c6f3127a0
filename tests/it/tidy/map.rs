//! The map in `src/lib.rs` is true: its steps are those that modules claim, and its invariants name tests that run. The same
//! goes for the rules in `src/consistency.rs`, and comments name no other rules.

use std::collections::BTreeSet;

use super::assert_none;
use super::source::{Source, rust_files};

const MAP: &str = include_str!("../../../src/lib.rs");
/// How many rules the consistency of the register rests on.
const RULE_COUNT: usize = 26;
const RULES: &str = include_str!("../../../src/consistency.rs");

/// `//! Life of an ``ip.allocate``, steps 2 and 7 of 8`, in the head of a module.
const STEP: &str = "//! Life of an `ip.allocate`, step";

fn mapped_steps() -> BTreeSet<u32> {
    let number = |line: &str| line.strip_prefix("//! ")?.split_once(". ")?.0.parse().ok();
    MAP.lines().filter_map(number).collect()
}

#[test]
fn modules_agree_with_the_map_about_the_life_of_a_request() {
    let steps = mapped_steps();
    let last = steps.last().copied().unwrap_or_default();
    assert!(last > 0 && steps.len() as u32 == last, "{steps:?}");
    let (mut claimed, mut wrong) = (BTreeSet::new(), Vec::new());
    for source in rust_files("src") {
        for line in source.text.lines().filter_map(|line| line.strip_prefix(STEP)) {
            let numbers: Vec<u32> = line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
            match numbers.split_last() {
                Some((of, own)) if *of == last && !own.is_empty() => claimed.extend(own.iter().copied()),
                _ => wrong.push(format!("{}:{line}: the map has {last} steps", source.path)),
            }
        }
    }
    assert_none("steps are numbered as in src/lib.rs", wrong);
    assert_eq!(claimed, steps, "each step of the map is claimed by the head of a module");
}

/// Is there a test with this name, and does it run? It does by its attributes, or because a list of tests names it, like
/// that of the store contract.
fn is_run(code: &[Source], test: &str) -> bool {
    let head = format!("fn {test}(");
    let (mut is_there, mut is_listed) = (false, false);
    for source in code.iter().filter(|source| source.code.contains(test)) {
        let lines: Vec<&str> = source.code.lines().map(str::trim).collect();
        for at in (0..lines.len()).filter(|at| lines[*at].contains(test)) {
            if !lines[at].contains(&head) {
                is_listed |= lines[at].split(|c: char| c != '_' && !c.is_alphanumeric()).any(|word| word == test);
                continue;
            }
            let above = || lines[..at].iter().rev().take_while(|line| line.is_empty() || line.starts_with("#["));
            if above().any(|line| line.contains("test")) {
                return !above().any(|line| line.contains("ignore"));
            }
            is_there = true;
        }
    }
    is_there && is_listed
}

/// Names of tests in a text, each in backticks.
fn tests_in(text: &str) -> Vec<&str> {
    let is_test = |name: &&str| name.contains('_') && !name.contains([':', '.', '(']);
    text.split('`').skip(1).step_by(2).filter(is_test).collect()
}

#[test]
fn invariants_are_numbered_and_name_tests_that_run() {
    let (_, list) = MAP.split_once("# What always holds").expect("the map lists the invariants");
    let code: Vec<_> = ["src", "tests"].into_iter().flat_map(rust_files).collect();
    let mut missing = Vec::new();
    let invariants: Vec<&str> = list.split("//! - **I-").skip(1).collect();
    for (at, invariant) in invariants.iter().enumerate() {
        if !invariant.starts_with(&format!("{}**", at + 1)) {
            missing.push(format!("I-{} is not in its place", at + 1));
        }
        let tests = tests_in(invariant.split_once("Shown").map_or("", |(_, shown)| shown));
        if tests.is_empty() {
            missing.push(format!("I-{} names no test", at + 1));
        }
        let not_run = tests.into_iter().filter(|test| !is_run(&code, test));
        missing.extend(not_run.map(|test| format!("I-{}: there is no test `{test}` that runs", at + 1)));
    }
    assert_eq!(invariants.len(), 14);
    assert_none("each invariant of src/lib.rs names the tests that show it", missing);
}

#[test]
fn rules_name_tests_that_run_and_comments_name_rules_that_are_there() {
    let code: Vec<_> = ["src", "tests"].into_iter().flat_map(rust_files).collect();
    let texts: Vec<&str> = RULES.split("//! **R-").skip(1).collect();
    let rules: Vec<&str> = texts.iter().filter_map(|rule| rule.split('.').next()).collect();
    let mut wrong = Vec::new();
    // A negative control runs a model in which the rule is off: it passes whatever the product does.
    let is_control = |test: &&str| test.starts_with("without_");
    for (rule, _) in rules.iter().zip(&texts).filter(|(_, text)| tests_in(text).iter().all(is_control)) {
        wrong.push(format!("src/consistency.rs: R-{rule} names no test that fails where the product breaks it"));
    }
    let not_run = tests_in(RULES).into_iter().filter(|test| !is_run(&code, test));
    wrong.extend(not_run.map(|test| format!("src/consistency.rs: there is no test `{test}` that runs")));
    for source in &code {
        for comment in &source.comments {
            let named = comment.split(" R-").skip(1).chain(comment.split("(R-").skip(1));
            let numbers = named.map(|rest| &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]);
            let unknown = numbers.filter(|number| !number.is_empty() && !rules.contains(number));
            wrong.extend(unknown.map(|number| format!("{}: there is no rule R-{number}", source.path)));
        }
    }
    assert!(rules.iter().map(ToString::to_string).eq((1..=RULE_COUNT).map(|rule| rule.to_string())), "{rules:?}");
    assert_none("src/consistency.rs has the rules that comments name", wrong);
}
