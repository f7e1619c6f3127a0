//! Runs README.md: its shell blocks (see `story`), and `allod try`, whose output is shown there as it was printed.
//!
//! `cargo run --release -- try` and `tests/run` are not run themselves: the first builds what is built already, the second
//! would run this test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::redis::process::skips::skip;
use crate::server::allod;
use crate::story;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
/// The command with which the blocks of a section begin.
const MAKE_ROOM: &str = "$ rm ";
const TRY: &str = "$ cargo run --release -- try\n";

fn page() -> String {
    std::fs::read_to_string(PAGE).unwrap()
}

/// Commands that the blocks use besides `allod`. `tests/run` installs them.
const USES: [&str; 2] = ["curl", "nc"];

#[test]
fn the_readme_does_what_it_says() {
    let there = |program: &&str| std::env::split_paths(&path()).any(|directory| directory.join(program).is_file());
    if let Some(missing) = USES.into_iter().find(|program| !there(program)) {
        return skip(&format!("there is no {missing}"));
    }
    // Like somebody who reads the page from the top: `allod try` first, then everything in one directory.
    let directory = tempfile::tempdir().unwrap();
    printed_by_try(directory.path());
    assert!(directory.path().join("allod-data").exists(), "`allod try` leaves its register");
    let page = page();
    let make_room = page.lines().find_map(|line| line.strip_prefix(MAKE_ROOM)).expect("it says how a section begins");
    story::run_in_order(&page, 6, "embedded", directory.path(), &format!("rm {make_room}"));
}

fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

#[test]
fn the_readme_shows_what_try_prints() {
    let page = page();
    let (_, shown) = page.split_once(TRY).expect("the README begins with `allod try`");
    let (shown, _) = shown.split_once("\n```").expect("the block ends");
    let directory = tempfile::tempdir().unwrap();
    let printed = printed_by_try(directory.path());
    // On other ports than the standard ones it also says how to find it; here it never has the standard ones.
    let printed: Vec<&str> = printed.lines().filter(|line| !line.starts_with("  export ALLOD_SERVER=")).collect();
    assert_eq!(normalised(shown), normalised(&printed.join("\n")));
}

#[test]
fn the_readme_begins_with_the_two_commands() {
    let page = page();
    let commands: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert_eq!(&commands[..2], ["cargo run --release -- try", "tests/run"]);
}

/// What `allod try` prints until it only serves, on both streams, as a terminal shows them.
fn printed_by_try(directory: &Path) -> String {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = Command::new(allod())
        .args(["try", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    let mut lines = Vec::new();
    // The last line is the sign to stop it; if the process dies first, the pipe ends.
    for line in BufReader::new(reader).lines().map_while(Result::ok) {
        let last = line.starts_with("Serving until");
        lines.push(line);
        if last {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines.join("\n")
}

/// Replaces what differs from run to run: ids, times, generations and ports.
fn normalised(text: &str) -> String {
    let mut text = text.to_owned();
    for (before, end, by) in [
        ("\"network_id\":\"", "\"", "ID"),
        ("\"subnet_id\":\"", "\"", "ID"),
        ("\"created_at\":\"", "\"", "TIME"),
        ("\"generation\":", ",", "GENERATION"),
        ("127.0.0.1:", "/\n", "PORT"),
    ] {
        let mut parts = text.split(before);
        let first = parts.next().unwrap_or_default().to_owned();
        text = parts.fold(first, |text, part| {
            let rest = part.find(|c| end.contains(c)).map_or("", |at| &part[at..]);
            text + before + by + rest
        });
    }
    text
}

#[test]
fn only_what_differs_from_run_to_run_is_left_out() {
    let line = "< {\"network_id\":\"7de\",\"address\":\"10.0.0.64\",\"generation\":18,\"created\":true} http://127.0.0.1:74/rpc";
    let expected = "< {\"network_id\":\"ID\",\"address\":\"10.0.0.64\",\"generation\":GENERATION,\"created\":true} http://127.0.0.1:PORT/rpc";
    assert_eq!(normalised(line), expected);
}
