//! `allod doctor` on a machine: a directory, a running server, a Redis with wrong settings.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::redis::Redis;
use crate::server::{Server, Starting, allod};

/// No server listens on the discard port.
const NOBODY: &str = "127.0.0.1:9";

/// A server that keeps no files, to be asked while something else is examined.
fn beside(directory: &Path) -> Server {
    Starting::with_store(&directory.join("beside"), "memory").ready()
}

/// Exit code and checks when this server is asked.
#[track_caller]
fn asked(server: &Server, arguments: &[&str]) -> (i32, Vec<Value>) {
    let all: Vec<&str> = ["doctor", "--format", "json"].iter().chain(arguments).copied().collect();
    checks(&server.allod(&all))
}

#[track_caller]
fn checks(output: &Output) -> (i32, Vec<Value>) {
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().unwrap(), result["checks"].as_array().unwrap().clone())
}

/// Everything that is said about a check, each as `state: what was seen -> what to do`.
fn said(checks: &[Value], check: &str) -> Vec<String> {
    let of = checks.iter().filter(|found| found["check"] == check);
    let text = |found: &Value, name: &str| found[name].as_str().unwrap_or_default().to_owned();
    of.map(|found| format!("{}: {} -> {}", text(found, "state"), text(found, "seen"), text(found, "hint"))).collect()
}

#[track_caller]
fn has(checks: &[Value], check: &str, begins: &str, contains: &str) {
    let all = said(checks, check);
    assert!(
        all.iter().any(|line| line.starts_with(begins) && line.contains(contains)),
        "{begins} {contains}: {checks:#?}"
    );
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_and_the_server_on_it_are_looked_at_and_nothing_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let beside = beside(elsewhere.path());
    let data = directory.path().join("data");
    let data_text = data.display().to_string();
    let (code, found) = asked(&beside, &["--data", &data_text]);
    assert_eq!(code, 0, "{found:#?}");
    has(&found, "directory", "ok", "the first start creates it");
    has(&found, "register", "ok", "none yet");
    has(&found, "config", "ok", "store.directory = ");
    assert!(names(directory.path()).is_empty(), "nothing is made");

    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let before = names(&data);
    let running = server.allod(&["doctor", "--data", &data_text, "--format", "json"]);
    let (code, found) = checks(&running);
    assert_eq!(code, 0, "{found:#?}");
    has(&found, "lock", "ok", &format!("process {}", server.pid()));
    has(&found, "descriptors", "", "of the server that runs");
    has(&found, "disk", "", "one caller that waits for each answer");
    has(&found, "server", "ok", "store embedded");
    has(&found, "nodes", "ok", "owner");
    has(&found, "clocks", "ok", "differ by");
    has(&found, "conflicts", "ok", "none");
    has(&found, "version", "ok", "records 1");
    assert_eq!(names(&data), before);
    // The server runs, but another address is asked.
    let (code, found) =
        checks(&server.allod(&["doctor", "--server", NOBODY, "--data", &data_text, "--format", "json"]));
    assert_eq!(code, 1);
    has(&found, "server", "wrong", "is in use, and no server answers");

    // The output for people says what to do, too.
    let table = server.allod_ok(&["doctor", "--data", &data_text]);
    assert!(table.contains("\nok       lock") && table.contains(" things looked at: 0 wrong, "), "{table}");
    server.stop();
    let (code, found) = asked(&beside, &["--data", &data_text]);
    assert_eq!(code, 0, "{found:#?}");
    has(&found, "lock", "ok", "no server has it open");
    Server::start(&data).stop();
    beside.stop();
}

/// `ALLOD_SERVER` and `--server` both name a server.
#[test]
fn a_server_that_was_named_and_does_not_answer_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let line = ["doctor", "--data", &data, "--format", "json"];
    for (of_environment, more) in [(NOBODY, &[][..]), ("", &["--server", NOBODY])] {
        let mut command = Command::new(allod());
        command.args(line).args(more).env("ALLOD_SERVER", of_environment);
        let (code, found) = checks(&command.output().unwrap());
        assert_eq!(code, 1, "{found:#?}");
        has(&found, "server", "wrong", "cannot connect");
    }
}

