//! Today's program reads a register of every format that was ever released, in files and in Redis: `tests/golden` keeps one
//! of each format, with all kinds of records, and the answers that it gave. A register of a later format is refused with a
//! clear message, and is not changed.
//!
//! `stored` keeps the contents of a directory or of Redis as text. After a format was raised, `ALLOD_WRITE_GOLDEN=1 cargo
//! test --test e2e formats` writes the register of the new one, once; the earlier ones are never written again.

mod stored;

use std::path::{Path, PathBuf};

use allod::store::codec::Format;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::{Value, json};

use crate::client::Client;
use crate::redis::Redis;
use crate::server::{Server, Starting};

/// The formats of registers so far.
const FORMATS: [u8; 1] = [1];
const FORMAT: u8 = Format::NEWEST.number();
/// So small that the test fills several segments, and a snapshot of them is made.
const SEGMENT_BYTES: u64 = 8 << 10;
/// Few shards, so that the files are short.
const SHARDS: u16 = 4;
/// Five years, so that no reservation ends while golden files are read.
const LONG_SECONDS: u64 = 5 * 366 * 86_400;

fn golden(format: u8, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/register-v{format}/{name}"))
}

/// History is kept for ever, because golden files get old.
fn settings() -> Vec<(String, String)> {
    let keep_seconds = 100 * 365 * 86_400_u64;
    let set = [("ALLOD_HISTORY__KEEP_SECONDS", keep_seconds), ("ALLOD_STORE__SHARDS", SHARDS.into())];
    set.map(|(name, value)| (name.to_owned(), value.to_string())).to_vec()
}

fn serve(store: &[&str], data: &Path) -> Server {
    let data_text = data.display().to_string();
    let arguments = [&["serve", "--data", &data_text], store].concat();
    Starting::with_environment(data, &arguments, settings()).owning()
}

/// Makes all kinds of records, with every member that each may have.
async fn fill(server: &Server) {
    let mut client = Client::connect(server.address).await.unwrap();
    let deployment = |addresses: [&str; 2]| {
        let named =
            |(at, address)| json!({"id": format!("web/{at}"), "networks": [{"network": "lan", "address": address}]});
        let instances: Vec<Value> = addresses.into_iter().enumerate().map(named).collect();
        json!({"deployment": "shop", "instances": instances, "reason": "release 7"})
    };
    let lan = json!({"name": "lan", "realm": "blue", "kind": "manual", "policy": "oldest", "cooldown_seconds": LONG_SECONDS,
        "l2": {"mode": "bridged", "link": "br0", "mac_prefix": "aa:00:00"}, "tags": {"env": "prod"}, "description": "B\u{fc}ro",
        "subnets": [
            {"cidr": "10.0.0.0/24", "name": "a", "gateway": "10.0.0.1", "dhcp": true, "zones": ["eu-1a"],
                "dns": {"servers": ["9.9.9.9"], "search": ["example.org"]},
                "pools": [{"range": "10.0.0.16/28", "name": "machines"}, {"range": "10.0.0.64/26", "kind": "static"}]},
            {"cidr": "2001:db8::/64"}]});
    let most = json!({"network": "lan", "owner": "most", "scope": "team", "slot": "eth0", "owner_uid": "4711", "claimant": "vm-7",
        "release_with_claimant": true, "transient": true, "ttl_seconds": LONG_SECONDS, "labels": {"tier": "db"}, "note": "a note",
        "hostname": "most.example.org", "mac": "aa:bb:cc:00:00:01", "family": 4, "reason": "asked for"});
    for (method, params) in [
        ("network.create", lan),
        ("network.create", json!({"name": "old", "subnets": [{"cidr": "10.30.0.0/24"}]})),
        ("reserved.add", json!({"network": "lan", "range": "10.0.0.30-10.0.0.31", "note": "printers"})),
        ("ip.allocate", most),
        ("ip.allocate", json!({"network": "lan", "owner": "six", "family": 6})),
        ("ip.allocate", json!({"network": "lan", "owner": "block", "family": 6, "prefix_length": 112})),
        ("ip.claim", json!({"network": "lan", "owner": "named", "address": "10.0.0.70"})),
        ("ip.allocate", json!({"network": "lan", "owner": "gone", "family": 4})),
        ("ip.release", json!({"network": "lan", "owner": "gone", "reason": "not wanted"})),
        ("ip.claim", json!({"network": "lan", "owner": "met", "address": "10.0.0.71"})),
        (
            "ip.decline",
            json!({"network": "lan", "owner": "met", "address": "10.0.0.71", "seen": "02:00:00:00:00:01",
            "probation_seconds": LONG_SECONDS}),
        ),
        ("ip.allocate", json!({"network": "old", "owner": "still here"})),
        ("network.delete", json!({"network": "old", "force": true})),
    ] {
        client.call(method, params).await.ok();
    }
    let first = client.call("deployment.apply", deployment(["10.0.0.80", "10.0.0.81"])).await.ok();
    client.call("deployment.commit", json!({"deployment": "shop", "plan": first["plan"]})).await.ok();
    client.call("deployment.apply", deployment(["10.0.0.81", "10.0.0.82"])).await.ok();
    // Enough changes for more than one segment.
    for n in 0..8 {
        let changed = json!({"network": "lan", "owner": "six", "set": {"note": format!("{n} {}", "x".repeat(900))}});
        client.call("ip.update", changed).await.ok();
    }
}

