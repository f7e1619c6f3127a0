//! Alerts about the store: a replica of Redis is killed, Redis is far away, keeps no file, its memory is full, it goes back,
//! somebody deletes records; and a second register is scraped as part of this one.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::runbook::{Operator, no_unit};
use super::scene::{Asking, Caller, Scene, Seen, until};
use crate::journal;
use crate::nodes::Cluster;
use crate::redis::Redis;
use crate::server::{Server, http_get};

/// A Redis in a directory of its own.
pub fn redis_in(directory: &Path, name: &str, settings: &[&str]) -> Redis {
    let place = directory.join(name);
    std::fs::create_dir(&place).unwrap();
    Redis::start(&place, &[&["--repl-diskless-sync-delay", "0"], settings].concat()).unwrap()
}

/// A replica that has what its primary has.
pub fn replica_of(primary: &Redis, directory: &Path) -> Redis {
    let replica = redis_in(directory, "replica", &["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    until("the replica follows", || replica.follows());
    replica
}

/// Does a write wait for one replica successfully? A replica that was just started may not answer yet.
fn is_answered(primary: &Redis) -> bool {
    let mut connection = redis::Client::open(primary.url()).unwrap().get_connection().unwrap();
    let mut pipe = redis::pipe();
    pipe.cmd("SET").arg("written").arg(1).ignore().cmd("WAIT").arg(1).arg(100);
    pipe.query::<(usize,)>(&mut connection).unwrap().0 == 1
}

pub fn run() -> BTreeSet<&'static str> {
    let directory = tempfile::tempdir().unwrap();
    let primary = redis_in(directory.path(), "primary", &[]);
    let mut replica = replica_of(&primary, directory.path());
    until("the replica answers", || is_answered(&primary));
    let file = directory.path().join("node.toml");
    std::fs::write(&file, "[store]\nredis_replicas = 1\n").unwrap();
    let (url, file) = (primary.url(), file.display().to_string());
    let redis = (url.as_str(), Some(primary.port()));
    let cluster = Cluster::wired(directory.path(), redis, 1, &["--config", &file], Vec::new());
    cluster.allod(0, &["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let seen = Seen::at(cluster.address(0), cluster.http(0));
    let data = directory.path().join("node-0");
    let operator = Operator { rpc: cluster.address(0), http: cluster.http(0), redis: primary.port(), data: &data };
    let scene = Scene::of(&[&seen]);
    let crowd = ["a", "b", "c", "d"].map(|owner| Asking::of(seen.rpc.address, "lan", owner));

    scene.provoked("AllodReplicaMissing", "", || replica.end());
    let told = operator.follows("AllodReplicaMissing", &[], &mut |verb, unit| {
        assert_eq!((verb, unit), ("start", "redis-server"));
        replica.begin();
    });
    assert!(told.contains("connected_slaves:0"), "{told}");
    scene.stops("AllodReplicaMissing", "");

    // Longer than the alert allows, there and back, but short enough that even each shortened range contains answers.
    scene.provoked("AllodSlow", "", || cluster.to_redis[0].delay(Duration::from_millis(150)));
    let told = operator.follows("AllodSlow", &[], &mut no_unit);
    assert!(told.contains("allod_commit_duration_seconds_sum"), "{told}");
    cluster.to_redis[0].release();
    scene.stops("AllodSlow", "");

    primary.ask(&["CONFIG", "SET", "appendonly", "yes"]);
    scene.provoked("AllodStoreForgets", "", || primary.ask(&["CONFIG", "SET", "appendonly", "no"]));
    operator.follows("AllodStoreForgets", &[], &mut no_unit);
    scene.stops("AllodStoreForgets", "");

    // The first failure has to be a rise, so the count must exist before.
    assert!(cluster.metrics(0).contains("allod_commit_failures_total{class=\"mismatch\"} 0"));
    scene.provoked("AllodStoreNotReady", "", || primary.ask(&["CONFIG", "SET", "maxmemory", "1"]));
    scene.fires("AllodCommitsFail", "");
    let told = operator.follows("AllodCommitsFail", &[], &mut no_unit);
    assert!(told.contains("a commit is given up"), "{told}");
    until("it says what stands in the way", || http_get(cluster.http(0), "/readyz").to_lowercase().contains("memory"));
    let room = (1 << 30).to_string();
    operator.follows("AllodStoreNotReady", &[("BYTES", &room)], &mut no_unit);
    scene.stops("AllodStoreNotReady", "");
    scene.stops("AllodCommitsFail", "");
    drop(crowd);
    scene.end()
}

pub fn run_back() -> BTreeSet<&'static str> {
    let directory = tempfile::tempdir().unwrap();
    let mut redis = redis_in(directory.path(), "redis", &[]);
    let cluster = Cluster::start(directory.path(), &redis, 1);
    let (seen, other) = (Seen::at(cluster.address(0), cluster.http(0)), Seen::nowhere());
    let data = directory.path().join("node-0");
    let operator = Operator { rpc: cluster.address(0), http: cluster.http(0), redis: redis.port(), data: &data };
    let scene = Scene::of(&[&seen, &other]);
    cluster.allod(0, &["network", "create", "lan", "--subnet", "10.0.0.0/24"]);

    // The file of Redis is older than what was acknowledged after it.
    redis.ask(&["SAVE"]);
    let mut caller = Caller::to(cluster.address(0)).unwrap();
    let granted: Vec<String> = (0..5).map(|n| caller.granted("lan", &format!("o{n}"))).collect();
    scene.provoked("AllodStoreHealed", "", || redis.crash());
    let told = operator.follows("AllodStoreHealed", &[], &mut no_unit);
    assert!(told.contains("Redis went back"), "{told}");
    for (n, address) in granted.iter().enumerate() {
        assert_eq!(caller.granted("lan", &format!("o{n}")), *address);
    }

    let mut stranger = None;
    scene.provoked("AllodOwnedTwice", "", || {
        let server = Server::start(&directory.path().join("other"));
        other.moved(server.address, server.http);
        stranger = Some(server);
    });
    let told = operator.follows("AllodOwnedTwice", &[], &mut |verb, unit| {
        assert_eq!((verb, unit), ("stop", "allod"));
        stranger.take().unwrap().stop();
    });
    assert_eq!(told.matches("owner").count(), 1, "the stranger is none of its nodes: {told}");
    scene.stops("AllodOwnedTwice", "");
    scene.stops("AllodStoreHealed", "");
    scene.end()
}

/// Somebody deletes records in Redis by hand: one record whose loss nothing in Redis shows, and a key that others vouch for.
pub fn run_touched() -> BTreeSet<&'static str> {
    let directory = tempfile::tempdir().unwrap();
    let redis = redis_in(directory.path(), "redis", &[]);
    let file = directory.path().join("node.toml");
    std::fs::write(&file, "[store]\nself_check_seconds = 1\n").unwrap();
    let data = directory.path().join("node-0");
    let under_systemd = journal::environment(&data.with_extension("log"));
    let arguments = ["--config", &file.display().to_string()];
    let mut cluster = Cluster::alone(directory.path(), &redis.url(), &arguments, under_systemd);
    let seen = Seen::at(cluster.address(0), cluster.http(0));
    let scene = Scene::of(&[&seen]);
    for (name, subnet) in [("lan", "10.0.0.0/24"), ("dmz", "10.0.1.0/24")] {
        cluster.allod(0, &["network", "create", name, "--subnet", subnet]);
    }
    let mut caller = Caller::to(cluster.address(0)).unwrap();
    let held = ["a", "b"].map(|owner| caller.granted("lan", owner));
    // The command prints `HGET KEY FIELD`.
    let command = cluster.allod(0, &["cluster", "key", "lan", &held[0]]);
    let words: Vec<&str> = command.split_whitespace().map(|word| word.trim_matches('\'')).collect();
    let at = words.iter().position(|word| *word == "HGET").unwrap_or_else(|| panic!("{command}"));
    let (key, field) = (words[at + 1], words[at + 2]);

    scene.provoked("AllodNetworkStopped", "", || redis.ask(&["HDEL", key, field]));
    caller.granted("dmz", "a");
    let operator = Operator { rpc: cluster.address(0), http: cluster.http(0), redis: redis.port(), data: &data };
    let told = operator.follows("AllodNetworkStopped", &[], &mut |verb, unit| {
        assert_eq!((verb, unit), ("restart", "allod"));
    });
    assert!(told.contains("memory and store differ") && told.contains("held by `a`"), "{told}");
    seen.moved(cluster.restart(0), cluster.http(0));
    scene.stops("AllodNetworkStopped", "");
    // As the page says: according to the store nobody holds the address, and its holder claims it.
    cluster.allod(0, &["ip", "claim", "lan", &held[0], "--owner", "a"]);

    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let copy: Vec<u8> = redis::cmd("DUMP").arg(key).query(&mut connection).unwrap();
    scene.provoked("AllodUnreadable", "", || redis.ask(&["DEL", key]));
    let operator = Operator { rpc: cluster.address(0), http: cluster.http(0), redis: redis.port(), data: &data };
    let told = operator.follows("AllodUnreadable", &[], &mut no_unit);
    assert!(told.contains(&held[1]) && told.contains(key), "{told}");
    redis::cmd("RESTORE").arg(key).arg(0).arg(copy).query::<()>(&mut connection).unwrap();
    scene.stops("AllodUnreadable", "");
    scene.end()
}