#[test]
fn a_server_whose_settings_nobody_named_is_not_said_to_be_well() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    Server::start(&directory.path().join("data")).stop();
    for arguments in
        [["backup", &path("copy"), "--data", &path("data")], ["restore", &path("copy"), "--data", &path("restored")]]
    {
        assert!(Command::new(allod()).args(arguments).status().unwrap().success(), "{arguments:?}");
    }
    let server = Server::start(&directory.path().join("restored"));
    // A restored server answers whatever it is asked, and chooses no address. This directory has no `allod-data`, and
    // nothing listens at the port above.
    let asked_of_it = |arguments: &[&str]| {
        let mut command = Command::new(allod());
        let address = server.address.to_string();
        command.args(["doctor", "--format", "json", "--server", &address]).args(arguments);
        checks(&command.current_dir(directory.path()).output().unwrap())
    };
    let (code, found) = asked_of_it(&[]);
    assert_eq!(code, 0, "{found:#?}");
    has(&found, "ready", "warning", "whether ");
    has(&found, "server", "warning", "does not have allod-data open");
    let (code, found) = asked_of_it(&["--data", "restored"]);
    assert_eq!(code, 0, "{found:#?}");
    has(&found, "register", "warning", "restored from a copy");
    assert!(said(&found, "server").iter().all(|line| line.starts_with("ok")), "{found:#?}");
    server.stop();
}

#[test]
fn what_a_start_would_refuse_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let beside = beside(elsewhere.path());
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("letters.txt"), "dear").unwrap();
    let foreign = directory.path().display().to_string();
    let (code, found) = asked(&beside, &["--data", &foreign]);
    assert_eq!(code, 1);
    has(&found, "register", "wrong", "it is not an allod register");

    std::fs::write(path("wrong.toml"), "[log]\nlevel = \"a=b=c\"\n").unwrap();
    let (code, found) = asked(&beside, &["--config", &path("wrong.toml")]);
    assert_eq!(code, 1);
    has(&found, "config", "wrong", "`log.level`");
    let (code, found) = asked(&beside, &["--config", &path("none.toml")]);
    assert_eq!(code, 1);
    has(&found, "config", "wrong", "none.toml");

    let data = directory.path().join("data");
    Server::start(&data).stop();
    std::fs::write(path("shards.toml"), "[store]\nshards = 16\n").unwrap();
    let (code, found) = asked(&beside, &["--config", &path("shards.toml"), "--data", &path("data")]);
    assert_eq!(code, 1);
    has(&found, "register", "wrong", "-> leave `store.shards` out, or set it to 4");

    let (code, found) = asked(&beside, &["--data", &path("data")]);
    assert_eq!(code, 0, "{found:#?}");
    has(&found, "log", "ok", "all of them whole");
    let segment = data.join("log/00000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let (code, found) = asked(&beside, &["--data", &path("data")]);
    assert_eq!(code, 1);
    has(&found, "log", "wrong", "00000001.seg is damaged");
}

