//! A network differs between memory and Redis: the commands that `deploy/README.md` gives for this are run as they stand.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::journal;
use crate::redis::Redis;
use crate::server::{Server, Starting, allod, http_get};

const PAGE: &str = include_str!("../../deploy/README.md");

/// The blocks of the section, as a shell reads them.
fn blocks() -> Vec<String> {
    let (_, section) = PAGE.split_once("### Where memory and store differ\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```console\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    blocks
        .map(|block| block.lines().filter_map(|line| line.trim().strip_prefix("$ ")).collect::<Vec<_>>().join("\n"))
        .collect()
}

fn started(directory: &Path, redis: &Redis) -> Server {
    let file = directory.join("node.toml");
    std::fs::write(&file, "[store]\nself_check_seconds = 1\n").unwrap();
    let (data, url, config) = (directory.join("node"), redis.url(), file.display().to_string());
    let text = data.display().to_string();
    let under_systemd = journal::environment(&data.with_extension("log"));
    let arguments = ["serve", "--redis", &url, "--data", &text, "--config", &config];
    Starting::with_environment(&data, &arguments, under_systemd).ready()
}

/// Runs a block in this directory, with a `journalctl` that shows what the server logged, as it would with these arguments.
fn types(directory: &Path, server: &Server, block: &str) {
    for arguments in ["-u allod", "-u allod -p err"] {
        let words: Vec<&str> = arguments.split(' ').collect();
        std::fs::write(directory.join(arguments), journal::journalctl(&words, &server.log_text())).unwrap();
    }
    let block = block.replace("127.0.0.1:7499", &server.address.to_string());
    let script = format!("allod() {{ {} \"$@\"; }}\njournalctl() {{ cat -- \"$*\"; }}\n{block}", allod().display());
    let mut run = Command::new("bash");
    run.args(["-c", &script]).current_dir(directory).env("ALLOD_SERVER", server.address.to_string());
    let output = run.output().unwrap();
    // The exit code is that of `diff`, which finds a difference.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{block}: {output:?}");
}

/// `a` is in memory only, because somebody deleted it in Redis; `b` is in both, and is later released; `c` has a lease.
#[test]
fn what_the_page_says_of_a_network_that_differs_brings_back_what_the_store_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &["--appendonly", "yes"]) else { return };
    let server = started(directory.path(), &redis);
    for (name, subnet) in [("lan", "10.0.0.0/24"), ("dmz", "10.0.1.0/24")] {
        server.allod_ok(&["network", "create", name, "--subnet", subnet]);
    }
    let held = |owner: &str, more: &[&str]| {
        let brief = [&["ip", "allocate", "lan", "--owner", owner, "--format", "json"][..], more].concat();
        let granted: serde_json::Value = serde_json::from_str(&server.allod_ok(&brief)).unwrap();
        granted["address"].as_str().unwrap().to_owned()
    };
    let (a, b) = (held("a", &[]), held("b", &[]));
    held("c", &["--ttl", "1h"]);
    let told = server.allod_ok(&["cluster", "key", "lan", &a]);
    let words: Vec<&str> = told.split_whitespace().map(|word| word.trim_matches('\'')).collect();
    let at = words.iter().position(|word| *word == "HGET").unwrap_or_else(|| panic!("{told}"));
    redis.ask(&["HDEL", words[at + 1], words[at + 2]]);
    let begun = Instant::now();
    while !http_get(server.http, "/readyz").contains("network `lan` was stopped") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", server.log_text());
        std::thread::sleep(Duration::from_millis(50));
    }
    let blocks = blocks();
    let [first, second] = &blocks[..] else { panic!("{blocks:?}") };
    types(directory.path(), &server, first);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert!(read("memory.jsonl").contains(&format!("\"{a}\"")), "{}", read("memory.jsonl"));
    let differs = read("differs.log");
    assert!(differs.lines().any(|line| line.contains("held by `a`") && line.contains(&a)), "{differs}");
    server.stop();

    let server = started(directory.path(), &redis);
    let log = server.log_text();
    assert!(
        log.contains("the next owner goes by the store network=lan"),
        "who restarted it is told what that was: {log}"
    );
    types(directory.path(), &server, second);
    let sides = read("sides.diff");
    let only =
        |side: &str| sides.lines().filter(|line| line.starts_with(side) && line.contains("reservation\":{")).count();
    assert!(only("<") == 1 && only(">") == 0 && sides.contains(&format!("\"{a}\"")), "{sides}");
    let path = directory.path().join("memory.jsonl").display().to_string();
    let dry = server.allod(&["import", "--dry-run", &path]);
    let said = String::from_utf8_lossy(&dry.stderr);
    assert!(dry.status.success() && said.contains("0 networks and 1 reservation would be imported"), "{said}");
    server.allod_ok(&["import", &path]);
    assert!(server.allod_ok(&["who", &a]).contains('a'));
    server.allod_ok(&["--yes", "ip", "release", "lan", &b, "--force"]);
    server.allod_ok(&["ip", "transfer", "lan", &a, "--owner", "a", "--to-owner", "d"]);
    server.stop();
}