/// What a server answers about its register, without what depends on the time of the question or on the server's clock.
async fn shown(server: &Server) -> Vec<Value> {
    let mut client = Client::connect(server.address).await.unwrap();
    let mut answers = Vec::new();
    for (method, params) in [
        ("network.get", json!({"network": "lan"})),
        ("network.usage", json!({"network": "lan"})),
        ("network.map", json!({"network": "lan", "format": "runs"})),
        ("network.list", json!({"deleted": true})),
        ("ip.list", json!({})),
        ("deployment.list", json!({})),
        ("deployment.get", json!({"deployment": "shop"})),
        ("events.history", json!({"limit": 1_000})),
    ] {
        let answer = client.call(method, params).await;
        answers.push(without_clock(match answer {
            crate::client::Answer::Result(result) => result,
            other => panic!("{method}: {other:?}"),
        }));
    }
    answers
}

fn without_clock(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let of_clock =
                ["expires_at", "expires_in_seconds", "cursor", "next", "oldest", "cooling_until", "declined_until"];
            let kept = members.into_iter().filter(|(name, _)| !of_clock.contains(&name.as_str()));
            kept.map(|(name, value)| (name, without_clock(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(without_clock).collect(),
        other => other,
    }
}

/// One answer per line.
fn lines(answers: &[Value]) -> String {
    answers.iter().map(|answer| format!("{answer}\n")).collect()
}

#[track_caller]
fn same(now: &[Value], golden: &str) {
    let golden: Vec<Value> = golden.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(now.len(), golden.len());
    for (now, golden) in now.iter().zip(&golden) {
        // Members that later formats add do not matter.
        assert!(has(now, golden), "now: {now:#}\nthen: {golden:#}");
    }
}

/// Does the answer have everything that was there then, and no more elements in any list?
fn has(now: &Value, then: &Value) -> bool {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            then.iter().all(|(name, then)| now.get(name).is_some_and(|now| has(now, then)))
        }
        (Value::Array(now), Value::Array(then)) => {
            now.len() == then.len() && now.iter().zip(then).all(|(now, then)| has(now, then))
        }
        (now, then) => now == then,
    }
}

/// Should the register of the newest format be written, and has nobody written it yet?
fn is_to_be_written(name: &str) -> bool {
    std::env::var_os("ALLOD_WRITE_GOLDEN").is_some() && !golden(FORMAT, name).exists()
}

fn keep(name: &str, text: &str) {
    std::fs::create_dir_all(golden(FORMAT, name).parent().unwrap()).unwrap();
    std::fs::write(golden(FORMAT, name), text).unwrap();
}

fn kept(format: u8, name: &str) -> String {
    std::fs::read_to_string(golden(format, name)).unwrap()
}

