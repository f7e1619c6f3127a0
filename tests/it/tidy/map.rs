//! The map in `src/lib.rs` is true: its steps are those that the modules claim, its invariants name tests that exist.

use std::collections::BTreeSet;

use super::assert_none;
use super::source::rust_files;

const MAP: &str = include_str!("../../../src/lib.rs");

/// `//! Life of an ``ip.allocate``, steps 2 and 7 of 8`, in the head of a module.
const STEP: &str = "//! Life of an `ip.allocate`, step";

/// The numbered steps of the map.
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

#[test]
fn invariants_are_numbered_and_name_tests_that_exist() {
    let (_, list) = MAP.split_once("# What always holds").expect("the map lists the invariants");
    let code: Vec<_> = ["src", "tests"].into_iter().flat_map(rust_files).collect();
    let mut missing = Vec::new();
    let invariants: Vec<&str> = list.split("//! - **I-").skip(1).collect();
    for (at, invariant) in invariants.iter().enumerate() {
        if !invariant.starts_with(&format!("{}**", at + 1)) {
            missing.push(format!("I-{} is not in its place", at + 1));
        }
        let shown = invariant.split_once("Shown").map_or("", |(_, shown)| shown);
        let tests: Vec<&str> = shown.split('`').skip(1).step_by(2).filter(|name| name.contains('_')).collect();
        if tests.is_empty() {
            missing.push(format!("I-{} names no test", at + 1));
        }
        for test in tests {
            if !code.iter().any(|source| source.text.contains(&format!("fn {test}("))) {
                missing.push(format!("I-{}: there is no test `{test}`", at + 1));
            }
        }
    }
    assert_eq!(invariants.len(), 14);
    assert_none("each invariant of src/lib.rs names the tests that show it", missing);
}