#[test]
fn a_redis_that_is_set_wrongly_or_is_away_is_told_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let beside = beside(elsewhere.path());
    let place = |name: &str| {
        let place = directory.path().join(name);
        std::fs::create_dir_all(&place).unwrap();
        place
    };
    let data = directory.path().join("data");
    let data_text = data.display().to_string();
    let evicts = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "no"];
    let Some(mut redis) = Redis::start(&place("evicts"), &evicts) else { return };
    let url = redis.url();
    let (code, found) = asked(&beside, &["--redis", &url, "--data", &data_text]);
    assert_eq!(code, 1);
    has(&found, "redis", "wrong", "-> set `maxmemory-policy noeviction`");
    has(&found, "redis", "warning", "-> set `appendonly yes`");
    has(&found, "register", "ok", "none under `allod` yet");
    has(&found, "memory", "ok", "of 104 MB (maxmemory)");
    assert_eq!(redis.text(&["DBSIZE"]), "0", "nothing is made");
    assert!(!data.exists());

    // A start uses the same words.
    let start = Command::new(allod()).args(["serve", "--redis", &url, "--data", &data_text]).output().unwrap();
    assert!(String::from_utf8_lossy(&start.stderr).contains("maxmemory-policy allkeys-lru"), "{start:?}");
    redis.end();
    let (code, found) = asked(&beside, &["--redis", &url, "--data", &data_text]);
    assert_eq!(code, 1);
    has(
        &found,
        "redis",
        "wrong",
        "-> make sure that Redis runs and lets this server in, or name another one with `--redis URL`",
    );

    let Some(good) = Redis::start(&place("good"), &["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let config = directory.path().join("k.toml");
    std::fs::write(&config, "[store]\nredis_replicas = 1\n").unwrap();
    let (code, found) =
        asked(&beside, &["--redis", &good.url(), "--data", &data_text, "--config", &config.display().to_string()]);
    assert_eq!(code, 0, "{found:#?}");
    has(&found, "redis", "warning", "fewer than are waited for (1)");

    // A missing right that would stop a start at its first script is reported beforehand.
    good.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all", "-zadd"]);
    let url = good.url().replace("redis://", "redis://allod:secret@");
    let (code, found) = asked(&beside, &["--redis", &url, "--data", &data_text]);
    assert_eq!(code, 1);
    has(&found, "redis", "wrong", "user `allod` lacks a right that the script `probe` needs");
    has(&found, "redis", "wrong", "-> name the right user, password and database");
    let start = Command::new(allod()).args(["serve", "--redis", &url, "--data", &data_text]).output().unwrap();
    assert_eq!(start.status.code(), Some(1), "{start:?}");
    assert!(String::from_utf8_lossy(&start.stderr).contains("the script `probe` needs"), "{start:?}");
    assert_eq!(good.text(&["DBSIZE"]), "0", "nothing is left behind");
    good.ask(&["ACL", "SETUSER", "allod", "+zadd"]);
    assert_eq!(asked(&beside, &["--redis", &url, "--data", &data_text]).0, 0);

    // A server made a register there; then another Redis is named.
    let started = Starting::with_arguments(&data, &["serve", "--redis", &good.url(), "--data", &data_text]);
    let server = started.ready();
    let (code, found) =
        checks(&server.allod(&["doctor", "--redis", &good.url(), "--data", &data_text, "--format", "json"]));
    assert_eq!(code, 0, "{found:#?}");
    has(&found, "register", "ok", "4 shards");
    has(&found, "clocks", "ok", "Redis' clock");
    has(&found, "nodes", "ok", "seen lately");
    has(&found, "durability", "ok", "loss of power");
    server.stop();
    // A node that was writing the register anew ended halfway.
    good.ask(&["HSET", "{allod}:register", "moved", "anew node-7"]);
    let (code, found) = asked(&beside, &["--redis", &good.url(), "--data", &data_text]);
    assert_eq!(code, 1);
    has(&found, "register", "wrong", "node node-7, which has it in memory, writes it anew");
    let Some(empty) = Redis::start(&place("empty"), &["--appendonly", "yes"]) else { return };
    let (code, found) = asked(&beside, &["--redis", &empty.url(), "--data", &data_text]);
    assert_eq!(code, 1);
    has(&found, "register", "wrong", "Redis was emptied");
}

/// Each check says what is missing of the register and how to remove what is left; it does not talk of consequences, or ask
/// to wait for a node that does not live.
#[test]
fn a_register_of_which_a_part_is_gone_or_that_this_node_left_unfinished_is_told_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (beside, data) = (beside(elsewhere.path()), directory.path().join("data"));
    let Some(redis) = Redis::start(directory.path(), &["--appendonly", "yes"]) else { return };
    let (url, data_text) = (redis.url(), data.display().to_string());
    let arguments = ["--redis", &url, "--data", &data_text, "--node", "node-7"];
    Starting::with_arguments(&data, &[&["serve"], &arguments[..]].concat()).ready().stop();
    let file = directory.path().join("node-7.toml").display().to_string();
    std::fs::write(&file, "[server]\nnode = \"node-7\"\n").unwrap();
    let looked = || asked(&beside, &["--redis", &url, "--data", &data_text, "--config", &file]);
    assert_eq!(looked().0, 0, "{:#?}", looked().1);
    for (key, what) in
        [("{allod}:1:head", "lost the heads of 1 of the 4 shards"), ("{allod}:register", "but lost `{allod}:register`")]
    {
        redis.ask(&["RENAME", key, "aside"]);
        let (code, found) = looked();
        assert_eq!(code, 1);
        has(&found, "register", "wrong", what);
        has(&found, "register", "wrong", "bring its data back");
        assert!(!format!("{found:?}").contains("a head is none"), "{found:#?}");
        redis.ask(&["RENAME", "aside", key]);
    }
    assert_eq!(looked().0, 0, "{:#?}", looked().1);

    // The node was killed while it wrote the register anew.
    redis.ask(&["HSET", "{allod}:register", "moved", "anew node-7"]);
    let refused = Command::new(allod()).arg("serve").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let removal = "redis-cli --scan --pattern '{allod}:*' | xargs redis-cli del";
    for words in ["a process of this node before this one", removal, "`--accept-new-store`"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (code, found) = looked();
    assert_eq!(code, 1);
    has(&found, "register", "wrong", "-> see whether node node-7 lives, and leave it running");
    has(&found, "register", "wrong", removal);
}