/// Checks that the register can be read, written to, and read again.
async fn is_served(serve: impl Fn() -> Server, golden: &str) {
    let server = serve();
    same(&shown(&server).await, golden);
    let mut client = Client::connect(server.address).await.unwrap();
    let plan = client.call("deployment.get", json!({"deployment": "shop"})).await.ok()["plan"].clone();
    let new = client.call("ip.claim", json!({"network": "lan", "owner": "new", "address": "10.0.0.90"})).await.ok();
    let newest = |list: &[Value]| list.iter().filter_map(|held| held["generation"].as_u64()).max();
    let before: Value = serde_json::from_str(golden.lines().nth(4).unwrap()).unwrap();
    assert!(new["generation"].as_u64() > newest(before["reservations"].as_array().unwrap()), "{new}");
    client.call("deployment.commit", json!({"deployment": "shop", "plan": plan})).await.ok();
    drop(client);
    server.stop();
    let server = serve();
    let mut client = Client::connect(server.address).await.unwrap();
    let again = client.call("ip.get", json!({"network": "lan", "address": "10.0.0.90"})).await.ok();
    assert_eq!(again["reservation"]["generation"], new["generation"]);
    let freed = client.call("ip.get", json!({"network": "lan", "address": "10.0.0.80"})).await.ok();
    assert!(freed["reservation"].is_null(), "the plan was committed: {freed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_every_format_are_read_and_written_on() {
    if is_to_be_written("files.txt") {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let small =
            EmbeddedOptions { segment_bytes: SEGMENT_BYTES, snapshot_log_bytes: 1, ..EmbeddedOptions::default() };
        drop(EmbeddedStore::open(&data, SHARDS, small.clone()).unwrap());
        let serve = || serve(&["--store", "embedded"], &data);
        let server = serve();
        fill(&server).await;
        let answers = shown(&server).await;
        server.stop();
        // The register gets a snapshot, and a log after it.
        let store = EmbeddedStore::open(&data, SHARDS, small).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while allod::store::Store::figures(&store).compactions == 0 {
            assert!(std::time::Instant::now() < end, "no snapshot is made");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        drop(store);
        keep("files.txt", &stored::of_directory(&data));
        keep("files-answers.jsonl", &lines(&answers));
    }
    for format in FORMATS {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        stored::to_directory(&kept(format, "files.txt"), &data);
        let serve = || serve(&["--store", "embedded"], &data);
        is_served(serve, &kept(format, "files-answers.jsonl")).await;
    }
    assert_eq!(FORMATS.last(), Some(&FORMAT), "each format has its golden files");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_in_redis_of_every_format_is_read_and_written_on() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let url = redis.url();
    let data = directory.path().join("node");
    let serve = || serve(&["--redis", &url, "--accept-new-store"], &data);
    if is_to_be_written("redis.txt") {
        let server = serve();
        fill(&server).await;
        let answers = shown(&server).await;
        server.stop();
        keep("redis.txt", &stored::of_redis(&url));
        keep("redis-answers.jsonl", &lines(&answers));
    }
    for format in FORMATS {
        redis.ask(&["FLUSHALL"]);
        stored::to_redis(&kept(format, "redis.txt"), &url);
        is_served(serve, &kept(format, "redis-answers.jsonl")).await;
    }
}

#[test]
fn files_of_a_later_format_are_refused_in_clear_words_and_left_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    stored::to_directory(&kept(FORMAT, "files.txt"), &data);
    let meta = data.join("META");
    let mut bytes = std::fs::read(&meta).unwrap();
    let end = bytes.len() - 4;
    bytes[11] = FORMAT + 1;
    let sum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_be_bytes());
    std::fs::write(&meta, bytes).unwrap();
    let before = stored::of_directory(&data);
    let arguments = ["serve", "--data", &data.display().to_string()];
    let words = Starting::with_environment(&data, &arguments, settings()).failed();
    let (theirs, ours) = (FORMAT + 1, FORMAT);
    assert!(
        words.contains(&format!("has format {theirs}, this allod reads {ours}; use the allod that wrote it, or newer")),
        "{words}"
    );
    assert_eq!(stored::of_directory(&data), before);
}

#[test]
fn a_register_in_redis_of_a_later_format_is_refused_in_clear_words_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    stored::to_redis(&kept(FORMAT, "redis.txt"), &redis.url());
    redis.ask(&["HSET", "{allod}:register", "format", &(FORMAT + 1).to_string()]);
    let before = stored::of_redis(&redis.url());
    let data = directory.path().join("node");
    let arguments = ["serve", "--redis", &redis.url(), "--data", &data.display().to_string()];
    let words = Starting::with_environment(&data, &arguments, settings()).failed();
    assert!(
        words.contains(&format!("a register of format {}", FORMAT + 1)) && words.contains("start a newer one"),
        "{words}"
    );
    assert_eq!(stored::of_redis(&redis.url()), before);
}
