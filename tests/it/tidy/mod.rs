//! Style as a test: what a reviewer would otherwise have to say again and again.
//!
//! `source` reads a file for these checks, `directions` knows which module may use which, `map` checks the map of the code,
//! and `logged` checks fields of log statements. The other rules are here.

mod directions;
mod logged;
mod map;
mod source;

use source::{Source, rust_files};

/// Longest file, not counting tests: in longer ones readers get lost.
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 100;

/// Words for unfinished work. They are spelled in two parts, or this file would not pass.
const UNFINISHED_COMMENT: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const UNFINISHED_CODE: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!("), concat!("todo", "!{")];

fn product() -> Vec<Source> {
    ["src", "load/src"].into_iter().flat_map(rust_files).collect()
}

fn everything() -> Vec<Source> {
    ["src", "load", "tests"].into_iter().flat_map(rust_files).collect()
}

/// Fails with everything that was found, not only with the first.
#[track_caller]
fn assert_none(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn every_file_says_at_its_head_what_it_is() {
    let without = everything().into_iter().filter(|source| !source.text.starts_with("//!"));
    assert_none("a file begins with `//!`: what it owns, and its neighbours", without.map(|s| s.path).collect());
}

#[test]
fn files_and_functions_are_short_enough_to_be_read() {
    let mut found = Vec::new();
    for source in product() {
        if source.lines_without_tests > FILE_LINES_MAX {
            found.push(format!("{}: {} lines without tests", source.path, source.lines_without_tests));
        }
        found.extend(long_functions(&source));
    }
    assert_none(&format!("at most {FILE_LINES_MAX} lines a file and {FUNCTION_LINES_MAX} a function"), found);
}

/// Finds functions by rustfmt's indentation: one ends at the first closing brace that is indented like its beginning.
fn long_functions(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.code_lines().map(|(_, line)| line).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let is_function = line.split_whitespace().take_while(|word| !word.contains('(')).count() < 6
            && (line.trim_start().starts_with("fn ") || line.contains(" fn "))
            && !line.trim_end().ends_with(';');
        if !is_function {
            continue;
        }
        let ends = |line: &&str| line.len() - line.trim_start().len() == indent && line.trim_start().starts_with('}');
        let length = lines[at + 1..].iter().position(ends).map_or(0, |after| after + 2);
        if length > FUNCTION_LINES_MAX {
            found.push(format!("{}:{}: a function of {length} lines", source.path, at + 1));
        }
    }
    found
}

#[test]
fn modules_depend_in_one_direction() {
    assert_none("see tests/it/tidy/directions.rs", rust_files("src").iter().flat_map(directions::violations).collect());
}

#[test]
fn what_modules_may_use_is_what_they_use() {
    assert_none("see tests/it/tidy/directions.rs", directions::idle(&rust_files("src")));
}

#[test]
fn nothing_is_left_unfinished() {
    let mut found = Vec::new();
    for source in everything() {
        for (at, comment) in source.comments.iter().enumerate() {
            let mut words = comment.split(|c: char| !c.is_alphanumeric());
            // A drawn map of addresses may begin like such a word.
            if !comment.contains("....") && words.any(|word| UNFINISHED_COMMENT.contains(&word)) {
                found.push(format!("{}:{}: {}", source.path, at + 1, comment.trim()));
            }
        }
        for (at, line) in source.code.lines().enumerate() {
            if UNFINISHED_CODE.iter().any(|word| line.contains(word)) {
                found.push(format!("{}:{}: {}", source.path, at + 1, line.trim()));
            }
        }
    }
    assert_none("finish it, or write an issue", found);
}

#[test]
fn identifiers_are_ascii() {
    let mut found = Vec::new();
    for source in everything() {
        let foreign = source.code.lines().enumerate().filter(|(_, line)| !line.is_ascii());
        found.extend(foreign.map(|(at, line)| format!("{}:{}: {}", source.path, at + 1, line.trim())));
    }
    assert_none("letters of code are ASCII", found);
}

#[test]
fn the_product_does_not_unwrap() {
    let mut found = Vec::new();
    for source in product() {
        let unwraps = source.code_lines().filter(|(_, line)| line.contains(".unwrap()"));
        found.extend(unwraps.map(|(at, line)| format!("{}:{at}: {}", source.path, line.trim())));
    }
    assert_none("`expect` with the reason why it cannot fail, or an error", found);
}

#[test]
fn every_file_belongs_to_a_module() {
    let all = everything();
    let orphan = |source: &&Source| {
        let path = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let Some((parent, name)) = path.rsplit_once('/') else { return false };
        let declared = |parent: &str| {
            let heads = [format!("{parent}.rs"), format!("{parent}/mod.rs"), format!("{parent}/lib.rs")];
            let heads = heads.into_iter().chain([format!("{parent}/main.rs")]);
            let declares = |head: String| {
                let text = all.iter().find(|source| source.path == head).map(|source| &source.code);
                text.is_some_and(|code| code.lines().any(|line| line.trim().ends_with(&format!("mod {name};"))))
            };
            heads.into_iter().any(declares)
        };
        let is_root = ["main", "lib"].contains(&name) || ["tests", "load/tests", "load/benches"].contains(&parent);
        // A file that several programs share is named by its path.
        let (_, folder) = parent.rsplit_once('/').unwrap_or_default();
        let is_shared = || all.iter().any(|source| source.text.contains(&format!("/{folder}/{name}.rs\"]")));
        !is_root && !declared(parent) && !is_shared()
    };
    assert_none("no `mod` names this file", all.iter().filter(orphan).map(|source| source.path.clone()).collect());
}

#[test]
fn every_dependency_has_a_reason() {
    let mut found = Vec::new();
    for manifest in ["Cargo.toml", "load/Cargo.toml"] {
        let text = std::fs::read_to_string(format!("{}/{manifest}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        found.extend(without_reason(&text).into_iter().map(|name| format!("{manifest}: {name}")));
    }
    assert_none("a comment above each dependency says why it is there", found);
}

/// Dependencies without a comment above them. Crates of one family, like `clap` and `clap_complete`, may share one.
fn without_reason(manifest: &str) -> Vec<String> {
    let (mut found, mut in_dependencies) = (Vec::new(), false);
    // The family to which a comment, or the dependency before, gave a reason.
    let (mut explained, mut family) = (false, String::new());
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
            (explained, family) = (false, String::new());
        } else if line.starts_with('#') {
            explained = true;
        } else if line.trim().is_empty() {
            (explained, family) = (false, String::new());
        } else if let (true, Some((name, _))) = (in_dependencies, line.split_once('=')) {
            let name = name.trim();
            if name.is_empty() || line.starts_with(' ') {
                continue;
            }
            let relative = !family.is_empty() && name.starts_with(&family);
            if !explained && !relative {
                found.push(name.to_owned());
            }
            if explained {
                family = name.split(['_', '-']).next().unwrap_or(name).to_owned();
            }
            explained = false;
        }
    }
    found
}

#[test]
fn a_dependency_without_a_comment_is_found() {
    let manifest = "[dependencies]\n# The command line.\nclap = \"4\"\nclap_complete = \"4\"\nrand = \"1\"\n\n[profile.dev]\na = 1\n";
    assert_eq!(without_reason(manifest), ["rand"]);
}

#[test]
fn a_long_function_is_found() {
    let body = "    let x = 1;\n".repeat(FUNCTION_LINES_MAX);
    let text = format!("//! Head.\nimpl A {{\n    fn short() {{\n    }}\n}}\nfn long() {{\n{body}}}\n");
    let found = long_functions(&Source::new("src/x.rs", text));
    assert_eq!(found, ["src/x.rs:6: a function of 102 lines"]);
}
